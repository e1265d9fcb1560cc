"""Half of a link that its deliveries know."""

from __future__ import annotations

from typing import Generic, TypeVar

from acquit.protocol.definitions import Coordinator, RcvSettleMode, Role, SndSettleMode, Source, Target

SessionT_co = TypeVar("SessionT_co", covariant=True)


class LinkBase(Generic[SessionT_co]):
    """Half of a link that a delivery, and the map that it is in, know: `endpoint.Link` is the rest of it.

    `role` is ours: Role.SENDER (False) or Role.RECEIVER (True). `source` is as the sending end describes it, `target`
    as the receiving end does (2.6.3); before the peer's attach, as we asked. The settle modes are as negotiated.
    `context` is the application's.
    """

    __slots__ = (
        "closing",
        "context",
        "credit",
        "handle",
        "name",
        "rcv_settle_mode",
        "session",
        "snd_settle_mode",
        "source",
        "target",
        "unsettled_count",
    )

    role: Role

    def __init__(self, session: SessionT_co, name: str, handle: int, context: object) -> None:
        self.session = session
        self.name = name
        self.handle = handle
        self.context = context
        self.source: Source | None = None
        self.target: Target | Coordinator | None = None
        self.snd_settle_mode = SndSettleMode.MIXED
        self.rcv_settle_mode = RcvSettleMode.FIRST
        self.unsettled_count = 0
        self.credit = 0
        self.closing = False  # our end is destroyed, or about to be: nothing is said of its deliveries any more

    def is_arriving(self, delivery: object) -> bool:
        """Return True if the application has not seen this delivery yet."""
        raise NotImplementedError

    def flow_fields(self) -> tuple[int | None, int, int, bool, bool]:
        """delivery-count, link-credit, available, drain and echo of a flow that is being written (2.7.4)."""
        raise NotImplementedError


__all__ = ["LinkBase"]
