"""`acquit serve` killed with -9 in the middle of sending, and started again on the same folder.

Every send ends in knowledge: accepted, which survives, or in doubt. What is in doubt is sent again under the same
message id, and whoever reads the queue recognises the copy by it.
"""

from __future__ import annotations

import atexit
import subprocess
import sys
import tempfile

import acquit


def serve(data: str) -> tuple[subprocess.Popen[str], str]:
    """Start a broker and return it with its URL."""
    command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--data", data]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    atexit.register(process.kill)  # however this program ends
    assert process.stdout is not None
    ready = process.stdout.readline()  # "... amqp://127.0.0.1:PORT ..."
    return process, next(word.strip(",") for word in ready.split() if word.startswith("amqp://"))


accepted: set[str] = set()
again: list[str] = [f"order-{number}" for number in range(10_000)]
with tempfile.TemporaryDirectory() as data:
    for attempt in range(2):
        broker, url = serve(data)
        try:
            connection = acquit.connect(url)
            sender = connection.session().sender("orders")
            receipts = []
            for identity in again:
                message = acquit.Message(f"body of {identity}", durable=True, message_id=identity)
                receipts.append((identity, sender.send(message, wait=False)))
                if attempt == 0 and len(receipts) > 500 and receipts[0][1].done:
                    broker.kill()
                    break
        except acquit.ConnectionFailed:
            pass  # the kill was quicker than our next send
        again = again[len(receipts) :]
        for identity, receipt in reversed(receipts):
            try:
                receipt.result(timeout=10)
                accepted.add(identity)
            except (acquit.DeliveryInDoubt, acquit.ConnectionFailed):
                again.insert(0, identity)
        print(f"attempt {attempt + 1}: {len(accepted)} accepted so far, {len(again)} to be sent")

    with connection.session() as session, session.receiver("orders", prefetch=1000) as receiver:
        found = []
        while (received := receiver.receive(timeout=0.5)) is not None:
            found.append(str(received.message_id))
    connection.close()
    broker.terminate()
    broker.wait()

print(f"{len(accepted - set(found))} accepted ones are missing, {len(found) - len(set(found))} came twice")
