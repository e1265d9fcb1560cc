from __future__ import annotations

from pathlib import Path

import pytest

import acquit
from acquit.broker.options import BrokerOptions, Role, Security, User
from acquit.cli import watching
from acquit.cli.connecting import BrokerAt
from acquit.cli.watching import Missed, Seen, watch
from acquit.store.options import JournalOptions


def at_once(_: float) -> bool:
    return False


def test_looks_follow_each_other_on_one_connection() -> None:
    with acquit.Broker() as broker:
        looks = watch(BrokerAt((broker.url,)), 5.0, 1.0, at_once)
        first, second = next(looks), next(looks)
        looks.close()
    assert isinstance(first, Seen) and first.before is None
    assert isinstance(second, Seen) and second.before is first.now


def test_waiting_ends_it() -> None:
    waits: list[float] = []

    def stop(seconds: float) -> bool:
        waits.append(seconds)
        return True

    with acquit.Broker() as broker:
        assert len(list(watch(BrokerAt((broker.url,)), 5.0, 7.0, stop))) == 1
    assert waits == [7.0]


def test_nobody_there_at_first_is_a_failure(unused_port: int) -> None:
    with pytest.raises(acquit.ConnectionFailed):
        next(watch(BrokerAt((f"amqp://127.0.0.1:{unused_port}",)), 5.0, 1.0, at_once))


def test_a_broker_that_restarts_is_found_again(tmp_path: Path) -> None:
    with acquit.Broker(tmp_path) as broker:
        port = broker.port
        looks = watch(BrokerAt((broker.url,)), 5.0, 1.0, at_once)
        assert isinstance(next(looks), Seen)
    missed = next(looks)
    assert isinstance(missed, Missed) and missed.reason
    assert isinstance(next(looks), Missed)
    with acquit.Broker(tmp_path, port=port):
        found = next(looks)
        assert isinstance(found, Seen) and found.before is None  # what is volatile is counted from 0 again
        looks.close()


def test_who_is_not_let_in_any_more_is_not_tried_again(tmp_path: Path) -> None:
    def options(password: str) -> BrokerOptions:
        security = Security(
            users={"ada": User(password=password, roles=("reader",))}, roles={"reader": Role(browse=("#",))}
        )
        return BrokerOptions(security=security, journal=JournalOptions.small())

    with acquit.Broker(tmp_path, config=options("x")) as broker:
        port = broker.port
        looks = watch(BrokerAt((f"amqp://ada:x@127.0.0.1:{port}",)), 5.0, 1.0, at_once)
        assert isinstance(next(looks), Seen)
    with acquit.Broker(tmp_path, port=port, config=options("y")):
        assert isinstance(next(looks), Missed)
        with pytest.raises(acquit.AuthenticationFailed):
            next(looks)


def test_attempts_are_so_far_apart(tmp_path: Path) -> None:
    waits: list[float] = []

    def count(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) == 3

    with acquit.Broker(tmp_path) as broker:
        looks = watch(BrokerAt((broker.url,)), 5.0, 7.0, count)
        next(looks)
    assert [type(seen) for seen in looks] == [Missed, Missed]
    assert waits == [7.0, watching.RETRY_S, watching.RETRY_S]
