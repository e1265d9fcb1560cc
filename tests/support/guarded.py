"""A broker that is reached over TLS alone, and lets in ada by her certificate and bob by his password."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import acquit
from acquit.broker.options import BrokerOptions, Security, Tls, User
from acquit.store.options import JournalOptions

FILES: Final = Path(__file__).with_name("tls")
CA: Final = FILES / "certificate.pem"
"""The broker's certificate, which signed itself."""
ADA: Final = FILES / "ada.pem"
"""Her certificate and its key."""
PASSWORD: Final = "s3cret"


def guarded_broker() -> acquit.Broker:
    """In memory, on a free port."""
    tls = Tls(
        certificate_file=str(CA),
        key_file=str(FILES / "key.pem"),
        client_ca_file=str(FILES / "peers-ca.pem"),
        client_certificates="optional",
    )
    security = Security(anonymous="never", users={"ada": User(), "bob": User(password=PASSWORD)}, refusal_delay_ms=1)
    return acquit.Broker(config=BrokerOptions(security=security, tls=tls, journal=JournalOptions.small()))


def split(folder: Path) -> tuple[Path, Path]:
    """Ada's certificate and its key, each in a file of its own."""
    pem = ADA.read_text()
    begin = pem.index("-----BEGIN PRIVATE KEY-----")
    end = pem.index("-----END PRIVATE KEY-----") + len("-----END PRIVATE KEY-----\n")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_text(pem[:begin] + pem[end:])
    key.write_text(pem[begin:end])
    return cert, key
