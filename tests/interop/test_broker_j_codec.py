"""What we write, read by the codec of Broker-J (`brokers/broker-j/src/Decode.java`), which is strict about types."""

from __future__ import annotations

import subprocess

import pytest

from acquit.protocol.composite import encode_composite
from acquit.protocol.definitions import (
    Attach,
    Begin,
    Coordinator,
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Open,
    SaslMechanisms,
    Source,
    Target,
)
from acquit.protocol.types import Symbol
from tests.interop.java import BROKER_J, QUICK_START, PeerMissing, in_ci
from tests.support.broker_world import World

pytestmark = pytest.mark.interop

POLICIES = (DeleteOnClose(), DeleteOnNoLinks(), DeleteOnNoMessages(), DeleteOnNoLinksOrMessages())


def read_by_broker_j(values: list[object]) -> list[str]:
    """What its codec makes of each."""
    try:
        classes = BROKER_J.classpath()
    except PeerMissing as reason:
        (pytest.fail if in_ci() else pytest.skip)(str(reason))
    lines = "".join(f"{encode_composite(value).hex()}\n" for value in values)
    command = ["java", *QUICK_START, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", classes, "Decode"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()


def answers_to_dynamic_termini() -> list[object]:
    """What our broker attaches with, for temporary queues and topics, to their senders and receivers."""
    world = World()
    client = world.client()
    answers: list[object] = []
    for number, policy in enumerate(POLICIES):
        for kind in ("temporary-queue", "temporary-topic"):
            asked = {"dynamic": True, "capabilities": (kind,), "dynamic_node_properties": {"lifetime-policy": policy}}
            for role in (client.begun.attach_sender, client.begun.attach_receiver):
                sends = role == client.begun.attach_sender
                source, target = (Source(), Target(**asked)) if sends else (Source(**asked), Target())
                link = role(f"{kind}-{number}-{sends}", source=source, target=target)
                world.settle()
                assert link.remote_attach is not None
                said = link.remote_attach.target if sends else link.remote_attach.source
                assert said is not None
                assert said.dynamic
                assert said.dynamic_node_properties is not None
                answers.append(link.remote_attach)
    return answers


def test_it_reads_the_answers_to_dynamic_termini() -> None:
    answers = answers_to_dynamic_termini()
    found = read_by_broker_j(answers)
    assert len(found) == len(answers) == 16
    for one in found:
        assert one.startswith("Attach{"), one
        assert "supported-dist-modes=" in one


def test_it_reads_one_and_several_of_whatever_there_may_be_several() -> None:
    values: list[object] = []
    for symbols in ((), ("amqp:accepted:list",), ("amqp:accepted:list", "amqp:released:list")):
        source = Source("q", outcomes=symbols, capabilities=symbols)
        target = Target("q", capabilities=symbols)
        several = {"offered_capabilities": symbols, "desired_capabilities": symbols}
        values += [
            Open("c", outgoing_locales=symbols, incoming_locales=symbols, **several),
            Begin(None, 0, 1, 1, **several),
            Attach("link", 0, False, source=source, target=target, **several),
            Attach("link", 0, False, source=source, target=Coordinator(symbols)),
            SaslMechanisms(symbols or ("PLAIN", "ANONYMOUS")),  # none is not allowed (5.3.3.1)
        ]
    found = read_by_broker_j(values)
    assert len(found) == len(values)
    for value, one in zip(values, found, strict=True):
        assert one.startswith(f"{type(value).__name__}{{"), one


def test_a_list_is_what_it_refuses() -> None:
    """Else the tests above would show nothing."""
    wrong = Target("q", dynamic=True, dynamic_node_properties={"supported-dist-modes": [Symbol("move")]})
    (found,) = read_by_broker_j([wrong])
    assert found.startswith("refused: ")
