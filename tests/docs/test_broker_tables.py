"""The tables about the broker that people wrote list what there is to ask it for."""

from __future__ import annotations

import re

from acquit.broker.admin.operations import OPERATIONS
from acquit.broker.links.filters import _NAMES
from acquit.http.routes import PREFIX, ROUTES
from tests.docs.test_client_pages import DOCS, table


def unnamed(path: str) -> str:
    """The path of a route, whatever the part in braces is called."""
    return re.sub(r"\{\w+\}", "{}", path)


def test_every_operation_over_amqp() -> None:
    rows = table("administration.md", "Over AMQP")[1:]
    assert {(row[0], row[1].strip("`")) for row in rows} == set(OPERATIONS)


def test_every_route() -> None:
    told = re.findall(rf"`([A-Z]+) {PREFIX}(/\S*)`", (DOCS / "http.md").read_text())
    written = {(method, unnamed(path)) for method, path in told}
    assert written == {(route.method, unnamed(route.path)) for route in ROUTES} | {("GET", "/openapi.json")}


def test_every_filter_but_the_selector() -> None:
    told = {re.match(r"`([^`]+)`", row[0])[1] for row in table("selectors.md", "Other filters")[1:]}  # type: ignore[index]
    assert told == {*_NAMES.values()} - {"apache.org:selector-filter:string"}
