"""Addresses: which names are taken, and which policy holds where.

A policy is put together from all rules that match an address, the most specific one first: each field comes from the
first rule that sets it. A pattern is more specific than another when it has more literal words; then when it has fewer
``#``; then fewer ``*``; at last by its text, so that the order of rules in a file never matters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from acquit.broker.options import AddressPolicy, AddressRule
from acquit.errors import ConfigurationError
from acquit.protocol.extensions import MANAGEMENT_NODE

ADDRESS_BYTES_MAX: Final = 1_024
TOPIC_WORDS_MAX: Final = 64
POLICIES_KEPT: Final = 1_000
"""Policies that are remembered, so that they are put together and validated once for all addresses that have them."""


def address_fault(address: str) -> str | None:
    """Return the reason why `address` cannot name a queue, or None."""
    if not address:
        return "an address is not empty"
    if len(address.encode()) > ADDRESS_BYTES_MAX:
        return f"an address has at most {ADDRESS_BYTES_MAX} bytes"
    if not address.isprintable():
        return "an address consists of printable characters"
    if address.startswith("$"):
        return f"no node {address!r}; of those that begin with $ there is {MANAGEMENT_NODE}"
    return None


def topic_fault(address: str) -> str | None:
    """Return the reason why `address` cannot be a topic, or a pattern of topics; None if it can.

    Matching takes time in the words of both, and there may be many of both.
    """
    words = address.count(".") + 1
    if words > TOPIC_WORDS_MAX:
        return f"a topic, or a pattern of topics, has at most {TOPIC_WORDS_MAX} words between dots, not {words}"
    if address.endswith(":") or "::" in address:
        # The queue of a subscription is called address::name, and where the one ends must be seen.
        return f"a topic, or a pattern of topics, has no '::' in it and no ':' at its end: {address!r:.200}"
    return address_fault(address)


def plain_fault(address: str) -> str | None:
    """Return the reason why no queue can be made with `address` as its name; None if one can.

    A link to a pattern, or to a queue of an address, means another node, so that none would reach it.
    """
    if is_pattern(address) or "::" in address:
        return f"{address!r:.200} is no plain address"
    return address_fault(address)


def is_pattern(address: str) -> bool:
    """True if it names many addresses, because one of its words is a wildcard."""
    return ("*" in address or "#" in address) and not _WILDCARDS.isdisjoint(address.split("."))


_WILDCARDS: Final = frozenset("*#")


def matches(pattern: str, address: str) -> bool:
    """True if the pattern matches the address: ``*`` is one word, ``#`` any number, none included.

    Where `address` is a pattern itself, `pattern` must match all that it matches.
    """
    return match_words(pattern.split("."), address.split("."))


def match_words(pattern: list[str], words: list[str]) -> bool:
    """`matches`, of a pattern and an address that are cut into words."""
    # Two pointers and one point of return, the last ``#``: at most pattern times words steps, never exponential.
    at = word = 0
    back, resume = -1, 0
    while word < len(words):
        if at < len(pattern) and pattern[at] == "#":
            back, resume = at, word
            at += 1
        elif at < len(pattern) and (pattern[at] == words[word] or (pattern[at] == "*" and words[word] != "#")):
            at += 1
            word += 1
        elif back >= 0:
            resume += 1
            at, word = back + 1, resume
        else:
            return False
    return all(rest == "#" for rest in pattern[at:])


def specificity(pattern: str) -> tuple[int, int, int, str]:
    """A sort key: the most specific pattern first."""
    words = pattern.split(".")
    wide, single = words.count("#"), words.count("*")
    return (wide + single - len(words), wide, single, pattern)


class Policies:
    """The rules of one configuration, and before them those of operators, asked by address."""

    def __init__(self, rules: tuple[AddressRule, ...]) -> None:
        """Raises ConfigurationError for rules that do not fit together."""
        self._known: dict[AddressPolicy, AddressPolicy] = {}
        self._put_together(rules, ())

    def replace(self, rules: tuple[AddressRule, ...]) -> None:
        """Go by another configuration from now on. Raises ConfigurationError as the constructor, with nothing
        changed."""
        self._put_together(rules, self.operators)

    def override(self, rules: tuple[AddressRule, ...]) -> None:
        """Go by other rules of operators from now on. Raises as `replace`."""
        self._put_together(self.configured, rules)

    @property
    def count(self) -> int:
        """The number of rules, each of which is looked at for an address that is asked for the first time."""
        return len(self._rules)

    def rules_for(self, address: str) -> list[AddressRule]:
        """Return the rules that match an address: of each setting, the first that has it counts."""
        return [self._rules[at] for at in self._matching(address)]

    def _matching(self, address: str) -> tuple[int, ...]:
        """Return the places of the rules that match an address."""
        words = address.split(".")
        return tuple(at for at, pattern in enumerate(self._patterns) if match_words(pattern, words))

    def _put_together(self, configured: tuple[AddressRule, ...], operators: tuple[AddressRule, ...]) -> None:
        default, rules = AddressPolicy(), (*operators, *configured)
        terminal = {
            str(rule.settings.get(name, getattr(default, name)))
            for rule in (*rules, AddressRule("#"))
            for name in ("dead_letter_address", "expiry_address")
        } - {""}
        for address in terminal:
            if fault := plain_fault(address):
                raise ConfigurationError(f"dead_letter_address or expiry_address: {fault}, found {address!r}")
        self.configured, self.operators = configured, operators
        self._rules = sorted(rules, key=lambda rule: specificity(rule.match))
        self._patterns = [rule.match.split(".") for rule in self._rules]
        self._merged = lru_cache(maxsize=POLICIES_KEPT)(self._merge)
        self.policy_of = lru_cache(maxsize=10_000)(self._policy_of)
        self.terminal = terminal
        """Addresses where messages end up that nobody took. What is rejected or expires there goes nowhere else."""

    def _policy_of(self, address: str) -> AddressPolicy:
        return self._merged(self._matching(address), address in self.terminal)

    def _merge(self, matching: tuple[int, ...], terminal: bool) -> AddressPolicy:
        """Return the policy that these rules make. One that is equal to another is that one, also after other rules
        have come, so that who holds it sees at a glance that nothing has changed."""
        settings: dict[str, object] = {}
        for at in matching:
            for name, value in self._rules[at].settings.items():
                settings.setdefault(name, value)
        if terminal:
            # It keeps what it got: nobody would find what is dropped from here for having been tried, or released, too
            # often.
            settings |= {"dead_letter_address": "", "expiry_address": "", "max_delivery_attempts": 0, "max_releases": 0}
        policy = AddressPolicy(**settings)  # type: ignore[arg-type]  # AddressRule has validated them
        if len(self._known) >= POLICIES_KEPT:
            self._known.clear()
        return self._known.setdefault(policy, policy)


__all__ = [
    "ADDRESS_BYTES_MAX",
    "Policies",
    "address_fault",
    "is_pattern",
    "match_words",
    "matches",
    "plain_fault",
    "specificity",
    "topic_fault",
]
