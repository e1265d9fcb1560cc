"""Which mechanism is chosen, and what is said where none can be."""

from __future__ import annotations

import pytest

from acquit.client.credentials import make_sasl
from acquit.client.url import ConnectTarget
from acquit.errors import AuthenticationFailed

NOBODY = ConnectTarget("localhost", 5672, False, None, None)
ADA = ConnectTarget("localhost", 5672, False, "ada", "s3cret")


@pytest.mark.parametrize(
    ("target", "wanted", "offered", "said"),
    [
        (NOBODY, (), ("PLAIN", "SCRAM-SHA-256"), ": a user and a password are needed, and none were given"),
        (NOBODY, (), ("EXTERNAL",), ": a client certificate is needed, and no ssl_context with one was given"),
        (ADA, (), ("ANONYMOUS",), ", for which no user may be named, and 'ada' was given"),
        (ADA, (), ("EXTERNAL",), ", for which no user may be named, and 'ada' was given"),
        (ADA, ("SCRAM-SHA-256",), ("PLAIN",), "; sasl_mechanisms allows only SCRAM-SHA-256"),
        (ADA, (), ("GSSAPI",), "; known here are EXTERNAL, SCRAM-SHA-256, PLAIN, ANONYMOUS"),
        (ADA, (), (), "; known here are EXTERNAL, SCRAM-SHA-256, PLAIN, ANONYMOUS"),
    ],
)
def test_what_is_missing_is_said(
    target: ConnectTarget, wanted: tuple[str, ...], offered: tuple[str, ...], said: str
) -> None:
    client = make_sasl(target, wanted, certified=False)
    with pytest.raises(AuthenticationFailed) as caught:
        client.choose(offered)
    assert str(caught.value) == f"the server offers {', '.join(offered) or 'no SASL mechanism'}{said}"


@pytest.mark.parametrize(
    ("target", "offered", "chosen"),
    [
        (NOBODY, ("PLAIN", "ANONYMOUS"), "ANONYMOUS"),
        (ADA, ("PLAIN", "ANONYMOUS"), "PLAIN"),
        (ADA, ("PLAIN", "SCRAM-SHA-256"), "SCRAM-SHA-256"),
    ],
)
def test_the_strongest_that_there_is_what_it_takes_for_is_chosen(
    target: ConnectTarget, offered: tuple[str, ...], chosen: str
) -> None:
    choice = make_sasl(target, (), certified=False).choose(offered)
    assert choice is not None
    assert choice[0] == chosen
