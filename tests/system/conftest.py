"""What the system tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.outages import Asyncio, Blocking, running


@pytest.fixture(params=["blocking", "asyncio"])
def api(request: pytest.FixtureRequest) -> Iterator[Blocking | Asyncio]:
    """Each API in turn, used from a thread."""
    with running(request.param) as api:
        yield api
