"""An S3 for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.s3 import Server, make_bucket, point_to, serving


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def bucket(s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a fresh bucket; botocore is pointed to it by the environment."""
    point_to(monkeypatch, s3_server.endpoint)
    s3_server.faults.clear()
    return make_bucket()
