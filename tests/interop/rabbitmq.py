"""RabbitMQ as a process of the test's own: node name, cookie, port mapper, data and every port are private to it.

It is started without its scripts, which read the machine's settings: the Erlang emulator is given what they would have
given it. Erlang's port mapper (epmd), which it cannot do without, is started first and by us, so that it does not stay
behind as a daemon. Queues are declared as RabbitMQ wants it: by requests to the node ``/management``, over a pair of
links that share a name; python-qpid-proton sends them, so that our client is not a part of its own test bench.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

import pytest
from proton import Event, Link, Message, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.interop.foreign import START_S, Capabilities, ForeignBroker
from tests.interop.rabbitmq_program import program

STOP_S = 30.0
READY = b"Server startup complete"
NODE = "rabbit@localhost"
MANAGEMENT = "/management"
REPLY_TO_ME = "$me"

# In the order in which an entry goes through them, so that who reads them misses none.
METADATA = ("LATEST.LOG", "PREVIOUS.LOG", "rabbit_durable_queue.DCL", "rabbit_durable_queue.DCD")
# A transaction in Mnesia's log, in Erlang's external term format; and what became of it, which is logged after it.
PRESUMED_ABORTED = re.compile(rb"w\x08decisionh\x03(w\x03tid.{,80}?)w\x0dpresume_abort", re.DOTALL)
DECIDED = re.compile(rb"w\x08decisionh\x03(w\x03tid.{,80}?)w(?:\x09committed|\x07aborted)", re.DOTALL)

CONFIG = """\
listeners.tcp.1 = 127.0.0.1:{port}
log.console = true
log.file = false
"""

DIE_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL; it survives the exec below
if os.getppid() != int(sys.argv[1]):
    os._exit(3)  # the parent was quicker to die
os.execv(sys.argv[2], sys.argv[2:])
"""

EMULATOR = (
    *("-noinput", "-s", "rabbit", "boot", "+W", "w"),
    # As its own script has it: the log is the standard output's alone.
    *("-syslog", "logger", "[]", "-syslog", "syslog_error_logger", "false"),
    *("-kernel", "prevent_overlapping_partitions", "false", "-kernel", "inet_dist_use_interface", "{127,0,0,1}"),
    # No busy waiting: the tests share few processors.
    *("+sbwt", "none", "+sbwtdcpu", "none", "+sbwtdio", "none", "+S", "2:2"),
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        assert isinstance(port, int)
        return port


class RabbitMQ(ForeignBroker):
    """One node on one folder."""

    name = "rabbitmq"
    username = password = "guest"
    can = Capabilities(
        acknowledgement="sent",
        altered="annotation null (refused), annotation decimal (refused)",
        rejected="dead letter",
        rejected_reason_kept=False,
        own_condition="as any",
        released_place="its old place",
        modified="again, count 0",
        attempts="dead letter",
        undeliverable_here="dead letter",
        modified_annotations=True,
        drain=True,
        echo=True,
        available=True,
        login="PLAIN, ANONYMOUS",
        non_persistent_kept=False,
        transactions=False,
        transacted_reject="no transactions",
        transacted_release="no transactions",
        transacted_modify="no transactions",
        rolled_back_too_often="no transactions",
        rolled_back="no transactions",
        survives_kill=True,
        kill_counts=True,
        commit_without_answer="no transactions",
        # RMQ: test_foreign_grants
        mode_second="ends the session",
        pre_settled=True,
        default_outcome=False,
        counts_failed=True,
        counts_released=False,
        counts_lost_connection="yes",
        first_acquirer_kept=True,
        drops_duplicates=False,
        browse=False,
        selector=False,
        no_local=False,
        unknown_address="ends the session",
        temporary_node=False,
        anonymous_terminus=True,
        topic=True,
        durable_subscription=False,
        shared_subscription=False,
        resumes=False,
        kept="ends the session",
        attached_again="ends the session",
        sent_again="ends the session",
    )
    kind = "quorum"
    """RabbitMQ's type of the queues that are made: *quorum* (replicated; what it recommends for what must not be lost)
    or *classic*."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._program = program()
        self.port = free_port()
        self._log = folder / "log"
        self._data = folder / "data" / NODE
        self._epmd: subprocess.Popen[bytes] | None = None
        self._node: subprocess.Popen[bytes] | None = None
        self._known: dict[str, dict[str, object]] = {}
        (folder / "rabbitmq.conf").write_text(CONFIG.format(port=self.port), encoding="utf-8")
        (folder / "enabled_plugins").write_text("[].\n", encoding="utf-8")
        erlang, server = self._program.erlang, self._program.server
        self._environment = {
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            # The cookie is written there.
            "HOME": str(folder),
            "ROOTDIR": str(erlang),
            "BINDIR": str(self._program.emulator_folder),
            "EMU": "beam",
            "PROGNAME": "erl",
            "ERL_LIBS": str(server / "plugins"),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_MAX_ETS_TABLES": "50000",
            "SYS_PREFIX": "",
            "RABBITMQ_HOME": str(server),
            "RABBITMQ_PLUGINS_DIR": str(server / "plugins"),
            "RABBITMQ_NODENAME": NODE,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(folder / "none.config"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "none.env"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        }

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        super().__exit__(kind, why, where)
        if self._epmd is not None:
            self._epmd.kill()
            self._epmd.wait()
            self._epmd = None
        # For the report of a test that failed with a broker of its own.
        sys.stdout.write(self._said())

    @property
    def running(self) -> bool:
        return self._node is not None

    def start(self) -> None:
        if self._epmd is None:
            self._epmd = self._run("epmd")
        said = self._log.stat().st_size if self._log.exists() else 0
        boot = str(self._program.erlang / "bin/start_sasl")
        self._node = self._run("erlexec", "-boot", boot, "-pa", str(self._program.server / "ebin"), *EMULATOR)
        self._until(lambda: READY in self._log.read_bytes()[said:], "start")

    def stop(self) -> None:
        if self._node is not None:
            self._node.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._node.wait(STOP_S)
            self._end()

    def kill(self) -> None:
        assert self._node is not None, "not running"
        # A queue that was made just before a kill can be lost, with what was accepted into it: RabbitMQ answers before
        # the log says that the transaction of its metadata was committed, and without that it counts as aborted (3 of
        # 54 kills); and it writes down a second later which quorum queues it has. That is not what tests kill it for.
        self._until(self._written, "write its queues")
        self._end()

    def _end(self) -> None:
        node, self._node = self._node, None
        assert node is not None
        node.kill()
        node.wait()

    def _written(self) -> bool:
        """Whether the queues are in the log or the table of its metadata (Mnesia's) and the log has no transaction
        without a decision, and the quorum queues are in their register as well."""
        register = _read(self._data / f"quorum/{NODE}/names.dets")
        metadata = b"".join(_read(self._data / name) for name in METADATA)
        undecided = set(PRESUMED_ABORTED.findall(metadata)) - set(DECIDED.findall(metadata))
        return not undecided and all(
            name.encode() in metadata and (arguments["x-queue-type"] != "quorum" or name.encode() in register)
            for name, arguments in self._known.items()
        )

    def _until(self, so: Callable[[], bool], what: str) -> None:
        assert self._node is not None
        end = time.monotonic() + START_S
        while not so():
            if self._node.poll() is not None or time.monotonic() > end:
                pytest.fail(f"RabbitMQ did not {what}: {self._said()}")
            time.sleep(0.02)

    def _said(self) -> str:
        return _read(self._log)[-5000:].decode(errors="replace")

    def _run(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        path = str(self._program.emulator_folder / name)
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-c", DIE_WITH_PARENT, str(os.getpid()), path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment,
            )

    # -- what is in it -------------------------------------------------------------------------------------------------

    def queue(self, name: str, *, max_delivery_attempts: int = 0, dead_letter: str | None = None) -> str:
        if name not in self._known:
            arguments: dict[str, object] = {"x-queue-type": self.kind}
            if max_delivery_attempts:
                # How often it may be delivered *again*.
                arguments["x-delivery-limit"] = max_delivery_attempts - 1
            if dead_letter is not None:
                self.queue(dead_letter)
                arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letter}
            path = f"/queues/{quote(name, safe='')}"
            self.manage("PUT", path, {"durable": True, "arguments": arguments})
            self._known[name] = arguments
        return f"/queues/{quote(name, safe='')}"

    def topic(self, name: str) -> str:
        # Of RabbitMQ's older form (version 1): the newer one has no address that a receiver could subscribe at.
        return f"/topic/{quote(name, safe='')}"

    def manage(self, method: str, path: str, body: object = None) -> object:
        """One request to its management node, and the answer's body; fails the test where it is refused."""
        status, answer = _Request(self.url, Message(body=body, id=1, subject=method, address=path)).ask()
        if not status.startswith("2"):
            pytest.fail(f"RabbitMQ answered {status} to {method} {path}: {answer}")
        return answer


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


class _Request(MessagingHandler):  # type: ignore[misc]
    """A connection for one request: HTTP's method, path and status, in a message's subject, address and subject."""

    def __init__(self, url: str, request: Message) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self._url = url
        self._request = request
        self._request.reply_to = REPLY_TO_ME
        self._answer: tuple[str, object] | None = None
        self._connection: Any = None

    def ask(self) -> tuple[str, object]:
        Container(self).run()
        if self._answer is None:
            pytest.fail(f"RabbitMQ did not answer {self._request.subject} {self._request.address}")
        return self._answer

    def on_start(self, event: Event) -> None:
        self._connection = event.container.connect(self._url, reconnect=False, allowed_mechs="ANONYMOUS")
        session = self._connection.session()
        session.open()
        sender, receiver = session.sender("pair"), session.receiver("pair")
        sender.source.address = receiver.target.address = "me"
        sender.target.address = receiver.source.address = MANAGEMENT
        for link in (sender, receiver):
            link.properties = {symbol("paired"): True}
            link.snd_settle_mode = Link.SND_SETTLED
            link.open()
        receiver.flow(1)

    def on_sendable(self, event: Event) -> None:
        if self._request.reply_to:
            event.sender.send(self._request)
            self._request.reply_to = ""

    def on_message(self, event: Event) -> None:
        self._answer = event.message.subject, event.message.body
        self._connection.close()

    def on_link_error(self, event: Event) -> None:
        self._answer = "400", event.link.remote_condition
        self._connection.close()
