"""Runs a broker: performs what the core decides, with sockets, threads and the clock.

Theory of operation. Everything that decides happens on the event loop, in *wake-ups*: bytes came, the disk has a batch,
a body was read, time passed. Each ends in `_turn`: the core does what has become possible, bodies that are wanted go to
the reader thread, the committer takes the next batch, and pumps are told to flush. What takes many turns has one in
each round of the loop, however many wake-ups that has. What blocks has a thread::

    event loop      the core, all engines, all pumps
    journal, chores `committer.Committer`: write and sync; prewrite, archive
    reader          bodies back from the journal, for dispatch and for the checkpoint
    passwords       verifiers are slow on purpose
    history         what became of a message, from the journal; made when somebody asks

An I/O error of the journal ends the broker: peers are told, nothing more is answered, and `wait` raises the error.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from acquit._version import version
from acquit.broker.access.admission import DETECTION_POLICY, SOLE_CONNECTION, STRONG
from acquit.broker.access.listeners import Caller, Keys, Listeners, make_keys
from acquit.broker.access.login_throttle import LoginThrottle
from acquit.broker.access.logins import Challenge, Login, Proven
from acquit.broker.access.password_login import BUSY, PasswordAttempt, PasswordLogin, Verifying
from acquit.broker.access.unauthenticated import Unauthenticated
from acquit.broker.access.users import Users
from acquit.broker.admin.later import Later, RequestFailure
from acquit.broker.admin.operations import Operation, Result, perform
from acquit.broker.admin.reload import Change, effective, read_again
from acquit.broker.admin.requests import ManagementRequest
from acquit.broker.clock import Clock, compare_with_journal
from acquit.broker.committer import RETRY_S, Committer
from acquit.broker.core import Core
from acquit.broker.durations import Durations
from acquit.broker.histories import Histories
from acquit.broker.inspect import BrokerSnapshot, ProcessSnapshot
from acquit.broker.machine import MACHINE, Machine
from acquit.broker.memory import Reads
from acquit.broker.nodes.addresses import Policies
from acquit.broker.notices import Notices
from acquit.broker.options import BrokerOptions, Listen, check_places
from acquit.broker.sockets import PeerSocket
from acquit.broker.vitals import Vitals
from acquit.errors import AcquitError, ConfigurationError, StoreError, StoreFailed, StoreFull
from acquit.ledger.checkpoint import BodyRead, Checkpointer
from acquit.ledger.collection import without_collection
from acquit.ledger.history import KnownNames
from acquit.ledger.recovery import OpenedJournal, close_journal, open_journal
from acquit.protocol.connection import Connection
from acquit.protocol.definitions import AmqpCondition, ConnectionCondition, Error
from acquit.protocol.events import Event
from acquit.protocol.extensions import BROKER_ID, DURABLE_SETTLEMENT, SENDER_MARK
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.types import Value
from acquit.store.interface import Position
from acquit.transport import descriptors
from acquit.transport.pump import Pump, PumpOptions, endpoint_name
from acquit.transport.turnstile import Turnstile, in_turns

logger = logging.getLogger("acquit.broker")

TICK_S: Final = 1.0
SWITCH_INTERVAL_S: Final = 0.0001
"""Seconds that the loop may keep the interpreter's lock from the thread that has just written a batch."""
ENDS_PER_ROUND: Final = 4
"""Ended sockets that one round of the loop gives up: with a line of log, and a turn of the core, each."""
RELOADED_PER_ROUND: Final = 50
"""Peers whom a reload puts out in one round of the loop, or lines of log that it writes: a few milliseconds' work."""
PROMPT_MAX: Final = 4
"""Connections of one turn that are written at once, before whoever caused it is answered: with more of them, that one
would wait for a system call each."""

CAPABILITIES: Final = (
    "ANONYMOUS-RELAY",
    "DELAYED_DELIVERY",
    "SHARED-SUBS",
    SOLE_CONNECTION,
    DURABLE_SETTLEMENT,
    SENDER_MARK,
)
"""Offered in open: a target without an address, delivery times, shared subscriptions (Qpid JMS asks for none without),
that a container may ask to have one connection only (`access.admission`), that an outcome on a link in rcv-settle-mode
second is answered only when it is on the disk, and that senders may number their postings (`intake.marks`)."""


class Server:
    """A broker on a folder of data, listening on one address.

    `start` opens the journal and listens, `stop` ends in order, `wait` lasts until either that or an error of the
    journal, which it raises. All methods belong to the loop that `start` ran on.
    """

    def __init__(
        self,
        data: Path,
        options: BrokerOptions,
        *,
        host: str = "127.0.0.1",
        port: int = 5672,
        config: Path | None = None,
        adjust: Callable[[BrokerOptions], BrokerOptions] = lambda options: options,
        machine: Machine = MACHINE,
        accept_loss: bool = False,
        own_process: bool = False,
    ) -> None:
        """`config`: the file that the options were read from, for `reload`, and `adjust`: how they were changed then;
        `machine`: where it runs; `accept_loss`: start on a journal that lacks messages, and record that they are lost;
        `own_process`: nothing else runs in this process, so that its limit of open files may be raised.

        Raises ConfigurationError for what only shows when it is put to use: a password, a rule, TLS files.
        """
        Policies(options.address)
        self._data = data
        self._machine = machine
        self._config = config
        self._adjust = adjust
        self._accept_loss = accept_loss
        self._options = options
        self._listens = options.listen or (Listen(host=host, port=port, tls=options.tls_modes[0]),)
        check_places(self._listens, options.http)
        self._keys = make_keys(options, data)
        self.login_throttle = LoginThrottle()
        self._apply_delays()
        self._clients: dict[PeerSocket, None] = {}
        self._pump_options = PumpOptions(output_bytes_max=options.connection.output_bytes_max)
        self._own_process = own_process
        self.notices = Notices(logger, machine.steady_s)
        self._unauthenticated = Unauthenticated(options.limits.unauthenticated_max, self._evicted)
        self._verifying = 0
        self._turn_due = False
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._ended: asyncio.Future[None] | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover what the folder holds, and listen.

        Raises StoreLocked, StoreVersionUnsupported, StoreCorrupt, StoreUnbalanced, StoreFull, StoreFailed or StoreError
        for the folder, ConfigurationError for an address that cannot be listened on; nothing is left running then.
        """
        self._loop = loop = asyncio.get_running_loop()
        self._exit = Turnstile(loop, ENDS_PER_ROUND)
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[tuple[list[Change], list[PeerSocket]]]] = set()
        self._ended = loop.create_future()
        machine = self._machine
        began_s = machine.steady_s()
        opened = await loop.run_in_executor(None, self._open)
        self._opened = opened
        self._vitals = Vitals(machine.steady_s)
        for loss in opened.losses:
            logger.error("messages are lost, which was accepted: %s", loss, extra={"data": str(self._data)})
        self._reader = machine.make_worker("acquit-reader")
        self._unread_for = ""
        """The limit that a read has met (`StoreFull.limit`), until one succeeds."""
        self._verifier = ThreadPoolExecutor(1, thread_name_prefix="acquit-passwords")
        table = opened.recorder.table
        self._histories = Histories(self._data, machine, KnownNames(table.queues, table.actors), self._turn)
        self._core = core = Core(
            self._options, opened.recorder, opened.sequences, str(opened.identity.store), machine.wall_us()
        )
        self._clock = Clock(self._core.clock_set, wall_us=machine.wall_us, steady_s=machine.steady_s)
        compare_with_journal(opened.fold.written_us, self._clock.now_us())
        self._committer = Committer(
            opened.journal,
            core.scribe,
            synced=self._synced,
            failed=self._fail,
            make_worker=machine.make_worker,
            steady_s=machine.steady_s,
            took=self._vitals.syncs.took,
        )
        self._checkpointer = Checkpointer(
            opened.recorder,
            core.holdings,
            recovery_bytes_max=self._options.journal.recovery_bytes_max,
            leave_after_us=self._options.journal.leave_after_us,
        )
        try:
            with without_collection():
                messages = core.restore(opened.fold)
            self._engine_options = self._make_engine_options(opened)
            core.permissions = self._keys.permissions
            core.administration.reload = self.reload_soon
            core.administration.figures.process = self._look_at_process
            core.administration.history = self._histories.ask
            core.denials.report = self._denied
            core.auditor.tell = self._performed
            self._listeners = Listeners(
                self._keys,
                timeout_s=self._options.connection.handshake_timeout_ms / 1000,
                unauthenticated=self._unauthenticated,
                notices=self.notices,
                enter=self._enter,
            )
            await self._listeners.open(self._listens)
            if self._own_process:
                descriptors.raise_limit()
            free = descriptors.available(self._options.journal.open_files_max)
            http = self._options.http
            self.http_connections_max = 0 if http is None else min(http.connections_max, max(2, free // 4))
            self._descriptors = max(2, free - self.http_connections_max)
            self._apply_sizes()
        except BaseException:
            await self._close_journal()
            raise
        self._tick()
        security = self._keys.security
        if security.users and security.anonymous == "until-users":
            logger.info('anonymous peers are refused, as there are users: security.anonymous = "loopback" lets them in')
        logger.info(
            "listening on %s",
            ", ".join(self.urls),
            extra={
                "data": str(self._data),
                "messages": messages,
                "queues": len(core.queues.by_name),
                "clean": opened.run.clean,
                "cut_bytes": opened.report.cut_bytes,
                "seconds": round(machine.steady_s() - began_s, 3),
            },
        )

    async def stop(self) -> None:
        """Stop listening, close the connections, write what is to be written, and give up the folder. Twice is once."""
        if self._stopping:
            return
        self._stopping = True
        await self._listeners.close()
        self._core.begin_stop()
        forced = Error(ConnectionCondition.CONNECTION_FORCED, "the broker is stopping")
        await self._close_clients(forced)
        await self._close_journal()
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_result(None)
        logger.info("stopped", extra={"data": str(self._data)})

    async def wait(self) -> None:
        """Wait until it is stopped. Raises the StoreError that ended the journal; `stop` is still to be called then."""
        assert self._ended is not None
        await asyncio.shield(self._ended)

    @property
    def host(self) -> str:
        """Host that it listens on; the first, if there are several."""
        return self._listens[0].host

    @property
    def port(self) -> int:
        """The port it listens on; the first, if there are several."""
        return self._listeners.ports[0]

    @property
    def url(self) -> str:
        """URL for clients: ``amqp://host:port``, ``amqps://`` with TLS from the first byte."""
        return self.urls[0]

    @property
    def urls(self) -> list[str]:
        """The same for each listener."""
        return self._listeners.urls

    @property
    def users(self) -> Users:
        """Users that can log in now."""
        return self._listeners.keys.users

    @property
    def keys(self) -> Keys:
        """All that decides who comes in now. Immutable, and may be read on any thread."""
        return self._listeners.keys

    @property
    def options(self) -> BrokerOptions:
        """The options that it goes by now. Immutable, and may be read on any thread."""
        return self._options

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that everything else belongs to."""
        return self._loop

    @property
    def failure(self) -> StoreError | None:
        """The error that ended the journal, if one did. May be read on any thread."""
        return self._committer.failure

    @property
    def stopping(self) -> bool:
        """True from the begin of `stop`. May be read on any thread."""
        return self._stopping

    @property
    def accepting(self) -> bool:
        """False while postings are refused because the disk is full."""
        return not self._opened.journal.full

    def disk_room(self) -> tuple[int, int] | None:
        """Return the free bytes of the data folder's disk, and its size; None if it does not say. On any thread."""
        with suppress(OSError):
            found = shutil.disk_usage(self._data)
            return found.free, found.total
        return None

    @property
    def syncs(self) -> Durations:
        """Times from the begin of a batch of the journal until it was on the disk."""
        return self._committer.syncs

    @property
    def postings(self) -> Durations:
        """Times from the arrival of a durable message until it was on the disk."""
        return self._core.postings

    @property
    def lags(self) -> Durations:
        """Times by which the loop was late: for a tick each second, and for requests of other threads."""
        return self._vitals.lags

    def manage(self, wanted: Operation, user: str | None, name: str | None, body: object, peer: str) -> Result:
        """Perform an operation for a user who has come in by another way than AMQP, from the address `peer`. Raises
        RequestFailure."""
        if self._stopping:
            raise RequestFailure(503, "the broker is stopping")
        rights = self._listeners.keys.permissions.of(user)
        try:
            return perform(wanted, ManagementRequest(self._core.administration, user, rights, name, body, peer))
        finally:
            self._turn()

    def log_in(
        self, attempt: PasswordAttempt, patience_s: float, decided: Callable[[str | BaseException | None], None]
    ) -> None:
        """Decide a login by password that comes by another way than AMQP; see `access.password_login`."""
        if self._stopping:
            decided(BUSY)
        else:
            PasswordLogin(self, self._loop, attempt, patience_s, decided).begin()

    def replace_keys(self, keys: Keys) -> int:
        """Let in by other keys from now on (made by `listeners.make_keys`), and return how many are put out for it.
        Who is in, and would not come in with these or not to the same rights, is put out with
        amqp:unauthorized-access, and may log in again; so is who was about to log in. Raises ConfigurationError for
        keys without the certificate that a listener needs; nothing is changed then."""
        out = self._replace_keys(keys)
        self._put_out(*out)
        return len(out)

    def _replace_keys(self, keys: Keys) -> list[PeerSocket]:
        """The same, but return who is to be put out."""
        before = self._listeners.replace(keys)
        self._core.permissions = keys.permissions
        return [client for client in self._clients if not client.still_in(keys, before)]

    def _put_out(self, *out: PeerSocket) -> None:
        changed = Error(AmqpCondition.UNAUTHORIZED_ACCESS, "users or permissions have changed: log in again")
        for client in out:
            if client in self._clients:
                client.close(changed)

    async def reload(self) -> list[Change]:
        """Read the configuration file, the users file and the TLS files again, and go by them from now on; what has
        changed. Two at once come one after the other.

        Raises, with nothing changed, ConfigurationError where any of it is not valid, AcquitError where the broker is
        stopping.
        """
        changes, _ = await self._reload()
        return changes

    async def _reload(self, asker: str = "") -> tuple[list[Change], list[PeerSocket]]:
        """The same, but put out all but the peer with the address `asker`: return it as well, if it is to be."""
        async with self._reloading:
            try:
                options, keys, changes = await self._loop.run_in_executor(
                    None, read_again, self._config, self._options, self._data, self._adjust, self._listeners.keys
                )
                self._listeners.check(keys)
            except ConfigurationError as error:
                logger.warning("the configuration is not valid: nothing has changed", extra={"reason": str(error)})
                raise
            if self._stopping:
                raise AcquitError("the broker is stopping")
            self._options = options = effective(self._options, options)
            self._core.apply(options)
            self._apply_sizes()
            self._engine_options = self._make_engine_options(self._opened)
            self._pump_options = PumpOptions(output_bytes_max=options.connection.output_bytes_max)
            self._apply_delays()
            self._listeners.timeout_s = options.connection.handshake_timeout_ms / 1000
            out = self._replace_keys(keys)
            self._turn()
            asking = [client for client in out if client.peer.name == asker]
            await in_turns(self._put_out, (client for client in out if client not in asking), RELOADED_PER_ROUND)
            await in_turns(partial(logger.info, "configuration: %s"), changes, RELOADED_PER_ROUND)
            logger.info("the configuration was read again", extra={"changes": len(changes), "put_out": len(out)})
            return changes, asking

    def reload_soon(self, asker: str = "") -> Later[list[Value]]:
        """The same, for who is no task: the log tells what came of it, and so does the result, encoded for peers, once
        all queues go by it. The peer with the address `asker` is put out behind that, if it is to be."""
        later = Later[list[Value]]()

        def tell(result: list[Value] | RequestFailure, out: list[PeerSocket]) -> None:
            later.finish(result)
            if not self._stopping:
                self._loop.call_soon(self._put_out, *out)  # once the answer is written

        def finish(done: asyncio.Task[tuple[list[Change], list[PeerSocket]]]) -> None:
            error = None if done.cancelled() else done.exception()
            if error is None and not done.cancelled():
                changes, asking = done.result()
                told: list[Value] = [change.encode() for change in changes]
                self._core.administration.adoption.when_done(lambda: tell(told, asking))
            else:
                status = 400 if isinstance(error, ConfigurationError) else 409
                tell(RequestFailure(status, str(error) if error is not None else "the broker is stopping"), [])
            if not self._stopping:
                self._turn()

        task = self._loop.create_task(self._reload(asker))
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)
        task.add_done_callback(finish)
        return later

    def _look_at_process(self) -> Later[ProcessSnapshot]:
        """Look at the process, and on the reader's thread at the disk."""
        later = Later[ProcessSnapshot]()

        def finish(free_bytes: int | None) -> None:
            later.finish(self._vitals.snapshot(free_bytes))
            self._turn()

        def look() -> None:
            self._reader.tell(finish, self._machine.free_bytes(self._data))

        if self._stopping:
            later.finish(self._vitals.snapshot(None))
        else:
            self._reader.submit(look)
        return later

    def inspect(self) -> BrokerSnapshot:
        """Return a snapshot of the broker as it is now."""
        return self._core.snapshot()

    def _open(self) -> OpenedJournal:
        machine = self._machine
        return open_journal(
            self._data,
            self._options.journal,
            software=f"acquit {version()}",
            disk=machine.disk,
            clock_us=machine.wall_us,
            clock_s=machine.steady_s,
            accept_loss=self._accept_loss,
        )

    def _make_engine_options(self, opened: OpenedJournal) -> ConnectionOptions:
        limits = self._options.connection
        return ConnectionOptions(
            container_id=opened.identity.container_id,
            max_frame_size=limits.max_frame_size,
            channel_max=limits.sessions_max - 1,
            handle_max=limits.links_max - 1,
            idle_timeout_ms=limits.idle_timeout_ms,
            handshake_timeout_ms=limits.handshake_timeout_ms,
            max_message_size=limits.message_bytes_max,
            assembly_bytes_max=limits.assembly_bytes_max,
            unsettled_max=limits.unsettled_max,
            turn_cost_max=limits.turn_cost_max,
            offered_capabilities=CAPABILITIES,
            properties={
                "product": "acquit",
                "version": version(),
                BROKER_ID: opened.identity.store,
                DETECTION_POLICY: STRONG,
            },
        )

    async def _close_clients(self, error: Error) -> None:
        for client in list(self._clients):
            client.close(error)
        deadline = self._loop.time() + self._options.stop_timeout_ms / 1000
        while self._clients and self._loop.time() < deadline:
            waiting = [client.gone for client in self._clients]
            await asyncio.wait(waiting, timeout=max(0.0, deadline - self._loop.time()))
        for client in list(self._clients):
            client.pump.abort()
        while self._clients:
            await asyncio.wait([client.gone for client in self._clients])

    async def _close_journal(self) -> None:
        """The last records, the last sync; then the threads and the folder."""
        self._stopping = True  # after a start that failed, too
        if self._timer is not None:
            self._timer.cancel()
        journal = self._opened.journal
        written = False
        try:
            if self._committer.failure is None:
                self._core.turn(self._clock.read_us())
                self._core.close(self._clock.read_us())
                await self._committer.drain(patience_s=self._options.stop_timeout_ms / 1000)
                journal.check_place()
                written = True
        except StoreError as error:
            logger.critical("the journal failed while stopping", extra={"reason": str(error)})
            if isinstance(error, StoreFailed):
                self._committer.fail(error)
        finally:
            await self._committer.stop()
            await self._reader.stop()
            await self._histories.stop()
            self._verifier.shutdown(cancel_futures=True)  # the one under way takes a fraction of a second
        # Nobody is left whom blocking the loop could keep waiting, and at the end of the interpreter, when an embedded
        # broker may be closed, no executor takes new work.
        if written and self._committer.failure is None:
            try:
                close_journal(self._opened.recorder, self._clock.read_us())
            except StoreError as error:
                # All that anybody was told of is on the disk; only that this was an end in order is not.
                logger.warning(
                    "stopped without a last record: the next start takes it for a crash", extra={"reason": str(error)}
                )
        else:
            journal.close()

    def _fail(self, error: StoreError) -> None:
        """The journal is finished: nothing later is accepted, so nobody is left in doubt about it."""
        logger.critical("the journal failed: the broker stops", extra={"reason": str(error), "data": str(self._data)})
        assert self._ended is not None
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # seen, also where nobody waits
        self._listeners.shut()
        internal = Error(AmqpCondition.INTERNAL_ERROR, "the broker's journal failed")
        for client in list(self._clients):
            client.close(internal)

    # -- sockets ------------------------------------------------------------------------------------------------------

    def _apply_sizes(self) -> None:
        """Limit connections and new sockets: as the options say, and no more than there are descriptors for."""
        limits = self._options.limits
        wanted = limits.connections_max + limits.unauthenticated_max
        self._unauthenticated.size_max = min(limits.unauthenticated_max, max(1, self._descriptors // 4))
        fits = max(1, self._descriptors - self._unauthenticated.size_max)
        self._core.quotas.connections_max = connections_max = min(limits.connections_max, fits)
        if wanted > self._descriptors:
            logger.log(
                logging.WARNING if self._own_process else logging.DEBUG,
                "the limit of open files is too low for limits.connections_max = %d and unauthenticated_max = %d: "
                "there can be %d connections, and %d sockets that are not logged in",
                *(limits.connections_max, limits.unauthenticated_max, connections_max, self._unauthenticated.size_max),
            )

    def _apply_delays(self) -> None:
        security = self._options.security
        self.refusal_delay_s = security.refusal_delay_ms / 1000
        self.login_throttle.longest_s = security.login_delay_ms_max / 1000

    def _denied(self, text: str, by: str, particulars: Mapping[str, object]) -> None:
        self.notices.warn(text, by, **particulars)

    def _performed(self, refused: bool, by: str, particulars: Mapping[str, object]) -> None:
        if refused:
            self.notices.warn("an operation is refused", by, **particulars)
        else:
            logger.info("an operation", extra=dict(particulars))

    def _evicted(self) -> None:
        self.notices.warn(
            "a connection that had not logged in gave way to another: there are too many of them",
            unauthenticated_max=self._unauthenticated.size_max,
        )

    def _enter(self, caller: Caller) -> Pump:
        """Make an engine and a pump for a socket whose peer may say now who it is, and return the pump."""
        engine = Connection(self._engine_options, server=True, sasl=caller.sasl, now=caller.since)
        name = endpoint_name(caller.transport.get_extra_info("peername"))
        peer = self._core.connected(engine, name, caller.place.network)
        client = PeerSocket(self, engine, peer, self._loop, self._pump_options, caller, self._exit)
        encrypted = caller.transport.get_extra_info("ssl_object")
        peer.tls = "" if encrypted is None else encrypted.version() or ""
        peer.socket_bytes = client.pump.buffered_bytes
        self._clients[client] = None
        return client.pump

    # -- for `sockets.PeerSocket` -------------------------------------------------------------------------------------

    def login_refused(self, name: str, peer: str, network: str, mechanism: str, *, busy: bool) -> None:
        """Record that a login by this name was refused; `busy`: it was not looked at."""
        user = name if name in self.users else None  # what is no user's name may be somebody's password
        by = f"{network} {user or ''}"
        self.notices.warn("a login is refused", by, peer=peer, mechanism=mechanism, user=user, busy=busy)
        result = "refused: too many are being looked at" if busy else "refused"
        self._core.auditor.refused("login", user, peer, mechanism, result)
        self._core.denials.login(busy=busy)
        self._turn()

    def closed(self, client: PeerSocket) -> None:
        """Forget a socket that is gone."""
        self._clients.pop(client, None)

    def handle(self, client: PeerSocket, events: list[Event]) -> None:
        """Events of one connection, those of its authentication taken out."""
        now_us = self._clock.now_us()
        self._core.handle(client.peer, events, now_us)
        self._turn(now_us)

    def writable(self, client: PeerSocket, writable: bool) -> None:
        """The socket takes no more, or does again."""
        self._core.writable(client.peer, writable)
        if writable:
            self._turn()

    def verify(self, client: Verifying, login: Login, response: bytes) -> None:
        """Do a step of a login on the thread for it. The socket hears what comes of it by `conclude`."""
        if self._verifying >= self._options.security.verifications_max:
            client.answer(None, busy=True)
            return
        self._verifying += 1
        future = self._loop.run_in_executor(self._verifier, login.step, response)
        future.add_done_callback(lambda done: self._verified(client, done))

    def _verified(self, client: Verifying, done: asyncio.Future[Challenge | Proven | None]) -> None:
        self._verifying -= 1
        if not done.cancelled():
            client.conclude(done.result)

    def advance(self, by_us: int) -> None:
        """Let `by_us` microseconds pass at once (for tests): what is due by then happens."""
        self._clock.advance(by_us)
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    # -- wake-ups -----------------------------------------------------------------------------------------------------

    def _turn(self, now_us: int | None = None) -> None:
        """Do what has become possible; `now_us`: the time of the wake-up, where that was asked for already."""
        if self._committer.stopping:
            return  # the reader's thread may have ended as well, and nobody is left to do anything for
        core = self._core
        if now_us is None:
            now_us = self._clock.now_us()
        more = core.turn(now_us, go_on=not self._turn_due)
        if core.memory.wanted or core.memory.wanted_together:
            self._submit_reads()
        if self._checkpointer.active:
            self._checkpoint(now_us)
        self._committer.kick()  # the disk waits for no socket
        touched = core.take_touched()
        few = len(touched) <= PROMPT_MAX
        for engine in touched:
            client = engine.context
            if isinstance(client, PeerSocket):
                if few:
                    client.pump.touch_promptly()
                else:
                    client.pump.touch()
        if self._turn_due:
            return  # it looks at the time as well
        if more:
            self._turn_due = True
            self._loop.call_soon(self._turn_again)
        elif (due_ms := core.next_due_ms) is not None:
            self._wake_at(due_ms)

    def _turn_again(self) -> None:
        self._turn_due = False
        self._turn()

    def _wake_at(self, due_ms: int) -> None:
        """Bring the next tick, which has a turn, forward to when the next message is due, if that is earlier."""
        delay_s = max(0.0, due_ms / 1000 - self._clock.read_us() / 1e6)
        when = self._loop.time() + delay_s
        if self._timer is not None and when < self._timer_at and not self._stopping:
            self._timer.cancel()
            self._timer, self._timer_at = self._loop.call_at(when, self._tick), when

    def _tick(self) -> None:
        now_us = self._clock.now_us()
        if self._timer is not None:
            self._vitals.late(self._loop.time() - self._timer_at)
        self._timer_at = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._timer_at, self._tick)
        self._core.tick(now_us)
        self.notices.flush()
        self._checkpoint(now_us)
        self._turn(now_us)

    def _synced(self, position: int) -> None:
        now_us, late = self._clock.now_us(), self._core.scribe.hands_out_late
        self._core.synced(Position(position), now_us)
        if not late:  # what came is written while this is handed out; else a consumer waits for what that records
            self._committer.kick()
        if position >= self._checkpointer.look_at:
            self._checkpoint(now_us)
        self._turn(now_us)

    # -- reading back -------------------------------------------------------------------------------------------------

    def _submit_reads(self) -> None:
        for reads in self._core.take_reads():
            self._reader.submit(partial(self._run_reads, reads))

    def _run_reads(self, reads: Reads) -> None:
        """Read bodies from the journal, on the reader thread."""
        try:
            payloads = self._opened.journal.read_payloads(reads.positions, reads.size_hints)
        except StoreFull as error:
            self._reader.tell(self._read_later, error, partial(self._run_reads, reads))
        except StoreError as error:
            self._reader.tell(self._committer.fail, error)
        else:
            self._reader.tell(self._loaded, reads, payloads)

    def _read_later(self, error: StoreFull, job: Callable[[], None]) -> None:
        """Read once more after a while: no file could be opened."""

        def again() -> None:
            if not self._stopping:
                self._reader.submit(job)

        if self._unread_for != error.limit:  # once, and not for each that waits
            logger.warning("%s: what is to be read waits", error.limit, extra={"reason": str(error)})
        self._unread_for = error.limit
        self._loop.call_later(RETRY_S, again)

    def _note_read(self) -> None:
        if self._unread_for:
            logger.warning("files can be opened again: what waited is read")
        self._unread_for = ""

    def _loaded(self, reads: Reads, payloads: list[bytes | None]) -> None:
        self._note_read()
        self._core.loaded(reads, payloads)
        self._turn()

    def _checkpoint(self, now_us: int) -> None:
        """The next step of moving the oldest segment out of the recovery set."""
        if self._stopping:
            return  # nobody waits for it, and the next start goes on with it
        with suppress(StoreFull):  # the step is done again when there is room
            self._checkpointer.advance(now_us)
        read = self._checkpointer.take_read()
        if read is not None:
            self._reader.submit(partial(self._run_checkpoint_read, read))

    def _run_checkpoint_read(self, read: BodyRead) -> None:
        """Run a read of the checkpoint, on the reader thread."""
        try:
            read.run()
        except StoreFull as error:
            self._reader.tell(self._read_later, error, partial(self._run_checkpoint_read, read))
        except StoreError as error:
            self._reader.tell(self._committer.fail, error)
        else:
            self._reader.tell(self._complete_checkpoint_read, read)

    def _complete_checkpoint_read(self, read: BodyRead) -> None:
        self._note_read()
        if self._stopping:
            return  # perhaps the journal is closed already
        with suppress(StoreFull):
            self._checkpointer.complete_read(read)
        self._turn()


def tune_process() -> None:
    """Tune a process that does nothing but this: what is there now will stay, so the collector need not look at it
    again, and it looks at the rest rarely, because messages make no cycles. Threads hand over quickly, so that a batch
    that is on the disk is not answered late."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    sys.setswitchinterval(SWITCH_INTERVAL_S)


__all__ = ["CAPABILITIES", "Server", "tune_process"]
