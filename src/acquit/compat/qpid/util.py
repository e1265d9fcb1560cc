"""The URL of a broker, as the API writes it: ``[user[/password]@]host[:port]``."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_FORM: Final = re.compile(
    r"""
    (?: (?P<scheme>amqps?) : (?:tcp:|//)? )?
    (?: (?P<user>[^:/@]+) (?: [/:] (?P<password>[^@]*) )? @ )?
    (?: \[ (?P<host6>[0-9a-fA-F:.%]+) \] | (?P<host>[^@:/\[\]\s]+) )
    (?: : (?P<port>[0-9]{1,5}) )?
    /?
    """,
    re.VERBOSE,
)


class URL:
    """A place to connect to, and as whom.

    ``[amqp://|amqps://][user[/password]@]host[:port]``; ``user:password@`` as in other URLs will do as well, and there
    what is percent-encoded is decoded. Raises ValueError for what is none.
    """

    AMQP: Final = "amqp"
    AMQPS: Final = "amqps"

    def __init__(self, text: str | URL) -> None:
        if isinstance(text, URL):
            text = str(text)
        match = _FORM.fullmatch(text)
        if match is None:
            raise ValueError(f"not a URL of the form [amqp://][user[/password]@]host[:port]: {_hidden(text)!r}")
        self.scheme: str | None = match["scheme"]
        self.user: str | None = match["user"]
        self.password: str | None = match["password"]
        if self.scheme is not None and self.user is not None:
            self.user = unquote(self.user)
            self.password = None if self.password is None else unquote(self.password)
        self.host: str = match["host6"] or match["host"]
        self.port: int | None = int(match["port"]) if match["port"] is not None else None

    def __str__(self) -> str:
        scheme = f"{self.scheme}://" if self.scheme else ""
        password = f"/{self.password}" if self.password else ""
        user = f"{self.user}{password}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}{user}{host}{f':{self.port}' if self.port is not None else ''}"

    def __repr__(self) -> str:
        return f"URL({_hidden(str(self))!r})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = URL(other)
        return isinstance(other, URL) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def _hidden(text: str) -> str:
    """Return the text without the password."""
    who, at, where = text.rpartition("@")
    return f"{re.split('[/:]', who.removeprefix('amqp://').removeprefix('amqps://'))[0]}@{where}" if at else text


__all__ = ["URL"]
