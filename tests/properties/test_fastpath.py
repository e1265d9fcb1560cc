"""The fast path against the long way: whatever a peer says, both hear the same, hold the same and answer the same."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from acquit.protocol.definitions import SndSettleMode
from acquit.protocol.endpoint import LinkState
from acquit.protocol.fastpath import Predictions
from acquit.protocol.link import SendingLink
from acquit.protocol.options import ConnectionOptions
from acquit.protocol.session import Session
from tests.support.examples import share
from tests.support.hostile import Application, Talk, state_of, talked_to
from tests.support.peer import Peer, credit_flow, sending_engine
from tests.support.wire import frames_in

ROOMY = ConnectionOptions(container_id="engine")
TIGHT = ConnectionOptions(
    container_id="engine", max_message_size=2_500, incoming_window_frames=64, assembly_bytes_max=9_000
)


class Forgetful(Predictions):
    """Learns nothing, so that every frame goes the long way."""

    def learn(self, session: Session, said: object, frame: bytes) -> None:
        pass


def told(
    data: bytes, chunk_seed: int, options: ConnectionOptions, credit: int, *, long_way: bool
) -> tuple[list[object], list[object], bytes]:
    """What an engine hears in `data`, what it is like afterwards, and what it answers."""
    peer = talked_to(options, credit, messages=20)
    if long_way:
        peer.engine.predictions = Forgetful()
    application = Application(credit)
    chance = random.Random(chunk_seed)
    output = b""
    while data:
        cut = chance.choice((20, 400, 5_000, len(data)))
        application.hear(peer.send_bytes(data[:cut]))
        output += peer.hear_bytes()
        data = data[cut:]
    return application.all_heard(), state_of(peer.engine), output


@settings(max_examples=share(200))
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([0.0, 0.0, 0.02, 0.2]),
    st.sampled_from([3, 40, 500]),
    st.sampled_from([ROOMY, ROOMY, TIGHT]),
)
def test_received_alike(seed: int, wildness: float, credit: int, options: ConnectionOptions) -> None:
    data = b"".join(Talk(seed, wildness).frames(120))
    assert told(data, seed, options, credit, long_way=False) == told(data, seed, options, credit, long_way=True)


def test_clients_of_ordinary_habits_are_predicted() -> None:
    """Otherwise the test above would prove nothing."""
    transfers = transactional = dispositions = 0
    for seed in range(80):
        peer, talk = talked_to(ROOMY, 500), Talk(seed, 0.0)
        peer.send_bytes(b"".join(talk.frames(120)))
        states = [link.state for link in peer.engine.sessions[0].links]
        assert len(states) == 3
        if talk.tag_bytes > 1:  # those of one byte come again
            assert states == 3 * [LinkState.ATTACHED], "nothing of this is wrong"
        transfers += bool(peer.engine.predictions.transfers)
        transactional += any(layout.state is not None for layout in peer.engine.predictions.transfers.values())
        dispositions += bool(peer.engine.predictions.dispositions)
    assert transfers > 20
    assert transactional > 3
    assert dispositions > 20


SERIAL = 0xFFFF_FFF0
"""Serial numbers go over the edge soon."""


def sending(
    chance: random.Random, mode: SndSettleMode, max_message_size: int | None = None
) -> tuple[Peer, SendingLink]:
    """An engine with some credit and some window."""
    options = ConnectionOptions(container_id="engine", unsettled_max=30, initial_serial=SERIAL)
    window = chance.choice((5, 50))
    peer, link = sending_engine(
        0,
        options=options,
        max_frame_size=chance.choice((512, 4_096)),
        snd_settle_mode=mode,
        max_message_size=max_message_size,
    )
    peer.say(credit_flow(chance.randrange(60), next_incoming_id=SERIAL, incoming_window=window))
    return peer, link


def sent(seed: int, mode: SndSettleMode, *, long_way: bool) -> tuple[list[object], list[object]]:
    """The frames of a random application, and what the engine is like afterwards."""
    chance = random.Random(seed)
    peer, link = sending(chance, mode, chance.choice((None, 400)))
    for _ in range(60):
        if long_way:
            link._templates.clear()
        tag = chance.randbytes(chance.choice((1, 4, 4, 4, 32)))
        payload = chance.randbytes(chance.choice((0, 10, 10, 300, 470, 480, 490, 3_000)))
        settled = chance.choice((None, None, True)) if mode is SndSettleMode.MIXED else None
        if link.sendable and len(payload) <= (link.remote_max_message_size or 1 << 32):
            link.send(tag, payload, settled=settled)
    frames: list[object] = list(frames_in(peer.hear_bytes()))
    return frames, [*state_of(peer.engine), *unsettled_of(peer)]


def unsettled_of(peer: Peer) -> list[object]:
    return [(item.tag, item.delivery_id, item.phase, item.payload) for item in peer.engine.sessions[0].unsettled()]


@settings(max_examples=share(150))
@given(st.integers(0, 1 << 32), st.sampled_from(list(SndSettleMode)))
def test_sent_alike(seed: int, mode: SndSettleMode) -> None:
    assert sent(seed, mode, long_way=False) == sent(seed, mode, long_way=True)


def sent_in_groups(seed: int, mode: SndSettleMode, *, one_by_one: bool) -> list[object]:
    """How many were sent of each group, the frames, and what the engine is like afterwards."""
    chance = random.Random(seed)
    peer, link = sending(chance, mode)
    counts: list[int] = []
    for _ in range(8):
        group = range(chance.randrange(12))
        width = chance.choice((1, 4, 4, 4))
        tags = [chance.randbytes(chance.choice((width, width, width, width, 32))) for _ in group]
        sizes = chance.choice(((0, 10, 300), (10, 470, 480, 490, 3_000)))
        payloads = [chance.randbytes(chance.choice(sizes)) for _ in group]
        settled = chance.choice((None, None, True)) if mode is SndSettleMode.MIXED else None
        contexts = [object() for _ in group]
        if not one_by_one:
            sent = link.send_all(tags, payloads, contexts, settled=settled)
        else:
            sent = 0
            for tag, payload, context in zip(tags, payloads, contexts, strict=True):
                if not link.sendable:
                    break
                link.send(tag, payload, settled=settled, context=context)
                sent += 1
        counts.append(sent)
        assert [item.context for item in link.unsettled() if item.context in contexts] == (
            [] if settled or mode is SndSettleMode.SETTLED else contexts[:sent]
        )
        if chance.random() < 0.3:
            peer.hear_bytes()  # a half-written one goes on
    return [counts, list(frames_in(peer.hear_bytes())), *state_of(peer.engine), *unsettled_of(peer)]


@settings(max_examples=share(150))
@given(st.integers(0, 1 << 32), st.sampled_from(list(SndSettleMode)))
def test_sent_in_groups_as_one_by_one(seed: int, mode: SndSettleMode) -> None:
    assert sent_in_groups(seed, mode, one_by_one=False) == sent_in_groups(seed, mode, one_by_one=True)


def test_something_is_sent() -> None:
    """Otherwise the test above would prove nothing."""
    many = [seed for seed in range(40) if len(sent(seed, SndSettleMode.MIXED, long_way=False)[0]) > 8]
    assert len(many) > 10
    counts = [sent_in_groups(seed, SndSettleMode.UNSETTLED, one_by_one=False)[0] for seed in range(40)]
    assert len([groups for groups in counts if max(groups) > 4]) > 10  # type: ignore[call-overload]


@pytest.mark.slow
def test_very_much_talk(rng: random.Random, soak_rounds: int) -> None:
    for _ in range(50 * soak_rounds):
        data = b"".join(Talk(rng.randrange(1 << 32), rng.choice((0.0, 0.02, 0.2))).frames(120))
        seed, options, credit = rng.randrange(1 << 32), rng.choice((ROOMY, TIGHT)), rng.choice((3, 40, 500))
        assert told(data, seed, options, credit, long_way=False) == told(data, seed, options, credit, long_way=True)
        mode = rng.choice(list(SndSettleMode))
        assert sent(seed, mode, long_way=False) == sent(seed, mode, long_way=True)
