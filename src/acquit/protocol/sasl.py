"""SASL: who the peer is (specification 5.3). Mechanisms are pure: bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class SaslClient(Protocol):
    """The client's side of SASL: chooses one of the server's mechanisms and answers its challenges."""

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """The mechanism to use and its initial response, or None if none of the server's will do."""
        ...

    def respond(self, challenge: bytes) -> bytes:
        """Answer a challenge. Raises AuthenticationFailed to give up."""
        ...


@dataclass(frozen=True, slots=True)
class Anonymous:
    """ANONYMOUS (RFC 4505). `trace` is shown to the server's operator."""

    trace: str = "anonymous"


@dataclass(frozen=True, slots=True)
class Plain:
    """PLAIN (RFC 4616): the password crosses the wire, so use it over TLS."""

    username: str
    password: str
    authorization_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class SaslServerOptions:
    """What a server offers. The application verifies: see events.SaslInitiated."""

    mechanisms: tuple[str, ...]
    """In decreasing order of preference."""
    required: bool = True
    """False: a peer may also begin with the AMQP header, unauthenticated (`Connection.user` is None)."""
    rounds_max: int = 8
    """Challenges before we give up on a peer."""


@dataclass(frozen=True, slots=True)
class PlainCredentials:
    """What a PLAIN response says."""

    authorization_id: str
    username: str
    password: str


def parse_plain(response: bytes) -> PlainCredentials:
    """Read a PLAIN response. Raises DecodeError where it is not one."""
    raise NotImplementedError
