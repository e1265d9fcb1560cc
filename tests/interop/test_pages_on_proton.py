"""Programs for proton in docs/, run with proton: their pages say that they do not run there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import acquit
from acquit.protocol.definitions import Accepted, Received
from acquit.testing import Proxy
from tests.docs.test_blocks_that_others_run import block

pytestmark = pytest.mark.interop

WAIT_S = 30.0


def test_the_worker_in_transactions(tmp_path: Path) -> None:
    program = block("transactions.md", "from proton import Message")
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection, connection.session() as session:
        orders = session.sender("orders")
        for number in range(20):
            orders.send(f"order {number}")
        script = tmp_path / "worker.py"
        script.write_text(program.replace("amqp://127.0.0.1:5672", broker.url))
        with (
            session.receiver("invoices") as invoices,
            subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True) as worker,
        ):
            try:
                came = [invoices.receive(WAIT_S) for _ in range(20)]
            finally:
                worker.terminate()
        assert [invoice.body for invoice in came if invoice is not None] == [
            f"invoice for order {number}" for number in range(20)
        ], worker.stderr
        queue = broker.inspect().queue("orders")
        assert queue is not None
        assert queue.depth == 0


def test_renewing_a_lock_in_locks() -> None:
    """Once for each part of the work, the broker hears that it goes on."""
    names: dict[str, Any] = {
        "proton": importlib.import_module("proton"),
        "work": lambda message: ["one part", "another"],
    }
    exec(block("locks.md", "def on_message(self, event):"), names)
    handlers, reactor = importlib.import_module("proton.handlers"), importlib.import_module("proton.reactor")

    class Handler(handlers.MessagingHandler):  # type: ignore[misc]
        on_message, on_timer_task = names["on_message"], names["on_timer_task"]

        def on_start(self, event: Any) -> None:
            event.container.create_receiver(event.container.connect(url, reconnect=False), "jobs")

        def accept(self, delivery: Any) -> None:
            super().accept(delivery)
            delivery.connection.close()

    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection:
            connection.session().sender("jobs").send("a job")
        with Proxy(broker.url) as proxy:
            url = proxy.url
            reactor.Container(Handler(auto_accept=False)).run()
            said = [frame.performative for frame in proxy.passed("disposition", by="client")]
        queue = broker.inspect().queue("jobs")
        assert queue is not None
        assert queue.depth == 0
    assert [(type(disposition.state), disposition.settled) for disposition in said] == [
        (Received, False),
        (Received, False),
        (Accepted, True),
    ]
