"""How many examples are tried: few, always the same, in `make test`; three times as many in `make test-native`, where
each takes less time; many, drawn anew, in `make soak`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import seed, settings

from acquit._version import native

F = TypeVar("F", bound=Callable[..., Any])


class Soak:
    """Seed and rounds of a soak, which conftest.py says before any test is imported."""

    seed: int | None = None
    rounds = 0


def share(count: int) -> int:
    """As many as are tried here of what `make test-native` and soaks try so often: a third, where nothing is compiled.
    Meant for seeds, schedules, examples and the steps of a search, of which one more tells little; not for tables of
    cases, nor for tests that are `pure`, or of what `make test-native` leaves out: nothing else tries them."""
    return count if native() or Soak.seed is not None else -(-count // 3)


def examples(quick: int) -> Callable[[F], F]:
    """Try the `share` of `quick` examples; in a soak, as many each second round and once more, drawn from its seed."""

    def decorate(test: F) -> F:
        if Soak.seed is None:
            return settings(max_examples=share(quick))(test)
        many = settings(max_examples=quick * (1 + Soak.rounds // 2), derandomize=False, database=None)(test)
        return pytest.mark.slow(seed(Soak.seed)(many))

    return decorate
