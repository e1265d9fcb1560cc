"""The client's side of SCRAM-SHA-256: what it proves, and what it wants proved."""

from __future__ import annotations

import pytest
from scramp import ScramMechanism

from acquit.client.credentials import make_sasl
from acquit.client.options import ConnectOptions
from acquit.client.scram import SCRAM, Scram
from acquit.client.url import parse_url
from acquit.errors import AuthenticationFailed, ConfigurationError
from acquit.protocol.sasl import SaslClient

MECHANISM = ScramMechanism(SCRAM)
INFO = MECHANISM.make_auth_info("s3cret", 4_096, b"a salt of 12")


def begun() -> tuple[Scram, object]:
    client, server = Scram("ada", "s3cret"), MECHANISM.make_server(lambda name: INFO)
    choice = client.choose(["PLAIN", SCRAM])
    assert choice is not None and choice[0] == SCRAM and choice[1] is not None
    server.set_client_first(choice[1].decode())
    return client, server


@pytest.mark.parametrize("where", ["outcome", "challenge"])
def test_both_prove_themselves(where: str) -> None:
    """The server's proof comes with the outcome (5.3.3.5), or from some servers in one more challenge."""
    client, server = begun()
    server.set_client_final(client.respond(server.get_server_first().encode()).decode())  # type: ignore[attr-defined]
    proof = server.get_server_final().encode()  # type: ignore[attr-defined]
    if where == "outcome":
        client.complete(proof)
    else:
        assert client.respond(proof) == b""
        client.complete(None)


@pytest.mark.parametrize("proof", [None, b"", b"v=AAAA", b"e=invalid-proof", b"nonsense", b"\xff"])
def test_a_server_that_does_not_know_the_password(proof: bytes | None) -> None:
    client, server = begun()
    client.respond(server.get_server_first().encode())  # type: ignore[attr-defined]
    with pytest.raises(AuthenticationFailed, match="proof|prove"):
        client.complete(proof)


def test_a_server_that_lets_us_in_at_once() -> None:
    client, _ = begun()
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        client.complete(None)
    with pytest.raises(AuthenticationFailed, match="proof"):
        client.complete(b"v=AAAA")


@pytest.mark.parametrize(
    "change",
    [
        lambda first: b"",
        lambda first: b"\xff",
        lambda first: b"nonsense",
        lambda first: b"e=other-error",
        lambda first: first.replace(b"r=", b"r=x"),
        lambda first: first.replace(b"i=4096", b"i=1"),
        lambda first: first.replace(b"i=4096", b"i=1000001"),
        lambda first: first.replace(b"i=4096", b"i=999999999"),
        lambda first: first.replace(b"i=4096", b"i=-1"),
        lambda first: first.replace(b"i=4096", b"i=many"),
        lambda first: first.split(b",")[0],
    ],
)
def test_a_first_message_that_makes_no_sense(change: object) -> None:
    client, server = begun()
    with pytest.raises(AuthenticationFailed) as caught:
        client.respond(change(server.get_server_first().encode()))  # type: ignore[operator,attr-defined]
    assert "s3cret" not in str(caught.value)


def test_what_sasl_cannot_prepare() -> None:
    with pytest.raises(AuthenticationFailed, match="cannot use") as caught:
        Scram("ada", "pass\u0007word").choose([SCRAM])
    assert "pass\u0007word" not in str(caught.value)
    assert Scram("ada", "x").choose(["PLAIN"]) is None
    assert "s3cret" not in repr(Scram("ada", "s3cret"))


def offered(client: SaslClient, *mechanisms: str) -> str | None:
    try:
        choice = client.choose(mechanisms)
    except AuthenticationFailed:  # which says what is missing
        return None
    assert choice is not None
    return choice[0]


ALL = ("ANONYMOUS", "PLAIN", SCRAM, "EXTERNAL")


def test_the_strongest_is_chosen() -> None:
    named, nameless = parse_url("amqps://ada:s3cret@host"), parse_url("amqps://host")
    assert offered(make_sasl(named, (), certified=True), *ALL) == SCRAM
    assert offered(make_sasl(named, (), certified=True), "ANONYMOUS", "PLAIN") == "PLAIN"
    assert offered(make_sasl(named, (), certified=True), "ANONYMOUS", "EXTERNAL") is None
    assert offered(make_sasl(nameless, (), certified=True), *ALL) == "EXTERNAL"
    assert offered(make_sasl(nameless, (), certified=True), "PLAIN", "ANONYMOUS") == "ANONYMOUS"
    assert offered(make_sasl(nameless, (), certified=False), *ALL) == "ANONYMOUS"


def test_a_list_restricts_and_orders() -> None:
    named, nameless = parse_url("amqp://ada:s3cret@host"), parse_url("amqp://host")
    assert offered(make_sasl(named, (SCRAM,), certified=False), "PLAIN", "ANONYMOUS") is None, "no step down"
    assert offered(make_sasl(named, ("PLAIN", SCRAM), certified=False), *ALL) == "PLAIN"
    assert offered(make_sasl(nameless, ("EXTERNAL",), certified=False), *ALL) == "EXTERNAL"
    assert offered(make_sasl(nameless, (), certified=False), *ALL) == "ANONYMOUS"
    external = make_sasl(named, ("EXTERNAL",), certified=False)
    assert external.choose(ALL) == ("EXTERNAL", b"ada")
    assert offered(make_sasl(named, ("PLAIN",), certified=False), *ALL) == "PLAIN"
    assert offered(make_sasl(named, (), certified=False), *ALL) == SCRAM
    with pytest.raises(ConfigurationError, match="needs a user and a password"):
        make_sasl(nameless, (SCRAM, "PLAIN"), certified=False)
    with pytest.raises(ConfigurationError, match="needs that no user"):
        make_sasl(named, ("ANONYMOUS",), certified=False)


@pytest.mark.parametrize("names", ["PLAIN", ("GSSAPI",), ("PLAIN", "PLAIN"), None, (1,)])
def test_a_list_that_is_none(names: object) -> None:
    with pytest.raises(ConfigurationError, match="sasl_mechanisms must be some of"):
        ConnectOptions(sasl_mechanisms=names)  # type: ignore[arg-type]
