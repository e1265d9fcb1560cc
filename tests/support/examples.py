"""How many examples Hypothesis tries: few, always the same, in `make test`; many, drawn anew, in `make soak`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import seed, settings

F = TypeVar("F", bound=Callable[..., Any])


class Soak:
    """Seed and rounds of a soak, which conftest.py says before any test is imported."""

    seed: int | None = None
    rounds = 0


def examples(quick: int) -> Callable[[F], F]:
    """Try `quick` examples; in a soak, as many for every second round and once more, drawn from its seed."""

    def decorate(test: F) -> F:
        if Soak.seed is None:
            return settings(max_examples=quick)(test)
        many = settings(max_examples=quick * (1 + Soak.rounds // 2), derandomize=False, database=None)(test)
        return pytest.mark.slow(seed(Soak.seed)(many))

    return decorate
