"""Which SASL mechanisms a client can use, from what it was given: a user, a password, a certificate."""

from __future__ import annotations

from collections.abc import Sequence

from acquit.client.scram import SCRAM, Scram
from acquit.client.url import Target
from acquit.errors import ConfigurationError
from acquit.protocol import sasl


def make_sasl(target: Target, wanted: Sequence[str], *, certified: bool) -> sasl.SaslClient:
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
    return chosen[0] if len(chosen) == 1 else sasl.FirstOffered(tuple(chosen))


__all__ = ["make_sasl"]
