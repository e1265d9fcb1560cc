"""A client's TLS settings from files: whom to trust, and the certificate that says who we are."""

from __future__ import annotations

import ssl
from pathlib import Path

from acquit.errors import ConfigurationError


def make_ssl_context(
    ca: Path | None, cert: Path | None, key: Path | None, *, said: str = "{} {}", asks: bool = False
) -> ssl.SSLContext | None:
    """The context for a connection, or None where no file is given: then the system's authorities are trusted.

    `ca` has the authorities that are trusted instead of the system's, `cert` our certificate, and `key` its key where
    that is not in the same file; all in PEM. `said` makes an option of a name and its value, for errors. A key with a
    passphrase is refused, unless OpenSSL may ask for it on the terminal (`asks`).

    Raises ConfigurationError for a key without a certificate, for what cannot be read and what is no PEM.
    """
    files = {name: path for name, path in (("ca", ca), ("cert", cert), ("key", key)) if path is not None}
    if not files:
        return None
    if cert is None and key is not None:
        raise ConfigurationError(f"{said.format('key', key)}: given without the certificate (cert) that it belongs to")
    for name, path in files.items():
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigurationError(f"{said.format(name, path)}: cannot be read ({error.strerror})") from error
    try:
        context = ssl.create_default_context(cafile=ca)
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{said.format('ca', ca)}: expected certificates in PEM ({error.reason or error})"
        ) from error
    if cert is not None:
        try:
            context.load_cert_chain(cert, key, None if asks else _refuse_passphrase)
        except ssl.SSLError as error:
            raise ConfigurationError(
                f"{said.format('cert', cert)}: expected a certificate and its key in PEM ({error.reason or error})"
            ) from error
        except _Passphrase:
            name = "cert" if key is None else "key"
            raise ConfigurationError(
                f"{said.format(name, files[name])}: expected a key without a passphrase, there is nobody to ask for it"
            ) from None
    return context


class _Passphrase(Exception):
    pass


def _refuse_passphrase() -> str:
    raise _Passphrase


__all__ = ["make_ssl_context"]
