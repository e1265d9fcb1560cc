"""A server with real sockets, real threads and a real folder."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

import acquit
from acquit import aio
from acquit.broker.access.admission import DETECTION_POLICY, SOLE_CONNECTION, STRONG
from acquit.broker.access.users import Verifier
from acquit.broker.committer import Committer
from acquit.broker.core import Core
from acquit.broker.options import AddressRule, BrokerLimits, BrokerOptions, ConnectionLimits, Http, Security, Tls, User
from acquit.broker.server import PROMPT_MAX, Server
from acquit.client.management import converse
from acquit.errors import (
    AuthenticationFailed,
    ConfigurationError,
    ConnectionFailed,
    NotFound,
    SendFailed,
    StoreFull,
    StoreLocked,
)
from acquit.ledger.audit_lines import read_audit
from acquit.ledger.checkpoint import BodyRead
from acquit.ledger.events import EventKind
from acquit.ledger.history import history
from acquit.ledger.recorder import Recorder
from acquit.ledger.recovery import open_journal
from acquit.ledger.verify import verify
from acquit.protocol.connection import Connection
from acquit.protocol.constants import SASL_HEADER
from acquit.store.interface import Chore, Position
from acquit.store.journal import SegmentedJournal
from acquit.store.options import JournalOptions
from acquit.store.reading import FolderReader
from acquit.transport.pump import Pump
from acquit.transport.turnstile import Turnstile
from tests.support.outages import until

SMALL = JournalOptions.small()


def options(**fields: object) -> BrokerOptions:
    return BrokerOptions(journal=SMALL, **fields)  # type: ignore[arg-type]


def test_messages_survive_a_stop(tmp_path: Path) -> None:
    with (
        acquit.Broker(tmp_path, config=options()) as broker,
        acquit.connect(broker.url) as connection,
        connection.session() as session,
    ):
        session.sender("q", delivery_mode=acquit.DeliveryMode.PERSISTENT).send(b"kept")
        session.sender("q", delivery_mode=acquit.DeliveryMode.NON_PERSISTENT).send(b"gone")
    with (
        acquit.Broker(tmp_path, config=options()) as broker,
        acquit.connect(broker.url) as connection,
        connection.session() as session,
    ):
        receiver = session.receiver("q")
        message = receiver.receive(timeout=20)
        assert message is not None
        assert (message.body, message.delivery_count) == (b"kept", 0)
        assert receiver.receive(timeout=0) is None
        queue = broker.inspect().queue("q")
        assert queue is not None
        assert (queue.entered, queue.lost_volatile) == (2, 1)


def test_segments_leave_as_fast_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many there are in a second: it was one a tick, and the journal grew."""
    monkeypatch.setattr("acquit.broker.server.TICK_S", 3_600.0)
    journal = JournalOptions(segment_bytes=65_536, recovery_bytes_max=4 * 65_536, reserve_segments=1)
    with (
        acquit.Broker(tmp_path, config=BrokerOptions(journal=journal)) as broker,
        acquit.connect(broker.url) as connection,
        connection.session("individual") as session,
    ):
        sender, receiver = session.sender("q"), session.receiver("q")
        for _ in range(3_000):
            sender.send(acquit.Message(bytes(8_000), durable=True))
            message = receiver.receive(timeout=60)
            assert message is not None
            message.accept()
            if len(list((tmp_path / "archive").glob("*.seg"))) >= 10:
                break
        else:
            raise AssertionError(f"after 24 MB, in the journal: {sorted((tmp_path / 'journal').iterdir())}")


def on_disk(folder: Path, text: bytes) -> bool:
    for path in folder.rglob("*.seg"):
        with suppress(FileNotFoundError):  # a segment moves to the archive
            if text in path.read_bytes():
                return True
    return False


def test_bodies_of_settled_messages_are_erased_while_nothing_is_written(tmp_path: Path) -> None:
    """The last that this broker hears of; what is live stays readable, and the records stay."""
    journal = JournalOptions(erase_bodies_after_s=1, retry_ms=50)
    gone, kept = b"somebody's own words", b"not read yet"
    with (
        acquit.Broker(tmp_path, config=BrokerOptions(journal=journal)) as broker,
        acquit.connect(broker.url) as connection,
        connection.session("individual") as session,
    ):
        sender, receiver = session.sender("q"), session.receiver("q", prefetch=0)
        for body in (gone, kept):
            sender.send(acquit.Message(body, durable=True, subject=body.decode()))
        message = receiver.receive(timeout=60)
        assert message is not None and message.body == gone
        message.modify(annotations={"x-opt-said": gone.decode()})
        message = receiver.receive(timeout=60)
        assert message is not None and message.body == gone
        message.accept()
        until(lambda: not on_disk(tmp_path, gone), "the body is gone", 60)
        assert on_disk(tmp_path, kept)
        message = receiver.receive(timeout=60)
        assert message is not None and message.body == kept
    found = verify(tmp_path)
    assert found.problems == () and any(link.erased for link in found.links)
    (life,) = history(tmp_path, sequence=1).lives
    assert life.end is EventKind.ACCEPTED and life.size_bytes > len(gone)


@pytest.mark.pure
@pytest.mark.parametrize("ends", ["while a chore runs", "when the reader was told to end"])
def test_a_stop_while_a_segment_leaves_is_a_clean_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Whenever the reading of what is copied forward ends."""
    monkeypatch.setattr("acquit.broker.server.TICK_S", 3_600.0)
    journal = JournalOptions(segment_bytes=65_536, recovery_bytes_max=4 * 65_536, reserve_segments=1)
    reads, read_on, chore_runs, chore_on = (threading.Event() for _ in range(4))
    read, run_chore, stop = BodyRead.run, Committer._run_chore, Committer.stop
    heard: list[dict[str, object]] = []

    def slow_read(body_read: BodyRead) -> None:
        reads.set()
        assert read_on.wait(30)
        read(body_read)

    def slow_chore(committer: Committer, chore: Chore) -> None:
        if reads.is_set() and ends == "while a chore runs":
            chore_runs.set()
            assert chore_on.wait(30)
        run_chore(committer, chore)

    async def told_to_stop(committer: Committer) -> None:
        if ends == "while a chore runs":
            read_on.set()  # the loop hears of it once this waits for the chore
        await stop(committer)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: heard.append(context))
        server = Server(tmp_path, BrokerOptions(journal=journal), port=0)
        await server.start()
        server._checkpointer._step_records = 1  # so that there is more to be read
        complete, stop_reader = server._complete_checkpoint_read, server._reader.stop
        completed = asyncio.Event()

        def complete_read(body_read: BodyRead) -> None:
            try:
                complete(body_read)
            finally:
                completed.set()
                chore_on.set()

        async def stopped() -> None:
            read_on.set()
            await stop_reader()

        monkeypatch.setattr(server, "_complete_checkpoint_read", complete_read)
        monkeypatch.setattr(server._reader, "stop", stopped)
        waits_for = chore_runs if ends == "while a chore runs" else reads
        async with await aio.connect(server.url) as connection:
            session = await connection.session("individual")
            kept, sender, receiver = (
                await session.sender("kept"),
                await session.sender("q"),
                await session.receiver("q"),
            )
            for number in range(5):
                await kept.send(acquit.Message(b"%d" % number, durable=True))
            for _ in range(3_000):
                await sender.send(acquit.Message(bytes(8_000), durable=True))
                message = await receiver.receive(timeout=60)
                assert message is not None
                await message.accept()
                if waits_for.is_set():
                    break
            else:
                raise AssertionError("after 24 MB no segment leaves")
        async with asyncio.timeout(20):
            await server.stop()
            await completed.wait()

    monkeypatch.setattr(BodyRead, "run", slow_read)
    monkeypatch.setattr(Committer, "_run_chore", slow_chore)
    monkeypatch.setattr(Committer, "stop", told_to_stop)
    asyncio.run(run())
    assert heard == []
    opened = open_journal(tmp_path, journal)
    opened.journal.close()
    assert opened.run.clean
    assert len(opened.fold.messages) == 5


def test_a_turn_that_comes_after_the_stop_does_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        async with await aio.connect(server.url) as connection:
            sender = await (await connection.session()).sender("q")
            await sender.send(acquit.Message(b"kept", durable=True))
        message = next(iter(server._core.life.live.values()))
        await server.stop()
        server._core.memory.want(message, lambda _: None)
        server._turn()

    asyncio.run(run())


def test_a_backlog_larger_than_memory_is_read_back(tmp_path: Path) -> None:
    rules = (AddressRule("#", {"memory_bytes_max": 65_536}),)
    with (
        acquit.Broker(tmp_path, config=options(address=rules)) as broker,
        acquit.connect(broker.url) as connection,
        connection.session() as session,
    ):
        sender = session.sender("q")
        receipts = [
            sender.send(acquit.Message(number.to_bytes(4, "big") + bytes(2_000), durable=True), wait=False)
            for number in range(3_000)
        ]
        for receipt in receipts:
            receipt.result(timeout=60)
        queue = broker.inspect().queue("q")
        assert queue is not None
        assert queue.depth == 3_000
        assert queue.memory_bytes < 4_000_000 < queue.body_bytes
        receiver = session.receiver("q", prefetch=200)
        for number in range(3_000):
            message = receiver.receive(timeout=60)
            assert message is not None
            assert isinstance(message.body, bytes)
            assert int.from_bytes(message.body[:4], "big") == number


def test_passwords() -> None:
    users = {"alice": User(password="right"), "bob": User(password=str(Verifier.of("also right")))}
    security = Security(anonymous="never", users=users)
    with acquit.Broker(config=options(security=security)) as broker:
        where = f"127.0.0.1:{broker.port}"
        for credentials in ("alice:right", "bob:also%20right"):
            with acquit.connect(f"amqp://{credentials}@{where}") as connection:
                connection.session().sender("q").send(b"x", timeout=20)
        for credentials in ("alice:wrong", "bob:right", "carol:right"):
            with pytest.raises(AuthenticationFailed):
                acquit.connect(f"amqp://{credentials}@{where}")
        with pytest.raises(ConnectionFailed):
            acquit.connect(f"amqp://{where}")


def test_tls() -> None:
    """With a certificate for localhost that was made for this test alone (tests/support/tls)."""
    folder = Path(__file__).parents[2] / "support" / "tls"
    tls = Tls(certificate_file=str(folder / "certificate.pem"), key_file=str(folder / "key.pem"))
    security = Security(anonymous="never", plain="never", users={"alice": User(password="right")})
    trusting = ssl.create_default_context(cafile=folder / "certificate.pem")
    with acquit.Broker(config=options(tls=tls, security=security)) as broker:
        assert broker.url == f"amqps://127.0.0.1:{broker.port}"
        url = broker.url.replace("//", "//alice:right@")
        with acquit.connect(url, ssl_context=trusting) as connection:
            connection.session().sender("q").send(b"x", timeout=20)
            (known,) = broker.inspect().connections
            assert known.tls.startswith("TLSv1.") and known.mechanism in ("PLAIN", "SCRAM-SHA-256")
        with pytest.raises(ConnectionFailed):
            acquit.connect(f"amqp://alice:right@127.0.0.1:{broker.port}")


def test_tls_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"missing.pem: cannot be read"):
        Server(tmp_path, options(tls=Tls(certificate_file="missing.pem", key_file="missing.pem")))
    nonsense = tmp_path / "nonsense.pem"
    nonsense.write_text("nonsense")
    with pytest.raises(
        ConfigurationError, match=rf"tls: expected a certificate and its key in {nonsense} and {nonsense},"
    ):
        Server(tmp_path, options(tls=Tls(certificate_file=str(nonsense), key_file=str(nonsense))))
    with pytest.raises(ConfigurationError, match="key_file: expected together"):
        Tls(certificate_file="x")


def test_the_port_of_the_http_interface_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="http: expected a port for each, found 7 of 0.0.0.0 and of 127.0.0.1"):
        Server(tmp_path, options(http=Http(port=7)), host="0.0.0.0", port=7)
    assert list(tmp_path.iterdir()) == []


def test_a_rule_that_cannot_be_is_refused_before_anything_is_opened(tmp_path: Path) -> None:
    rules = (AddressRule("#", {"dead_letter_address": "$dead"}),)
    with pytest.raises(ConfigurationError, match=r"\$dead"):
        acquit.Broker(tmp_path, config=options(address=rules))
    assert list(tmp_path.iterdir()) == []


def test_the_snapshot_knows_who_is_there() -> None:
    security = Security(users={"alice": User(password="right")})
    with (
        acquit.Broker(config=options(security=security)) as broker,
        acquit.connect(f"amqp://alice:right@127.0.0.1:{broker.port}", container_id="mine") as connection,
    ):
        session = connection.session()
        session.receiver("q", prefetch=5)
        session.sender("q").send(b"x", timeout=20)
        snapshot = broker.inspect()
        (known,) = snapshot.connections
        assert (known.container, known.user, known.sessions, known.links) == ("mine", "alice", 1, 2)
        assert known.peer.startswith("127.0.0.1:")
        assert snapshot.last_sequence == 1
        assert snapshot.accepting


def test_the_figures_of_process_and_disk_are_there() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection, converse(connection, 20) as management:
        connection.session().sender("q").send(acquit.Message(b"x", durable=True), timeout=20)
        found = management.request("READ", "acquit:broker")
        assert isinstance(found, dict)
        assert found["disk"]["free_bytes"] > 0 and found["disk"]["segments"] >= 1
        assert found["sync"]["count"] >= 1 and found["sync"]["p50_ms"] <= found["sync"]["p99_ms"]
        assert found["uptime_ms"] >= 0 and found["loop_lag_ms"] >= 0
        table = management.request("QUERY", "acquit:connection")
        assert isinstance(table, dict)
        (row,) = (dict(zip(table["attributeNames"], one, strict=True)) for one in table["results"])
        assert (row["mechanism"], row["tls"], row["product"]) == ("ANONYMOUS", "", "acquit")


def test_limits_have_their_conditions() -> None:
    config = options(
        connection=ConnectionLimits(message_bytes_max=10_000),
        address=(AddressRule("closed", {"create": False}),),
    )
    with acquit.Broker(config=config) as broker, acquit.connect(broker.url) as connection:
        session = connection.session()
        with pytest.raises(NotFound):
            session.sender("closed")
        sender = session.sender("q")
        with pytest.raises((SendFailed, acquit.errors.LocalProtocolError, acquit.errors.LinkDetached)):
            sender.send(bytes(20_000), timeout=20)


def test_one_connection_too_many_hears_why() -> None:
    with acquit.Broker(config=options(limits=BrokerLimits(connections_max=2))) as broker:
        with acquit.connect(broker.url), acquit.connect(broker.url):
            with pytest.raises(ConnectionFailed) as refused:
                acquit.connect(broker.url)
            assert refused.value.condition == "amqp:resource-limit-exceeded"
        with acquit.connect(broker.url) as connection:
            connection.session().sender("q").send(b"x", timeout=20)


def test_its_open_says_how_it_detects_second_connections_of_a_container() -> None:
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection:
        said = connection._aio._core.remote_open
    assert SOLE_CONNECTION in said.offered_capabilities
    assert (said.properties or {})[DETECTION_POLICY] == STRONG


def test_strangers_have_a_number_of_their_own_and_a_time() -> None:
    config = options(
        limits=BrokerLimits(unauthenticated_max=2), connection=ConnectionLimits(handshake_timeout_ms=600_000)
    )
    with acquit.Broker(config=config) as broker:
        silent = [socket.create_connection(("127.0.0.1", broker.port), timeout=20) for _ in range(3)]
        assert silent[0].recv(10) == b"", "the first gave way to the third"
        with acquit.connect(broker.url) as connection:
            assert silent[1].recv(10) == b"", "the second to one who knows what it wants"
            connection.session().sender("q").send(b"x", timeout=20)
        for one in silent:
            one.close()


def test_nobody_waits_for_ever() -> None:
    """However a peer spreads what it says over its time: that began when it was connected."""
    config = options(connection=ConnectionLimits(handshake_timeout_ms=300))
    with acquit.Broker(config=config) as broker, closing(socket.create_connection(("127.0.0.1", broker.port))) as slow:
        slow.settimeout(0.05)
        endless = itertools.cycle(b"\0\0\2\0\2\1\0\0" + bytes(504))
        over = False
        with suppress(ConnectionError):
            slow.sendall(SASL_HEADER)
            while not over:
                slow.sendall(bytes([next(endless)]))
                with suppress(TimeoutError):
                    over = slow.recv(1_000) == b""


def test_a_folder_has_one_broker(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path, config=options()), pytest.raises(StoreLocked):
        acquit.Broker(tmp_path, config=options())


def test_a_port_that_is_taken_leaves_nothing_behind(tmp_path: Path) -> None:
    with acquit.Broker() as broker:
        with pytest.raises(ConfigurationError, match="cannot listen"):
            acquit.Broker(tmp_path, port=broker.port, config=options())
        with acquit.Broker(tmp_path, config=options()):
            pass  # the folder was given up


def test_clients_hear_why_the_broker_goes(tmp_path: Path) -> None:
    broker = acquit.Broker(tmp_path, config=options())
    connection = acquit.connect(broker.url, options=acquit.ConnectOptions(reconnect=None))
    receiver = connection.session().receiver("q")
    broker.close()
    with pytest.raises(acquit.errors.EndpointError) as caught:
        receiver.receive(timeout=20)
    assert caught.value.condition == "amqp:connection:forced"
    connection.close()


def test_an_error_of_the_disk_ends_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing later is accepted, peers are told, and whoever runs the server learns why."""

    async def run() -> BaseException | None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        error = acquit.errors.StoreFailed("the disk is broken")
        server._committer.fail(error)
        raised = None
        try:
            await server.wait()
        except acquit.errors.StoreFailed as exc:
            raised = exc
        await server.stop()
        return raised

    with caplog.at_level(logging.CRITICAL, logger="acquit.broker"):
        assert str(asyncio.run(run())) == "the disk is broken"
    assert "the journal failed" in caplog.text


@pytest.mark.pure
def test_a_stop_without_room_for_its_last_record_is_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from acquit.broker import server as module

    close = module.close_journal

    def without_room(recorder: Recorder, time_us: int) -> None:
        def append(entry: object) -> Position:
            raise StoreFull("no room")

        monkeypatch.setattr(recorder, "append", append)
        close(recorder, time_us)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "acquit.broker"):
        patch.setattr(module, "close_journal", without_room)
        with acquit.Broker(tmp_path, config=options()) as broker, acquit.connect(broker.url) as connection:
            connection.session().sender("q").send(acquit.Message(b"kept", durable=True))
    assert "stopped without a last record" in caplog.text
    with acquit.Broker(tmp_path, config=options()) as broker:
        queue = broker.inspect().queue("q")
        assert queue is not None
        assert queue.available == 1


def test_stopping_twice_is_once(tmp_path: Path) -> None:
    async def run() -> None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        waiting = asyncio.ensure_future(server.wait())
        await server.stop()
        await server.stop()
        await waiting

    asyncio.run(run())


def test_want_of_descriptors_is_said_once_and_its_end_too(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often it is tried meanwhile."""
    monkeypatch.setattr("acquit.transport.sockets.ACCEPT_RETRY_S", 0.01)
    caplog.set_level(logging.INFO, "acquit.broker")
    with acquit.Broker(config=options()) as broker:
        (_, acceptor), tries, recovered = broker._server._listeners._listeners[0], 0, threading.Event()
        (real,) = acceptor.sockets

        class Listening:
            fileno, close = real.fileno, real.close

            def accept(self) -> tuple[socket.socket, object]:
                nonlocal tries
                tries += 1
                if tries <= 3:
                    raise OSError(errno.EMFILE, "Too many open files")
                recovered.set()
                return real.accept()

        def replace() -> None:
            acceptor._stop()
            acceptor.sockets = [Listening()]  # type: ignore[list-item]
            acceptor.start()

        broker._loop.call_soon_threadsafe(replace)
        with acquit.connect(broker.url) as connection:
            connection.session().sender("q").send(b"x", timeout=20)
        assert recovered.is_set()
    said = [record.getMessage() for record in caplog.records if "descriptor" in record.getMessage()]
    assert said == [
        "no file descriptor is left for another connection: those that come have to wait",
        "there are file descriptors again: connections are taken",
    ]


def test_the_ends_of_sockets_pass_one_turnstile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands may end in one moment; each takes down what it had, a few in each round of the loop."""
    entered: list[Turnstile] = []
    enter = Turnstile.enter

    def noted(turnstile: Turnstile, call: Callable[[], None]) -> None:
        entered.append(turnstile)
        enter(turnstile, call)

    monkeypatch.setattr(Turnstile, "enter", noted)
    with acquit.Broker() as broker:
        for _ in range(5):
            acquit.connect(broker.url).close()
    assert len(entered) >= 5
    assert len(set(map(id, entered))) == 1


@pytest.mark.pure
def test_the_disk_begins_before_sockets_are_written_and_many_wait_for_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    kick = Committer.kick

    def noted(committer: Committer) -> None:
        done.append("kick")
        kick(committer)

    async def run() -> None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        connections = [await aio.connect(server.url) for _ in range(PROMPT_MAX + 1)]
        clients = list(server._clients)
        monkeypatch.setattr(Committer, "kick", noted)
        monkeypatch.setattr(Pump, "touch", lambda _: done.append("touch"))
        monkeypatch.setattr(Pump, "touch_promptly", lambda _: done.append("prompt"))
        for count in (PROMPT_MAX, PROMPT_MAX + 1):
            for client in clients[:count]:
                server._core.life.touch(client.engine)
            server._turn()
        monkeypatch.undo()
        for connection in connections:
            await connection.close()
        await server.stop()

    asyncio.run(run())
    assert done == ["kick", *["prompt"] * PROMPT_MAX, "kick", *["touch"] * (PROMPT_MAX + 1)]


@pytest.mark.pure
@pytest.mark.parametrize("late", [False, True])
def test_the_next_batch_begins_before_the_turn_that_hands_out_what_the_last_one_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    """But not where a consumer is sent to only when its turn's record is on the disk."""
    done: list[str] = []
    kick, turn, synced = Committer.kick, Core.turn, Core.synced

    def kicked(committer: Committer) -> None:
        done.append("kick")
        kick(committer)

    def turned(core: Core, time_us: int, *, go_on: bool = True) -> bool:
        done.append("turn")
        return turn(core, time_us, go_on=go_on)

    def heard(core: Core, position: Position, time_us: int) -> None:
        done.append("synced")
        synced(core, position, time_us)

    async def run() -> None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        async with await aio.connect(server.url) as connection:
            session = await connection.session()
            sender = await session.sender("q")
            monkeypatch.setattr(Committer, "kick", kicked)
            monkeypatch.setattr(Core, "turn", turned)
            monkeypatch.setattr(Core, "synced", heard)
            await sender.send(acquit.Message("x", durable=True))
            if late:
                receiver = await (await connection.session(acquit.AckMode.NO_ACK)).receiver("q")
                await receiver.receive(timeout=20)
            monkeypatch.undo()
        await server.stop()

    asyncio.run(run())
    at = [place for place, one in enumerate(done) if one == "synced"]
    assert done[at[0] : at[0] + 3] == ["synced", "kick", "turn"]
    assert (done[at[-1] : at[-1] + 2] == ["synced", "turn"]) is late


@pytest.mark.pure
def test_a_round_of_the_loop_goes_on_once_with_what_takes_many_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        try:
            turn, went_on = server._core.turn, []

            def more(time_us: int, *, go_on: bool = True) -> bool:
                went_on.append(go_on)
                turn(time_us, go_on=go_on)
                return len(went_on) < 10

            monkeypatch.setattr(server._core, "turn", more)
            ticks: list[int] = []
            monkeypatch.setattr(server._core, "tick", ticks.append)
            # What is due long since brings no tick of its own, where another turn is due.
            monkeypatch.setattr(
                type(server._core), "next_due_ms", property(lambda core: 1 if len(went_on) < 10 else None)
            )
            for _ in range(3):  # three wake-ups of one round
                server._turn()
            assert went_on == [True, False, False]
            while len(went_on) < 10:
                await asyncio.sleep(0)
            assert went_on[3:] == [True] * 7
            assert not ticks
        finally:
            monkeypatch.undo()
            await server.stop()

    asyncio.run(run())


@pytest.mark.pure
def test_a_wake_up_has_one_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it was about and the turn that follows: the clock is asked once."""
    asked: list[int] = []
    given: list[int] = []

    async def run() -> None:
        server = Server(tmp_path, options(), port=0)
        await server.start()
        async with await aio.connect(server.url) as connection:
            sender = await (await connection.session()).sender("q")
            await sender.send(b"first")
            core, now_us, turn = server._core, server._clock.now_us, server._core.turn
            monkeypatch.setattr(server._clock, "now_us", lambda: asked.append(now_us()) or asked[-1])

            def turned(time_us: int, *, go_on: bool) -> bool:
                given.append(time_us)
                return turn(time_us, go_on=go_on)

            monkeypatch.setattr(core, "turn", turned)
            await sender.send(b"durable")
            server._tick()
            monkeypatch.undo()
        await server.stop()

    asyncio.run(run())
    assert len(given) >= 3, "the posting, the sync, and the tick"
    assert given == asked


@pytest.mark.pure
def test_who_receives_a_message_hears_before_who_sent_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer leaves at the end of the input that brought the message, and the message itself before that."""
    written: list[str] = []
    write = Pump._write

    def noted(pump: Pump, transport: asyncio.Transport, engine: Connection) -> None:
        if engine.has_output and engine.remote_open is not None:
            written.append(engine.remote_open.container_id)
        write(pump, transport, engine)

    async def run() -> None:
        with acquit.Broker() as broker:
            async with (
                await aio.connect(broker.url, container_id="receives") as receiving,
                await aio.connect(broker.url, container_id="sends") as sending,
            ):
                receiver = await (await receiving.session()).receiver("q")
                mode = acquit.DeliveryMode.NON_PERSISTENT
                sender = await (await sending.session()).sender("q", delivery_mode=mode)
                await sender.send(b"x")
                assert await receiver.receive(timeout=20) is not None
                monkeypatch.setattr(Pump, "_write", noted)
                await sender.send(b"x")
                assert await receiver.receive(timeout=20) is not None

    asyncio.run(run())
    assert [to for to in written if to in ("receives", "sends")][:2] == ["receives", "sends"]


def test_a_login_that_fails_is_recorded_without_names_that_are_nobodys(tmp_path: Path) -> None:
    security = Security(users={"alice": User(password="right")}, refusal_delay_ms=0)
    with acquit.Broker(tmp_path, config=options(security=security)) as broker:
        for user in ("alice", "a-password"):
            with pytest.raises(acquit.errors.AcquitError):
                acquit.connect(f"amqp://{user}:wrong@127.0.0.1:{broker.port}")
    lines = list(read_audit(FolderReader(tmp_path)))
    assert [(line.action, line.user, line.result) for line in lines] == [
        ("login", "alice", "refused"),
        ("login", "", "refused"),
    ]
    assert all(line.peer.startswith("127.0.0.1:") and line.target for line in lines)


def test_operations_and_their_refusals_are_lines_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "acquit.broker")
    with acquit.Broker() as broker, acquit.connect(broker.url) as connection, converse(connection, 20) as management:
        management.request("CREATE", "acquit:queue", name="made")
        with pytest.raises(acquit.errors.AcquitError):
            management.request("PURGE", "acquit:queue", name="none")
    found = [vars(record) for record in caplog.records if record.getMessage().startswith("an operation")]
    assert [(line["levelname"], line["action"], line["target"]) for line in found] == [
        ("INFO", "CREATE acquit:queue", "made"),
        ("WARNING", "PURGE acquit:queue", "none"),
    ]
    assert found[1]["result"].startswith("refused: 404") and found[1]["peer"].startswith("127.0.0.1:")


def test_what_cannot_be_opened_to_be_read_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bodies for a consumer, and those that a segment leaves behind."""
    failing = iter([True, True, False, True])
    read_payloads = SegmentedJournal.read_payloads

    def starved(journal: SegmentedJournal, positions: Sequence[Position], hints: Sequence[int]) -> list[bytes | None]:
        if next(failing, False):
            raise StoreFull("Too many open files")
        return read_payloads(journal, positions, hints)

    class Read(BodyRead):
        def __init__(self) -> None:
            self.times = 0

        def run(self) -> None:
            self.times += 1
            if self.times < 3:
                raise StoreFull("Too many open files")

    async def run() -> None:
        server = Server(tmp_path, BrokerOptions(), port=0)
        await server.start()
        read, completed = Read(), asyncio.Event()
        monkeypatch.setattr(server._checkpointer, "complete_read", lambda _: completed.set())
        server._run_checkpoint_read(read)
        async with asyncio.timeout(20):
            await completed.wait()
        assert read.times == 3
        assert server.failure is None
        await server.stop()

    with acquit.Broker(tmp_path) as broker, acquit.connect(broker.url) as connection, connection.session() as session:
        session.sender("q", delivery_mode=acquit.DeliveryMode.PERSISTENT).send(bytes(50_000))
    monkeypatch.setattr("acquit.broker.server.RETRY_S", 0.01)
    monkeypatch.setattr(SegmentedJournal, "read_payloads", starved)
    with acquit.Broker(tmp_path) as broker, acquit.connect(broker.url) as connection, connection.session() as session:
        message = session.receiver("q").receive(timeout=20)
        assert message is not None
        assert message.body == bytes(50_000)
    asyncio.run(run())
    told = [one for one in caplog.messages if "read" in one.split(": ")[-1].split()]
    waits, goes_on = "the disk is full: what is to be read waits", "files can be opened again: what waited is read"
    assert told == [waits, goes_on] * 2, "once for each time, and not for each try"
