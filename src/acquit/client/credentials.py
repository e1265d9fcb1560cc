"""The SASL mechanisms that a client can use, by what it was given: a user, a password, a certificate."""

from __future__ import annotations

from collections.abc import Sequence

from acquit.client.options import MECHANISMS
from acquit.client.scram import SCRAM, Scram
from acquit.client.url import ConnectTarget
from acquit.errors import AuthenticationFailed, ConfigurationError
from acquit.protocol import sasl


def make_sasl(target: ConnectTarget, wanted: Sequence[str], *, certified: bool) -> sasl.SaslClient:
    """The client's side of SASL: the first of these that the server has. `wanted` restricts and orders them;
    `certified`: TLS may show a certificate of ours.

    Raises ConfigurationError where `wanted` names only what cannot be done with what there is.
    """
    usable: dict[str, sasl.SaslClient] = {}
    if target.username is not None:
        password = target.password if target.password is not None else ""
        usable[SCRAM] = Scram(target.username, password)
        usable["PLAIN"] = sasl.Plain(target.username, password)
        if "EXTERNAL" in wanted:
            usable["EXTERNAL"] = sasl.External(target.username)
    else:
        if certified or "EXTERNAL" in wanted:
            usable["EXTERNAL"] = sasl.External()
        usable["ANONYMOUS"] = sasl.Anonymous()
    chosen = [usable[name] for name in (wanted or usable) if name in usable]
    if not chosen:
        needed = "a user and a password" if target.username is None else "that no user is given"
        raise ConfigurationError(f"sasl_mechanisms: {', '.join(wanted)} needs {needed}")
    return _Usable(tuple(chosen), target.username, tuple(wanted))


class _Usable(sasl.FirstOffered):
    """The mechanisms that there is what it takes for; says what is missing where the server has none of them."""

    __slots__ = ("username", "wanted")

    def __init__(self, clients: tuple[sasl.SaslClient, ...], username: str | None, wanted: tuple[str, ...]) -> None:
        super().__init__(clients)
        self.username = username
        self.wanted = wanted

    def choose(self, mechanisms: Sequence[str]) -> tuple[str, bytes | None] | None:
        choice = super().choose(mechanisms)
        if choice is None:
            raise AuthenticationFailed(self._missing(mechanisms))
        return choice

    def _missing(self, offered: Sequence[str]) -> str:
        known = [name for name in offered if name in MECHANISMS]
        offers = f"the server offers {', '.join(offered) or 'no SASL mechanism':.200}"
        allowed = [name for name in known if not self.wanted or name in self.wanted]
        if not known:
            return f"{offers}; known here are {', '.join(MECHANISMS)}"
        if not allowed:
            return f"{offers}; sasl_mechanisms allows only {', '.join(self.wanted)}"
        if self.username is None and {SCRAM, "PLAIN"} & {*allowed}:
            return f"{offers}: a user and a password are needed, and none were given"
        if self.username is None:
            return f"{offers}: a client certificate is needed, and no ssl_context with one was given"
        return f"{offers}, for which no user may be named, and {self.username!r} was given"


__all__ = ["make_sasl"]
