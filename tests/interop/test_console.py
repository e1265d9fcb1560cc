"""The console in a real browser: what an operator does there, and what hostile names and bodies cannot do."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

import acquit
from acquit.broker.configuration import parse_options
from tests.support.chromium import Tab

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

HOSTILE = "<script>document.title = 'ran'</script><img src=http://127.0.0.1:9/x onerror=alert(1)>"
USERS = """
[users.root]
password = "everything-7"
roles = ["all"]

[users.alice]
password = "wonderland-7"
roles = ["reader"]

[security.roles.all]
send = ["#"]
consume = ["#"]
browse = ["#"]
create = ["#"]
delete = ["#"]
manage = ["#"]

[security.roles.reader]
browse = ["orders"]
"""


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    browser.complaints.clear()
    browser.requests.clear()
    yield browser
    browser.call("Network.setExtraHTTPHeaders", headers={})
    browser.call("Page.navigate", url="about:blank")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[acquit.Broker]:
    with acquit.Broker(tmp_path / "journal", http_port=0) as broker:
        yield broker


def fill(broker: acquit.Broker, dead: int = 3) -> None:
    """Ten orders, of which some are dead letters, with two reasons."""
    with acquit.connect(broker.url, container_id="shop") as connection:
        session = connection.session("individual")
        sender = session.sender("orders")
        for number in range(10):
            sender.send(acquit.Message(f"order {number}", message_id=f"o-{number}", durable=True))
        receiver = session.receiver("orders", prefetch=dead)
        for number in range(dead):
            message = receiver.receive(5)
            assert message is not None
            message.reject("orders:no-customer" if number else "orders:no-price", HOSTILE)


def show(tab: Tab, broker: acquit.Broker, page: str = "", *, width: int = 1440, dark: bool = False) -> None:
    tab.open("about:blank", width, 900, dark=dark)
    tab.open(f"{broker.http_url}/#/{page}", width, 900, dark=dark)
    tab.until("document.getElementById('main').dataset.page !== undefined")


def press(tab: Tab, text: str, within: str = "main") -> None:
    """Press the button that begins with this text."""
    tab.until(
        f"[...document.querySelectorAll('{within} button')].some(each => each.textContent.startsWith({text!r})"
        " && !each.disabled)"
    )
    tab.evaluate(
        f"[...document.querySelectorAll('{within} button')].find(each => each.textContent.startsWith({text!r})).click()"
    )


def depth(broker: acquit.Broker, name: str) -> int:
    queue = broker.inspect().queue(name)
    return 0 if queue is None else queue.depth


def reads(tab: Tab, text: str) -> None:
    tab.until(f"document.body.innerText.includes({text!r})")


def test_dead_letters_are_redriven_after_a_look_at_what_that_does(tab: Tab, broker: acquit.Broker) -> None:
    fill(broker)
    show(tab, broker, "dead-letters")
    reads(tab, "orders:no-customer")
    press(tab, "Redrive")
    press(tab, "Show", "dialog")
    reads(tab, "3 messages would go back")
    assert (depth(broker, "DLQ"), depth(broker, "orders")) == (3, 7)
    press(tab, "Show", "dialog")
    reads(tab, "3 messages went back")
    assert (depth(broker, "DLQ"), depth(broker, "orders")) == (0, 10)


def test_a_queue_is_purged_only_when_that_is_confirmed(tab: Tab, broker: acquit.Broker) -> None:
    fill(broker, dead=0)
    show(tab, broker, "queue/orders")
    reads(tab, "The sum holds")
    press(tab, "Purge")
    press(tab, "Leave it", "dialog")
    assert depth(broker, "orders") == 10
    press(tab, "Purge")
    press(tab, "Purge", "dialog")
    reads(tab, "10 messages were purged")
    assert depth(broker, "orders") == 0


def test_a_queue_is_paused_and_resumed(tab: Tab, broker: acquit.Broker) -> None:
    fill(broker, dead=0)
    show(tab, broker, "queue/orders")
    press(tab, "Pause")
    press(tab, "Pause", "dialog")
    reads(tab, "paused: consumers")
    with acquit.connect(broker.url) as connection:
        receiver = connection.session().receiver("orders")
        assert receiver.receive(0.05) is None
        press(tab, "Resume")
        assert receiver.receive(5) is not None


def test_a_connection_is_closed_with_a_reason(tab: Tab, broker: acquit.Broker) -> None:
    options = acquit.ConnectOptions(reconnect=None)
    with acquit.connect(broker.url, container_id="to-be-closed", options=options) as connection:
        receiver = connection.session().receiver("orders")
        show(tab, broker, "connections")
        reads(tab, "to-be-closed")
        press(tab, "Close")
        press(tab, "Close", "dialog")
        reads(tab, "was closed")
        with pytest.raises(acquit.ConnectionClosed, match="closed by an administrator"):
            receiver.receive(5)


def test_the_life_of_a_message_is_told(tab: Tab, broker: acquit.Broker) -> None:
    fill(broker)
    show(tab, broker, "message/DLQ/11")
    reads(tab, "order 0")
    reads(tab, "o-0")
    tab.until("document.querySelector('svg.life')?.getAttribute('aria-label').includes('dead-lettered')")


def test_who_may_not_is_told_so(tab: Tab, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path / "journal", http_port=0, config=parse_options(USERS)) as broker:
        with acquit.connect(broker.url, username="root", password="everything-7") as connection:
            session = connection.session()
            session.sender("orders").send("one")
            session.sender("secrets").send("two")
        word = base64.b64encode(b"alice:wonderland-7").decode()
        tab.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {word}"})
        show(tab, broker, "queues")
        reads(tab, "orders")
        assert "secrets" not in tab.evaluate("document.body.innerText")
        show(tab, broker, "queue/secrets")
        reads(tab, "This may not be shown")
        show(tab, broker, "queue/orders")
        press(tab, "Purge")
        press(tab, "Purge", "dialog")
        tab.until("document.querySelector('dialog [role=alert]')?.textContent.includes('alice')")
        assert depth(broker, "orders") == 1


def test_a_broker_that_restarts_is_shown_again(tab: Tab, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path / "journal", http_port=0) as broker:
        fill(broker, dead=0)
        show(tab, broker, "queues")
        reads(tab, "orders")
        assert broker.http_url is not None
        port = int(broker.http_url.rpartition(":")[2])
    reads(tab, "no answer from the broker")
    with acquit.Broker(tmp_path / "journal", http_port=port):
        tab.until("document.getElementById('state').textContent.startsWith('as of')")
        reads(tab, "orders")


@pytest.mark.parametrize("page", ["", "queues", "queue/DLQ", "dead-letters", "connections", "disk", "find"])
def test_hostile_names_and_bodies_stay_text_on_every_screen(tab: Tab, broker: acquit.Broker, page: str) -> None:
    fill(broker)
    with acquit.connect(broker.url, container_id=HOSTILE) as connection:
        for address in (HOSTILE, "x" * 200, "a/b?c#d%2Fe"):
            connection.session().sender(address).send(acquit.Message(HOSTILE, subject=HOSTILE))
        for width in (320, 768, 1440):
            for dark in (False, True):
                show(tab, broker, page, width=width, dark=dark)
                assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("document.title") != "ran"
    assert tab.complaints == []
    assert all(url.startswith((f"{broker.http_url}/", "data:", "about:")) for url in tab.requests)


@pytest.mark.parametrize("address", [HOSTILE, "a/b?c#d%2Fe", "...", "..", "."])
def test_queues_of_any_name_can_be_looked_at(tab: Tab, broker: acquit.Broker, address: str) -> None:
    with acquit.connect(broker.url) as connection:
        connection.session().sender(address).send(HOSTILE)
    show(tab, broker, "queues")
    tab.until(f"[...document.querySelectorAll('main td a')].some(each => each.textContent === {address!r})")
    tab.evaluate(f"[...document.querySelectorAll('main td a')].find(each => each.textContent === {address!r}).click()")
    reads(tab, "The sum holds")
    assert tab.complaints == []
