"""Qpid JMS as Python objects: one Java process for all tests, which obeys lines of JSON (see `jms/README.md`).

A call is answered or fails the test after `TIMEOUT_S`; what JMS throws is raised as `JmsError`. A timeout of 0 is JMS's
receiveNoWait(), for which Qpid JMS drains the link: that a queue has nothing for a consumer is seen, not waited for.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pytest

from tests.interop.java import JMS

TIMEOUT_S = 20.0

TRANSACTED, AUTO, CLIENT, DUPS_OK = 0, 1, 2, 3
PRE_ACK, INDIVIDUAL, NO_ACK = 100, 101, 257
"""Session modes as Qpid JMS knows them, beyond those of JMS."""
NON_PERSISTENT, PERSISTENT = 1, 2
ACCEPTED, REJECTED, RELEASED, FAILED, UNDELIVERABLE = 1, 2, 3, 4, 5
"""Outcomes that a message may be given by the property JMS_AMQP_ACK_TYPE; the last two are *modified*."""

ONE_AT_A_TIME = "jms.prefetchPolicy.all=0"
"""An option by which each receive() asks for one message: nothing is sent that nobody looks at."""

_TRACE = "ACQUIT_INTEROP_JMS_TRACE"
"""Set it to see every frame of the JMS client on standard error."""


class JmsError(Exception):
    """An exception of the JMS client: its class, ``is`` its parents where it is Qpid's own, a colon, its text."""


class Jms:
    """The Java process. Use as a context manager; leaving it ends the process."""

    def __init__(self) -> None:
        tracing = os.environ.get(_TRACE, "")
        logger = "org.apache.qpid.jms.provider.amqp.FRAMES=trace" if tracing else "org.apache=off"
        self.options = "amqp.traceFrames=true" if tracing else ""
        self._process = subprocess.Popen(
            [
                "java",
                "-XX:TieredStopAtLevel=1",
                f"-Dorg.slf4j.simpleLogger.log.{logger}",
                "-cp",
                JMS.classpath(),
                "JmsPeer",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.Queue[dict[str, Any] | None]] = {}
        self._events: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self._unseen: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def begin(self, command: str, **fields: object) -> Pending:
        """Give a command without waiting for its answer."""
        number = next(self._numbers)
        self._answers[number] = queue.Queue()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": command, "number": number, **fields}) + "\n")
        self._process.stdin.flush()
        return Pending(self, command, self._answers[number])

    def call(self, command: str, **fields: object) -> Any:
        """Give a command and wait for its answer. Raises JmsError."""
        return self.begin(command, **fields).result()

    def reset(self) -> None:
        """Close what a test left open."""
        self.call("reset")
        self._answers.clear()
        self._events = queue.Queue()
        self._unseen.clear()

    def connect(
        self,
        url: str,
        *,
        options: str = "",
        user: str | None = None,
        password: str | None = None,
        client_id: str | None = None,
        start: bool = True,
    ) -> Connection:
        """Open a connection. `url` may be a failover URI; `options` are appended as its query."""
        query = "&".join(option for option in (options, self.options if "failover" not in url else "") if option)
        uri = f"{url}?{query}" if query else url
        made = self.call("connect", uri=uri, user=user, password=password, client_id=client_id, start=start)
        return Connection(self, made["handle"])

    def expect(self, event: str, **fields: object) -> dict[str, Any]:
        """The first unseen event of this name whose fields have these values; others stay for later."""
        for index, seen in enumerate(self._unseen):
            if _matches(seen, event, fields):
                return self._unseen.pop(index)
        while True:
            try:
                arrived = self._events.get(timeout=TIMEOUT_S)
            except queue.Empty:
                arrived = None
            if arrived is None:
                pytest.fail(f"Qpid JMS never said {event} {fields}; unseen: {self._unseen}")
            if _matches(arrived, event, fields):
                return arrived
            self._unseen.append(arrived)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if "answer" in said:
                waiting = self._answers.get(said["answer"])
                if waiting is not None:
                    waiting.put(said)
            else:
                self._events.put(said)
        for waiting in list(self._answers.values()):
            waiting.put(None)
        self._events.put(None)


def _matches(event: dict[str, Any], name: str, fields: dict[str, object]) -> bool:
    return event["event"] == name and all(event.get(key) == value for key, value in fields.items())


@dataclass(frozen=True)
class Pending:
    """A command whose answer has not been looked at."""

    jms: Jms
    command: str
    answer: queue.Queue[dict[str, Any] | None]

    @property
    def done(self) -> bool:
        return not self.answer.empty()

    def result(self) -> Any:
        try:
            said = self.answer.get(timeout=TIMEOUT_S)
        except queue.Empty:
            pytest.fail(f"Qpid JMS did not answer {self.command} within {TIMEOUT_S:g} s")
        if said is None:
            pytest.fail(f"Qpid JMS ended during {self.command}")
        if "error" in said:
            raise JmsError(f"{said['error']['class']}: {said['error']['text']}")
        return said["result"]


@dataclass(frozen=True)
class _Made:
    """Something in the Java process."""

    jms: Jms
    handle: int

    def close(self) -> None:
        self.jms.call("close", object=self.handle)


class Connection(_Made):
    """A connection; started unless it was opened with start=False."""

    def session(self, mode: int = AUTO) -> Session:
        return Session(self.jms, self.jms.call("session", connection=self.handle, mode=mode)["handle"])

    def start(self) -> None:
        self.jms.call("start", connection=self.handle)

    def stop(self) -> None:
        self.jms.call("stop", connection=self.handle)

    def expect(self, event: str) -> dict[str, Any]:
        """Wait for `exception`, `interrupted`, `restored`, `failed`, `consumer_closed`, `producer_closed`..."""
        return self.jms.expect(event, connection=self.handle)


class Session(_Made):
    """A session. A destination is ``queue:NAME``, ``topic:NAME`` or one that was made or received (`Destination`)."""

    def _make(self, command: str, destination: str | Destination | None, **fields: object) -> int:
        where = destination.handle if isinstance(destination, Destination) else destination
        return int(self.jms.call(command, session=self.handle, destination=where, **fields)["handle"])

    def producer(self, destination: str | Destination | None = None) -> Producer:
        return Producer(self.jms, self._make("producer", destination), self.handle)

    def send(
        self, destination: str | Destination, *messages: str | Mapping[str, object], **how: Any
    ) -> list[dict[str, Any]]:
        """Send over a producer of their own, as `Producer.send`."""
        producer = self.producer(destination)
        sent = producer.send(*messages, **how)
        producer.close()
        return sent

    def consumer(
        self, destination: str | Destination, selector: str | None = None, *, no_local: bool = False
    ) -> Consumer:
        return Consumer(self.jms, self._make("consumer", destination, selector=selector, no_local=no_local))

    def durable(self, topic: str, name: str, selector: str | None = None, *, no_local: bool = False) -> Consumer:
        return Consumer(self.jms, self._make("durable", topic, name=name, selector=selector, no_local=no_local))

    def shared(self, topic: str, name: str, selector: str | None = None) -> Consumer:
        return Consumer(self.jms, self._make("shared", topic, name=name, selector=selector))

    def shared_durable(self, topic: str, name: str, selector: str | None = None) -> Consumer:
        return Consumer(self.jms, self._make("shared_durable", topic, name=name, selector=selector))

    def unsubscribe(self, name: str) -> None:
        self.jms.call("unsubscribe", session=self.handle, name=name)

    def browse(self, destination: str | Destination, selector: str | None = None) -> list[Received]:
        """What a browser of its own sees."""
        browser = self._make("browser", destination, selector=selector)
        found = self.jms.call("browse", browser=browser)
        self.jms.call("close", object=browser)
        return [Received(self.jms, message) for message in found]

    def temporary_queue(self) -> Destination:
        made = self.jms.call("temporary_queue", session=self.handle)
        return Destination(self.jms, made["handle"], made["name"])

    def temporary_topic(self) -> Destination:
        made = self.jms.call("temporary_topic", session=self.handle)
        return Destination(self.jms, made["handle"], made["name"])

    def commit(self) -> None:
        self.jms.call("commit", session=self.handle)

    def rollback(self) -> None:
        self.jms.call("rollback", session=self.handle)

    def recover(self) -> None:
        self.jms.call("recover", session=self.handle)


@dataclass(frozen=True)
class Destination:
    """A temporary queue or topic, or what a message names as its reply-to."""

    jms: Jms
    handle: int
    name: str

    @property
    def address(self) -> str:
        return self.name.partition(":")[2]

    def delete(self) -> None:
        self.jms.call("delete", destination=self.handle)


@dataclass(frozen=True)
class Producer(_Made):
    """A producer; without a destination of its own each send names one."""

    session: int

    def begin_send(
        self,
        *messages: str | Mapping[str, object],
        to: str | Destination | None = None,
        reply_to: Destination | str | None = None,
        delivery_mode: int = PERSISTENT,
        priority: int = 4,
        ttl: int = 0,
        delivery_delay: int = 0,
        listen: bool = False,
    ) -> Pending:
        """Send without waiting for the answers. Times in ms; a message that is a str is a text message; `listen`: with
        the events `completed` and `refused`."""
        return self.jms.begin(
            "send",
            session=self.session,
            producer=self.handle,
            messages=[{"text": message} if isinstance(message, str) else message for message in messages],
            destination=to.handle if isinstance(to, Destination) else to,
            reply_to=reply_to.handle if isinstance(reply_to, Destination) else reply_to,
            delivery_mode=delivery_mode,
            priority=priority,
            ttl=ttl,
            delivery_delay=delivery_delay,
            listen=listen,
        )

    def send(self, *messages: str | Mapping[str, object], **how: Any) -> list[dict[str, Any]]:
        """The headers that JMS gave them."""
        result: list[dict[str, Any]] = self.begin_send(*messages, **how).result()
        return result


class Consumer(_Made):
    """A consumer."""

    def begin_receive(self, count: int = 1, timeout: float = 10.0) -> Pending:
        return self.jms.begin("receive", consumer=self.handle, count=count, timeout=int(timeout * 1000))

    def receive(self, timeout: float = 10.0) -> Received | None:
        """The next message; None if none came in time, in seconds."""
        found = self.begin_receive(1, timeout).result()
        return Received(self.jms, found[0]) if found else None

    def take(self, count: int = 1) -> list[Received]:
        """This many messages; fails the test where fewer come."""
        found = [Received(self.jms, message) for message in self.begin_receive(count).result()]
        assert len(found) == count, f"expected {count} messages, got {texts(found)}"
        return found

    def rest(self) -> list[Received]:
        """All that the broker has for it now."""
        return [Received(self.jms, message) for message in self.begin_receive(1_000_000, 0).result()]

    def listen(self, failures: int = 0) -> None:
        """Messages become events; of the first so many each ends in an exception of the listener."""
        self.jms.call("listen", consumer=self.handle, failures=failures)

    def heard(self) -> Received:
        return Received(self.jms, self.jms.expect("message", consumer=self.handle))


@dataclass(frozen=True)
class Received:
    """A message that was received or browsed."""

    jms: Jms
    fields: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    @property
    def text(self) -> str:
        return str(self.fields["text"])

    @property
    def properties(self) -> dict[str, object]:
        """Application properties without their types, and without JMS's own."""
        return {name: typed["value"] for name, typed in self.fields["properties"].items() if not name.startswith("JMS")}

    @property
    def count(self) -> int:
        """JMSXDeliveryCount; JMSRedelivered must say the same."""
        count = int(self.fields["delivery_count"])
        assert self.fields["redelivered"] == (count > 1), self.fields
        return count

    @property
    def reply_to(self) -> Destination:
        return Destination(self.jms, self.fields["reply_to_handle"], self.fields["reply_to"])

    def acknowledge(self, outcome: int | None = None) -> None:
        more = {} if outcome is None else {"outcome": outcome}
        self.jms.call("acknowledge", message=self.fields["handle"], **more)


def texts(messages: list[Received]) -> list[str]:
    return [message.text for message in messages]


def counts(messages: list[Received]) -> dict[str, int]:
    """Text and JMSXDeliveryCount of each, in order."""
    return {message.text: message.count for message in messages}
