"""Who comes in with python-qpid-proton and rhea, over TLS, and what they may do there.

proton as its wheel is built does ANONYMOUS, PLAIN and EXTERNAL; so does rhea, which takes further mechanisms from a
program: SCRAM-SHA-256 is our own beside its peer.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.interop.conftest import CERTIFICATES, Server, serve
from tests.interop.peer import Peer, ids, texts

pytestmark = pytest.mark.interop

CONFIG = f"""
[security]
anonymous = "never"
refusal_delay_ms = 1

[tls]
certificate_file = "{CERTIFICATES / "certificate.pem"}"
key_file = "{CERTIFICATES / "key.pem"}"
client_ca_file = "{CERTIFICATES / "peers-ca.pem"}"
client_certificates = "optional"

[users]
ada = {{ roles = ["writer", "reader", "temporary"] }}
walt = {{ password = "pen", roles = ["writer"] }}
rita = {{ password = "glasses", roles = ["reader"] }}
lou = {{ password = "loupe", roles = ["looker"] }}
max = {{ password = "mug", roles = ["regular"] }}

[roles]
writer = {{ send = ["shop.#"], create = ["shop.#"] }}
reader = {{ consume = ["shop.#"], browse = ["shop.#"], create = ["shop.#"], delete = ["shop.#"] }}
looker = {{ browse = ["shop.#"] }}
regular = {{ send = ["#"], consume = ["#"] }}
temporary = {{ send = ["temporary.#"], consume = ["temporary.#"], create = ["temporary.#"] }}
"""

TRUSTED = str(CERTIFICATES / "certificate.pem")
PASSWORDS = {"walt": "pen", "rita": "glasses", "lou": "loupe", "max": "mug"}
MECHANISMS = {"proton": ["PLAIN"], "rhea": ["PLAIN", "SCRAM-SHA-256"]}
"""Those with a password."""
UNAUTHORIZED = "amqp:unauthorized-access"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker with TLS, users and roles."""
    yield from serve(tmp_path_factory.mktemp("security"), CONFIG)


def enter(peer: Peer, server: Server, user: str, **fields: object) -> None:
    """Over TLS: Ada with her certificate, others with their password."""
    if user == "ada":
        fields |= {"certificate": certificate("ada"), "mechanisms": ["EXTERNAL"]}
    else:
        fields |= {"user": user, "password": PASSWORDS[user]}
    peer.connect(server.port, authority=TRUSTED, **fields)


def stays_out(peer: Peer, server: Server, **fields: object) -> None:
    peer.do("connect", port=server.port, **{"authority": TRUSTED, **fields})
    peer.expect("disconnected")
    assert peer.seen("connection_open") == []
    peer.reset()


def certificate(name: str) -> str:
    return str(CERTIFICATES / f"{name}.pem")


def unauthorized(peer: Peer, role: str, link: str, address: str | None, *words: str, **fields: object) -> None:
    """The link is refused, and its client told why."""
    refused = peer.refused(role, link, address, **fields)
    assert refused["condition"] == UNAUTHORIZED
    assert all(word in refused["description"] for word in words), refused


# ---- in


def test_password_over_tls(client: Peer, server: Server, address: str) -> None:
    for mechanism in MECHANISMS[client.kind]:
        enter(client, server, "walt", mechanisms=[mechanism])
        client.post(f"shop.{address}", *texts(mechanism))
        client.reset()


def test_wrong_password_or_user(client: Peer, server: Server) -> None:
    for mechanism in MECHANISMS[client.kind]:
        for user, password in (("walt", "pencil"), ("nobody", "pen"), ("ada", "pen")):
            stays_out(client, server, user=user, password=password, mechanisms=[mechanism])


def test_certificate_instead_of_a_password(client: Peer, server: Server, address: str) -> None:
    enter(client, server, "ada")
    client.post(f"shop.{address}", *texts("a"))
    client.receiver("in", f"shop.{address}")
    assert ids(client.rest("in")) == ["a"]


@pytest.mark.parametrize("shown", ["stranger", "forged", None])
def test_certificate_that_names_nobody(client: Peer, server: Server, shown: str | None) -> None:
    fields = {"certificate": certificate(shown)} if shown else {}
    stays_out(client, server, mechanisms=["EXTERNAL"], **fields)


def test_nobody_comes_in_without_a_name(client: Peer, server: Server) -> None:
    stays_out(client, server, mechanisms=["ANONYMOUS"])


def test_broker_that_is_not_trusted(client: Peer, server: Server) -> None:
    # The client turns away.
    stays_out(client, server, authority=certificate("peers-ca"), user="walt", password="pen")


def test_in_the_clear_where_tls_is_spoken(client: Peer, server: Server) -> None:
    client.do("connect", port=server.port, user="walt", password="pen")
    client.expect("disconnected")
    assert client.seen("connection_open") == []


# ---- and then


@pytest.mark.promise("access")
def test_each_does_what_its_roles_allow(client: Peer, other: Peer, server: Server, address: str) -> None:
    address = f"shop.{address}"
    enter(client, server, "walt")
    client.post(address, *texts("a"))
    client.post(address, *texts("to all"), capabilities=["topic"])
    enter(other, server, "rita")
    other.receiver("look", address, distribution_mode="copy")
    assert ids(other.rest("look")) == ["a"]
    other.receiver("take", address)
    assert ids(other.rest("take")) == ["a"]
    asked = {"capabilities": ["topic"], "durable_subscription": True}
    other.receiver("sub", f"{address}.*", **asked)
    client.post(f"{address}.eu", *texts("b"), capabilities=["topic"])
    assert ids(other.rest("sub")) == ["b"]
    other.detach("sub")


@pytest.mark.promise("access")
def test_what_no_role_allows_ends_its_link_only(client: Peer, other: Peer, server: Server, address: str) -> None:
    shop, elsewhere = f"shop.{address}", f"elsewhere.{address}"
    enter(client, server, "walt")
    enter(other, server, "rita")
    unauthorized(client, "receiver", "1", shop, "walt", "consume", shop)
    unauthorized(client, "receiver", "2", shop, "walt", "browse", distribution_mode="copy")
    unauthorized(client, "receiver", "3", shop, "walt", "consume", capabilities=["topic"])
    unauthorized(client, "sender", "4", elsewhere, "walt", "send", elsewhere)
    unauthorized(client, "sender", "5", None, "walt", "create", dynamic=True)
    unauthorized(other, "sender", "1", shop, "rita", "send", shop)
    unauthorized(other, "receiver", "2", elsewhere, "rita", "consume", elsewhere)
    unauthorized(other, "receiver", "3", f"{elsewhere}::{elsewhere}", "rita", "consume")
    unauthorized(other, "receiver", "4", None, "rita", "create", dynamic=True)
    client.post(shop, *texts("a"))
    other.receiver("in", shop)
    assert ids(other.rest("in")) == ["a"]


@pytest.mark.promise("access")
@pytest.mark.parametrize("pattern", ["#", "*.{}", "*.#", "{}.#"])
def test_wildcards_reach_no_further_than_the_role(client: Peer, server: Server, address: str, pattern: str) -> None:
    enter(client, server, "rita")
    unauthorized(client, "receiver", "in", pattern.format(address), "rita", "consume", capabilities=["topic"])
    client.receiver("allowed", f"shop.{pattern.format(address)}", capabilities=["topic"])


@pytest.mark.promise("access")
def test_who_may_only_look(client: Peer, other: Peer, server: Server, address: str) -> None:
    address = f"shop.{address}"
    enter(client, server, "walt")
    client.post(address, *texts("a"))
    enter(other, server, "lou")
    other.receiver("look", address, distribution_mode="copy")
    assert ids(other.rest("look")) == ["a"]
    unauthorized(other, "receiver", "take", address, "lou", "consume")


def test_who_may_make_nothing_uses_what_there_is(client: Peer, other: Peer, server: Server, address: str) -> None:
    shop = f"shop.{address}"
    enter(client, server, "walt")
    client.post(shop, *texts("a"))
    enter(other, server, "max")
    other.receiver("in", shop)
    assert ids(other.rest("in")) == ["a"]
    other.post(shop, *texts("b"))
    for role in ("sender", "receiver"):
        unauthorized(other, role, f"new {role}", f"new.{address}", "max", "create")


@pytest.mark.promise("access")
def test_anonymous_terminus_is_asked_for_each_message(client: Peer, server: Server, address: str) -> None:
    enter(client, server, "walt")
    client.sender("out", None)
    client.send("out", *(texts(to, to=f"{to}.{address}")[0] for to in ("shop", "elsewhere", "shop")))
    client.expect("outcome", link="out", delivery=0, outcome="accepted")
    refused = client.expect("outcome", link="out", delivery=1)
    assert (refused["outcome"], refused["condition"]) == ("rejected", UNAUTHORIZED)
    assert f"elsewhere.{address}" in refused["description"]
    client.expect("outcome", link="out", delivery=2, outcome="accepted")


def test_dynamic_node_of_who_may_have_one(client: Peer, server: Server) -> None:
    enter(client, server, "ada")
    made = client.receiver("in", None, dynamic=True)["source"]
    client.post(made, *texts("a"))
    assert ids(client.rest("in")) == ["a"]


def test_link_is_taken_over_by_the_same_user_alone(client: Peer, other: Peer, server: Server, address: str) -> None:
    address, container = f"shop.{address}", f"container.{address}"
    enter(client, server, "rita", container_id=container)
    client.receiver("in", address)
    enter(other, server, "max", container_id=container)
    other.receiver("in", address)
    client.barrier(address)
    assert client.seen("link_close") == []
    other.reset()
    enter(other, server, "rita", container_id=container)
    other.receiver("in", address)
    assert client.expect("link_close", link="in")["condition"] == "amqp:link:stolen"
