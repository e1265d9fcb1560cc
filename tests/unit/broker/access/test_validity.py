"""For how long a certificate is valid, and what is said of that."""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Final, Literal

import pytest

from acquit.broker.access.listeners import make_tls_context
from acquit.broker.access.validity import DAY_S, Validity, read_authorities, read_validity
from acquit.broker.options import Tls

TLS_FILES: Final = Path(__file__).parents[3] / "support" / "tls"
EXPIRED: Final = TLS_FILES / "expired.pem"
"""A certificate for 2020, signed by an authority that is not here, and its key."""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(("name", "key"), [("expired.pem", "expired.pem"), ("certificate.pem", "key.pem")])
def test_a_certificate_is_read_whoever_signed_it_and_whenever(name: str, key: str, version: ssl.TLSVersion) -> None:
    context = make_tls_context(Tls(certificate_file=str(TLS_FILES / name), key_file=str(TLS_FILES / key)))
    assert context is not None
    context.minimum_version = context.maximum_version = version
    found = read_validity(context, name)
    dates = {"expired.pem": (1577836800, 1609459200), "certificate.pem": (1795189843, 4948789843)}
    assert found == Validity(name, *dates[name])


@pytest.mark.parametrize("asked", ["optional", "required"])
def test_so_is_that_of_a_broker_that_asks_for_one(asked: Literal["optional", "required"]) -> None:
    ca = TLS_FILES / "peers-ca.pem"
    files = {"certificate_file": str(EXPIRED), "key_file": str(EXPIRED), "client_ca_file": str(ca)}
    context = make_tls_context(Tls(**files, client_certificates=asked))
    assert context is not None
    assert read_validity(context, "it") == Validity("it", 1577836800, 1609459200)


def test_a_server_without_a_certificate_has_none_to_read() -> None:
    assert read_validity(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), "") is None


def test_the_authorities_of_a_chain_are_read_without_their_root() -> None:
    """Whose time is over as well: peers look for it among their own."""
    chain = (TLS_FILES / "chain.pem").read_text()
    found = read_authorities(
        map(ssl.PEM_cert_to_DER_cert, re.findall(r"-----BEGIN.*?END [A-Z]+-----", chain, re.DOTALL)), "it"
    )
    assert found == (Validity("it", 1577836800, 1640995200, "acquit test intermediate"),)
    assert found[0].subject == "the certificate of its authority 'acquit test intermediate'"
    assert read_authorities([], "it") == read_authorities([b"x"], "it") == ()


def test_what_is_said() -> None:
    year = Validity("", 1577836800, 1577836800 + 366 * DAY_S)
    assert year.complaint(year.begins_s - 1) == "is not valid before 2020-01-01 00:00 UTC: peers refuse it"
    assert year.complaint(year.begins_s) is None
    assert year.complaint(year.ends_s - 14 * DAY_S) is None
    for left_s in (0, 14 * DAY_S - 1):
        assert year.complaint(year.ends_s - left_s) == "expires on 2021-01-01 00:00 UTC"
    assert year.complaint(year.ends_s + 1) == "expired on 2021-01-01 00:00 UTC: peers refuse it"


def test_one_for_some_days_is_warned_of_in_the_last_third_of_them() -> None:
    week = Validity("", 0, 6 * DAY_S)
    assert week.complaint(4 * DAY_S) is None
    assert week.complaint(4 * DAY_S + 1) == "expires on 1970-01-07 00:00 UTC"
