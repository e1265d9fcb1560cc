from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from acquit import errors
from acquit.client.modes import MODES, AckMode
from acquit.client.received import MessageCore
from acquit.client.receiving import ReceiverCore
from acquit.client.reconnecting import Reconnect
from acquit.client.subscriptions import Subscription
from acquit.protocol import events as ev
from acquit.protocol.constants import ACCEPTED
from acquit.protocol.definitions import Accepted, RcvSettleMode, Released, SndSettleMode, Source, Target
from acquit.protocol.sender import SendingLink
from acquit.protocol.types import Described, Symbol
from tests.support.server import Rig, Server


def offered(rig: Rig, count: int, size: int = 1, address: str = "q") -> None:
    rig.server.offer(address, *(bytes(size) for _ in range(count)))
    rig.run()


def asked_source(rig: Rig) -> Source:
    (requested,) = rig.server.all(ev.LinkRequested)
    assert requested.link.remote_attach is not None
    source = requested.link.remote_attach.source
    assert isinstance(source, Source)
    return source


# -- attaching ---------------------------------------------------------------------------------------------------------


def test_the_source_says_what_is_wanted() -> None:
    rig = Rig()
    rig.receiver(rig.session(), "orders", target="here", capabilities=("queue",), properties={"a": 1})
    source = asked_source(rig)
    assert (source.address, source.distribution_mode, source.capabilities) == ("orders", None, ("queue",))
    assert source.outcomes == (
        "amqp:accepted:list",
        "amqp:rejected:list",
        "amqp:released:list",
        "amqp:modified:list",
    )
    attach = rig.peer.sending.remote_attach
    assert attach is not None
    assert isinstance(attach.target, Target) and attach.target.address == "here"
    assert attach.properties == {"a": 1}


@pytest.mark.parametrize(
    ("product", "asked"),
    [("acquit", RcvSettleMode.SECOND), ("RabbitMQ", RcvSettleMode.FIRST), (None, RcvSettleMode.SECOND)],
)
def test_a_peer_that_would_end_the_session_is_not_asked_for_mode_second(product: str, asked: RcvSettleMode) -> None:
    rig = Rig(Server(properties={"product": product} if product else None))
    rig.receiver(rig.session("individual"))
    (requested,) = rig.server.all(ev.LinkRequested)
    assert requested.link.remote_attach is not None
    assert requested.link.remote_attach.rcv_settle_mode is asked


@pytest.mark.parametrize("prefetch", [0, 7])
@pytest.mark.parametrize(("product", "early"), [("Apache Qpid Broker-J Core", False), (None, True)])
def test_credit_goes_with_the_attach_where_the_peer_bears_that(product: str | None, early: bool, prefetch: int) -> None:
    rig = Rig(Server(properties={"product": product} if product else None))
    session = rig.session()
    rig.server.silent = True
    receiver = rig.receiver(session, prefetch=prefetch, run=False)
    receiver.begin_wait()
    rig.run()
    link = rig.peer.sending
    assert (link.early_flow is not None) is early
    link.accept_attach()
    rig.run()
    assert link.credit == max(prefetch, 1)
    assert receiver.attached.done


def test_a_drain_before_the_answer_to_the_attach_is_said_behind_it() -> None:
    rig = Rig(Server(properties={"product": "Apache Qpid Broker-J Core"}))
    session = rig.session()
    rig.server.silent, rig.server.drains = True, False
    receiver = rig.receiver(session, prefetch=7, run=False)
    rig.run()
    drained = receiver.drain()
    rig.run()
    assert not drained.done
    link = rig.peer.sending
    link.accept_attach()
    rig.run()
    assert (link.credit, link.drain) == (7, True)
    link.drained()
    rig.run()
    assert drained.done and drained.failure is None


def test_a_rollback_before_the_answer_to_the_attach_waits_for_nothing() -> None:
    rig = Rig(Server(properties={"product": "Apache Qpid Broker-J Core"}))
    session = rig.session("transacted")
    rig.server.silent = True
    receiver = rig.receiver(session, prefetch=7, run=False)
    assert receiver.return_buffer() == []
    assert receiver.returned
    rig.run()
    link = rig.peer.sending
    link.accept_attach()
    rig.run()
    assert link.credit == 0
    receiver.resume()
    rig.run()
    assert link.credit == 7


def test_browsing_asks_for_copies() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session(), browse=True)
    assert asked_source(rig).distribution_mode == "copy"
    assert receiver.attached.done and receiver.failure is None


def test_a_peer_that_does_not_let_us_browse_gets_nothing_consumed() -> None:
    rig = Rig()
    rig.server.browsable = False
    offered(rig, 3)
    receiver = rig.receiver(rig.session(), browse=True)
    with pytest.raises(errors.LinkDetached, match=r"the peer does not let us browse \(distribution-mode copy\)"):
        receiver.attached.check()
    assert receiver.take() is None
    assert rig.server.outcomes() == []
    (detached,) = rig.server.all(ev.LinkDetached)
    assert detached.error is not None and detached.error.condition == "amqp:not-implemented"


OLD_RABBITMQ: dict[str, object] = {"product": "RabbitMQ", "version": "4.0.5"}
OFFSET_SPEC = Symbol("rabbitmq:stream-offset-spec")
STREAM_OFFSET: dict[str, object] = {OFFSET_SPEC: Described(OFFSET_SPEC, "first")}


def test_who_repeats_what_was_asked_does_not_let_us_browse() -> None:
    rig = Rig(Server(properties=OLD_RABBITMQ))
    receiver = rig.receiver(rig.session(), browse=True)
    with pytest.raises(errors.LinkDetached, match=r"the peer does not let us browse \(distribution-mode copy\)"):
        receiver.attached.check()


def test_who_repeats_what_was_asked_keeps_no_subscription() -> None:
    rig = Rig(Server(properties=OLD_RABBITMQ))
    receiver = rig.receiver(rig.session(), subscription=Subscription(name="s", shared=True))
    with pytest.raises(errors.LinkDetached, match="the peer keeps no subscriptions that have a name"):
        receiver.attached.check()


@pytest.mark.parametrize(
    ("asked", "refused"),
    [({"selector": "a = 1"}, "jms-selector"), ({"no_local": True}, "no-local"), ({"filters": STREAM_OFFSET}, None)],
)
def test_who_repeats_what_was_asked_applies_no_filter_of_jms(asked: dict[str, Any], refused: str | None) -> None:
    rig = Rig(Server(properties=OLD_RABBITMQ))
    rig.server.filters = True
    receiver = rig.receiver(rig.session(), **asked)
    if refused is None:
        receiver.attached.check()
    else:
        with pytest.raises(errors.LinkDetached, match=f"the peer does not apply the filter {refused}"):
            receiver.attached.check()


OWN: dict[str, object] = {"mine": Described(Symbol("mine:filter"), "x")}


@pytest.mark.parametrize(
    ("version", "refused"), [("3.13.7", True), ("4.0.5", True), ("4.1.0", False), ("4.3.0", False)]
)
def test_who_repeats_every_filter_applies_none_but_those_of_streams(version: str, refused: bool) -> None:
    rig = Rig(Server(properties={"product": "RabbitMQ", "version": version}))
    rig.server.filters = True
    session = rig.session()
    for name, filters in (("mine", OWN), ("of streams", {"of streams": STREAM_OFFSET[OFFSET_SPEC]})):
        own = rig.receiver(session, name, filters=filters)
        says = pytest.raises(errors.LinkDetached, match=f"the peer does not apply the filter {name}")
        with says if refused else nullcontext():
            own.attached.check()
    rig.receiver(session, "streams", filters=STREAM_OFFSET).attached.check()
    rig.receiver(session, "by name", filters={"rabbitmq:stream-filter": "red"}).attached.check()


@pytest.mark.parametrize(
    "asked",
    [
        {"browse": True},
        {"selector": "a = 1"},
        {"no_local": True},
        {"filters": OWN},
        {"topic": True},
        {"subscription": Subscription(name="s", shared=True)},
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["no_ack", "individual"])
def test_nothing_is_granted_before_the_peer_has_said_whether_it_does_what_was_asked(
    asked: dict[str, Any], mode: str
) -> None:
    """Else it sends, settled perhaps, what was not asked for, before it hears that the link is refused."""
    rig = Rig()
    session = rig.session(mode)
    rig.server.silent = True
    receiver = rig.receiver(session, prefetch=7, run=False, **asked)
    receiver.begin_wait()
    rig.run()
    link = rig.peer.sending
    assert link.early_flow is None
    link.accept_attach()
    rig.run()
    assert (link.credit, receiver.failure) == (7, None)


def test_a_filter_that_the_peer_does_not_apply_ends_the_link() -> None:
    rig = Rig()
    selector = {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
    receiver = rig.receiver(rig.session(), filters=selector)
    assert asked_source(rig).filter == selector
    with pytest.raises(errors.LinkDetached, match="the peer does not apply the filter selector"):
        receiver.attached.check()
    assert not receiver.closed_by_us  # also on a later connection, where a loop is over it


@pytest.mark.parametrize("mode", [mode for mode in AckMode if MODES[mode].reliable])
def test_a_peer_that_sends_settled_where_unsettled_was_asked_for_ends_the_link(mode: AckMode) -> None:
    rig = Rig()
    rig.server.snd_settle_mode = SndSettleMode.SETTLED
    session = rig.session(mode)
    receiver = rig.receiver(session)
    with pytest.raises(errors.LinkDetached, match="the peer sends settled where unsettled was asked for"):
        receiver.attached.check()
    assert receiver.take() is None
    (detached,) = rig.server.all(ev.LinkDetached)
    assert detached.error is not None and detached.error.condition == "amqp:not-implemented"
    for settled in (rig.receiver(session, "r", unreliable=True), rig.receiver(session, "s", browse=True)):
        settled.attached.check()


def come_back(rig: Rig, snd_settle_mode: SndSettleMode | None = None) -> None:
    """The connection is lost and restored, and the peer grants the link without a filter, and sends at once if it has
    our credit by then."""
    rig.cut()
    rig.server.heard.clear()
    rig.server.silent = True
    rig.restore()
    (requested,) = rig.server.all(ev.LinkRequested)
    assert isinstance(requested.link, SendingLink)
    requested.link.accept_attach(source=Source("q"), snd_settle_mode=snd_settle_mode)
    rig.server.offer("q", *[b"m"] * 8)  # those behind the first come in a run, where that is wanted
    rig.run()


@pytest.mark.parametrize(
    ("mode", "in_runs"),
    [(AckMode.INDIVIDUAL, False), (AckMode.INDIVIDUAL, True), (AckMode.NO_ACK, False), (AckMode.TRANSACTED, False)],
)
def test_nothing_is_taken_over_a_link_that_comes_back_without_its_filter(mode: AckMode, in_runs: bool) -> None:
    rig = Rig(reconnect=Reconnect())
    rig.server.filters = True
    receiver = rig.receiver(rig.session(mode), selector="a = 1", in_runs=in_runs)
    receiver.attached.check()
    come_back(rig)
    assert len(rig.server.queues["q"]) == 8, "in NO_ACK what is sent is gone"
    assert not receiver.buffer
    with pytest.raises(errors.LinkDetached, match="the peer does not apply the filter jms-selector"):
        receiver.check()


@pytest.mark.parametrize("in_runs", [False, True])
def test_nothing_is_taken_over_a_link_that_comes_back_settled(in_runs: bool) -> None:
    rig = Rig(reconnect=Reconnect())
    receiver = rig.receiver(rig.session(AckMode.INDIVIDUAL), in_runs=in_runs)
    come_back(rig, SndSettleMode.SETTLED)
    assert not rig.server.queues["q"]
    assert not receiver.buffer
    with pytest.raises(errors.LinkDetached, match="the peer sends settled where unsettled was asked for"):
        receiver.check()


# -- prefetch ----------------------------------------------------------------------------------------------------------


def test_the_first_credit_goes_out_with_the_attach() -> None:
    rig = Rig()
    rig.receiver(rig.session(), prefetch=7)
    assert rig.peer.sending.credit == 7


def test_a_prefetch_of_one_goes_on() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session(), prefetch=1)
    offered(rig, 3)
    for _ in range(3):
        rig.take(receiver, 1)
        rig.run()
    assert receiver.take() is None


def test_less_than_half_is_granted_when_somebody_waits_for_it() -> None:
    """Mode INDIVIDUAL: three of four are kept, one is acknowledged; then there must be credit for the next."""
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session, prefetch=4)
    offered(rig, 6)
    kept = rig.take(receiver, 3)
    session.settle_all([kept.pop()], ACCEPTED)
    rig.run()
    assert (len(receiver.buffer), rig.peer.sending.credit) == (1, 0)
    kept += rig.take(receiver, 1)
    rig.run()
    receiver.before_waiting()
    rig.run()
    assert (len(kept), len(receiver.buffer)) == (3, 1)


# -- exhaustion --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["client", "individual"])
def test_at_the_limit_with_all_handed_out_nothing_comes_and_that_is_said(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    session = rig.session(mode)
    receiver = rig.receiver(session, prefetch=2)
    offered(rig, 5)
    assert not receiver.exhausted  # there are some in the buffer
    rig.take(receiver, 1)
    assert not receiver.exhausted
    rig.take(receiver, 1)
    assert receiver.exhausted
    receiver.before_waiting()
    receiver.before_waiting()
    said = f"has handed out all of its prefetch (2 messages, 1000000 bytes) in mode {mode.upper()}"
    assert caplog.text.count(said) == 1
    assert isinstance(receiver.exhaustion(), errors.CreditExhausted)
    session.acknowledge(None, whole_session=False)  # is on its way, and counts already
    assert not receiver.exhausted
    rig.run()
    rig.take(receiver, 2)
    receiver.before_waiting()
    assert caplog.text.count(said) == 2  # another stall, another word


def test_the_limit_in_bytes_exhausts_as_well() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("client"), prefetch=100, prefetch_bytes=1_000)
    offered(rig, 1, size=5_000)
    rig.take(receiver, 1)
    assert receiver.exhausted


@pytest.mark.parametrize(("mode", "prefetch"), [("auto", 2), ("no_ack", 2), ("client", 0)])
def test_where_acknowledging_brings_no_credit_nothing_is_exhausted(mode: str, prefetch: int) -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session(mode), prefetch=prefetch)
    offered(rig, 5)
    while receiver.take() is not None:
        pass
    assert not receiver.exhausted


# -- one at a time -----------------------------------------------------------------------------------------------------


def pulling(mode: str = "individual") -> tuple[Rig, ReceiverCore]:
    rig = Rig()
    return rig, rig.receiver(rig.session(mode), prefetch=0)


def test_who_waits_on_gets_credit_again_after_another_s_drain() -> None:
    rig, receiver = pulling()
    receiver.begin_wait()
    receiver.begin_wait()
    rig.run()
    drained = receiver.drain()
    receiver.end_wait()
    rig.run()
    assert drained.done
    assert rig.peer.sending.credit == 1


def test_the_credit_of_who_waits_no_more_is_not_left_to_the_others() -> None:
    """A message that comes for nobody would be kept from all others."""
    rig, receiver = pulling()
    for _ in range(3):
        receiver.begin_wait()
    rig.run()
    assert rig.peer.sending.credit == 3
    receiver.end_wait()
    rig.run()
    assert rig.peer.sending.credit == 2
    offered(rig, 1)
    receiver.end_wait()  # with a message in the buffer, which the last one takes
    rig.run()
    assert rig.peer.sending.credit == 0


# -- drain -------------------------------------------------------------------------------------------------------------


def test_drain_brings_what_is_there_and_gives_the_rest_back() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"), prefetch=5)
    offered(rig, 2)
    drained = receiver.drain()
    assert not drained.done
    rig.run()
    assert drained.done
    assert (len(receiver.buffer), receiver.link.credit) == (2, 0)
    offered(rig, 1)
    assert len(receiver.buffer) == 2
    assert receiver.waits_for_credit
    rig.take(receiver, 2)
    receiver.begin_wait()  # and who waits again has the prefetch again
    rig.run()
    assert len(receiver.buffer) == 1
    assert not receiver.waits_for_credit
    assert receiver.link.credit + receiver.held == 5
    receiver.end_wait()
    rig.run()
    assert receiver.link.credit + receiver.held == 5


def test_acknowledging_after_a_drain_grants_nothing() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session, prefetch=2)
    offered(rig, 1)
    receiver.drain()
    rig.run()
    session.settle_all(rig.take(receiver, 1), ACCEPTED)
    rig.run()
    assert rig.peer.sending.credit == 0


def test_drain_without_credit_is_done_at_once() -> None:
    _, receiver = pulling()
    assert receiver.drain().done


def test_two_drains_are_one() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session())
    assert receiver.drain() is receiver.drain()
    rig.run()
    assert receiver.drain().done


def test_a_drain_ends_with_the_link() -> None:
    rig = Rig()
    rig.server.drains = False
    receiver = rig.receiver(rig.session())
    drained = receiver.drain()
    rig.run()
    assert not drained.done
    rig.cut()
    with pytest.raises(errors.ConnectionLost):
        drained.check()
    with pytest.raises(errors.ConnectionLost):
        receiver.drain().check()


def test_who_waits_while_a_drain_is_under_way_gets_credit_when_it_is_over() -> None:
    """To grant would end the drain, and nobody would ever hear that it is over (2.6.7)."""
    rig, receiver = pulling()
    receiver.begin_wait()
    rig.run()
    receiver.end_wait()
    rig.core.process(rig.now)  # the drain is said, and has not arrived
    drained = receiver.drained
    receiver.begin_wait()
    receiver.begin_wait()
    rig.run()
    assert drained is not None and drained.done
    assert rig.peer.sending.credit == 2
    for _ in range(2):
        receiver.end_wait()
    rig.run()
    assert rig.peer.sending.credit == 0  # and it can be drained again


def test_to_ask_for_the_state_does_not_end_a_drain() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    drained = receiver.drain()
    query = receiver.query()
    rig.run()
    assert drained.done
    assert query.done
    assert rig.peer.sending.credit == 0


# -- pause -------------------------------------------------------------------------------------------------------------


def test_a_pause_takes_the_credit_back_until_somebody_waits() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session, prefetch=4)
    offered(rig, 2)
    rig.core.post((receiver.pause,))
    rig.run()
    assert rig.peer.sending.credit == receiver.link.credit == 0
    offered(rig, 1)
    assert len(receiver.buffer) == 2
    session.settle_all(rig.take(receiver, 2), ACCEPTED)
    rig.run()
    assert rig.peer.sending.credit == 0, "there is room, and nobody wants more"
    assert receiver.waits_for_credit
    receiver.begin_wait()
    rig.run()
    assert len(receiver.buffer) == 1
    assert receiver.link.credit + receiver.held == 4


def test_what_is_on_its_way_at_a_pause_arrives() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"), prefetch=4)
    rig.server.offer("q", b"1")
    rig.peer.send(rig.peer.sending, b"2")
    receiver.pause()
    rig.run()
    assert receiver.failure is None and receiver.buffer
    assert rig.peer.sending.credit == 0


def test_a_pause_does_not_end_a_drain() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"), prefetch=4)
    drained = receiver.drain()
    receiver.pause()
    rig.run()
    assert drained.done
    assert rig.peer.sending.credit == 0


def test_a_pause_of_a_link_that_is_gone_is_nothing() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    rig.cut()
    receiver.pause()
    assert receiver.failure is not None


# -- asking the peer ---------------------------------------------------------------------------------------------------


def test_the_peer_tells_how_many_wait() -> None:
    rig, receiver = pulling()
    rig.peer.sending.offer(17)
    query = receiver.query()
    rig.run()
    assert query.done
    assert receiver.available == 17


def test_a_query_ends_with_the_link() -> None:
    rig, receiver = pulling()
    query = receiver.query()
    rig.cut()
    with pytest.raises(errors.ConnectionLost):
        query.check()
    with pytest.raises(errors.ConnectionLost):
        receiver.query().check()
    assert receiver.available is None


def test_the_peer_says_what_the_address_is_and_more() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session(), "q")
    assert receiver.address == "q"
    assert receiver.remote_properties == {}


# -- what else can happen ----------------------------------------------------------------------------------------------


def test_an_aborted_delivery_gives_its_credit_back() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"), prefetch=2)
    for _ in range(2):
        delivery = rig.peer.send(rig.peer.sending, bytes(100_000))  # larger than a frame: half of it is written
        assert rig.peer.sending.abort(delivery)
        rig.run()
    offered(rig, 2)
    assert len(receiver.buffer) == 2


def test_a_closed_receiver_hands_out_nothing_more() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    offered(rig, 1)
    receiver.begin_close()
    with pytest.raises(errors.LinkDetached, match="the receiver from 'q' is closed"):
        receiver.check()
    assert receiver.closed_by_us
    receiver.detach()
    rig.run()
    assert receiver.detached.done
    receiver.detach()  # twice does no harm


def test_what_the_peer_takes_back_leaves_the_buffer_while_a_thread_takes_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    rig.server.offer("q", b"a", b"b", b"c")
    rig.run()
    taken: list[MessageCore | None] = []

    def compared(one: MessageCore, other: object) -> bool:
        if not taken:
            taken.append(None)
            taken[0] = receiver.take()  # as another thread may between any two comparisons
        return one is other

    monkeypatch.setattr(MessageCore, "__eq__", compared)
    rig.peer.sending.unsettled()[1].settle(Released())
    rig.run()
    assert [message.body for message in (*taken, *receiver.buffer) if message is not None] == [b"a", b"c"]


def test_notify_is_called_when_there_is_something_or_never_will_be() -> None:
    rig = Rig()
    receiver = rig.receiver(rig.session("individual"))
    calls: list[int] = []
    receiver.notify = lambda: calls.append(len(receiver.buffer))
    offered(rig, 2)
    assert calls == [2]
    rig.cut()
    assert calls == [2, 0]


def test_deliveries_are_settled_in_ranges() -> None:
    rig = Rig()
    session = rig.session("individual")
    receiver = rig.receiver(session)
    offered(rig, 6)
    taken = rig.take(receiver, 6)
    session.settle_all(taken[:3], ACCEPTED)
    session.settle_all(taken[3:], ACCEPTED)
    rig.run()
    (told,) = rig.server.all(ev.StatesReceived)
    assert (len(told.deliveries), told.state) == (6, Accepted())
