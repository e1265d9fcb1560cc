"""Rules for addresses that operators gave to a running broker.

They have the form of those in the configuration, and of two with the same pattern the operator's counts first. They
outlive the run, as keyed state of the journal: the pattern is the key, the value is the settings as JSON. A change of
the configuration leaves them alone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from acquit.broker.intake.limits import full
from acquit.broker.options import AddressRule
from acquit.broker.refusal import Refused
from acquit.errors import ConfigurationError, StoreFull
from acquit.ledger.records import Namespace, State, StateDeleted
from acquit.protocol.definitions import AmqpCondition

if TYPE_CHECKING:
    from acquit.broker.nodes.addresses import Policies
    from acquit.broker.scribe import Scribe

RULES_MAX: Final = 1_000
"""Rules that operators can give: each is looked at for each address."""

logger = logging.getLogger("acquit.broker.journal")


class OperatorRules:
    """Keeps the rules, and has the policies go by them."""

    def __init__(self, scribe: Scribe, policies: Policies, changed: Callable[[], None]) -> None:
        """`changed` has queues and topics go by the policies that there are now."""
        self._scribe = scribe
        self._policies = policies
        self._changed = changed
        self._rules: dict[str, AddressRule] = {}

    @property
    def rules(self) -> list[AddressRule]:
        """The rules, by pattern."""
        return [self._rules[match] for match in sorted(self._rules)]

    def restore(self) -> None:
        """Take over the rules that the journal tells of, before there are queues. One that this version does not
        understand is left alone, and the log says so."""
        for (namespace, key), entry in self._scribe.recorder.table.state.items():
            if namespace == Namespace.ADDRESS:
                try:
                    rule = AddressRule(key.decode(), json.loads(entry.value))
                    self._policies.override((*self._policies.operators, rule))
                except (ConfigurationError, ValueError, AttributeError) as exc:
                    logger.warning(
                        "a rule of an operator is left out: %s", exc, extra={"match": key.decode("utf-8", "replace")}
                    )
                else:
                    self._rules[rule.match] = rule

    def put(self, match: str, settings: Mapping[str, object]) -> None:
        """Give addresses that match these settings, in place of those that operators gave them before; without any,
        only those of the configuration are left. Raises ConfigurationError, or Refused, with nothing changed."""
        rules = {**self._rules, match: AddressRule(match, dict(settings))}
        if not settings:
            del rules[match]
        if len(rules) > RULES_MAX:
            raise Refused(
                f"operators have given {RULES_MAX} rules, which is all there can be",
                condition=AmqpCondition.RESOURCE_LIMIT_EXCEEDED,
            )
        before = self._policies.operators
        self._policies.override(tuple(rules.values()))
        scribe, key = self._scribe, match.encode()
        try:
            if settings:
                value = json.dumps(dict(settings), sort_keys=True).encode()
                scribe.recorder.append(State(scribe.time_us, Namespace.ADDRESS, key, value))
            elif match in self._rules:
                scribe.recorder.append(StateDeleted(scribe.time_us, Namespace.ADDRESS, key))
        except StoreFull as exc:
            self._policies.override(before)
            raise full(None) from exc
        self._rules = rules
        self._changed()


__all__ = ["RULES_MAX", "OperatorRules"]
