"""Routes, their forms, and the OpenAPI document, against a broker that runs."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from openapi_spec_validator import validate

import acquit
from acquit.broker.admin.message_operations import encode_message
from acquit.broker.admin.operations import OPERATIONS
from acquit.broker.options import BrokerOptions, Http, Role, Security, User
from acquit.http import models
from acquit.http.routes import ROUTES
from acquit.ledger.audit_lines import read_audit
from acquit.protocol.extensions import METRICS
from acquit.store.reading import FolderReader
from tests.support.http import Answer, ask, basic

API = "/api/v1"


@pytest.fixture(scope="module")
def broker() -> Iterator[acquit.Broker]:
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as running:
        yield running


def post(broker: acquit.Broker, queue: str, *bodies: str | bytes) -> None:
    with acquit.connect(broker.url) as connection:
        sender = connection.session().sender(queue)
        for body in bodies:
            sender.send(body)


def queues(broker: acquit.Broker, query: str = "") -> Answer:
    return ask(broker.http_url, f"{API}/queues{query}")


def test_a_queue_from_its_beginning_to_its_end(broker: acquit.Broker) -> None:
    url = broker.http_url
    assert ask(url, f"{API}/queues/life", "PUT", {}).json == {"name": "life"}
    assert ask(url, f"{API}/queues/life", "PUT", {}).status == 409
    post(broker, "life", "one", "two", "three")
    found = ask(url, f"{API}/queues/life")
    assert models.Queue.model_validate(found.json).model_dump() == found.json
    assert found.json["depth"] == 3
    assert ask(url, f"{API}/queues/life/move", "POST", {"to": "other", "max": 1}).json == {"moved": 1}
    assert ask(url, f"{API}/queues/life/purge", "POST", {}).json == {"purged": 2}
    assert "not empty" in ask(url, f"{API}/queues/other?if_empty=true", "DELETE", {}).detail
    assert ask(url, f"{API}/queues/other", "DELETE", {}).json == {"messages": 1, "links": 0}
    assert "there is no queue 'other'" in ask(url, f"{API}/queues/other").detail


def test_a_topic_goes_with_what_its_subscriptions_hold(broker: acquit.Broker) -> None:
    """What is asked to be empty is not deleted with messages in it, and the answer tells of all that went."""
    ask(broker.http_url, f"{API}/queues/news", "PUT", {"kind": "topic"})
    with acquit.connect(broker.url, container_id="me") as connection:
        session = connection.session()
        session.receiver("news", subscription=acquit.Subscription(name="audit"), prefetch=0).close()
        sender = session.sender("news", topic=True)
        sender.send("one")
        sender.send("two")
        refused = ask(broker.http_url, f"{API}/queues/news?if_empty=true", "DELETE", {})
        assert (refused.status, refused.detail) == (409, "'news' is not empty: it has 2 messages")
        assert ask(broker.http_url, f"{API}/queues/news::me%2Faudit").json["depth"] == 2
        assert ask(broker.http_url, f"{API}/queues/news", "DELETE", {}).json == {"messages": 2, "links": 1}


def test_messages_that_wait_for_their_time(broker: acquit.Broker) -> None:
    ask(broker.http_url, f"{API}/queues/later", "PUT", {})
    with acquit.connect(broker.url) as connection:
        sender = connection.session().sender("later")
        for name in ("a", "b"):
            sender.send(acquit.Message("x", message_id=name, annotations={"x-opt-delivery-delay": 3_600_000}))
    path = f"{API}/queues/later/scheduled"
    rows = ask(broker.http_url, path).json["items"]
    assert [row["message_id"] for row in rows] == ["a", "b"]
    assert ask(broker.http_url, f"{path}?after={rows[0]['sequence']}").json["items"] == rows[1:]
    assert ask(broker.http_url, f"{path}/cancel", "POST", {"message_id": "a"}).json == {"cancelled": 1}
    assert ask(broker.http_url, f"{path}/cancel", "POST", {"message_id": {"uuid": "no"}}).status == 400
    assert ask(broker.http_url, f"{path}/cancel", "POST", {"all": True}).json == {"cancelled": 1}


def test_what_concerns_the_broker(broker: acquit.Broker) -> None:
    found = ask(broker.http_url, f"{API}/broker").json
    assert models.BrokerOverview.model_validate(found).model_dump() == found
    assert ask(broker.http_url, f"{API}/termini").json == {"items": []}
    assert ask(broker.http_url, f"{API}/termini/{'0' * 32}", "DELETE", {}).status == 404
    assert ask(broker.http_url, f"{API}/transactions/0102").json == {"fate": "unknown", "kept_ms": 3_600_000}
    assert ask(broker.http_url, f"{API}/reload", "POST", {}).json == {"changes": []}
    assert [ask(broker.http_url, f"{API}/rotate", "POST", {}).json for _ in range(2)] == [{"closed": 1}, {"closed": 2}]


def test_a_message_is_posted(broker: acquit.Broker) -> None:
    path = f"{API}/queues/by-hand/messages"
    assert ask(broker.http_url, path, "POST", {"body": "x"}).status == 404
    ask(broker.http_url, f"{API}/queues/by-hand", "PUT", {})
    body = {"body": {"base64": "AAEC"}, "message_id": "m1", "application_properties": {"n": 1}}
    assert ask(broker.http_url, path, "POST", body).json == {"queues": 1, "duplicate": False}
    assert ask(broker.http_url, path, "POST", {"priority": 256}).status == 400
    with acquit.connect(broker.url) as connection:
        message = connection.session().receiver("by-hand").receive(timeout=20)
    assert message is not None and message.durable
    assert (message.body, message.message_id, message.application_properties) == (b"\x00\x01\x02", "m1", {"n": 1})


def test_a_message_is_encoded_on_the_thread_of_http(broker: acquit.Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of many megabytes takes a part of a second, in which the broker's loop serves the others."""
    threads = []

    def note(parts: Mapping[str, Any]) -> bytes:
        threads.append(threading.current_thread().name)
        return encode_message(parts)

    monkeypatch.setattr("acquit.http.routes.encode_message", note)
    ask(broker.http_url, f"{API}/queues/large", "PUT", {})
    assert ask(broker.http_url, f"{API}/queues/large/messages", "POST", {"body": "x" * 500_000}).status == 200
    assert threads == ["acquit-http"]


def test_settings_of_an_address(broker: acquit.Broker) -> None:
    def at(name: str) -> str:
        return f"{API}/addresses/{quote(name, safe='')}"

    url = broker.http_url
    given = {"settings": {"max_delivery_attempts": 3, "redelivery_jitter": 0.5, "auto_delete": True}}
    assert ask(url, at("shop.#"), "PATCH", given).json == {"match": "shop.#", **given}
    found = ask(url, at("shop.orders"))
    assert models.AddressInForce.model_validate(found.json).model_dump() == found.json
    assert found.json["settings"]["max_delivery_attempts"] == 3
    assert (found.json["rules"][0]["match"], found.json["rules"][0]["source"]) == ("shop.#", "operator")
    assert ask(url, f"{API}/addresses").json == {"items": [{"match": "shop.#", **given}]}
    refused = ask(url, at("shop.#"), "PATCH", {"settings": {"nonsense": 1}})
    assert refused.status == 400 and "no such setting" in refused.detail
    assert ask(url, at("shop.#"), "DELETE", {}).json == {"match": "shop.#"}
    assert ask(url, at("shop.#"), "DELETE", {}).status == 404
    assert ask(url, f"{API}/marks").json == {"items": []}


def test_a_connection_is_seen_and_closed(broker: acquit.Broker) -> None:
    with acquit.connect(broker.url) as connection:
        connection.session().sender("seen").send("x")
        (row,) = ask(broker.http_url, f"{API}/connections").json["items"]
        assert ask(broker.http_url, f"{API}/links?node=seen&connection={row['id']}").json["items"]
        assert ask(broker.http_url, f"{API}/links?connection={row['id'] + 1}").json["items"] == []
        assert ask(broker.http_url, f"{API}/transactions").json["items"] == []
    assert ask(broker.http_url, f"{API}/connections/{row['id']}?reason=go", "DELETE", {}).status == 404
    with suppress(acquit.AcquitError), acquit.connect(broker.url) as connection:
        connection.session().sender("seen").send("x")
        (row,) = ask(broker.http_url, f"{API}/connections").json["items"]
        assert ask(broker.http_url, f"{API}/connections/{row['id']}?reason=go", "DELETE", {}).json == {"closed": True}


def test_a_queue_is_paused_and_dead_letters_go_back(broker: acquit.Broker) -> None:
    path = f"{API}/queues/slow"
    ask(broker.http_url, path, "PUT", {})
    assert ask(broker.http_url, path, "PATCH", {"paused": "consumers"}).json == {"paused": "consumers"}
    assert ask(broker.http_url, path, "PATCH", {"paused": "x"}).status == 400
    assert ask(broker.http_url, path, "PATCH", {"paused": "none"}).json == {"paused": "none"}
    with acquit.connect(broker.url) as connection:
        session = connection.session(mode="individual")
        session.sender("slow").send("x")
        message = session.receiver("slow").receive(timeout=20)
        assert message is not None
        message.reject()
    told = ask(broker.http_url, f"{API}/queues/DLQ/redrive", "POST", {"dry_run": True}).json
    assert told["by_origin"] == {"slow": 1}
    assert ask(broker.http_url, f"{API}/queues/DLQ/redrive", "POST", {}).json["redriven"] == 1
    assert ask(broker.http_url, f"{path}/purge", "POST", None, {"X-Requested-With": "x"}).json == {"purged": 1}


def test_pages_of_queues() -> None:
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as running:
        for count, name in enumerate(("a", "b", "c", "d")):
            post(running, name, *["x"] * (count + 1))
        page = queues(running, "?sort=depth&descending=true&limit=2&offset=1").json
        assert [row["name"] for row in page["items"]] == ["c", "b"]
        assert page["total"] == 4
        assert models.QueuePage.model_validate(page)
        assert [row["name"] for row in queues(running, "?contains=d").json["items"]] == ["d"]
        assert queues(running, "?sort=none").status == 400


@pytest.mark.parametrize(
    "name", ["a/b", "a%b", "ä.ö", "a b", "..", ".", "a?b#c", "x" * 200, "a+b", "%2F", "queues/purge", "'\"<script>"]
)
def test_any_name_of_a_queue_has_its_path(broker: acquit.Broker, name: str) -> None:
    path = f"{API}/queues/{quote(name, safe='').replace('.', '%2E')}"
    made = ask(broker.http_url, path, "PUT", {})
    assert made.status == 201, made
    assert ask(broker.http_url, path).json["name"] == name
    assert ask(broker.http_url, f"{path}/purge", "POST", {}).json == {"purged": 0}
    assert ask(broker.http_url, path, "DELETE", {}).status == 200


@pytest.mark.parametrize("name", [".", "..", "-", "a/b"])
def test_a_name_that_browsers_take_out_of_a_path_is_said_beside_it(broker: acquit.Broker, name: str) -> None:
    def at(rest: str = "") -> str:
        return f"{API}/queues/-{rest}?exact_name={quote(name, safe='')}"

    assert ask(broker.http_url, at(), "PUT", {}).json == {"name": name}
    post(broker, name, "x")
    (row,) = ask(broker.http_url, at("/messages")).json["items"]
    assert ask(broker.http_url, f"{at('/message')}&sequence={row['sequence']}").json["content"]["body"] == "x"
    assert ask(broker.http_url, at("/history")).json["step_ms"] == 60_000
    assert ask(broker.http_url, at("/scheduled")).json == {"items": []}
    assert ask(broker.http_url, at("/scheduled/cancel"), "POST", {"all": True}).json == {"cancelled": 0}
    assert ask(broker.http_url, at(), "PATCH", {"paused": "none"}).json == {"paused": "none"}
    assert ask(broker.http_url, at("/redrive"), "POST", {"dry_run": True}).json["without_origin"] == 1
    assert ask(broker.http_url, at("/move"), "POST", {"to": "moved-there"}).json == {"moved": 1}
    assert ask(broker.http_url, at("/purge"), "POST", {}).json == {"purged": 0}
    assert ask(broker.http_url, at()).json["name"] == name
    assert ask(broker.http_url, f"{at()}&if_empty=true", "DELETE", {}).json == {"messages": 0, "links": 0}


def test_audit_lines_say_where_a_request_came_from(tmp_path: Path) -> None:
    """Also the line of what is refused for want of a permission."""
    security = Security(users={"eve": User(password="eve", roles=("some",))}, roles={"some": Role(manage=("mine.#",))})
    with acquit.Broker(tmp_path, http_port=0, config=BrokerOptions(security=security).with_small_journal()) as running:
        eve = basic("eve", "eve")
        assert ask(running.http_url, f"{API}/queues/mine.one", "PUT", {}, eve).status == 201
        assert ask(running.http_url, f"{API}/queues/other", "PUT", {}, eve).status == 403
    found = list(read_audit(FolderReader(tmp_path)))
    assert [(line.action, line.user, line.target, line.peer[:10]) for line in found] == [
        ("CREATE acquit:queue", "eve", "mine.one", "127.0.0.1:"),
        ("CREATE acquit:queue", "eve", "other", "127.0.0.1:"),
    ]


@pytest.mark.parametrize(
    ("head", "tail"), [("[", "]"), ('{"a":', "}"), ('{"map":[[1,', "]]}"), ('{"described":[1,', "]}")]
)
def test_a_body_is_nested_as_deep_as_amqp_has_it(broker: acquit.Broker, head: str, tail: str) -> None:
    ask(broker.http_url, f"{API}/queues/deep", "PUT", {})
    for depth in (10, 31, 33, 60, 70, 100, 300, 450, 500, 700, 900, 980, 1_000, 5_000):
        body = f'{{"body":{head * depth}1{tail * depth}}}'.encode()
        answer = ask(broker.http_url, f"{API}/queues/deep/messages", "POST", body)
        assert answer.status == (200 if depth < 32 else 400), depth
        assert depth < 32 or answer.detail


def test_a_body_that_is_deep_json_is_shown(broker: acquit.Broker) -> None:
    """At each depth, as there is one at which the stack sufficed to look at it, and not to write it."""
    depths = (*range(50, 900, 50), *range(900, 1_000))
    post(broker, "deep-text", *(b"[" * depth + b"]" * depth for depth in depths))
    rows = ask(broker.http_url, f"{API}/queues/deep-text/messages?state=all&limit=1000").json["items"]
    assert len(rows) == len(depths)
    for row in rows:
        assert ask(broker.http_url, f"{API}/queues/deep-text/message?sequence={row['sequence']}").status == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/queues/%FF", None, 400),
        ("GET", "/queues/%00%01%7F", None, 404),
        ("PUT", "/queues/a::b", {}, 400),
        ("PUT", "/queues/none", {"kind": "stack"}, 400),
        ("PUT", "/queues/none", {"colour": "red"}, 400),
        ("PUT", "/queues/none", b"{", 400),
        ("PUT", "/queues/none", b"[" * 100_000, 400),
        ("PUT", "/queues/none", b"\xff\xfe", 400),
        ("POST", "/queues/none/messages", b'{"body": [NaN]}', 400),
        ("POST", "/queues/none/messages", b'{"application_properties": {"a": -1e999}}', 400),
        ("PATCH", "/addresses/none", b'{"settings": {"redelivery_multiplier": Infinity}}', 400),
        ("GET", "/queues?limit=0", None, 400),
        ("GET", "/queues?limit=1001", None, 400),
        ("GET", "/queues?offset=-1", None, 400),
        ("GET", f"/queues?limit={'9' * 5_000}", None, 400),
        ("POST", "/queues/none/move", {"to": "x"}, 404),
        ("POST", "/queues/none/move", {}, 400),
        ("POST", "/queues/none/move", {"to": "x", "max": 10**30}, 400),
        ("GET", "/transactions/xyz", None, 400),
        ("GET", "/none", None, 404),
        ("GET", "/queues/", None, 404),
        ("PATCH", "/queues", {}, 405),
    ],
)
def test_what_cannot_be_is_a_problem_that_says_so(
    broker: acquit.Broker, method: str, path: str, body: object, status: int
) -> None:
    answer = ask(broker.http_url, API + path, method, body)
    assert answer.status == status, answer
    assert answer.detail


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("queues/truth/purge", {"max": True}),
        ("queues/truth/purge", {"sequences": [1, False]}),
        ("queues/truth/move", {"to": "x", "max": True}),
        ("queues/truth/redrive", {"max": True}),
        ("queues/truth/messages", {"body": True, "priority": True}),
        ("queues/truth/messages", {"body": True, "ttl_ms": True}),
        ("queues/truth/scheduled/cancel", {"sequence": True}),
        ("queues/truth/scheduled/cancel", {"message_id": True}),
        ("queues/truth/messages", {"body": {"timestamp_ms": True}}),
    ],
)
def test_true_is_no_number(broker: acquit.Broker, path: str, body: dict[str, object]) -> None:
    """To Python it is one, and one message would be purged."""
    ask(broker.http_url, f"{API}/queues/truth", "PUT", {})
    assert ask(broker.http_url, f"{API}/queues/truth/messages", "POST", {"body": True}).status == 200
    before = queues(broker, "?contains=truth").json["items"][0]["depth"]
    answer = ask(broker.http_url, f"{API}/{path}", "POST", body)
    assert answer.status == 400, answer
    assert answer.detail
    assert queues(broker, "?contains=truth").json["items"][0]["depth"] == before


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("queues/texts/purge", {"max": "5"}, "body.max"),
        ("queues/texts/purge", {"sequences": [1, "2"]}, "body.sequences.1"),
        ("queues/texts/move", {"to": "x", "max": "5"}, "body.max"),
        ("queues/texts/move", {"to": "x", "sequences": ["1"]}, "body.sequences.0"),
        ("queues/texts/redrive", {"max": "5"}, "body.max"),
        ("queues/texts/redrive", {"dry_run": "no"}, "body.dry_run"),
        ("queues/texts/redrive", {"dry_run": 0}, "body.dry_run"),
        ("queues/texts/messages", {"body": "x", "priority": "5"}, "body.priority"),
        ("queues/texts/messages", {"body": "x", "ttl_ms": "5"}, "body.ttl_ms"),
        ("queues/texts/messages", {"body": "x", "durable": "no"}, "body.durable"),
        ("queues/texts/scheduled/cancel", {"sequence": "5"}, "body.sequence"),
        ("queues/texts/scheduled/cancel", {"all": "true"}, "body.all"),
    ],
)
def test_a_text_is_no_number_and_no_truth(
    broker: acquit.Broker, path: str, body: dict[str, object], field: str
) -> None:
    ask(broker.http_url, f"{API}/queues/texts", "PUT", {})
    assert ask(broker.http_url, f"{API}/queues/texts/messages", "POST", {"body": "x"}).status == 200
    before = queues(broker, "?contains=texts").json["items"][0]["depth"]
    answer = ask(broker.http_url, f"{API}/{path}", "POST", body)
    assert answer.status == 400, answer
    assert f"{field}: " in answer.detail
    assert queues(broker, "?contains=texts").json["items"][0]["depth"] == before


def test_every_body_takes_the_types_of_json_alone() -> None:
    for route in ROUTES:
        assert route.body is None or route.body.model_config["strict"], route.path


def test_a_selector_that_is_none(broker: acquit.Broker) -> None:
    ask(broker.http_url, f"{API}/queues/chosen", "PUT", {})
    assert ask(broker.http_url, f"{API}/queues/chosen/move", "POST", {"to": "x", "selector": "1 +"}).status == 400


def test_the_document_is_openapi_and_has_every_route(broker: acquit.Broker) -> None:
    document = ask(broker.http_url, f"{API}/openapi.json").json
    validate(document)
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert {(route.method, API + route.path) for route in ROUTES} < told
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(set(ids)) == len(ids)
    for methods in document["paths"].values():
        for one in methods.values():
            assert "422" not in one["responses"], "nothing is answered with that"
    assert json.dumps(document).count('"$ref"') > 10


def tool(name: str, *arguments: str, folder: Path) -> None:
    """Run a program of the environment that the tests run in."""
    scripts = sysconfig.get_path("scripts")
    environment = os.environ | {"PATH": os.pathsep.join((scripts, os.environ.get("PATH", "")))}
    command = [str(Path(scripts) / name), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 0, done.stdout[-10_000:] + done.stderr[-2_000:]


def test_a_generated_client_speaks_to_the_broker(
    broker: acquit.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By another's generator, which has nothing to complain of; its types are those of the answers."""
    (tmp_path / "openapi.json").write_text(ask(broker.http_url, f"{API}/openapi.json").text)
    given = ("--path", "openapi.json", "--output-path", "generated_client", "--meta", "none", "--fail-on-warning")
    tool("openapi-python-client", "generate", *given, folder=tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    generated = importlib.import_module("generated_client")
    create, purge, query, read = (
        importlib.import_module(f"generated_client.api.queues.{name}")
        for name in ("create_queues", "purge_queues", "query_queues", "read_queues")
    )
    body = importlib.import_module("generated_client.models").NewQueue()
    headers = {"X-Requested-With": "generated"}
    with generated.Client(base_url=str(broker.http_url), headers=headers) as client:
        assert create.sync(name="generated/one", client=client, body=body).name == "generated/one"
        assert read.sync(name="generated/one", client=client).depth == 0
        page = query.sync(client=client, contains="generated/")
        assert [(row.name, row.troubles) for row in page.items] == [("generated/one", [])]
        assert purge.sync(name="generated/one", client=client).purged == 0
        assert read.sync(name="nobody", client=client).detail == "there is no queue 'nobody'"
    for name in [name for name in sys.modules if name.partition(".")[0] == "generated_client"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("config", ["", '[parameters]\nname = "orders"\n'], ids=["any-name", "one-queue"])
def test_what_the_document_says_is_what_is_answered(tmp_path: Path, config: str) -> None:
    """Thousands of requests that fit the document, and such that do not: no answer is one that it does not have."""
    (tmp_path / "schemathesis.toml").write_text(config)
    checks = (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
    )
    with acquit.Broker(http_port=0, config=BrokerOptions.small()) as running:
        post(running, "orders", *(str(number) for number in range(20)))
        url = str(running.http_url)
        tool(
            "schemathesis",
            *("--config-file", "schemathesis.toml", "run", f"{url}{API}/openapi.json", "--url", url, "--seed", "1"),
            *("--header", "X-Requested-With: x", "--max-examples", "25", "--phases", "coverage,fuzzing"),
            *("--checks", ",".join(checks)),
            *(("--exclude-operation-id", "delete_queues", "--include-path-regex", "queues/") if config else ()),
            folder=tmp_path,
        )
        assert ask(url, f"{API}/queues/orders").json["depth"] <= 20 if config else True


def test_every_operation_that_there_is_has_a_route() -> None:
    known = {(route.verb, route.kind) for route in ROUTES}
    assert set(OPERATIONS) - known == {("READ", METRICS)}, "which /metrics performs"
    assert known <= set(OPERATIONS)


def test_health(broker: acquit.Broker) -> None:
    assert ask(broker.http_url, "/healthz").json == {"status": "alive"}
    assert ask(broker.http_url, "/readyz").json == {"ready": True, "reasons": []}
    for path in ("/healthz", "/readyz"):
        answer = ask(broker.http_url, path, "HEAD")
        assert (answer.status, answer.text) == (200, "")
        assert answer.headers["content-type"] == ask(broker.http_url, path).headers["content-type"]


def test_a_broker_that_is_closed_answers_nobody() -> None:
    with acquit.Broker(config=BrokerOptions(http=Http(port=0)).with_small_journal()) as running:
        url = running.http_url
        assert ask(url, "/healthz").status == 200
    with pytest.raises(ConnectionRefusedError):
        ask(url, "/healthz")
