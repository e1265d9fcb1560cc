"""Every way in, for every set of permissions, at an address that the role names and at one that it does not.

What is expected comes from a table of docs/security.md's rules, and not from the code: for each way the permissions it
takes, as alternatives of sets. The broker must allow exactly these, and refuse all else for want of the permission.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from acquit.broker import options
from acquit.broker.admin.later import Later
from acquit.broker.admin.operations import OPERATIONS
from acquit.broker.options import BrokerLimits, BrokerOptions, Role, Security, User
from acquit.ledger.history import Asked, History, history
from acquit.protocol.definitions import (
    Accepted,
    Error,
    RcvSettleMode,
    Rejected,
    Source,
    Target,
    TerminusDurability,
    TerminusExpiryPolicy,
)
from acquit.protocol.extensions import MANAGEMENT_NODE, RESUME
from acquit.protocol.link import Link, ReceivingLink, SendingLink
from acquit.protocol.message import Message
from tests.support.broker_world import DATA, Client, World, after_kill, durable, live_of
from tests.support.examples import share
from tests.support.transacting import Controller

PERMISSIONS = ("send", "consume", "browse", "create", "delete", "manage")
# Those with none, all, one and all but one first: of the others some are tried here, and all where it takes less time.
SIZES = sorted(range(len(PERMISSIONS) + 1), key=lambda size: min(size, len(PERMISSIONS) - size))
SETS = [frozenset(chosen) for size in SIZES for chosen in combinations(PERMISSIONS, size)]
UNAUTHORIZED = "amqp:unauthorized-access"
COVERED, ELSEWHERE = "mine", "other"
GOOD, FORBIDDEN, NOT_FOUND = (200, 201, 204), 403, 404


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
        self.world.core.administration.history = self._history
        self._names = 0

    def _history(self, asked: Asked, bytes_max: int) -> Later[History]:
        """As the server does on a thread."""
        later = Later[History]()
        later.finish(history(DATA, sequence=asked.sequence, disk=after_kill(self.world.disk)))
        return later

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
    made = client.begun.attach_receiver(cell.name(), source=Source(None, dynamic=True), target=Target("here"))
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


class Answer(NamedTuple):
    """The answer to a request to the management node."""

    status: int
    body: Any


def _answer(cell: Cell, operation: str, kind: str, name: str | None, body: object = None) -> Answer:
    here = cell.name()
    replies = cell.tried.begun.attach_receiver(cell.name(), source=Source(MANAGEMENT_NODE), target=Target(here))
    replies.grant(1)
    cell.world.carry()
    about: dict[str, object] = {"operation": operation, "type": f"acquit:{kind}"}
    if name is not None:
        about["name"] = name
    requests = cell.tried.sender(MANAGEMENT_NODE, cell.name())
    cell.tried.post(requests, Message(body, reply_to=here, application_properties=about))
    cell.world.settle()
    (answer,) = cell.tried.received[replies]
    message = Message.decode(answer.payload)
    return Answer(int(str(message.application_properties["statusCode"])), message.body)


def command(
    operation: str, kind: str = "queue", body: object = None, *, named: bool = True
) -> Callable[[Cell, str], bool]:
    """A request to the management node, about the address. Later failures than 403 do not concern the permission."""
    return lambda cell, address: _answer(cell, operation, kind, address if named else None, body).status != FORBIDDEN


def does(
    operation: str, kind: str, name: Callable[[Cell, str], str], body: object = None
) -> Callable[[Cell, str], bool]:
    """A request about what `name` makes at the address. Who may not know of it hears that there is none."""

    def done(cell: Cell, address: str) -> bool:
        answer = _answer(cell, operation, kind, name(cell, address), body)
        assert answer.status in (*GOOD, FORBIDDEN, NOT_FOUND), answer
        return answer.status in GOOD

    return done


def shows(
    kind: str, column: str, made: Callable[[Cell, str], object], body: object = None
) -> Callable[[Cell, str], bool]:
    """A table, in which the one with this value in the column, made at the address, is told of, or is not."""

    def shown(cell: Cell, address: str) -> bool:
        wanted = made(cell, address)
        answer = _answer(cell, "QUERY", kind, None, body)
        assert answer.status in (200, FORBIDDEN), answer
        if answer.status == FORBIDDEN:
            return False
        at = answer.body["attributeNames"].index(column)
        return wanted in [row[at] for row in answer.body["results"]]

    return shown


def move(to: str) -> Callable[[Cell, str], bool]:
    def moved(cell: Cell, address: str) -> bool:
        cell.make(f"{to}.target")
        return _answer(cell, "MOVE", "queue", address, {"to": f"{to}.target"}).status != FORBIDDEN

    return moved


def redrive(to: str) -> Callable[[Cell, str], bool]:
    """Whether the dead letters of an address went back to where they died."""

    def redriven(cell: Cell, address: str) -> bool:
        died = f"{to}.{cell.name()}"
        cell.make(died)
        link = cell.owner.receiver(died, cell.name(), credit=1)
        cell.world.settle()
        link.session.settle_all(cell.owner.held(link), Rejected(None))
        cell.owner.detach(link)
        cell.world.settle()
        cell.world.core.administration.move("DLQ", address, None, messages_max=None, selector=None)
        cell.world.settle()
        answer = _answer(cell, "REDRIVE", "queue", address)
        assert answer.status in (200, FORBIDDEN), answer
        went = answer.status != FORBIDDEN and answer.body["redriven"] > 0
        assert went == (live_of(cell.world, died) > 0)
        return went

    return redriven


def read_history(cell: Cell, address: str) -> bool:
    """Whether the life of a message is told to who knows its sequence."""
    (sequence,) = (one.sequence for one in cell.world.core.queues.by_name[address].backlog.next_messages())
    answer = _answer(cell, "READ", "history", None, {"sequence": sequence})
    assert answer.status in (200, FORBIDDEN, NOT_FOUND), answer
    assert answer.status != NOT_FOUND or b"the owner" not in repr(answer).encode()
    return answer.status == 200 and len(answer.body["lives"]) == 1


def create_again(cell: Cell, address: str) -> bool:
    """Whether a queue that is there was replaced, and what was in it is gone."""
    answer = _answer(cell, "CREATE", "queue", address)
    assert answer.status in (409, FORBIDDEN), answer
    return live_of(cell.world, address) != 1


def read_figures(cell: Cell, _: str) -> bool:
    """Whether the broker's figures are told beyond those that are everybody's."""
    return "memory_bytes" in _answer(cell, "READ", "broker", None).body


def read_metrics(cell: Cell, address: str) -> bool:
    """Whether the figures of a queue are told; anybody who may look at some queue is answered."""
    answer = _answer(cell, "READ", "metrics", None)
    return answer.status == 200 and address in [row[0] for row in answer.body["results"]]


def read_fate(cell: Cell, _: str) -> bool:
    """Whether another user's transaction is told of."""
    txn_id = Controller(cell.owner, cell.name()).declare()
    return bool(_answer(cell, "READ", "transaction", txn_id.hex()).body["fate"] != "unknown")


def _address(_: Cell, address: str) -> str:
    return address


def _number(of: str) -> Callable[[Cell, str], int]:
    """The number of the connection of "owner" or "tried"."""
    return lambda cell, _: int(getattr(cell, of).peer.number)


def _named(number: Callable[[Cell, str], int]) -> Callable[[Cell, str], str]:
    return lambda cell, address: str(number(cell, address))


def _link(cell: Cell, address: str) -> str:
    """The id of a link of the owner's."""
    cell.owner.receiver(address, cell.name())
    peer = cell.owner.peer
    return f"{peer.number}.{max(peer.links.values())}"


def _transaction(cell: Cell, _: str) -> str:
    return Controller(cell.owner, cell.name()).declare().hex()


def _terminus(cell: Cell, address: str) -> str:
    """The identity of a terminus of the owner's, which outlives its link."""
    before = {one.identity for one in cell.world.core.administration.termini()}
    cell.owner.begun.attach_receiver(
        cell.name(),
        source=Source(address, TerminusDurability.UNSETTLED_STATE, TerminusExpiryPolicy.NEVER),
        target=Target("there"),
        rcv_settle_mode=RcvSettleMode.SECOND,
        unsettled={},
        desired_capabilities=(RESUME,),
    )
    cell.world.settle()
    (made,) = {one.identity for one in cell.world.core.administration.termini()} - before
    return made


class Way(NamedTuple):
    """`existing`: what it takes at an address that is there; `new`: at one that is not. Each has alternatives. None: it
    is not tried. `pattern`: what the role names, where that is not below COVERED; tried at no other address. `asks`:
    the operation that it asks for, "VERB type"."""

    name: str
    go: Callable[[Cell, str], bool]
    existing: list[str] | None
    new: list[str] | None = None
    pattern: str | None = None
    asks: str = ""


NEVER: list[str] = []
LOOK = ["browse", "manage"]
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
    Way("read the broker", command("READ", "broker", named=False), [""], asks="READ broker"),
    Way("read its figures", read_figures, NEVER, asks="READ broker"),
    Way("read its figures, of everything", read_figures, ["browse", "manage"], None, "#", asks="READ broker"),
    Way("read a queue's metrics", read_metrics, LOOK, asks="READ metrics"),
    Way("list queues", shows("queue", "name", _address), LOOK, asks="QUERY queue"),
    Way("list queues by the page", shows("queue", "name", _address, {"limit": 9}), LOOK, asks="QUERY queue"),
    Way("read a queue", command("READ"), LOOK, LOOK, asks="READ queue"),
    Way("read a queue's history", command("QUERY", "queue-history"), LOOK, LOOK, asks="QUERY queue-history"),
    Way("list scheduled", command("QUERY", "message"), LOOK, LOOK, asks="QUERY message"),
    Way("look at messages", command("QUERY", "message", {"state": "all"}), LOOK, asks="QUERY message"),
    Way("search messages", command("QUERY", "message", {"selector": "TRUE"}), LOOK, asks="QUERY message"),
    Way("read a message", command("READ", "message", {"sequence": 1}), LOOK, asks="READ message"),
    Way("read a message's history", read_history, LOOK, asks="READ history"),
    Way("cancel scheduled", command("CANCEL", "message", {"sequence": 1}), ["manage"], asks="CANCEL message"),
    Way("pause", command("UPDATE", "queue", {"paused": "both"}), ["manage"], ["manage"], asks="UPDATE queue"),
    Way("purge", command("PURGE"), ["manage"], ["manage"], asks="PURGE queue"),
    Way("purge by selector", command("PURGE", "queue", {"selector": "TRUE"}), ["manage"], asks="PURGE queue"),
    Way("purge by sequence", command("PURGE", "queue", {"sequences": [1]}), ["manage"], asks="PURGE queue"),
    Way("create", command("CREATE"), ["create", "manage"], ["create", "manage"], asks="CREATE queue"),
    Way("create over another's", create_again, NEVER, asks="CREATE queue"),
    Way("delete", command("DELETE"), ["delete", "manage"], ["delete", "manage"], asks="DELETE queue"),
    Way("move within", move(COVERED), ["manage"], asks="MOVE queue"),
    Way("move elsewhere", move(ELSEWHERE), NEVER, asks="MOVE queue"),
    Way("redrive within", redrive(COVERED), ["manage"], asks="REDRIVE queue"),
    Way("redrive elsewhere", redrive(ELSEWHERE), NEVER, asks="REDRIVE queue"),
    Way("see links", shows("link", "id", _link), LOOK, asks="QUERY link"),
    Way("detach a link", does("DELETE", "link", _link, {"reason": "x"}), ["manage"], asks="DELETE link"),
    Way("see one's connection", shows("connection", "id", _number("tried")), [""], asks="QUERY connection"),
    Way("see another's connection", shows("connection", "id", _number("owner")), NEVER, asks="QUERY connection"),
    Way("see all connections", shows("connection", "id", _number("owner")), ["manage"], None, "#", "QUERY connection"),
    Way("close a connection", does("DELETE", "connection", _named(_number("owner"))), NEVER, asks="DELETE connection"),
    Way(
        "close any connection",
        does("DELETE", "connection", _named(_number("owner"))),
        ["manage"],
        None,
        "#",
        "DELETE connection",
    ),
    Way("see transactions", shows("transaction", "id", _transaction), NEVER, asks="QUERY transaction"),
    Way("see all transactions", shows("transaction", "id", _transaction), ["manage"], None, "#", "QUERY transaction"),
    Way("another's transaction", read_fate, NEVER, asks="READ transaction"),
    Way("another's transaction, of everything", read_fate, NEVER, None, "#", "READ transaction"),
    Way("see termini", shows("terminus-entity", "identity", _terminus), LOOK, asks="QUERY terminus-entity"),
    Way("end a terminus", does("DELETE", "terminus-entity", _terminus), ["manage"], asks="DELETE terminus-entity"),
    Way("reload", command("RELOAD", "broker", named=False), NEVER, asks="RELOAD broker"),
    Way("reload, of everything", command("RELOAD", "broker", named=False), ["manage"], None, "#", "RELOAD broker"),
    Way("publish", command("PUBLISH", body={"body": "x"}), ["send", "manage"], asks="PUBLISH queue"),
    Way("read a policy", command("READ", "address"), ["browse", "manage"], asks="READ address"),
    *(
        Way(f"{verb.lower()} rules{of}", command(verb, "address", body, named=named), *needs, f"{verb} address")
        for verb, body, named in (
            ("QUERY", None, False),
            ("UPDATE", {"settings": {"messages_max": 7}}, True),
            ("DELETE", None, True),
        )
        for of, needs in (("", (NEVER, None, None)), (", of everything", (["manage"], None, "#")))
    ),
    Way("see marks", command("QUERY", "sender-mark-entity", named=False), NEVER, asks="QUERY sender-mark-entity"),
    Way(
        *("see all marks", command("QUERY", "sender-mark-entity", named=False), ["manage"], None, "#"),
        "QUERY sender-mark-entity",
    ),
    Way("rotate", command("ROTATE", "broker", named=False), NEVER, asks="ROTATE broker"),
    Way("rotate, of everything", command("ROTATE", "broker", named=False), ["manage"], None, "#", "ROTATE broker"),
]


def expected(needs: list[str], permissions: frozenset[str], *, covered: bool) -> bool:
    """The rules: one of the alternatives is given whole, at this address. What needs nothing is everybody's."""
    return any(set(need.split()) <= (permissions if covered else frozenset()) for need in needs)


@pytest.mark.promise("access")
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_exactly_what_the_permissions_say(way: Way) -> None:
    wrong = []
    for permissions in SETS[: share(len(SETS))]:
        cell = Cell(permissions, way.pattern or f"{COVERED}.#")
        for place in (COVERED, ELSEWHERE) if way.pattern is None else (COVERED,):
            for exists, needs in ((True, way.existing), (False, way.new)):
                if needs is None:
                    continue
                address = f"{place}.{'x' if exists else 'new'}"
                if exists:
                    cell.make(address)
                let_in = way.go(cell, address)
                if let_in != expected(needs, permissions, covered=place == COVERED):
                    wrong.append((sorted(permissions), place, "there" if exists else "new", let_in))
    assert not wrong


def test_each_permission_is_tried_and_explained() -> None:
    page = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
    rows = page.split("| permission | at an address it allows to |\n|---|---|\n", 1)[1].split("\n\n", 1)[0]
    assert re.findall(r"^\| `(\w+)` \|", rows, re.MULTILINE) == list(PERMISSIONS)
    assert options.PERMISSIONS == PERMISSIONS


def test_each_operation_has_its_ways() -> None:
    """An operation that is new in the table is a way in, which has to be written down here."""
    assert {way.asks for way in WAYS} - {""} == {f"{verb} {kind.removeprefix('acquit:')}" for verb, kind in OPERATIONS}
