"""SASL: who the peer is (specification 5.3). Pure: mechanisms are bytes in and bytes out, exchanges frames in and out.

A client brings an object that chooses a mechanism and answers challenges (`SaslClient`); new mechanisms are new
classes. A server only carries the exchange: what a response means, and whether it is right, is for the application,
which may take its time (a password hash is meant to be slow) and answers when it knows.

The two exchange classes are the engine's: they know which frame may come next, and raise RemoteProtocolError for
others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

from acquit.errors import AuthenticationFailed, ConfigurationError, DecodeError, LocalProtocolError, RemoteProtocolError
from acquit.protocol.connection_base import Event
from acquit.protocol.definitions import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)

ROUNDS_MAX = 16
"""Challenges that a client answers before it gives up: SCRAM takes two."""


@dataclass(slots=True)
class SaslInitiated(Event):
    """Server: the peer chose a mechanism. Answer with `sasl_challenge`, `sasl_succeed` or `sasl_fail`, now or later."""

    mechanism: str
    response: bytes = field(repr=False)
    hostname: str | None


@dataclass(slots=True)
class SaslResponded(Event):
    """Server: the peer answered a challenge. Answer as for SaslInitiated."""

    response: bytes = field(repr=False)


@dataclass(slots=True)
class SaslChallenged(Event):
    """Client: the server challenged a mechanism whose answer takes long to make (`SaslClient.slow`). Give it to
    `sasl_respond`, or call `sasl_give_up`; nothing further is read before that."""

    challenge: bytes


class SaslClient(Protocol):
    """The client's side of SASL: chooses one of the server's mechanisms and answers its challenges."""

    @property
    def slow(self) -> bool:
        """True if `respond` takes long, as a password hash does: the connection does not call it then, but hands out
        SaslChallenged, and its driver has the answer made on a thread and gives it to `Connection.sasl_respond`."""
        ...

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """The mechanism to use and its initial response, or None if none of the server's will do. Raises
        AuthenticationFailed where one would, but not with these credentials."""
        ...

    def respond(self, challenge: bytes) -> bytes:
        """Answer a challenge. Raises AuthenticationFailed to give up."""
        ...

    def complete(self, additional_data: bytes | None) -> None:
        """The server says that we are in; `additional_data` is the mechanism's last word (5.3.3.5). Raises
        AuthenticationFailed where the mechanism has the server prove itself, and it has not."""
        ...


class Anonymous:
    """ANONYMOUS (RFC 4505). `trace` is shown to the server's operator."""

    __slots__ = ("trace",)
    slow: Final = False

    def __init__(self, trace: str = "anonymous") -> None:
        self.trace = trace

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """ANONYMOUS, if the server has it."""
        return ("ANONYMOUS", self.trace.encode()) if "ANONYMOUS" in mechanisms else None

    def respond(self, challenge: bytes) -> bytes:
        """Raise AuthenticationFailed: ANONYMOUS has no challenges."""
        raise AuthenticationFailed(f"the server challenged ANONYMOUS with {len(challenge)} bytes")

    def complete(self, additional_data: bytes | None) -> None:
        """Do nothing: nobody has proved anything."""


class External:
    """EXTERNAL (RFC 4422, appendix A): the server knows us already, by our TLS certificate. `authorization_id` is whom
    to act as; empty for whom the certificate names."""

    __slots__ = ("authorization_id",)
    slow: Final = False

    def __init__(self, authorization_id: str = "") -> None:
        self.authorization_id = authorization_id

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """EXTERNAL, if the server has it."""
        return ("EXTERNAL", self.authorization_id.encode()) if "EXTERNAL" in mechanisms else None

    def respond(self, challenge: bytes) -> bytes:
        """Some servers ask for the authorization id although it came with the mechanism."""
        if challenge:
            raise AuthenticationFailed(f"the server challenged EXTERNAL with {len(challenge)} bytes")
        return self.authorization_id.encode()

    def complete(self, additional_data: bytes | None) -> None:
        """TLS has seen to who the server is."""


class Plain:
    """PLAIN (RFC 4616): the password crosses the wire, so use it over TLS. Raises ConfigurationError for what PLAIN
    cannot carry."""

    __slots__ = ("_password", "authorization_id", "username")
    slow: Final = False

    def __init__(self, username: str, password: str, authorization_id: str = "") -> None:
        if not username:
            raise ConfigurationError("PLAIN needs a user name")
        if "\0" in username + password + authorization_id:
            raise ConfigurationError("PLAIN cannot carry a NUL in a name or password (RFC 4616)")
        self.username = username
        self.authorization_id = authorization_id
        self._password = password

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """PLAIN, if the server has it."""
        if "PLAIN" not in mechanisms:
            return None
        return "PLAIN", f"{self.authorization_id}\0{self.username}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> bytes:
        """A server that wants to challenge first gets the message as the response to an empty challenge."""
        raise AuthenticationFailed(f"the server challenged PLAIN with {len(challenge)} bytes")

    def complete(self, additional_data: bytes | None) -> None:
        """The server has proved nothing; that is TLS's part."""


class FirstOffered:
    """Client with several mechanisms, in our order of preference; it uses the first that the server has."""

    __slots__ = ("_chosen", "clients")

    def __init__(self, clients: tuple[SaslClient, ...]) -> None:
        self.clients = clients
        self._chosen: list[SaslClient] = []

    @property
    def slow(self) -> bool:
        """True if the chosen mechanism is slow."""
        return bool(self._chosen) and self._chosen[-1].slow

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """Return the choice of the first mechanism that makes one, or None."""
        for client in self.clients:
            choice = client.choose(mechanisms)
            if choice is not None:
                self._chosen.append(client)
                return choice
        return None

    def respond(self, challenge: bytes) -> bytes:
        """Return the answer of the chosen mechanism."""
        return self._chosen[-1].respond(challenge)

    def complete(self, additional_data: bytes | None) -> None:
        """Let the chosen mechanism check the server's last word."""
        self._chosen[-1].complete(additional_data)


@dataclass(frozen=True, slots=True)
class PlainCredentials:
    """Credentials in a PLAIN response."""

    authorization_id: str
    username: str
    password: str = field(repr=False)


def parse_plain(response: bytes) -> PlainCredentials:
    """Read a PLAIN response. Raises DecodeError where it is not one."""
    parts = response.split(b"\0")
    if len(parts) != 3 or not parts[1]:
        raise DecodeError("a PLAIN response is [authorization id] NUL user name NUL password")
    try:
        authorization_id, username, password = (part.decode() for part in parts)
    except UnicodeDecodeError as exc:
        raise DecodeError("a PLAIN response is UTF-8") from exc
    return PlainCredentials(authorization_id, username, password)


@dataclass(frozen=True, kw_only=True, slots=True)
class SaslServerOptions:
    """SASL layer that a server offers. The application verifies: see events.SaslInitiated."""

    mechanisms: tuple[str, ...]
    """Names of the mechanisms, in decreasing order of preference."""

    required: bool = True
    """False: a peer may also begin with the AMQP header, unauthenticated (`Connection.user` is None)."""

    rounds_max: int = 8
    """Challenges before we give up on a peer."""

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ConfigurationError("mechanisms must name at least one SASL mechanism (5.3.3.1)")
        if self.rounds_max < 1:
            raise ConfigurationError(f"rounds_max must be at least 1, got {self.rounds_max}")


ServerSays: TypeAlias = SaslMechanisms | SaslChallenge | SaslOutcome
ClientSays: TypeAlias = SaslInit | SaslResponse


class ServerExchange:
    """The server's side: waits for init or response, then for the application's word, in turns."""

    __slots__ = ("_answering", "_initiated", "_options", "_rounds")

    def __init__(self, options: SaslServerOptions) -> None:
        self._options = options
        self._answering = False
        self._initiated = False
        self._rounds = 0

    @property
    def answering(self) -> bool:
        """True if it is the application's turn: nothing of the peer's is read before it has spoken."""
        return self._answering

    def mechanisms(self) -> SaslMechanisms:
        """Return the frame to say first: the mechanisms offered."""
        return SaslMechanisms(self._options.mechanisms)

    def receive(self, frame: object) -> SaslInitiated | SaslResponded:
        """Take a frame from the client.

        Raises AuthenticationFailed for a mechanism that is not offered, with an outcome to answer (5.3.3.2), and
        RemoteProtocolError for a frame that may not come now.
        """
        if isinstance(frame, SaslInit) and not self._initiated:
            self._initiated = self._answering = True
            if frame.mechanism not in self._options.mechanisms:
                raise AuthenticationFailed(f"the mechanism {frame.mechanism:.64} is not offered")
            return SaslInitiated(frame.mechanism, frame.initial_response or b"", frame.hostname)
        if isinstance(frame, SaslResponse) and self._initiated:
            self._answering = True
            return SaslResponded(frame.response)
        raise RemoteProtocolError(f"a {type(frame).__name__} may not come now")

    def challenge(self, challenge: bytes) -> SaslChallenge | None:
        """The application wants another round. None when there were too many."""
        self._take_turn()
        self._rounds += 1
        return SaslChallenge(challenge) if self._rounds <= self._options.rounds_max else None

    def outcome(self, code: SaslCode, additional_data: bytes | None = None) -> SaslOutcome:
        """The application has decided."""
        self._take_turn()
        return SaslOutcome(code, additional_data)

    def _take_turn(self) -> None:
        if not self._answering:
            raise LocalProtocolError("no SASL response waits for an answer")
        self._answering = False


class ClientExchange:
    """The client's side. `receive` gives the frame to answer with, the outcome's code, or the challenge whose answer
    takes long and comes by `respond`."""

    __slots__ = ("_answering", "_client", "_hostname", "_initiated", "_rounds")

    def __init__(self, client: SaslClient, hostname: str | None) -> None:
        self._client = client
        self._hostname = hostname
        self._answering = False
        self._initiated = False
        self._rounds = 0

    @property
    def answering(self) -> bool:
        """True if our answer to a challenge is being made: nothing of the server's is read before it has gone."""
        return self._answering

    def respond(self, response: bytes) -> SaslResponse:
        """The answer to the challenge that took long. Raises LocalProtocolError if there is none to answer."""
        if not self._answering:
            raise LocalProtocolError("no SASL challenge waits for an answer")
        self._answering = False
        return SaslResponse(response)

    def receive(self, frame: object) -> ClientSays | SaslCode | SaslChallenged:
        """Take a frame from the server.

        Raises AuthenticationFailed when no mechanism suits, ours gives up, or the server does not prove itself where
        the mechanism asks for it; RemoteProtocolError for a frame that may not come now.
        """
        if isinstance(frame, SaslMechanisms) and not self._initiated:
            choice = self._client.choose(frame.sasl_server_mechanisms)
            if choice is None:
                offered = ", ".join(frame.sasl_server_mechanisms) or "nothing"
                raise AuthenticationFailed(f"none of our SASL mechanisms suits the server, which offers {offered:.200}")
            self._initiated = True
            return SaslInit(choice[0], choice[1], self._hostname)
        if isinstance(frame, SaslChallenge) and self._initiated:
            self._rounds += 1
            if self._rounds > ROUNDS_MAX:
                raise AuthenticationFailed(f"more than {ROUNDS_MAX} SASL challenges")
            if self._client.slow:
                self._answering = True
                return SaslChallenged(frame.challenge)
            return SaslResponse(self._client.respond(frame.challenge))
        if isinstance(frame, SaslOutcome):
            # An outcome before our init can only refuse: without a mechanism there is nothing to succeed with.
            if frame.code is SaslCode.OK and not self._initiated:
                raise RemoteProtocolError("a SASL outcome of ok before any exchange")
            if frame.code is SaslCode.OK:
                self._client.complete(frame.additional_data)
            return frame.code
        raise RemoteProtocolError(f"a {type(frame).__name__} may not come now")


__all__ = [
    "Anonymous",
    "ClientExchange",
    "External",
    "FirstOffered",
    "Plain",
    "PlainCredentials",
    "SaslClient",
    "SaslServerOptions",
    "ServerExchange",
    "parse_plain",
]
