"""Qpid JMS and selectors: JMS's SQL over properties and headers, no-local, and what is no selector."""

from __future__ import annotations

import pytest

from tests.interop.conftest import Look, Server
from tests.interop.qpid_jms import NON_PERSISTENT, Connection, Jms, JmsError, Session, texts

pytestmark = pytest.mark.interop

ORDERS: list[dict[str, object]] = [
    {
        "text": "pen",
        "jms_type": "small",
        "correlation_id": "c1",
        "properties": {"colour": "red", "price": {"type": "double", "value": 1.5}, "stock": 10, "fragile": False},
    },
    {
        "text": "vase",
        "jms_type": "large",
        "correlation_id": "c2",
        "properties": {"colour": "blue", "price": {"type": "float", "value": 20.0}, "stock": 0, "fragile": True},
    },
    {
        "text": "lamp",
        "jms_type": "large",
        "properties": {"colour": "dark red", "price": {"type": "long", "value": 30}, "stock": 3, "fragile": True},
    },
    {"text": "gift", "properties": {"owner": "O'Neill", "code": "A_1%"}},
]


@pytest.fixture
def queue(address: str) -> str:
    return f"queue:{address}"


@pytest.fixture
def connection(jms: Jms, server: Server) -> Connection:
    return jms.connect(server.url)


@pytest.fixture
def session(connection: Connection) -> Session:
    return connection.session()


@pytest.mark.parametrize(
    ("selector", "matching"),
    [
        ("colour = 'red'", ["pen"]),
        ("colour <> 'red'", ["vase", "lamp"]),
        ("colour LIKE '%red'", ["pen", "lamp"]),
        ("colour NOT LIKE '%red'", ["vase"]),
        ("colour LIKE '_lue'", ["vase"]),
        (r"code LIKE 'A\_1\%' ESCAPE '\'", ["gift"]),
        ("colour IN ('blue', 'green', 'red')", ["pen", "vase"]),
        ("colour NOT IN ('blue', 'green')", ["pen", "lamp"]),
        ("owner = 'O''Neill'", ["gift"]),
        ("price > 1.4", ["pen", "vase", "lamp"]),
        ("price = 20", ["vase"]),
        ("price BETWEEN 20 AND 3E1", ["vase", "lamp"]),
        ("price NOT BETWEEN 20 AND 30", ["pen"]),
        ("price * 2 + stock = 13", ["pen"]),
        ("(price - 10) / 5 = 4 AND -stock = -3", ["lamp"]),
        ("fragile", ["vase", "lamp"]),
        ("NOT fragile", ["pen"]),
        ("fragile = TRUE AND stock > 0", ["lamp"]),
        ("fragile AND stock > 0 OR owner IS NOT NULL", ["lamp", "gift"]),
        ("colour IS NULL", ["gift"]),
        ("stock IS NOT NULL AND stock = 0", ["vase"]),
        ("nowhere = 1 OR stock = 10", ["pen"]),
        ("NOT (nowhere = 1)", []),
        ("stock = '10'", []),
        ("JMSType = 'large'", ["vase", "lamp"]),
        ("JMSCorrelationID = 'c2'", ["vase"]),
        ("JMSCorrelationID IS NULL", ["lamp", "gift"]),
        ("JMSDeliveryMode = 'PERSISTENT'", ["pen", "vase", "lamp", "gift"]),
        ("JMSPriority = 4", ["pen", "vase", "lamp", "gift"]),
        ("JMSTimestamp > 0 AND JMSMessageID LIKE 'ID:%'", ["pen", "vase", "lamp", "gift"]),
        ("COLOUR = 'red'", []),
        ("colour = 'red' and stock >= 10", ["pen"]),
    ],
)
def test_selector(session: Session, queue: str, selector: str, matching: list[str]) -> None:
    session.send(queue, *ORDERS)
    assert texts(session.consumer(queue, selector).rest()) == matching
    rest = [str(order["text"]) for order in ORDERS if order["text"] not in matching]
    assert texts(session.consumer(queue).rest()) == rest


def test_selector_by_priority_and_delivery_mode(session: Session, queue: str) -> None:
    session.send(queue, "low", priority=1)
    session.send(queue, "high", priority=8)
    session.send(queue, "volatile", priority=8, delivery_mode=NON_PERSISTENT)
    selector = "JMSPriority > 5 AND JMSDeliveryMode = 'PERSISTENT'"
    assert texts(session.consumer(queue, selector).rest()) == ["high"]


def test_selector_by_message_id(session: Session, queue: str) -> None:
    sent = session.send(queue, "a", "b", "c")
    assert texts(session.consumer(queue, f"JMSMessageID = '{sent[1]['id']}'").rest()) == ["b"]


def test_selector_by_group(session: Session, queue: str) -> None:
    session.send(queue, {"text": "a", "properties": {"JMSXGroupID": "one"}})
    session.send(queue, {"text": "b", "properties": {"JMSXGroupID": "two"}})
    assert texts(session.consumer(queue, "JMSXGroupID = 'two'").rest()) == ["b"]


def test_two_consumers_divide_a_queue_by_selectors(connection: Connection, session: Session, queue: str) -> None:
    even, odd = session.consumer(queue, "even"), session.consumer(queue, "NOT even")
    for number in range(10):
        session.send(queue, {"text": str(number), "properties": {"even": number % 2 == 0}})
    assert texts(even.take(5)) == ["0", "2", "4", "6", "8"]
    assert texts(odd.take(5)) == ["1", "3", "5", "7", "9"]


def test_what_nobody_selects_blocks_nobody(session: Session, queue: str, address: str, look: Look) -> None:
    session.send(queue, *(f"m{number}" for number in range(500)))
    session.send(queue, {"text": "wanted", "properties": {"wanted": True}})
    assert texts(session.consumer(queue, "wanted").take()) == ["wanted"]
    look.until(address, depth=500)


def test_browser_with_selector(session: Session, queue: str) -> None:
    for number in range(6):
        session.send(queue, {"text": f"m{number}", "properties": {"n": number}})
    assert texts(session.browse(queue, "n BETWEEN 2 AND 4")) == ["m2", "m3", "m4"]
    assert len(session.browse(queue)) == 6


@pytest.mark.parametrize("selector", ["colour =", "= 'red'", "colour = 'red", "(colour = 'red'", "colour LIKE 5"])
def test_bad_selector_is_refused_by_the_client(session: Session, queue: str, selector: str) -> None:
    with pytest.raises(JmsError, match="^InvalidSelectorException"):
        session.consumer(queue, selector)


def test_bad_selector_is_refused_by_the_broker(jms: Jms, server: Server, queue: str) -> None:
    session = jms.connect(server.url, options="jms.validateSelector=false").session()
    with pytest.raises(JmsError, match="invalid-field"):
        session.consumer(queue, "colour =")
    session.send(queue, "the session lives")
    assert texts(session.consumer(queue).take()) == ["the session lives"]


def test_no_local_on_a_queue_leaves_own_messages_to_others(
    jms: Jms, server: Server, connection: Connection, session: Session, queue: str
) -> None:
    other = jms.connect(server.url).session()
    consumer = session.consumer(queue, no_local=True)
    session.send(queue, "own")
    other.send(queue, "foreign")
    assert texts(consumer.rest()) == ["foreign"]
    assert texts(other.consumer(queue).rest()) == ["own"]
