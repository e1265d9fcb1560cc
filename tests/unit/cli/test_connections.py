from __future__ import annotations

from collections.abc import Iterator

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.cli.exits import Exit
from acquit.store.options import JournalOptions
from tests.support.shell import Shell


@pytest.fixture
def guarded() -> Iterator[acquit.Broker]:
    """A broker with an operator, who may manage all, and a clerk, who may send and receive."""
    roles = {"operator": Role(manage=("#",)), "clerk": Role(send=("#",), consume=("#",), create=("#",))}
    users = {name: User(password="x", roles=(name,)) for name in roles}
    options = BrokerOptions(security=Security(users=users, roles=roles), journal=JournalOptions.small())
    with acquit.Broker(config=options) as broker:
        yield broker


def url(broker: acquit.Broker, user: str) -> str:
    return f"amqp://{user}:x@127.0.0.1:{broker.port}"


def test_who_is_connected(shell: Shell) -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url, container_id="shop"):
        rows = shell("connections", "--url", broker.url, "--json").documents
        assert "shop" in [row["container"] for row in rows]
        shown = shell("connections", "--url", broker.url).out.splitlines()
    assert shown[0].split() == ["id", *"peer user container client tls links unsettled oldest starved up".split()]
    assert any("shop" in line and "127.0.0.1:" in line for line in shown)


def test_a_user_sees_its_own_connections(shell: Shell, guarded: acquit.Broker) -> None:
    with acquit.connect(url(guarded, "operator"), container_id="console"):
        mine = shell("connections", "--url", url(guarded, "clerk"), "--json").documents
        all_of_them = shell("connections", "--url", url(guarded, "operator"), "--json").documents
    assert {row["user"] for row in mine} == {"clerk"}
    assert {row["user"] for row in all_of_them} == {"operator"}


def test_a_connection_is_closed_with_a_reason(shell: Shell) -> None:
    reconnect = acquit.ConnectOptions(reconnect=None)
    with acquit.Broker() as broker, acquit.connect(broker.url, container_id="stuck", options=reconnect) as stuck:
        receiver = stuck.session().receiver("q")
        number = next(
            row["id"]
            for row in shell("connections", "--url", broker.url, "--json").documents
            if row["container"] == "stuck"
        )
        asked = shell("close", number, "--url", broker.url, stdin="n\n")
        assert (asked.code, asked.out) == (Exit.FAILED, "")
        assert f"End connection {number} from 127.0.0.1:" in asked.err and "(stuck), with 1 link" in asked.err
        ran = shell("close", number, "--reason", "stuck since noon", "--yes", "--url", broker.url)
        assert (ran.code, ran.out) == (Exit.OK, f"connection {number}: closed\n")
        with pytest.raises(acquit.ConnectionClosed, match="stuck since noon"):
            receiver.receive(timeout=5)
        again = shell("close", number, "--url", broker.url)
        assert (again.code, again.err) == (Exit.FAILED, f"acquit: there is no connection {number}\n")


def test_who_may_close_nothing_is_told_so(shell: Shell, guarded: acquit.Broker) -> None:
    ran = shell("close", 1, "--yes", "--url", url(guarded, "clerk"))
    assert (ran.code, ran.err.count("\n")) == (Exit.FAILED, 1)
    assert "manage" in ran.err


@pytest.mark.parametrize("arguments", [(), (1, "--link", "1.1"), ("x",), (0,)])
def test_what_to_close_must_be_said(shell: Shell, arguments: tuple[object, ...]) -> None:
    assert shell("close", *arguments).code == Exit.USAGE


def test_a_link_that_cannot_be_is_not_there(shell: Shell) -> None:
    with acquit.Broker() as broker:
        ran = shell("close", "--link", "9" * 5_000 + ".1", "--url", broker.url)
    assert (ran.code, ran.err.count("\n")) == (Exit.FAILED, 1)
    assert ran.err.startswith("acquit: there is no link '999")


def test_links_are_shown_and_one_is_detached(shell: Shell) -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url, container_id="shop") as connection:
        session = connection.session("individual")
        session.sender("orders").send("one")
        receiver = session.receiver("orders")
        assert receiver.receive(timeout=5) is not None

        def found(*arguments: object) -> list[dict[str, object]]:
            return shell("links", "--url", broker.url, "--json", *arguments).documents

        by_role = {str(row["role"]): row for row in found("--node", "orders")}
        assert by_role.keys() == {"sender", "receiver"}
        held = by_role["receiver"]
        assert (held["unsettled"], held["container"], held["mode"]) == (1, "shop", "consume")
        assert {row["id"] for row in found("--connection", held["connection"])} >= {
            row["id"] for row in by_role.values()
        }
        shown = shell("links", "--node", "orders", "--url", broker.url).out
        assert shown.splitlines()[0].split()[:4] == ["id", "role", "node", "name"]
        assert shell("links", "--node", "nothing", "--url", broker.url).out == "no links\n"
        asked = shell("close", "--link", held["id"], "--url", broker.url, stdin="n\n")
        assert f"End link {held['id']} (receiver of orders, shop), with 1 unsettled delivery?" in asked.err
        ran = shell("close", "--link", held["id"], "--reason", "enough", "--yes", "--url", broker.url)
        assert (ran.code, ran.out) == (Exit.OK, f"link {held['id']}: detached\n")
        assert [row["role"] for row in found("--node", "orders")] == ["sender"]
        assert shell("close", "--link", "9.9", "--url", broker.url).err == "acquit: there is no link '9.9'\n"
