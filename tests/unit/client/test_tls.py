"""TLS settings from files: what is missing or none is named, with the option that says it."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from acquit.client.tls import make_ssl_context
from acquit.errors import ConfigurationError
from tests.support.guarded import ADA, CA, split

LOCKED = """\
-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjj2tUMC4wDnQICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEENnKEJ+3VmZc7YLUW/cGCowEgZDO
zE1ec2e4sJc81YRDVVHBDMS2kWV1sxBO5RW5hZU4F1ShKmyhxUeU6Kwlrqy8xMsL
sIp16clziZxp9IrCWlO+Vo9PrGLIJLZSwg+Iw/9Fi6+fNnrWu6KJt1bSy5Ruixp6
G7U/2K8FejEQvrMMzuGO4EuBqKoL7T6k4QnueQgmnCIyaVLIF/JTqaRfUdaHL7s=
-----END ENCRYPTED PRIVATE KEY-----
"""
"""A key with a passphrase, made for this test."""


def test_nothing_given_is_the_systems() -> None:
    assert make_ssl_context(None, None, None) is None


def test_only_the_given_authorities_are_trusted(tmp_path: Path) -> None:
    context = make_ssl_context(CA, *split(tmp_path))
    assert context is not None and len(context.get_ca_certs()) == 1
    assert context.check_hostname and context.verify_mode is ssl.CERT_REQUIRED
    assert make_ssl_context(CA, ADA, None) is not None


def test_what_is_missing_or_none_is_named(tmp_path: Path) -> None:
    cert, key = split(tmp_path)
    nothing = tmp_path / "nothing"
    nothing.write_text("nothing")
    gone = tmp_path / "gone"
    for files, complaint in (
        ((None, None, key), f"--key {key}: given without the certificate"),
        ((gone, None, None), f"--ca {gone}: cannot be read .No such file or directory."),
        ((None, gone, None), f"--cert {gone}: cannot be read"),
        ((None, cert, gone), f"--key {gone}: cannot be read"),
        ((nothing, None, None), f"--ca {nothing}: expected certificates in PEM"),
        ((None, cert, None), f"--cert {cert}: expected a certificate and its key in PEM"),
        ((None, nothing, None), f"--cert {nothing}: expected a certificate and its key in PEM"),
        ((None, cert, nothing), f"--cert {cert}: expected a certificate and its key in PEM"),
    ):
        with pytest.raises(ConfigurationError, match=complaint) as caught:
            make_ssl_context(*files, said="--{} {}")
        assert "None" not in str(caught.value), "OpenSSL gives no reason for some"


def test_nobody_is_asked_for_a_passphrase(tmp_path: Path) -> None:
    cert, _ = split(tmp_path)
    locked = tmp_path / "locked.pem"
    locked.write_text(LOCKED)
    with pytest.raises(ConfigurationError, match=f"key {locked}: expected a key without a passphrase"):
        make_ssl_context(None, cert, locked)
    both = tmp_path / "both.pem"
    both.write_text(cert.read_text() + LOCKED)
    with pytest.raises(ConfigurationError, match=f"cert {both}: expected a key without a passphrase"):
        make_ssl_context(None, both, None)
