"""SCRAM-SHA-256 for a client (RFC 5802, RFC 7677): a proof of the password goes out, and the server's comes back.

The answer to the server's first message costs thousands of hash rounds, as many as the server says within bounds, so it
is `slow`: made on a thread (see `protocol.sasl.SaslClient`). The server's proof comes with the outcome, or from some
servers in a challenge of its own; one that does not come, or is wrong, is not the server that knows our password.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Final

from acquit.errors import AuthenticationFailed

SCRAM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4_096
"""The least that RFC 7677 allows: with fewer a false server could find the password from our answer."""
ITERATIONS_MAX: Final = 1_000_000
"""More would keep a processor busy for seconds."""


class Scram:
    """The exchange that proves one user's password, for one connection."""

    slow: ClassVar[bool] = True

    def __init__(self, username: str, password: str) -> None:
        self._username = username
        self._password = password
        self._client: Any = None
        self._answered = False
        self._proven = False

    def __repr__(self) -> str:
        return f"Scram({self._username!r})"

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        """SCRAM-SHA-256, if the server has it."""
        if SCRAM not in mechanisms:
            return None
        import scramp  # type: ignore[import-untyped,unused-ignore]  # slow to import, and not needed before

        try:
            self._client = scramp.ScramClient([SCRAM], self._username, self._password)
            return SCRAM, str(self._client.get_client_first()).encode()
        except scramp.ScramException as exc:
            raise AuthenticationFailed(f"{SCRAM} cannot use this user name or password: {exc}") from None

    def respond(self, challenge: bytes) -> bytes:
        """Our proof, for the server's first message; nothing, for the server's proof. Takes milliseconds."""
        if self._answered:
            self._verify(challenge)
            return b""
        import scramp

        try:
            self._client.set_server_first(challenge.decode())
            if not ITERATIONS_MIN <= int(self._client.iterations) <= ITERATIONS_MAX:
                raise AuthenticationFailed(
                    f"the server asks for {self._client.iterations} hash rounds; "
                    f"from {ITERATIONS_MIN} to {ITERATIONS_MAX} are done"
                )
            self._answered = True
            return str(self._client.get_client_final()).encode()
        except (scramp.ScramException, UnicodeDecodeError) as exc:
            raise AuthenticationFailed(f"the server's first message of {SCRAM} makes no sense: {exc}") from None

    def complete(self, additional_data: bytes | None) -> None:
        """Check the server's proof, unless it came before."""
        if not self._proven:
            if not additional_data:
                raise AuthenticationFailed(f"the server did not prove that it knows the password ({SCRAM})")
            self._verify(additional_data)

    def _verify(self, message: bytes) -> None:
        import scramp

        try:
            self._client.set_server_final(message.decode())
        except (scramp.ScramException, UnicodeDecodeError):
            raise AuthenticationFailed(
                f"the server's proof that it knows the password is wrong ({SCRAM}): it is not that server"
            ) from None
        self._proven = True


__all__ = ["ITERATIONS_MAX", "ITERATIONS_MIN", "SCRAM", "Scram"]
