"""The SASL mechanisms as the broker steps through them, with clients that keep to them and clients that do not."""

from __future__ import annotations

import base64
import hashlib
import hmac
import random
from collections import Counter

import pytest
from scramp import ScramClient

from acquit.broker.access.logins import EXTERNAL, FIRST_BYTES_MAX, LOGINS, PLAIN, SCRAM, Challenge, Login, Proven
from acquit.broker.access.users import Users, Verifier


@pytest.fixture(scope="module")
def users() -> Users:
    return Users({"ada": str(Verifier.of("s3cret", iterations=4096)), "bob": "plain text", "carol": ""})


def login(users: Users, mechanism: str = SCRAM, certified: str | None = None) -> Login:
    return LOGINS[mechanism](users, certified)


def challenge_of(found: Challenge | Proven | None) -> bytes:
    assert isinstance(found, Challenge)
    return found.challenge


def run(users: Users, name: str, password: str) -> tuple[Proven | None, ScramClient]:
    """One whole exchange with a client that is not ours."""
    client, server = ScramClient([SCRAM], name, password), login(users)
    client.set_server_first(challenge_of(server.step(client.get_client_first().encode())).decode())
    found = server.step(client.get_client_final().encode())
    assert not isinstance(found, Challenge)
    return found, client


@pytest.mark.parametrize(("name", "password"), [("ada", "s3cret"), ("bob", "plain text")])
def test_scram_proves_both_to_each_other(users: Users, name: str, password: str) -> None:
    found, client = run(users, name, password)
    assert found is not None and found.user == name and found.additional_data is not None
    client.set_server_final(found.additional_data.decode())  # raises if the server's proof is wrong


@pytest.mark.parametrize(
    ("name", "password"), [("ada", "wrong"), ("ada", ""), ("eve", "s3cret"), ("carol", "x"), ("Ada", "s3cret")]
)
def test_scram_refuses_only_at_the_end(users: Users, name: str, password: str) -> None:
    assert run(users, name, password)[0] is None


def server_first(users: Users, name: str) -> dict[str, str]:
    message = challenge_of(login(users).step(f"n,,n={name},r=abcdef".encode())).decode()
    return dict(part.split("=", 1) for part in message.split(","))


def test_nobody_looks_like_everybody(users: Users) -> None:
    """Rounds and the length of the salt are those of users; the salt is the same each time, and another for another
    name."""
    known, unknown, again, other = (server_first(users, name) for name in ("ada", "eve", "eve", "mallory"))
    assert unknown["i"] == known["i"]
    assert len(base64.b64decode(unknown["s"])) == len(base64.b64decode(known["s"]))
    assert unknown["s"] == again["s"] != other["s"]
    assert server_first(users, "carol")["i"] == known["i"], "a user without a password cannot be told from nobody"


def test_the_salt_of_nobody_lasts_as_long_as_its_secret() -> None:
    verifiers = {"ada": str(Verifier.of("s3cret"))}
    first, second = (Users(verifiers, decoy_key=b"one").verifier("eve")[0].salt for _ in range(2))
    assert first == second
    assert Users(verifiers, decoy_key=b"two").verifier("eve")[0].salt != first
    more = verifiers | {"bob": str(Verifier.of("x"))}
    assert Users(more, decoy_key=b"one").verifier("eve")[0].salt == first


def test_where_users_differ_nobody_looks_like_one_of_them() -> None:
    """Or who has other rounds than those that nobody has would be known to be somebody."""
    postgres = str(Verifier.of("x", salt=bytes(16), iterations=8192))
    users = Users({"a": postgres, "b": postgres, "c": str(Verifier.of("x", iterations=4096))})
    looks: Counter[tuple[int, int]] = Counter()
    for number in range(300):
        decoy, known = users.verifier(f"nobody{number}")
        assert not known
        looks[decoy.iterations, len(decoy.salt)] += 1
    assert set(looks) == {(8192, 16), (4096, 32)}
    assert 150 < looks[8192, 16] < 250, "as often as among users"


HOSTILE_FIRST = [
    b"n",
    b"n,,",
    b",,n=ada,r=abc",
    b"x,,n=ada,r=abc",
    b"p=tls-unique,,n=ada,r=abc",
    b"p=nonsense,,n=ada,r=abc",
    b"n,a=bob,n=ada,r=abc",
    b"n,,n=ada",
    b"n,,r=abc,n=ada",
    b"n,,n=,r=abc",
    b"n,,n=ada,r=",
    b"n,,n=ada,r=a\x07b",
    b"n,,m=x,n=ada,r=abc",
    b"n,,n=a=da,r=abc",
    b"n,,n=ad\x00a,r=abc",
    b"n,,n=\xff,r=abc",
    b"\xff\xfe",
    b"n,,n=" + "\u0007".encode() + b",r=abc",
    b"n" * 400,
    b"n,,n=ada,r=" + b"x" * (FIRST_BYTES_MAX - 10),
    f"n,,n={chr(0xFDFA) * 30},r=x".encode(),  # which becomes longer than that
]


@pytest.mark.parametrize("message", HOSTILE_FIRST)
def test_a_first_message_that_is_none(users: Users, message: bytes) -> None:
    assert login(users).step(message) is None


def test_the_longest_first_message(users: Users) -> None:
    first = b"n,,n=ada,r=" + b"x" * (FIRST_BYTES_MAX - 11)
    assert len(first) == FIRST_BYTES_MAX
    assert isinstance(login(users).step(first), Challenge)


def test_scram_whose_first_message_is_asked_for(users: Users) -> None:
    server = login(users)
    assert server.step(b"") == Challenge(b"")
    assert isinstance(server.step(b"n,,n=ada,r=abc"), Challenge)


def proof(users: Users, without_proof: bytes, first_bare: bytes, server_first_: bytes) -> bytes:
    """A right proof over whatever the client claims to have said: only what it covers can be wrong then."""
    verifier, _ = users.verifier("ada")
    salted = hashlib.pbkdf2_hmac("sha256", b"s3cret", verifier.salt, verifier.iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(
        hashlib.sha256(key).digest(), b",".join((first_bare, server_first_, without_proof)), "sha256"
    )
    return without_proof + b",p=" + base64.b64encode(bytes(a ^ b for a, b in zip(key, signature, strict=True)))


def test_the_proof_by_hand(users: Users) -> None:
    """The other tests' wrong messages fail for what is wrong in them, because this one does not."""
    server = login(users)
    said = challenge_of(server.step(b"n,,n=ada,r=abc"))
    nonce = said.split(b",")[0]
    found = server.step(proof(users, b"c=biws," + nonce, b"n=ada,r=abc", said))
    assert isinstance(found, Proven) and found.user == "ada"


@pytest.mark.parametrize(
    "claim",
    [
        lambda nonce: b"c=biws," + nonce + b"x",
        lambda nonce: b"c=biws,r=abc",
        lambda nonce: b"c=biws,r=" + nonce[3:],
        lambda nonce: b"c=eSws," + nonce,
        lambda nonce: b"c=!!!!," + nonce,
        lambda nonce: nonce,
        lambda nonce: nonce + b",c=biws",
        lambda nonce: b"m=x,c=biws," + nonce,
        lambda nonce: b"c=biws," + nonce + b"," + nonce,
    ],
    ids=[
        "nonce-longer",
        "nonce-ours-alone",
        "nonce-cut",
        "binding",
        "no-base64",
        "no-c",
        "order",
        "mandatory",
        "twice",
    ],
)
def test_a_final_message_whose_claims_are_wrong(users: Users, claim: object) -> None:
    server = login(users)
    said = challenge_of(server.step(b"n,,n=ada,r=abc"))
    final = proof(users, claim(said.split(b",")[0]), b"n=ada,r=abc", said)  # type: ignore[operator]
    assert server.step(final) is None


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"\xff", b"c=biws,r=%s,p=", b"c=biws,r=%s,p=AAAA", b"c=biws,r=%s,p=\xff"]
)
def test_a_final_message_that_is_none(users: Users, final: bytes) -> None:
    server = login(users)
    said = challenge_of(server.step(b"n,,n=ada,r=abc"))
    assert server.step(final.replace(b"%s", said.split(b",")[0][2:])) is None
    assert server.step(b"n,,n=ada,r=abc") is None, "nor does it begin again"


def test_a_final_message_of_another_login(users: Users) -> None:
    """A proof is good once: the nonce is the server's too."""
    server, other = login(users), login(users)
    said = challenge_of(server.step(b"n,,n=ada,r=abc"))
    other.step(b"n,,n=ada,r=abc")
    assert other.step(proof(users, b"c=biws," + said.split(b",")[0], b"n=ada,r=abc", said)) is None


@pytest.mark.parametrize("seed", range(20))
def test_damaged_messages_never_raise_and_never_let_anybody_in(users: Users, seed: int) -> None:
    rng = random.Random(seed)

    def damage(message: bytes) -> bytes:
        data = bytearray(message)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            match rng.randrange(4):
                case 0 if data:
                    del data[at : at + rng.randint(1, 8)]
                case 1:
                    data[at:at] = rng.choice(
                        [b",", b"=", b"\x00", b"\xff", b"n=", b"p=", b"=3D", b"=2C", b"\xe2\x80\x8b"]
                    )
                case 2 if at < len(data):
                    data[at] ^= 1 << rng.randrange(8)
                case _:
                    data[at:at] = data[at : at + 9]
        return bytes(data)

    for _ in range(100):
        server, first = login(users), b"n,,n=ada,r=rOprNGfwEbeRWgbNEkqO"
        found = server.step(damage(first))
        for _ in range(2):
            if not isinstance(found, Challenge):
                break
            found = server.step(damage(b"c=biws," + found.challenge.split(b",")[0] + b",p=" + b"A" * 43 + b"="))
        assert not isinstance(found, Proven)


def test_plain(users: Users) -> None:
    assert login(users, PLAIN).step(b"") == Challenge(b"")
    assert login(users, PLAIN).step(b"\0ada\0s3cret") == Proven("ada")
    for response in (
        b"\0ada\0s3cret\0",
        b"\0ada\0s3cre\0t",
        b"\0\0",
        b"\0carol\0",
        b"\0carol\0x",
        b"\0ada\0" + b"x" * 9_000,
    ):
        assert login(users, PLAIN).step(response) is None


def test_external(users: Users) -> None:
    for said in (b"", b"ada"):
        assert login(users, EXTERNAL, "ada").step(said) == Proven("ada")
    for said in (b"bob", b"\xff", b"ada\0"):
        assert login(users, EXTERNAL, "ada").step(said) is None
    assert login(users, EXTERNAL, None).step(b"") is None
