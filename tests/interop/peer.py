"""The peers of `peers/` as Python objects: commands go in, events are waited for by name and content.

A wait ends with the event or fails the test after `TIMEOUT_S`, printing all that the peer said; nothing sleeps.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from tests.interop.java import in_ci

HERE = Path(__file__).parent
TIMEOUT_S = 20.0
NODE_MODULES = Path(os.environ.get("ACQUIT_INTEROP_NODE_MODULES", HERE.parents[1] / "build/interop/node_modules"))
PEERS = ("proton", "rhea")

Event = dict[str, Any]


def texts(*names: str, **fields: object) -> list[dict[str, object]]:
    """Durable messages with these ids, for `Peer.send`; `fields` are the same in all of them."""
    return [{"id": name, "body": {"value": name}, "durable": True, **fields} for name in names]


def ids(messages: list[Event]) -> list[object]:
    return [message["id"] for message in messages]


def command_of(kind: str) -> list[str]:
    """How to start a peer. A missing one skips the test; in CI that is a failure."""
    if kind == "proton":
        return [sys.executable, str(HERE / "peers/proton_peer.py")]
    node = shutil.which("node")
    if node is None or not (NODE_MODULES / "rhea").is_dir():
        missing = f"rhea is missing: expected node on the PATH and {NODE_MODULES}/rhea; `make interop-peers` gets it"
        (pytest.fail if in_ci() else pytest.skip)(missing)
    return [node, str(HERE / "peers/rhea_peer.js")]


class Peer:
    """One peer process. Use as a context manager; leaving it ends the process."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._process = subprocess.Popen(
            command_of(kind),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "ACQUIT_INTEROP_NODE_MODULES": str(NODE_MODULES)},
        )
        self._arriving: queue.Queue[Event | None] = queue.Queue()
        self._unseen: list[Event] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def do(self, command: str, **fields: object) -> None:
        """Send one command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, **fields}) + "\n")
        self._process.stdin.flush()

    def expect(self, event: str, **fields: object) -> Event:
        """The first unseen event of this name whose fields have these values; others stay for later."""
        for index, seen in enumerate(self._unseen):
            if _matches(seen, event, fields):
                return self._unseen.pop(index)
        while True:
            try:
                arrived = self._arriving.get(timeout=TIMEOUT_S)
            except queue.Empty:
                arrived = None
            if arrived is None:
                pytest.fail(f"{self.kind} never said {event} {fields}; unseen: {self._unseen}")
            if _matches(arrived, event, fields):
                return arrived
            self._unseen.append(arrived)

    def expect_many(self, count: int, event: str, **fields: object) -> list[Event]:
        return [self.expect(event, **fields) for _ in range(count)]

    def seen(self, event: str, **fields: object) -> list[Event]:
        """Events that have arrived and were not expected yet; call after a later one was seen, as a barrier."""
        while not self._arriving.empty():
            arrived = self._arriving.get()
            if arrived is not None:
                self._unseen.append(arrived)
        return [seen for seen in self._unseen if _matches(seen, event, fields)]

    # ---- short forms that several tests use

    def connect(self, port: int, **fields: object) -> Event:
        self.do("connect", port=port, **{"container_id": f"{self.kind}-{uuid.uuid4()}", **fields})
        return self.expect("connection_open")

    def reset(self) -> None:
        """Leave the connection and forget what was not expected: another test may have this process."""
        self.do("reset")
        self.expect("reset")
        self.seen("anything")
        self._unseen.clear()

    def listen(self, **fields: object) -> int:
        self.do("listen", **fields)
        return int(self.expect("listening")["port"])

    def sender(self, link: str, address: str | None, **fields: object) -> Event:
        self.do("sender", link=link, address=address, **fields)
        opened = self.expect("link_open", link=link)
        self.expect("credit", link=link)
        return opened

    def receiver(self, link: str, address: str | None, **fields: object) -> Event:
        self.do("receiver", link=link, address=address, **fields)
        return self.expect("link_open", link=link)

    def refused(self, role: str, link: str, address: str | None, **fields: object) -> Event:
        """Attach, and be told why not: an attach without a node, and then the error (2.6.3)."""
        self.do(role, link=link, address=address, **fields)
        assert self.expect("link_open", link=link)["node"] is False
        return self.expect("link_close", link=link)

    def detach(self, link: str, *, closed: bool = True) -> None:
        self.do("detach", link=link, closed=closed)
        self.expect("link_close" if closed else "link_detach", link=link)

    def take(self, link: str, count: int) -> list[Event]:
        """So many messages, accepted."""
        messages = self.expect_many(count, "message", link=link)
        self.settle(link, *(message["delivery"] for message in messages))
        return messages

    def post(self, address: str | None, *messages: dict[str, object], **fields: object) -> None:
        """Send over a link of its own, and wait until each message was accepted."""
        link = f"post.{uuid.uuid4()}"
        self.sender(link, address, **fields)
        self.send(link, *messages)
        for number in range(len(messages)):
            self.expect("outcome", link=link, delivery=number, outcome="accepted", settled=True)
        self.detach(link)

    def barrier(self, address: str) -> None:
        """Everything that the broker had to say of a queue before this has arrived: it answers in order."""
        link = f"barrier.{uuid.uuid4()}"
        self.receiver(link, address, distribution_mode="copy")
        self.detach(link)

    def rest(self, link: str) -> list[Event]:
        """All that there still is for a receiver that has no credit left, or is given more than there is; accepted."""
        self.do("credit", link=link, credit=100)
        self.do("drain", link=link)
        self.expect("drained", link=link)
        messages = self.seen("message", link=link)
        for message in messages:
            self._unseen.remove(message)
        self.settle(link, *(message["delivery"] for message in messages))
        return messages

    def send(self, link: str, *messages: dict[str, object]) -> None:
        self.do("send", link=link, messages=list(messages))

    def settle(self, link: str, *deliveries: int, outcome: str = "accepted", **fields: object) -> None:
        self.do("settle", link=link, deliveries=list(deliveries), outcome=outcome, **fields)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._arriving.put(json.loads(line))
        self._arriving.put(None)


def _matches(event: Event, name: str, fields: dict[str, object]) -> bool:
    return event["event"] == name and all(event.get(key) == value for key, value in fields.items())
