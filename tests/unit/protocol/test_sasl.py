from __future__ import annotations

import pytest

from acquit.errors import AuthenticationFailed, ConfigurationError, DecodeError, LocalProtocolError, RemoteProtocolError
from acquit.protocol.definitions import (
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
)
from acquit.protocol.events import SaslChallenged, SaslInitiated, SaslResponded
from acquit.protocol.sasl import (
    ROUNDS_MAX,
    Anonymous,
    ClientExchange,
    External,
    FirstOffered,
    Plain,
    PlainCredentials,
    SaslServerOptions,
    ServerExchange,
    parse_plain,
)


def test_plain_says_what_parse_plain_reads() -> None:
    choice = Plain("ada", "pässword", "as somebody").choose(["ANONYMOUS", "PLAIN"])
    assert choice is not None
    mechanism, response = choice
    assert mechanism == "PLAIN"
    assert response is not None
    assert parse_plain(response) == PlainCredentials("as somebody", "ada", "pässword")


@pytest.mark.parametrize("response", [b"", b"ada", b"ada\0secret", b"\0\0secret", b"\0a\0b\0c", b"\0\xff\0b"])
def test_what_is_no_plain_response(response: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_plain(response)


def test_a_password_is_not_shown() -> None:
    assert "secret" not in repr(Plain("ada", "secret"))
    assert "secret" not in repr(PlainCredentials("", "ada", "secret"))
    response = b"\0ada\0secret"
    for shown in (SaslInit("PLAIN", response), SaslResponse(response)):
        assert "secret" not in repr(shown)
    for told in (SaslInitiated("PLAIN", response, None), SaslResponded(response)):
        assert "secret" not in repr(told)


@pytest.mark.parametrize(("username", "password"), [("", "x"), ("a\0b", "x"), ("a", "x\0y")])
def test_plain_refuses_what_it_cannot_carry(username: str, password: str) -> None:
    with pytest.raises(ConfigurationError):
        Plain(username, password)


def test_mechanisms_choose_only_themselves() -> None:
    assert Anonymous("me").choose(["PLAIN", "ANONYMOUS"]) == ("ANONYMOUS", b"me")
    assert Anonymous().choose(["PLAIN"]) is None
    assert Plain("a", "b").choose(["ANONYMOUS"]) is None


@pytest.mark.parametrize("client", [Anonymous(), Plain("a", "b")])
def test_neither_answers_a_challenge(client: Anonymous | Plain) -> None:
    with pytest.raises(AuthenticationFailed):
        client.respond(b"?")


def test_a_server_must_offer_something() -> None:
    with pytest.raises(ConfigurationError):
        SaslServerOptions(mechanisms=())
    with pytest.raises(ConfigurationError):
        SaslServerOptions(mechanisms=("PLAIN",), rounds_max=0)


def server(**options: int) -> ServerExchange:
    return ServerExchange(SaslServerOptions(mechanisms=("PLAIN", "SCRAM-SHA-256"), **options))  # type: ignore[arg-type]


def test_several_rounds() -> None:
    exchange = server()
    assert exchange.mechanisms() == SaslMechanisms(("PLAIN", "SCRAM-SHA-256"))
    assert exchange.receive(SaslInit("SCRAM-SHA-256", b"a", "host")) == SaslInitiated("SCRAM-SHA-256", b"a", "host")
    assert exchange.answering
    assert exchange.challenge(b"b") == SaslChallenge(b"b")
    assert not exchange.answering
    assert exchange.receive(SaslResponse(b"c")) == SaslResponded(b"c")
    assert exchange.outcome(SaslCode.OK, b"d") == SaslOutcome(SaslCode.OK, b"d")


def test_an_init_without_a_response() -> None:
    assert server().receive(SaslInit("PLAIN")) == SaslInitiated("PLAIN", b"", None)


def test_a_mechanism_that_was_not_offered() -> None:
    with pytest.raises(AuthenticationFailed, match="not offered"):
        server().receive(SaslInit("ANONYMOUS"))


@pytest.mark.parametrize("frame", [SaslResponse(b""), SaslOutcome(SaslCode.OK), SaslMechanisms(("PLAIN",))])
def test_frames_that_a_client_may_not_say_first(frame: object) -> None:
    with pytest.raises(RemoteProtocolError, match="may not come now"):
        server().receive(frame)


def test_a_second_init() -> None:
    exchange = server()
    exchange.receive(SaslInit("PLAIN", b""))
    exchange.challenge(b"")
    with pytest.raises(RemoteProtocolError):
        exchange.receive(SaslInit("PLAIN", b""))


def test_rounds_are_limited() -> None:
    exchange = server(rounds_max=1)
    exchange.receive(SaslInit("PLAIN", b""))
    assert exchange.challenge(b"1") is not None
    exchange.receive(SaslResponse(b""))
    assert exchange.challenge(b"2") is None


def test_the_application_answers_only_when_it_is_asked() -> None:
    exchange = server()
    with pytest.raises(LocalProtocolError):
        exchange.outcome(SaslCode.OK)
    exchange.receive(SaslInit("PLAIN", b""))
    exchange.challenge(b"")
    with pytest.raises(LocalProtocolError):
        exchange.challenge(b"")


class Echo:
    """Answers challenges with themselves. What the outcome brings is kept."""

    def __init__(self, *, slow: bool = False) -> None:
        self.slow = slow
        self.completed: list[bytes | None] = []

    def complete(self, additional_data: bytes | None) -> None:
        self.completed.append(additional_data)

    def choose(self, mechanisms: object) -> tuple[str, bytes | None]:
        return "ECHO", None

    def respond(self, challenge: bytes) -> bytes:
        return challenge


def test_the_client_side() -> None:
    exchange = ClientExchange(Echo(), "host")
    assert exchange.receive(SaslMechanisms(("ECHO",))) == SaslInit("ECHO", None, "host")
    assert exchange.receive(SaslChallenge(b"x")) == SaslResponse(b"x")
    assert exchange.receive(SaslOutcome(SaslCode.OK)) is SaslCode.OK


def test_no_mechanism_suits() -> None:
    with pytest.raises(AuthenticationFailed, match="offers GSSAPI"):
        ClientExchange(Plain("a", "b"), None).receive(SaslMechanisms(("GSSAPI",)))


def test_a_server_that_never_ends_its_challenges() -> None:
    exchange = ClientExchange(Echo(), None)
    exchange.receive(SaslMechanisms(("ECHO",)))
    for _ in range(ROUNDS_MAX):
        exchange.receive(SaslChallenge(b""))
    with pytest.raises(AuthenticationFailed):
        exchange.receive(SaslChallenge(b""))


@pytest.mark.parametrize("frame", [SaslChallenge(b""), SaslOutcome(SaslCode.OK), SaslInit("PLAIN")])
def test_frames_that_a_server_may_not_say_first(frame: object) -> None:
    with pytest.raises(RemoteProtocolError):
        ClientExchange(Echo(), None).receive(frame)


def test_a_server_may_refuse_before_anything() -> None:
    assert ClientExchange(Echo(), None).receive(SaslOutcome(SaslCode.SYS)) is SaslCode.SYS


def test_the_outcomes_data_reaches_the_mechanism() -> None:
    echo = Echo()
    exchange = ClientExchange(echo, None)
    exchange.receive(SaslMechanisms(("ECHO",)))
    assert exchange.receive(SaslOutcome(SaslCode.AUTH, b"no")) is SaslCode.AUTH
    assert echo.completed == []
    assert exchange.receive(SaslOutcome(SaslCode.OK, b"yes")) is SaslCode.OK
    assert echo.completed == [b"yes"]


def test_an_answer_that_takes_long_is_given_later() -> None:
    exchange = ClientExchange(Echo(slow=True), None)
    exchange.receive(SaslMechanisms(("ECHO",)))
    with pytest.raises(LocalProtocolError):
        exchange.respond(b"nobody asked")
    assert exchange.receive(SaslChallenge(b"x")) == SaslChallenged(b"x")
    assert exchange.answering
    assert exchange.respond(b"y") == SaslResponse(b"y")
    assert not exchange.answering


def test_the_first_that_is_offered_does_the_rest() -> None:
    echo = Echo(slow=True)
    client = FirstOffered((External("ada"), echo, Plain("a", "b")))
    assert not client.slow
    assert client.choose(["PLAIN", "ANONYMOUS"]) == ("ECHO", None)
    assert client.slow
    assert client.respond(b"x") == b"x"
    client.complete(b"done")
    assert echo.completed == [b"done"]
    assert FirstOffered((External(), Anonymous())).choose(["PLAIN"]) is None


def test_external() -> None:
    assert External().choose(["PLAIN", "EXTERNAL"]) == ("EXTERNAL", b"")
    assert External("ada").choose(["PLAIN"]) is None
    assert External("ada").respond(b"") == b"ada"
    with pytest.raises(AuthenticationFailed):
        External().respond(b"who?")
