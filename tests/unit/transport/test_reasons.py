"""Why a socket failed, in words."""

from __future__ import annotations

import errno
import os
import socket
import ssl

import pytest

from acquit.transport.reasons import reason


def tls_error(kind: type[ssl.SSLError], **said: str) -> ssl.SSLError:
    error = kind(1, "[SSL: NAME] as OpenSSL says it (_ssl.c:1006)")
    for name, value in said.items():
        setattr(error, name, value)
    return error


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 5672)"), "Connection refused"),
        (OSError("Multiple exceptions: [Errno 111], [Errno 113]"), "Multiple exceptions: [Errno 111], [Errno 113]"),
        (ConnectionResetError(), "it closed the connection"),
        (socket.gaierror(-2, "Name or service not known"), "it is not a known host"),
        (UnicodeError("label too long"), "it cannot be the name of a host"),
        (tls_error(ssl.SSLError, reason="TLSV1_ALERT_UNKNOWN_CA"), "TLSV1_ALERT_UNKNOWN_CA"),
        (tls_error(ssl.SSLError, reason=""), "[SSL: NAME] as OpenSSL says it (_ssl.c:1006)"),
        (
            tls_error(
                ssl.SSLCertVerificationError,
                reason="CERTIFICATE_VERIFY_FAILED",
                verify_message="certificate has expired",
            ),
            "CERTIFICATE_VERIFY_FAILED: certificate has expired",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_reason(error: OSError | ValueError, expected: str) -> None:
    assert reason(error) == expected
    assert os.strerror(1) not in reason(error)  # OpenSSL's numbers are its own
