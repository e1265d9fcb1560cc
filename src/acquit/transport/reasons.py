"""Says why a socket failed, as people would: asyncio and OpenSSL hide it, each elsewhere."""

from __future__ import annotations

import os
import socket
import ssl


def reason(exc: OSError | ValueError) -> str:
    """Return the reason of an error, in words or by OpenSSL's name for it."""
    match exc:
        case ssl.SSLCertVerificationError():
            return f"{exc.reason}: {exc.verify_message}"
        case ssl.SSLError():  # its number is OpenSSL's, and none of the system's
            return getattr(exc, "reason", None) or exc.strerror or str(exc)
        case socket.gaierror():
            return "it is not a known host"
        case ValueError():
            return "it cannot be the name of a host"
        case _ if exc.errno:  # asyncio puts the address where the reason should be
            return os.strerror(exc.errno)
        case _:  # several addresses' reasons have no number; a peer that hangs up in the midst of TLS leaves no word
            return str(exc) or "it closed the connection"


__all__ = ["reason"]
