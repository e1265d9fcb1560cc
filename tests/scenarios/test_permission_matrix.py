"""Every way in, for every set of permissions, at an address that the role names and at one that it does not.

What is expected comes from a table of docs/security.md's rules, and not from the code: for each way the permissions it
takes, as alternatives of sets. The broker must allow exactly these, and refuse all else for want of the permission.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import NamedTuple

import pytest

from acquit.broker.options import BrokerLimits, BrokerOptions, Role, Security, User
from acquit.protocol.definitions import Accepted, Error, Rejected, Source, Target
from acquit.protocol.extensions import MANAGEMENT_NODE
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import Client, World, durable, live_of
from tests.support.transacting import Controller

PERMISSIONS = ("send", "consume", "browse", "create", "delete", "manage")
SETS = [frozenset(chosen) for size in range(7) for chosen in combinations(PERMISSIONS, size)]
UNAUTHORIZED = "amqp:unauthorized-access"
COVERED, ELSEWHERE = "mine", "other"


class Cell:
    """A broker with an owner, who may do everything, and whoever is tried: with these permissions below one address."""

    def __init__(self, permissions: frozenset[str], pattern: str = f"{COVERED}.#") -> None:
        security = Security(
            users={"owner": User(roles=("all",)), "tried": User(roles=("role",))},
            roles={
                "all": Role(**dict.fromkeys(PERMISSIONS, ("#",))),
                "role": Role(**dict.fromkeys(permissions, (pattern,))),
            },
        )
        limits = BrokerLimits(queues_max=100_000, queues_per_user_max=100_000)
        self.world = World(BrokerOptions(security=security, limits=limits))
        self.owner = self.world.client("container", user="owner")
        self.tried = self.world.client("container", user="tried")
        self._names = 0

    def name(self) -> str:
        self._names += 1
        return f"link-{self._names}"

    def make(self, address: str) -> None:
        """A queue with a message, of the owner's."""
        self.owner.post_all(self.owner.sender(address, self.name()), durable("the owner's"))

    def allowed(self, link: Link) -> bool:
        """Whether a link was attached. What it was refused must be said to be the permission's fault."""
        self.world.settle()
        return _judge(self.tried.detached[link].error if link in self.tried.detached else None)

    def accepted(self, link: SendingLink, to: str | None = None) -> bool:
        """Whether a message was taken."""
        (sent,) = self.tried.post(link, durable("x", to=to))
        self.world.settle()
        outcome = self.tried.outcome(sent)
        assert isinstance(outcome, Accepted | Rejected), outcome
        return _judge(outcome.error if isinstance(outcome, Rejected) else None)


def _judge(error: Error | None) -> bool:
    assert error is None or error.condition == UNAUTHORIZED, error
    return error is None


# -- ways in: each says whether it was let through


def link(cell: Cell, address: str) -> bool:
    sender = cell.tried.sender(address, cell.name())
    return cell.allowed(sender) and cell.accepted(sender)


def relay(cell: Cell, address: str) -> bool:
    return cell.accepted(cell.tried.sender(None, cell.name()), to=address)


def relay_in_transaction(cell: Cell, address: str) -> bool:
    """What cannot be posted makes its transaction fail, or is rejected at once: nothing of it may be there."""
    controller = Controller(cell.tried, cell.name())
    txn_id = controller.declare()
    before = live_of(cell.world, address) if address in cell.world.core.queues.by_name else 0
    controller.post(cell.tried.sender(None, cell.name()), txn_id, durable("x", to=address))
    _judge(controller.commit(txn_id))
    return (live_of(cell.world, address) if address in cell.world.core.queues.by_name else 0) > before


def link_in_transaction(cell: Cell, address: str) -> bool:
    sender = cell.tried.sender(address, cell.name())
    if not cell.allowed(sender):
        return False
    controller = Controller(cell.tried, cell.name())
    txn_id = controller.declare()
    controller.post(sender, txn_id, durable("x"))
    return _judge(controller.commit(txn_id))


def receive(cell: Cell, address: str) -> bool:
    return cell.allowed(cell.tried.receiver(address, cell.name()))


def browse(cell: Cell, address: str) -> bool:
    return cell.allowed(cell.tried.receiver(address, cell.name(), browse=True))


def publish(cell: Cell, address: str) -> bool:
    return cell.allowed(cell.tried.publisher(f"{address}.topic", cell.name()))


def subscribe(cell: Cell, address: str) -> bool:
    return cell.allowed(cell.tried.subscriber(f"{address}.topic", cell.name()))


def _subscription(cell: Cell, address: str) -> str:
    name = cell.name()
    kept = cell.owner.subscriber(f"{address}.topic", name, durable=True)
    cell.world.settle()
    cell.owner.detach(kept, closed=False)
    (queue,) = (known for known in cell.world.core.queues.by_name if f"/{name}|" in known)
    return queue


def receive_anothers_subscription(cell: Cell, address: str) -> bool:
    return cell.allowed(cell.tried.receiver(_subscription(cell, address), cell.name()))


def browse_anothers_subscription(cell: Cell, address: str) -> bool:
    return cell.allowed(cell.tried.receiver(_subscription(cell, address), cell.name(), browse=True))


def steal_a_link(cell: Cell, address: str) -> bool:
    """Both containers have one name, and both links: the owner's must stay, whatever the other may do."""
    name = cell.name()
    theirs = cell.owner.receiver(address, name)
    cell.tried.receiver(address, name)
    cell.world.settle()
    return theirs in cell.owner.detached


def send_to_anothers_dynamic_node(cell: Cell, _: str) -> bool:
    return cell.allowed(cell.tried.sender(_dynamic(cell, cell.owner)[1], cell.name()))


def receive_from_anothers_dynamic_node(cell: Cell, _: str) -> bool:
    return cell.allowed(cell.tried.receiver(_dynamic(cell, cell.owner)[1], cell.name()))


def _dynamic(cell: Cell, client: Client) -> tuple[Link, str]:
    made = client.begun.attach_receiver(  # type: ignore[attr-defined]
        cell.name(), source=Source(None, dynamic=True), target=Target("here")
    )
    cell.world.settle()
    assert isinstance(made, ReceivingLink)
    return made, "" if made.source is None else str(made.source.address)


def make_a_dynamic_node(cell: Cell, _: str) -> bool:
    return cell.allowed(_dynamic(cell, cell.tried)[0])


def reply_to(cell: Cell, address: str) -> bool:
    """An answer goes only where its asker may send; the request is rejected otherwise."""
    requests = cell.tried.sender(MANAGEMENT_NODE, cell.name())
    about = {"operation": "READ", "type": "acquit:broker"}
    (sent,) = cell.tried.post(requests, Message(None, reply_to=address, application_properties=about))
    cell.world.settle()
    outcome = cell.tried.outcome(sent)
    return _judge(outcome.error if isinstance(outcome, Rejected) else None)


def _ask(cell: Cell, operation: str, kind: str, name: str | None, body: object = None) -> bool:
    """Whether a request was not answered with 403; later failures do not concern the permission."""
    here = cell.name()
    replies = cell.tried.begun.attach_receiver(  # type: ignore[attr-defined]
        cell.name(), source=Source(MANAGEMENT_NODE), target=Target(here)
    )
    replies.grant(1)
    cell.world.carry()
    about: dict[str, object] = {"operation": operation, "type": f"acquit:{kind}"}
    if name is not None:
        about["name"] = name
    requests = cell.tried.sender(MANAGEMENT_NODE, cell.name())
    cell.tried.post(requests, Message(body, reply_to=here, application_properties=about))
    cell.world.settle()
    (answer,) = cell.tried.received[replies]
    return Message.decode(answer.payload).application_properties["statusCode"] != 403


def command(
    operation: str, kind: str = "queue", body: object = None, *, named: bool = True
) -> Callable[[Cell, str], bool]:
    """A request to the management node, about the address."""
    return lambda cell, address: _ask(cell, operation, kind, address if named else None, body)


def move(to: str) -> Callable[[Cell, str], bool]:
    def moved(cell: Cell, address: str) -> bool:
        cell.make(f"{to}.target")
        return _ask(cell, "MOVE", "queue", address, {"to": f"{to}.target"})

    return moved


class Way(NamedTuple):
    """`existing`: what it takes at an address that is there; `new`: at one that is not. Each has alternatives. None: it
    is not tried. `pattern`: what the role names, where that is not below COVERED; tried at no other address."""

    name: str
    go: Callable[[Cell, str], bool]
    existing: list[str] | None
    new: list[str] | None = None
    pattern: str | None = None


NEVER: list[str] = []
WAYS = [
    Way("link", link, ["send"], ["send create"]),
    Way("anonymous relay", relay, ["send"], ["send create"]),
    Way("link in a transaction", link_in_transaction, ["send"], ["send create"]),
    Way("relay in a transaction", relay_in_transaction, ["send"], ["send create"]),
    Way("receive", receive, ["consume"], ["consume create"]),
    Way("browse", browse, ["browse"], ["browse create"]),
    Way("publish", publish, None, ["send create"]),
    Way("subscribe", subscribe, None, ["consume create"]),
    Way("another's subscription", receive_anothers_subscription, None, ["consume manage"]),
    Way("browse another's subscription", browse_anothers_subscription, None, ["browse manage"]),
    Way("steal a link", steal_a_link, NEVER),
    Way("dynamic node", make_a_dynamic_node, None, ["create"], "temporary.queue.*"),
    Way("another's dynamic node, send", send_to_anothers_dynamic_node, None, ["send"], "temporary.queue.*"),
    Way("another's dynamic node, receive", receive_from_anothers_dynamic_node, None, ["consume"], "temporary.queue.*"),
    Way("reply-to", reply_to, ["send"]),
    Way("read the broker", command("READ", "broker", named=False), [""]),
    Way("read a queue", command("READ"), ["browse", "manage"]),
    Way("list scheduled", command("QUERY", "message"), ["browse", "manage"]),
    Way("look at messages", command("QUERY", "message", {"state": "all"}), ["browse", "manage"]),
    Way("read a message", command("READ", "message", {"sequence": 1}), ["browse", "manage"]),
    Way("cancel scheduled", command("CANCEL", "message", {"sequence": 1}), ["manage"]),
    Way("purge", command("PURGE"), ["manage"]),
    Way("create", command("CREATE"), None, ["create", "manage"]),
    Way("delete", command("DELETE"), ["delete", "manage"]),
    Way("move within", move(COVERED), ["manage"]),
    Way("move elsewhere", move(ELSEWHERE), NEVER),
    Way("reload", command("RELOAD", "broker", named=False), NEVER),
    Way("reload, of everything", command("RELOAD", "broker", named=False), ["manage"], None, "#"),
]


def expected(needs: list[str], permissions: frozenset[str], *, covered: bool) -> bool:
    """The rules: one of the alternatives is given whole, at this address. What needs nothing is everybody's."""
    return any(set(need.split()) <= (permissions if covered else frozenset()) for need in needs)


@pytest.mark.promise("access")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_exactly_what_the_permissions_say(way: Way) -> None:
    wrong = []
    for permissions in SETS:
        for place in (COVERED, ELSEWHERE) if way.pattern is None else (COVERED,):
            for exists, needs in ((True, way.existing), (False, way.new)):
                if needs is None:
                    continue
                cell = Cell(permissions, way.pattern or f"{COVERED}.#")
                if exists:
                    cell.make(f"{place}.x")
                let_in = way.go(cell, f"{place}.x")
                if let_in != expected(needs, permissions, covered=place == COVERED):
                    wrong.append((sorted(permissions), place, "there" if exists else "new", let_in))
    assert not wrong
