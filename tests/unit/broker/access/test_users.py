"""Users and their passwords."""

from __future__ import annotations

import pytest

from acquit.broker.access.users import (
    ITERATIONS,
    NAME_CHARS_MAX,
    PASSWORD_CHARS_MAX,
    ScramLogin,
    Users,
    Verifier,
    plain_name,
)
from acquit.errors import ConfigurationError


def test_the_text_form_reads_back_and_does_not_contain_the_password() -> None:
    verifier = Verifier.of("correct horse")
    assert Verifier.parse(str(verifier)) == verifier
    assert "correct horse" not in str(verifier)
    assert verifier.iterations == ITERATIONS == 600_000


def test_a_verifier_of_before_still_works() -> None:
    before = Users({"ada": str(Verifier.of("s3cret", iterations=4096))})
    assert before.verify_plain(b"\0ada\0s3cret") == "ada"
    assert before.verify_plain(b"\0ada\0other") is None


def test_the_verifier_of_the_example_in_rfc_7677() -> None:
    """Section 3 of RFC 7677: user "user", password "pencil". The server's final message follows from the server key,
    so the keys are checked through it, with the standard library's HMAC alone."""
    import base64
    import hashlib
    import hmac

    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    verifier = Verifier.of("pencil", iterations=4096, salt=salt)
    auth_message = (
        b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    signature = hmac.new(verifier.server_key, auth_message, hashlib.sha256).digest()
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.fixture(scope="module")
def users() -> Users:
    return Users({"ada": str(Verifier.of("s3cret")), "bob": "plain text"})


@pytest.mark.parametrize(
    ("response", "user"),
    [
        (b"\0ada\0s3cret", "ada"),
        (b"ada\0ada\0s3cret", "ada"),
        (b"\0bob\0plain text", "bob"),
        (b"bob\0ada\0s3cret", None),
        (b"\0ada\0wrong", None),
        (b"\0ada\0", None),
        (b"\0eve\0s3cret", None),
        (b"\0eve\0nobody has this password, for it is never compared equal", None),
        (b"ada\0s3cret", None),
        (b"", None),
        (b"\0ada\0\xff\xfe", None),
        ("\0ada\0\u0007".encode(), None),
    ],
)
def test_plain(users: Users, response: bytes, user: str | None) -> None:
    assert users.verify_plain(response) == user


def test_nobody_costs_as_much_as_somebody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for a name cannot tell by the time whether there is such a user."""
    costs: list[int] = []
    users = Users({"ada": str(Verifier.of("s3cret", iterations=5_000)), "cert": ""})
    hash_ = Verifier.of

    def counted(password: str, *, iterations: int = ITERATIONS, salt: bytes | None = None) -> Verifier:
        costs.append(iterations)
        return hash_(password, iterations=iterations, salt=salt)

    monkeypatch.setattr(Verifier, "of", counted)
    assert [users.verify_plain(f"\0{name}\0wrong".encode()) for name in ("ada", "eve", "cert")] == [None] * 3
    assert costs == [5_000] * 3


def test_a_verifier_is_no_password() -> None:
    """Who has read the users file can log in with nothing that stands there."""
    verifier = Verifier.of("s3cret", iterations=4096)
    users = Users({"ada": str(verifier)})
    words = [str(verifier), *str(verifier).replace("$", ":").split(":")]
    assert [users.verify_plain(f"\0ada\0{word}".encode()) for word in words] == [None] * len(words)
    assert users.verify_plain(b"\0ada\0s3cret") == "ada"


@pytest.mark.parametrize(
    "text",
    [
        "SCRAM-SHA-256$4096",
        "SCRAM-SHA-256$4096:!!!$AAAA:AAAA",
        "SCRAM-SHA-256$many:c2FsdA==$AAAA:AAAA",
        "SCRAM-SHA-256$4096:c2FsdA==$AAAA:AAAA",
        "SCRAM-SHA-256$4096:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
        "SCRAM-SHA-256$1:c2FsdA==$" + "A" * 43 + "=:" + "A" * 43 + "=",
    ],
)
def test_a_damaged_verifier_names_the_user_and_what_was_expected_but_not_the_text(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^users\.ada\.password: .*(expected|takes)") as caught:
        Users({"ada": text})
    assert text not in str(caught.value)


def test_a_user_needs_a_name() -> None:
    with pytest.raises(ConfigurationError, match="user name"):
        Users({"": "x"})


EIGHTEEN = "\ufdfa"
"""A character of which SASLprep makes eighteen."""


@pytest.mark.parametrize(
    ("name", "prepared"),
    [
        ("x" * NAME_CHARS_MAX, True),
        ("x" * (NAME_CHARS_MAX + 1), False),
        (EIGHTEEN * (NAME_CHARS_MAX // 18), True),
        (EIGHTEEN * (NAME_CHARS_MAX // 18 + 1), False),
    ],
)
def test_a_name_that_is_too_long_is_nobodys_and_is_not_prepared(name: str, prepared: bool) -> None:
    """It is on the event loop that names are prepared, whoever asks for them."""
    assert bool(plain_name(f"\0{name}\0x".encode())) is prepared
    with pytest.raises(ConfigurationError, match="no user name by SASLprep" if prepared else "at most 512 characters"):
        Users({name.replace("x", "\N{FULLWIDTH LATIN SMALL LETTER X}"): ""})


@pytest.mark.parametrize(("chars", "answered"), [(NAME_CHARS_MAX, True), (NAME_CHARS_MAX + 1, False)])
def test_a_name_may_be_as_long_by_scram(chars: int, answered: bool, users: Users) -> None:
    """What else its message has does not count."""
    first = f"n,,n={'x' * chars},r={'y' * 100}".encode()
    assert (ScramLogin(users).first(first) is not None) is answered


@pytest.mark.parametrize("password", ["x" * (PASSWORD_CHARS_MAX + 1), EIGHTEEN * (PASSWORD_CHARS_MAX // 18 + 1)])
def test_a_password_that_is_too_long_is_none(password: str, users: Users) -> None:
    with pytest.raises(ConfigurationError, match="more than 4096 characters"):
        Verifier.of(password)
    assert users.verify_plain(f"\0ada\0{password}".encode()) is None
