"""`acquit serve` killed with -9 in the middle of sending, and started again on the same folder.

The sender goes on as if nothing had happened: its client connects again, and sends again what has no answer. What the
broker had taken without having said so is then there twice, under one message id, by which a reader tells the copies.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile

import acquit

COUNT = 10_000


def serve(data: str, port: int) -> tuple[subprocess.Popen[str], str]:
    """Start a broker and return it with its URL. Port 0 takes a free one."""
    command = [sys.executable, "-m", "acquit", "serve", "--port", str(port), "--data", data]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)  # however this program ends
    assert process.stdout is not None
    ready = process.stdout.readline()  # "... amqp://127.0.0.1:PORT ..."
    return process, next(word.strip(",") for word in ready.split() if word.startswith("amqp://"))


def say(line: str) -> None:
    """Write a line whole: the client tells on a thread of its own, and print() writes a line and its end apart."""
    sys.stdout.write(f"{line}\n")


def tell(event: acquit.ConnectionEvent) -> None:
    """Say what became of the connection."""
    say(f"the connection: {event.kind.name}")


with tempfile.TemporaryDirectory() as data:
    broker, url = serve(data, 0)
    options = acquit.ConnectOptions(reconnect=acquit.Reconnect(delay_ms=20))
    with acquit.connect(url, options=options, on_event=tell) as connection, connection.session("individual") as session:
        sender = session.sender("orders")
        receipts: list[acquit.SendReceipt] = []
        killed = False
        for number in range(COUNT):
            receipts.append(sender.send(f"order {number}", wait=False))
            if not killed and len(receipts) > 500 and receipts[0].done:
                broker.kill()
                broker.wait()
                killed = True
                unanswered = sum(not receipt.done for receipt in receipts)
                say(f"killed, with {unanswered} sends under way")
                broker, _ = serve(data, int(url.rpartition(":")[2]))
        sender.flush()
        accepted = sum(receipt.result() == acquit.Accepted() for receipt in receipts)
        say(f"{accepted} of {COUNT} sends are accepted")

        found: dict[object, object] = {}
        copies = 0
        receiver = session.receiver("orders", prefetch=1000)
        while (message := receiver.receive(timeout=0.5)) is not None:
            copies += message.message_id in found
            found[message.message_id] = message.body
            message.accept(sync=False)
    broker.terminate()
    broker.wait()

missing = {f"order {number}" for number in range(COUNT)} - set(found.values())
say(f"{len(missing)} are missing, {copies} came twice and were recognised")
