"""The time for which a certificate is valid, and what to say of one that is not, or not for long.

The standard library reads a certificate only for who has verified it. So a handshake in memory verifies ours by
itself: the certificate is its own authority, whoever signed it, and its time is not looked at. Those of the authorities
behind it in its file, which peers verify as well, are read as if we trusted them.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, cast

DAY_S: Final = 86_400
SOON_DAYS: Final = 14
"""Days before the end of a certificate from which it is worth a warning; less for those of some days or weeks, of which
it is a third of their time."""
_NO_CHECK_TIME: Final = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL, which Python has no name for."""
_FLIGHTS_MAX: Final = 4
"""Turns that a client has in a handshake, at most: three in TLS 1.2, and in 1.3 with another key share."""


@dataclass(frozen=True, slots=True)
class Validity:
    """Time for which a certificate in a file is valid, in seconds since the epoch."""

    file: str
    begins_s: int
    ends_s: int
    authority: str = ""
    """Name of the authority whose certificate it is; empty for ours."""

    @property
    def subject(self) -> str:
        """The certificate, in words."""
        return f"the certificate of its authority {self.authority!r}" if self.authority else "the certificate"

    def complaint(self, now_s: float) -> str | None:
        """Return what is wrong with it at a time, or will be soon: ``expired on 2026-11-20 15:50 UTC``. None: nothing
        is."""
        if now_s > self.ends_s:
            return f"expired on {_date(self.ends_s)}: peers refuse it"
        if now_s < self.begins_s:
            return f"is not valid before {_date(self.begins_s)}: peers refuse it"
        if self.ends_s - now_s < min(SOON_DAYS * DAY_S, (self.ends_s - self.begins_s) / 3):
            return f"expires on {_date(self.ends_s)}"
        return None


def read_validity(server: ssl.SSLContext, file: str) -> Validity | None:
    """Return the validity of the certificate that a server with this context shows, and has from `file`; None if that
    cannot be read."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    try:
        client.set_ciphers("ALL:@SECLEVEL=0")  # what a weak certificate is worth is not asked here
        client.load_verify_locations(cadata=cast("bytes", _shaken(client, server).getpeercert(binary_form=True)))
        client.verify_mode = ssl.CERT_REQUIRED
        client.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)
        found = cast("dict[str, str]", _shaken(client, server).getpeercert())
        return Validity(file, ssl.cert_time_to_seconds(found["notBefore"]), ssl.cert_time_to_seconds(found["notAfter"]))
    except (ssl.SSLError, KeyError, TypeError, ValueError):
        return None  # it may be one that is for no server at all


def read_authorities(certificates: Iterable[bytes], file: str) -> tuple[Validity, ...]:
    """Return the validities of those certificates (DER, from `file`) that are authorities', without one that signed
    itself: peers go by their own copy of that."""
    reader = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        reader.load_verify_locations(cadata=b"".join(certificates))
    except (ssl.SSLError, ValueError):  # there is none, or it is not sound: load_cert_chain says so
        return ()
    found = [cast("dict[str, Any]", one) for one in reader.get_ca_certs()]
    return tuple(
        Validity(
            file,
            ssl.cert_time_to_seconds(one["notBefore"]),
            ssl.cert_time_to_seconds(one["notAfter"]),
            ", ".join(value for part in one["subject"] for _, value in part) or "without a name",
        )
        for one in found
        if one["subject"] != one["issuer"]
    )


def _shaken(client: ssl.SSLContext, server: ssl.SSLContext) -> ssl.SSLObject:
    """Do the handshake of a client and a server, and return the client's side. Raises ssl.SSLError."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking, answering = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for _ in range(_FLIGHTS_MAX):
        try:
            asking.do_handshake()
        except ssl.SSLWantReadError:
            pass
        else:
            return asking
        try:
            answering.do_handshake()
        except ssl.SSLWantReadError:
            pass
    raise ssl.SSLError(ssl.SSL_ERROR_SSL, "the handshake does not end")


def _date(time_s: int) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


__all__ = ["Validity", "read_authorities", "read_validity"]
