"""Brokers that we did not write, and ours among them, as one kind of thing: start, kill, start again, connect.

What brokers do differently is not skipped, it is a row of `Capabilities` of each: a test does the same with all of them
and asserts that what it saw is what that row says (see `observations`). How a broker is started and configured is in a
module of its own: `artemis`, `broker_j`, `rabbitmq`, `ours`.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import acquit
from tests.interop.java import QUICK_START, JavaProgram

START_S = 60.0
"""A broker that has not said where it listens by then does not start."""
USERNAME, PASSWORD = "ann", "correct horse"

THRICE, ATTEMPTS_MAX, GRAVES = ".thrice", 3, "graves"
"""The names of queues that give up end like this; so many attempts; and where they bury what failed."""

STRICT = acquit.ConnectOptions(reconnect=None)


def _row(group: str, heading: str) -> Any:
    """A field of `Capabilities`, with its place in docs/brokers.md."""
    return field(metadata={"group": group, "heading": heading})


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a broker is expected to do. Values are what the table in docs/brokers.md shows: yes and no, numbers, or few
    words."""

    acknowledgement: str = _row("Settlement", "what a receipt says in CLIENT and INDIVIDUAL")
    altered: str = _row("Messages", "what of a message is not kept as it was")

    rejected: str = _row("Outcomes", "*rejected*: the message is found")
    rejected_reason_kept: bool = _row("Outcomes", "*rejected*: the error is kept with the dead letter")
    own_condition: str = _row("Outcomes", "*rejected* with a condition that AMQP does not define")
    released_place: str = _row("Outcomes", "*released*: the message goes to")
    modified: str = _row("Outcomes", "*modified*: the message is found")
    attempts: str = _row("Outcomes", "*modified (delivery-failed)* at the limit of attempts: the message is found")
    undeliverable_here: str = _row("Outcomes", "*modified (undeliverable-here)*: the message goes to")
    modified_annotations: bool = _row("Outcomes", "*modified*: annotations are merged")
    drain: bool = _row("Credit", "answers *drain*")
    echo: bool = _row("Credit", "answers a flow that asks (*echo*)")
    available: bool = _row("Credit", "says how many messages wait (*available*)")
    login: str = _row("Connection", "SASL mechanisms of our client that let in")
    non_persistent_kept: bool = _row("Messages", "what is sent NON_PERSISTENT stays so")
    transactions: bool = _row("Transactions", "has transactions")
    transacted_reject: str = _row("Transactions", "*rejected* in a transaction, after the commit")
    transacted_release: str = _row("Transactions", "*released* in a transaction, after the commit")
    transacted_modify: str = _row("Transactions", "*modified (delivery-failed)* in a transaction, after the commit")
    rolled_back_too_often: str = _row("Transactions", "rolled back up to the limit of attempts: the message is found")
    rolled_back: str = _row("Transactions", "what was handed out comes again after a rollback")
    survives_kill: bool = _row("Kills", "what was accepted survives a kill -9")
    kill_counts: bool = _row("Kills", "a kill -9 raises delivery-count of what was handed out")
    commit_without_answer: str = _row("Kills", "the broker is killed before it answers a commit")
    # RMQ: test_foreign_grants
    mode_second: str = _row("Settlement", "rcv-settle-mode second, where a receiver asks for it")
    pre_settled: bool = _row("Settlement", "NO_ACK is at most once: gone as it is sent")
    default_outcome: bool = _row("Settlement", "default-outcome is applied when the connection is lost")
    counts_failed: bool = _row("Attempts", "*modified* (delivery-failed) raises delivery-count")
    counts_released: bool = _row("Attempts", "*released* raises delivery-count")
    counts_lost_connection: str = _row("Attempts", "a lost connection raises delivery-count")
    first_acquirer_kept: bool = _row("Attempts", "first-acquirer tells a second delivery from a first")
    drops_duplicates: bool = _row("Messages", "drops a message that is sent again (property `_AMQ_DUPL_ID`)")
    browse: bool = _row("Choosing", "`browse`: distribution-mode copy")
    selector: bool = _row("Choosing", "`selector`")
    no_local: bool = _row("Choosing", "`no_local`")
    unknown_address: str = _row("Nodes", "an address that nobody made")
    temporary_node: bool = _row("Nodes", "temporary nodes: `receiver(None)`")
    anonymous_terminus: bool = _row("Nodes", "the anonymous terminus: `sender(None)`")
    topic: bool = _row("Nodes", "topics: each subscriber has a copy")
    durable_subscription: bool = _row("Nodes", "durable subscriptions")
    shared_subscription: bool = _row("Nodes", "shared subscriptions")
    # test_foreign_resumption
    resumes: bool = _row("Resumption", "`exactly_once`: deliveries are resumed after a lost connection")
    kept: str = _row(
        "Resumption", "a link that asks for durable *unsettled-state* and expiry-policy *never* is granted"
    )
    attached_again: str = _row("Resumption", "that link after a lost connection, attached with its unsettled map")
    sent_again: str = _row("Resumption", "a send on such a link whose answer was lost, after that")


class ForeignBroker(ABC):
    """A broker in a process of its own, on a folder of its own. Use as a context manager: leaving it ends the process.

    All times `start` after the first, it comes back on its port and its folder.
    """

    name: ClassVar[str]
    can: ClassVar[Capabilities]
    username: ClassVar[str | None] = USERNAME
    password: ClassVar[str | None] = PASSWORD

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = 0

    @property
    def url(self) -> str:
        """Without the user."""
        return f"amqp://127.0.0.1:{self.port}"

    @property
    def product(self) -> str:
        """What it calls itself in *open*."""
        with self.connect() as connection:
            said = connection.remote_properties
            return f"{said.get('product')} {said.get('version')}"

    @property
    @abstractmethod
    def running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it can be connected to."""

    @abstractmethod
    def stop(self) -> None:
        """End it in order. Nothing where it is not running."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL, to the whole broker."""

    @abstractmethod
    def queue(self, name: str, *, max_delivery_attempts: int = 0, dead_letter: str | None = None) -> str:
        """Make a durable queue, unless there is one, and return the address by which clients know it. 0 and None leave
        the broker's own defaults."""

    @abstractmethod
    def topic(self, name: str) -> str:
        """Make what copies each message to all who subscribe, and return the address by which clients know it."""

    def restart(self) -> None:
        self.start()

    def connect(self, **arguments: Any) -> acquit.Connection:
        """Our client, on it; a connection that is lost is an error, unless the options say otherwise."""
        arguments = self._defaults() | arguments
        return acquit.connect(arguments.pop("url", self.url), **arguments)

    async def aconnect(self, **arguments: Any) -> acquit.aio.Connection:
        """Our asyncio client, on it, in the same way."""
        arguments = self._defaults() | arguments
        return await acquit.aio.connect(arguments.pop("url", self.url), **arguments)

    def _defaults(self) -> dict[str, Any]:
        return {"username": self.username, "password": self.password, "options": STRICT}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        self.stop()


class JavaBroker(ForeignBroker):
    """A broker that a Java program of ours embeds, and that obeys the lines of `brokers/README.md`."""

    program: ClassVar[JavaProgram]
    main: ClassVar[str]
    arguments: ClassVar[tuple[str, ...]] = ()
    java: ClassVar[tuple[str, ...]] = (*QUICK_START, "-Xmx512m")
    """What the virtual machine is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._process: subprocess.Popen[str] | None = None
        self._said: queue.Queue[str | None] = queue.Queue()
        self._reader: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        assert self._process is None, f"{self.name} runs already"
        with (self.folder / "broker.log").open("a", encoding="utf-8") as log:
            self._process = subprocess.Popen(
                [
                    "java",
                    *self.java,
                    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                    "-cp",
                    self.program.classpath(),
                    self.main,
                    str(self.folder / "data"),
                    str(self.port),
                    *self.arguments,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._said = queue.Queue()
        self._reader = threading.Thread(target=self._read, args=(self._process, self._said), daemon=True)
        self._reader.start()
        word, _, port = self._answer().partition(" ")
        assert word == "listening", f"{self.name} said {word!r} where it should say where it listens"
        self.port = int(port)

    def stop(self) -> None:
        process = self._process
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(START_S)
            self._end()

    def kill(self) -> None:
        self._end()

    def queue(self, name: str, *, max_delivery_attempts: int = 0, dead_letter: str | None = None) -> str:
        self._order("queue", name, str(max_delivery_attempts), *([dead_letter] if dead_letter else []))
        return name

    def topic(self, name: str) -> str:
        self._order("topic", name)
        return name

    def _end(self) -> None:
        process, reader = self._process, self._reader
        assert process is not None and process.stdin is not None and process.stdout is not None, "not running"
        assert reader is not None
        process.kill()
        process.wait()
        reader.join()
        process.stdin.close()
        process.stdout.close()
        self._process = self._reader = None

    def _order(self, *words: str) -> None:
        assert self._process is not None and self._process.stdin is not None, f"{self.name} does not run"
        self._process.stdin.write(" ".join(words) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert answer == "done", f"{self.name} answered {answer!r} to {' '.join(words)}"

    def _answer(self) -> str:
        try:
            said = self._said.get(timeout=START_S)
        except queue.Empty:
            said = None
        if said is None:
            log = (self.folder / "broker.log").read_text(encoding="utf-8")
            raise AssertionError(f"{self.name} did not answer; its log ends with: {log[-2000:]}")
        return said

    @staticmethod
    def _read(process: subprocess.Popen[str], said: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.put(line.rstrip("\n"))
        said.put(None)
