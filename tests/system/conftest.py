"""What the system tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.outages import Asyncio, Blocking, running


@pytest.fixture(params=["blocking", pytest.param("asyncio", marks=pytest.mark.slow)])
def api(request: pytest.FixtureRequest) -> Iterator[Blocking | Asyncio]:
    """Each API in turn, used from a thread. The blocking one calls the other for all that it does, so that by itself is
    for `make soak`; what only asyncio has, cancelling, has tests of its own."""
    with running(request.param) as api:
        yield api
