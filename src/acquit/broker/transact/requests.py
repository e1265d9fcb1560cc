"""Requests of a controller: to declare a transaction, or to discharge one (4.2, 4.3).

Theory of operation. One controller asks the same few things again and again, in bytes that are the same but for the id
of the transaction. So a request that was decoded is remembered by what is before the id and what is behind it, and one
of the same length that agrees with both differs in nothing but the id. As in `protocol.fastpath`, nothing is decided
by that: bytes mean what the same bytes meant when they were decoded, and all others are decoded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from acquit.errors import DecodeError
from acquit.protocol.codec import decode
from acquit.protocol.composite import decode_composite
from acquit.protocol.definitions import Declare, Discharge, SectionCode
from acquit.protocol.sections import BODY, scan_sections

_FORMS_MAX: Final = 8
"""Forms that are remembered for one controller: most have one for each of what they ask."""


class _Form(NamedTuple):
    """A request without its id."""

    before: bytes
    behind: bytes
    fail: bool | None
    declares: bool


class RequestReader:
    """Reads the requests of one controller."""

    __slots__ = ("_forms",)

    def __init__(self) -> None:
        self._forms: dict[int, _Form] = {}
        """The latest form of requests of so many bytes."""

    def read(self, payload: bytes) -> Declare | Discharge:
        """Return what a message to the coordinator says. Raises DecodeError."""
        form = self._forms.get(len(payload))
        if form is not None and payload.startswith(form.before) and payload.endswith(form.behind):
            if form.declares:
                return Declare()
            return Discharge(payload[len(form.before) : len(payload) - len(form.behind)], form.fail)
        request = decode_request(payload)
        self._remember(payload, request)
        return request

    def _remember(self, payload: bytes, request: Declare | Discharge) -> None:
        if isinstance(request, Declare):
            if request.global_id is not None:
                return
            form = _Form(payload, b"", None, True)
        else:
            txn_id = request.txn_id
            at = payload.find(txn_id)
            if payload.rfind(txn_id) != at:
                return  # it cannot be said which of these is the id
            form = _Form(payload[:at], payload[at + len(txn_id) :], request.fail, False)
        if len(self._forms) >= _FORMS_MAX:
            self._forms.clear()
        self._forms[len(payload)] = form


def decode_request(payload: bytes) -> Declare | Discharge:
    """Decode a message to the coordinator. Raises DecodeError."""
    sections = scan_sections(payload)
    if sections.body_code != SectionCode.AMQP_VALUE:
        raise DecodeError("a message to the coordinator is one amqp-value section (4.2, 4.3)")
    body = sections.section(BODY)
    _, value_at = decode(body, 1)  # behind the section's descriptor
    value, _ = decode_composite(body, value_at)
    if not isinstance(value, Declare | Discharge):
        raise DecodeError(f"a {type(value).__name__} is nothing for a coordinator")
    return value


__all__ = ["RequestReader", "decode_request"]
