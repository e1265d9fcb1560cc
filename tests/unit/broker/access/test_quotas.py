"""How many connections may be opened, and by whom."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from acquit.broker.access.permissions import build_permissions
from acquit.broker.access.quotas import ADMINISTRATORS, Quotas, share
from acquit.broker.links.peers import Peer
from acquit.broker.options import BrokerLimits, BrokerOptions, Role, Security, User
from acquit.protocol.connection import Connection
from acquit.protocol.options import ConnectionOptions
from tests.support.broker_world import Client, World

USERS = Security(
    users={"ada": User(password="x"), "bob": User(password="x"), "root": User(password="x", roles=("all",))},
    roles={"all": Role(manage=("#",)), "anonymous": Role(send=("#",))},
)


class Gatehouse:
    """Quotas, and peers that come."""

    def __init__(self, security: Security, **limits: int) -> None:
        self.quotas = Quotas(BrokerLimits(**limits), build_permissions(security))

    def come(self, user: str | None, network: str = "") -> str:
        """Why this peer is refused; nothing if it is let in."""
        peer = Peer(Connection(ConnectionOptions(container_id="b"), server=True, sasl=None, now=0.0), "p", 1, network)
        peer.engine.user = peer.user = user
        error = self.quotas.refusal(peer)
        if error is None:
            self.quotas.enter(peer)
            self.leave: Callable[[], None] = lambda: self.quotas.leave(peer)
            return ""
        assert error.condition == "amqp:resource-limit-exceeded"
        return error.description or ""


def test_one_user_does_not_keep_the_others_out() -> None:
    gate = Gatehouse(USERS, connections_max=12)
    assert [gate.come("ada") for _ in range(9)] == 9 * [""]
    assert gate.come("ada") == "'ada' has 9 connections, as many as one user may have"
    assert gate.come("bob") == ""
    gate.leave()
    assert gate.come(None) == ""
    assert [gate.come("bob") for _ in range(2)] == 2 * [""]
    assert gate.come("bob") == "the broker has 12 connections, as many as there may be"
    assert [gate.come("root") for _ in range(ADMINISTRATORS)] == ADMINISTRATORS * [""], "who clears up comes in"
    assert "as many as there may be" in gate.come("root")


def test_who_is_anonymous_counts_as_one_user() -> None:
    gate = Gatehouse(USERS, connections_per_user_max=1)
    assert gate.come(None) == ""
    assert gate.come(None) == "those who are anonymous have 1 connections, as many as one user may have"
    gate.leave()
    gate.leave()
    assert gate.come(None) == ""


def test_without_users_there_is_nobody_to_be_kept_out() -> None:
    gate = Gatehouse(Security(), connections_max=8, connections_per_user_max=1)
    assert [gate.come(None) for _ in range(8)] == 8 * [""]
    assert gate.come(None) == "the broker has 8 connections, as many as there may be"


def test_one_address_does_not_keep_the_others_out() -> None:
    gate = Gatehouse(Security(), connections_max=8, connections_per_address_max=2)
    assert [gate.come(None, "192.0.2.1") for _ in range(2)] == 2 * [""]
    assert gate.come(None, "192.0.2.1") == "there are 2 connections from 192.0.2.1, as many as there may be"
    assert gate.come(None, "192.0.2.2") == ""
    assert [gate.come(None) for _ in range(5)] == 5 * [""], "programs of this machine"


@pytest.mark.parametrize(("of", "expected"), [(1, 1), (2, 2), (4, 3), (1_024, 768)])
def test_a_share(of: int, expected: int) -> None:
    assert share(0, of) == expected
    assert share(5, of) == 5


def test_connections_are_found_by_user_and_container() -> None:
    gate = Gatehouse(USERS)
    assert gate.come("ada") == ""
    assert gate.come("bob") == ""
    assert len(gate.quotas.of_container("ada", "")) == len(gate.quotas.of_container("bob", "")) == 1
    gate.leave()
    assert not gate.quotas.of_container("bob", "")
    assert len(gate.quotas.of_container("ada", "")) == 1


@pytest.mark.parametrize(("end", "free"), [("detach", 1), ("end", 1), ("close", 2), ("lose", 2), ("steal", 0)])
def test_links_are_counted_while_they_are_there(end: str, free: int) -> None:
    """By user, over all connections; however they end. Who takes over a link has no more than before."""
    security = Security(users={name: User(password="x") for name in ("ada", "bob")})
    world = World(BrokerOptions(security=security, limits=BrokerLimits(links_max=5, links_per_user_max=3)))
    ada, again, bob = (world.client(name, user=user) for name, user in (("a", "ada"), ("a2", "ada"), ("b", "bob")))

    def refused(client: Client, name: str) -> str:
        link = client.sender("q", name)
        world.settle()
        if link not in client.detached:
            return ""
        error = client.detached[link].error
        assert error is not None and error.condition == "amqp:resource-limit-exceeded"
        return error.description or ""

    first = ada.sender("q", "1")
    ada.receiver("q", "2")
    again.sender("q", "3")
    for client in (ada, again):
        assert refused(client, "4") == "'ada' has 3 links, as many as one user may have"
    assert [refused(bob, name) for name in "12"] == ["", ""]
    assert refused(bob, "3") == "the broker has 5 links, as many as there may be"
    match end:
        case "detach":
            ada.detach(first)
        case "end":
            again.begun.end()
        case "close":
            ada.close()
        case "lose":
            ada.lose()
        case "steal":
            assert refused(world.client("a", user="ada"), "1") == ""
            assert first in ada.detached
    world.settle()
    late = world.client("late", user="ada")
    assert [refused(late, str(number)) == "" for number in range(3)] == [number < free for number in range(3)]
    assert refused(bob, "4").endswith("as many as there may be")


def test_one_address_leaves_links_to_the_others() -> None:
    quotas = Quotas(BrokerLimits(links_max=4), build_permissions(Security()))

    def peer(network: str) -> Peer:
        return Peer(Connection(ConnectionOptions(container_id="b"), server=True, sasl=None, now=0.0), "p", 1, network)

    near, far = peer("192.0.2.1"), peer("192.0.2.2")
    for _ in range(3):
        assert quotas.link_refusal(near) == ""
        quotas.enter_link(near)
    assert quotas.link_refusal(near) == "there are 3 links from 192.0.2.1, as many as there may be"
    assert quotas.link_refusal(far) == ""
    quotas.leave_link(near)
    assert quotas.link_refusal(near) == ""
