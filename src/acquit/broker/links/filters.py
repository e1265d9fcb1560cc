"""The filters of a source (3.5.8): what a receiver asks for, and what of it is applied.

A filter is known by its descriptor, a ulong or a symbol; the key that it stands under is the receiver's own name for
it, and comes back to it with those filters that are applied, and no others: so the receiver learns what it got.

    apache.org:selector-filter:string                   0x0000468C00000004  a JMS selector
    apache.org:no-local-filter:list                     0x0000468C00000003  nothing that the same container posted
    apache.org:legacy-amqp-direct-binding:string        0x0000468C00000000  the subject is exactly this
    apache.org:legacy-amqp-topic-binding:string         0x0000468C00000001  the subject matches words, ``*`` and ``#``
    acquit:portion-filter:list                          (browsers only)     a share of what was posted so far: `Portion`

**For those who attach and dispatch**::

    applied = read_filters(source.filter)      # SelectorError: refuse the link with its condition and description
    Source(..., filter=applied.echo)           # None where nothing is applied
    applied.no_local                           # skip what this container posted
    selector = applied.selector                # None: every message is taken
    selector.needs_body                        # then `message.body` must be in memory before `fields_of` is asked
    selector.matches(fields_of(message))       # `fields_of(message)` can be shared by all selectors that look at it

A message's answer may change when it comes back: *JMSRedelivered*, *JMSXDeliveryCount* and the message annotations
do. Between its returns it does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from acquit.broker.selector import Selector, all_of, compile_selector, subject_is, subject_matches
from acquit.errors import SelectorError
from acquit.protocol.extensions import PORTION_FILTER
from acquit.protocol.types import Described


@dataclass(frozen=True, slots=True)
class Portion:
    """A share of a queue for one of `parts` browsers that read it together: each message with a sequence up to `until`
    is shown to one of them, and a message posted later to none. Shares are about equal.

    Asked as a list, ``[until, parts, part]``. It looks at sequences alone, so that what is for others is never read
    from the disk; they are mixed first, because producers that take turns leave patterns in them.
    """

    until: int
    parts: int
    part: int

    def has(self, sequence: int) -> bool:
        """True if the message with this sequence is in this share."""
        return sequence <= self.until and ((sequence * _MIX & _WORD) >> 32) % self.parts == self.part


@dataclass(frozen=True, slots=True)
class AppliedFilters:
    """The filters of a link that the broker applies."""

    selector: Selector | None = None
    """Selector that a message must match; None: all do. Two with the same `text` select the same."""
    no_local: bool = False
    """True if messages that the same container posted are passed over."""
    portion: Portion | None = None
    """Share of the queue that a browser is shown; None: all of it."""
    echo: Mapping[str, object] | None = None
    """The filter-set of the answer: those filters that are applied, as they came; None where there are none."""


NOTHING: Final = AppliedFilters()
"""No filter."""


def read_filters(asked: Mapping[str, object] | None, *, browses: bool = False) -> AppliedFilters:
    """The filters that are applied, of those asked for. Filters of unknown kinds are left out, and those for browsers
    unless the link `browses`.

    A message must pass all of them (3.5.8), also several selectors. Raises SelectorError (amqp:invalid-field) for a
    selector that is none, and for a filter with a value of the wrong type.
    """
    if not asked:
        return NOTHING
    selectors: list[Selector] = []
    no_local = False
    portion: Portion | None = None
    echo: dict[str, object] = {}
    for key, value in asked.items():
        if value is None:  # no filter (3.5.8)
            continue
        if not isinstance(value, Described):
            raise SelectorError(f"the filter {str(key)!r:.80} must be a described value (3.5.8), not {value!r:.80}")
        if not isinstance(value.descriptor, int | str):
            continue
        name = _NAMES.get(value.descriptor)
        if name is None or (name == PORTION_FILTER and not browses):
            continue
        echo[key] = value
        if name == _NO_LOCAL:
            no_local = True  # its value says nothing: by definition a list, from Qpid JMS a string
            continue
        if name == PORTION_FILTER:
            if portion is not None:
                raise SelectorError(f"the filter {str(key)!r:.80} ({name}) is the second of its kind, and one is taken")
            portion = _read_portion(value.value)
            continue
        text = value.value
        if not isinstance(text, str):
            raise SelectorError(f"the filter {str(key)!r:.80} ({name}) must have a string, not {text!r:.80}")
        if name != _SELECTOR:
            selectors.append(_SUBJECTS[name](text))
        elif text.strip():  # an empty selector selects everything (JMS 2.0, 3.8.1.1)
            selectors.append(compile_selector(text))
    return AppliedFilters(all_of(selectors), no_local, portion, echo) if echo else NOTHING


def _read_portion(value: object) -> Portion:
    match value:
        case [int(until), int(parts), int(part)] if 0 <= until < 1 << 63 and 0 <= part < parts <= PARTS_MAX:
            return Portion(int(until), int(parts), int(part))
        case _:
            raise SelectorError(
                f"the filter {PORTION_FILTER} must have a list of a sequence, a number of parts from 1 to {PARTS_MAX} "
                f"and a part below it, not {value!r:.80}"
            )


_SELECTOR: Final = "apache.org:selector-filter:string"
_NO_LOCAL: Final = "apache.org:no-local-filter:list"
_DIRECT: Final = "apache.org:legacy-amqp-direct-binding:string"
_TOPIC: Final = "apache.org:legacy-amqp-topic-binding:string"

PARTS_MAX: Final = 10_000
_MIX: Final = 0x9E37_79B9_7F4A_7C15
"""2^64 divided by the golden ratio: neighbours come to lie far apart (Knuth, The Art of Computer Programming, 6.4)."""
_WORD: Final = (1 << 64) - 1

_NAMES: Final[dict[int | str, str]] = {
    0x0000468C_00000000: _DIRECT,
    0x0000468C_00000001: _TOPIC,
    0x0000468C_00000003: _NO_LOCAL,
    0x0000468C_00000004: _SELECTOR,
    _DIRECT: _DIRECT,
    _TOPIC: _TOPIC,
    PORTION_FILTER: PORTION_FILTER,
    _NO_LOCAL: _NO_LOCAL,
    _SELECTOR: _SELECTOR,
}
"""Descriptor -> the filter that it says."""

_SUBJECTS: Final[dict[str, Callable[[str], Selector]]] = {_DIRECT: subject_is, _TOPIC: subject_matches}

__all__ = ["NOTHING", "PARTS_MAX", "AppliedFilters", "Portion", "read_filters"]
