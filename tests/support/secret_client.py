"""A program that logs in as clients do, is refused, fails in its tasks, and prints whatever it can about all of it.

    python -m tests.support.secret_client

The environment says URL, USER, PASSWORD and WRONG. The log is at its most talkative, asyncio's debug mode included;
each object of ours that can be reached from a connection is printed as `repr` has it. It ends with an error that nobody
handles.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from urllib.parse import quote

import acquit
from acquit import aio
from acquit.compat.qpid import messaging
from acquit.testing import Proxy

URL, USER, PASSWORD, WRONG = (os.environ[name] for name in ("URL", "USER", "PASSWORD", "WRONG"))
HOST = URL.partition("//")[2]
ONCE = {"reconnect": None, "connect_timeout_ms": 5_000}


def say(*things: object) -> None:
    sys.stdout.write("".join(f"{thing}\n" for thing in things))


def refused(attempt: Callable[[], object]) -> None:
    """Print all that can be said of its error."""
    try:
        attempt()
    except Exception as error:
        chain: BaseException | None = error
        while chain is not None:
            say(repr(chain), chain.args)
            chain = chain.__cause__ or chain.__context__
        traceback.print_exc()
        logging.getLogger("user").exception("refused: %r", error)
    else:
        raise AssertionError("it was let in")


def show(*roots: object) -> int:
    """Print what can be reached of ours; how many objects that is."""
    seen: dict[int, object] = {}
    waiting: list[object] = list(roots)
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing
        module = type(thing).__module__
        if module.partition(".")[0] in ("acquit", "asyncio", "threading", "_asyncio"):
            say(repr(thing))
            waiting += [one for one in gc.get_referents(thing) if not isinstance(one, type)]
        elif isinstance(thing, list | tuple | dict | set):
            waiting += [*thing, *(thing.values() if isinstance(thing, dict) else ())]
    return len(seen)


def blocking() -> None:
    url = f"amqp://{USER}:{quote(PASSWORD, safe='')}@{HOST}"
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        options = acquit.ConnectOptions(sasl_mechanisms=(mechanism,))
        with acquit.connect(url, options=options) as connection, connection.session() as session:
            session.sender("secrets").send(acquit.Message("content-of-the-message", durable=True))
            happened = threading.Event()

            def handle(message: acquit.ReceivedMessage, happened: threading.Event = happened) -> None:
                happened.set()
                raise RuntimeError("a task of the user failed")

            with session.receiver("secrets").start_listener(handle):
                assert happened.wait(20)
            say(f"reached {show(connection, session)} objects")
        once = acquit.ConnectOptions(sasl_mechanisms=(mechanism,), **ONCE)  # type: ignore[arg-type]
        refused(lambda once=once: acquit.connect(f"amqp://{USER}:{quote(WRONG, safe='')}@{HOST}", options=once))
        refused(lambda once=once: acquit.connect(URL, username=USER, password=WRONG, options=once))
        refused(lambda once=once: acquit.connect(URL, username=WRONG, password="x", options=once))
    for wrong in (WRONG, f"{WRONG}/x", f"{WRONG}?x", f"{WRONG}#x", f"{WRONG}[", f"{WRONG}\u2100"):
        refused(
            lambda wrong=wrong: acquit.connect(f"amqp://{USER}:{wrong}@127.0.0.1:1/", options=acquit.ConnectOptions())
        )
        failover = f"failover:(amqp://{USER}:{wrong}@127.0.0.1:1,amqp://127.0.0.1:1)?failover.maxReconnectAttempts=1"
        refused(lambda failover=failover: acquit.connect(failover))
    refused(lambda: acquit.connect(URL, username=USER, password=f"{WRONG}\udc80"))
    refused(lambda: acquit.connect(URL, username=USER, password=WRONG.encode()))  # type: ignore[arg-type]


def interrupted() -> None:
    """A connection is lost, and made again, which says how."""
    with Proxy(URL) as proxy, acquit.connect(proxy.url, username=USER, password=PASSWORD) as connection:
        sender = connection.session().sender("secrets")
        sender.send(b"before")
        proxy.cut()
        sender.send(b"after", timeout=20)


async def asynchronous() -> None:
    asyncio.get_running_loop().slow_callback_duration = 0.0  # each call is slow: all are logged
    async with aio.connect(URL, username=USER, password=PASSWORD) as connection, connection.session() as session:
        sender = await session.sender("secrets")
        await sender.send(b"more")
        say(f"reached {show(connection)} objects")
    with contextlib.suppress(acquit.AcquitError):
        await aio.connect(URL, username=USER, password=WRONG, options=acquit.ConnectOptions(**ONCE))  # type: ignore[arg-type]


def of_qpid() -> None:
    connection = messaging.Connection(HOST, username=USER, password=PASSWORD, sasl_mechanisms="PLAIN")
    connection.open()
    connection.session().sender("secrets").send(messaging.Message("content"))
    say(f"reached {show(connection)} objects")
    connection.close()
    refused(lambda: messaging.Connection.establish(f"{USER}/{WRONG}@{HOST}"))
    refused(lambda: messaging.Connection.establish(f"{USER}/{WRONG}/x@:{HOST}"))


def main() -> None:
    logging.basicConfig(level=logging.DEBUG)
    blocking()
    interrupted()
    asyncio.run(asynchronous(), debug=True)
    of_qpid()
    say("all of it was done")
    acquit.connect(f"amqp://{USER}:{quote(WRONG, safe='')}@{HOST}", options=acquit.ConnectOptions(**ONCE))  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
