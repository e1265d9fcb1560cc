"""The acknowledgement modes of a session, as a table.

A mode answers these questions: when the credit of a message comes back, what is acknowledged by itself as a message is
handed over, at once or lazily, within a transaction or outside of any, what `acknowledge` means, what the links ask
for, and what happens at the close to what was not acknowledged. *Hand-over* is the moment in which `receive` or the
listener takes a message from the buffer.

The names and values are those of JMS (0 to 3), Artemis and Qpid JMS (100, 101, 257, 258), so that a program that comes
from there finds its mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from acquit.errors import ConfigurationError
from acquit.protocol.constants import ACCEPTED, RELEASED
from acquit.protocol.definitions import Modified, RcvSettleMode, SndSettleMode
from acquit.protocol.delivery import Outcome

FAILED: Final = Modified(delivery_failed=True)
"""The attempt counts as a failed one (3.4.5)."""


class AckMode(IntEnum):
    """The way a session acknowledges. The value is the one JMS, Artemis and Qpid JMS know the mode by."""

    TRANSACTED = 0
    """Acknowledgement with the commit of the session's transaction."""
    AUTO = 1
    """Acknowledgement as `receive` returns, or after the listener has returned without an exception."""
    CLIENT = 2
    """Acknowledgement by `acknowledge`: of all messages handed out in the session so far."""
    DUPS_OK = 3
    """Acknowledgement as in AUTO, gathered lazily: duplicates are to be expected."""
    NO_ACK = 100
    """No acknowledgement: the broker forgets a message as it sends it. 257 means the same."""
    INDIVIDUAL = 101
    """Acknowledgement by `acknowledge` or another verb: of each message by itself."""
    PRE_ACK = 258
    """Acknowledgement before the message is handed out: a listener that fails gets no second chance."""

    def __str__(self) -> str:
        return self.name


class CreditReturn(IntEnum):
    """The moment at which the credit of a message comes back: the sender may send one more."""

    ON_HANDOVER = 0
    """The hand-over of the message: the buffer is bounded, what the program holds is its own affair."""
    ON_ACKNOWLEDGEMENT = 1
    """The outcome of the message: what is handed out and not acknowledged counts as prefetched."""


class AckScope(IntEnum):
    """The messages that `acknowledge` means in a mode."""

    NOTHING = 0
    """No message: `acknowledge` has no effect, as in JMS."""
    MESSAGE = 1
    """The message that is named; on a session without an argument, all that were handed out."""
    SESSION = 2
    """All that were handed out in the session, over all its receivers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """A row of the table: how sessions of one mode behave."""

    name: AckMode
    credit: CreditReturn
    scope: AckScope
    received: Outcome | None
    """Outcome that `receive` gives a message as it returns it; None: no outcome."""
    listener_called: Outcome | None = None
    """Outcome that a message gets before its listener is called; None: no outcome."""
    listener_returned: Outcome | None
    """Outcome that a message gets after its listener returned; None: no outcome."""
    listener_failed: Outcome | None
    """Outcome that a message gets after its listener raised; None: no outcome, and the exception ends the listening,
    unless the message got its outcome before (`listener_called`)."""
    snd_settle_mode: SndSettleMode
    rcv_settle_mode: RcvSettleMode
    left_handed_out: Outcome | None
    """Outcome at the close of a message that was handed out and not acknowledged; None: nothing can be said."""
    left_in_buffer: Outcome | None
    """Outcome at the close of a message that was prefetched and never handed out; None: nothing can be said."""
    transacted: bool = False
    """True if sends and acknowledgements belong to a transaction. Then `left_handed_out` is said in it, too, where a
    receiver is closed before the commit."""
    commits_all: bool = True
    """True if a commit accepts all that was handed out and has no outcome. Else that is part of no transaction before
    it has one, as in the API of ``qpid.messaging`` (`compat`)."""
    default_outcome: Outcome | None = None
    """Default outcome that the link is attached with where the user says nothing (3.5.3)."""
    lazy_messages: int = 0
    """Automatic acknowledgements that are gathered at most; 0: none wait, they leave with the next output."""
    lazy_ms: int = 0
    """Milliseconds for which automatic acknowledgements are gathered at most."""
    bounded: bool = False
    """True if messages that were handed out and not acknowledged are limited, by the option `unsettled_max`, though
    their credit has come back."""

    @property
    def reliable(self) -> bool:
        """True if messages are acknowledged at all."""
        return self.snd_settle_mode is not SndSettleMode.SETTLED


MODES: Final[dict[AckMode, Mode]] = {
    mode.name: mode
    for mode in (
        Mode(
            name=AckMode.TRANSACTED,
            credit=CreditReturn.ON_HANDOVER,
            scope=AckScope.NOTHING,
            received=None,
            listener_returned=None,
            listener_failed=None,
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.FIRST,
            left_handed_out=ACCEPTED,
            left_in_buffer=RELEASED,
            transacted=True,
            default_outcome=FAILED,
            bounded=True,
        ),
        Mode(
            name=AckMode.AUTO,
            credit=CreditReturn.ON_HANDOVER,
            scope=AckScope.NOTHING,
            received=ACCEPTED,
            listener_returned=ACCEPTED,
            listener_failed=FAILED,
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.FIRST,
            left_handed_out=FAILED,
            left_in_buffer=RELEASED,
        ),
        Mode(
            name=AckMode.CLIENT,
            credit=CreditReturn.ON_ACKNOWLEDGEMENT,
            scope=AckScope.SESSION,
            received=None,
            listener_returned=None,
            listener_failed=None,
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.SECOND,
            left_handed_out=FAILED,
            left_in_buffer=RELEASED,
        ),
        Mode(
            name=AckMode.INDIVIDUAL,
            credit=CreditReturn.ON_ACKNOWLEDGEMENT,
            scope=AckScope.MESSAGE,
            received=None,
            listener_returned=None,
            listener_failed=None,
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.SECOND,
            left_handed_out=FAILED,
            left_in_buffer=RELEASED,
        ),
        Mode(
            name=AckMode.DUPS_OK,
            credit=CreditReturn.ON_HANDOVER,
            scope=AckScope.NOTHING,
            received=ACCEPTED,
            listener_returned=ACCEPTED,
            listener_failed=FAILED,
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.FIRST,
            left_handed_out=FAILED,
            left_in_buffer=RELEASED,
            lazy_messages=100,
            lazy_ms=100,
            bounded=True,
        ),
        Mode(
            name=AckMode.NO_ACK,
            credit=CreditReturn.ON_HANDOVER,
            scope=AckScope.NOTHING,
            received=None,
            listener_returned=None,
            listener_failed=None,
            snd_settle_mode=SndSettleMode.SETTLED,
            rcv_settle_mode=RcvSettleMode.FIRST,
            left_handed_out=None,
            left_in_buffer=None,
        ),
        Mode(
            name=AckMode.PRE_ACK,
            credit=CreditReturn.ON_HANDOVER,
            scope=AckScope.NOTHING,
            received=ACCEPTED,
            listener_called=ACCEPTED,
            listener_returned=None,
            listener_failed=None,
            snd_settle_mode=SndSettleMode.UNSETTLED,
            rcv_settle_mode=RcvSettleMode.FIRST,
            left_handed_out=FAILED,
            left_in_buffer=RELEASED,
        ),
    )
}

SYNONYMS: Final = {257: AckMode.NO_ACK}
"""Values of other clients for a mode that has one here already."""


def find_mode(wanted: AckMode | str | int) -> Mode:
    """The row of a mode, given as AckMode, by name in any case, or by its value in JMS, Artemis or Qpid JMS.

    Raises ConfigurationError, naming the modes there are, for any other.
    """
    if isinstance(wanted, str):
        name = AckMode.__members__.get(wanted.strip().upper().replace("-", "_"))
    else:
        name = SYNONYMS.get(wanted) or next((mode for mode in AckMode if mode == wanted), None)
    if name is None:
        known = ", ".join(mode.name for mode in MODES)
        raise ConfigurationError(f"no acknowledgement mode {wanted!r}; expected one of {known}")
    return MODES[name]
