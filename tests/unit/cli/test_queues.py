from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

import acquit
from acquit.cli.exits import Exit
from acquit.cli.management import table_of
from acquit.client.management import ManagementFailed
from acquit.store.journal import SegmentedJournal
from tests.support.shell import Shell


def test_queues_of_a_running_broker(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two")
    at_broker("receive", address, "--count", 1)
    (row,) = [row for row in at_broker("queues", "--json").documents if row["name"] == address]
    assert (row["depth"], row["available"], row["entered"], row["accepted"]) == (1, 1, 2, 1)
    shown = at_broker("queues").out.splitlines()
    assert shown[0].split()[0] == "name"  # where there is a topic, too, another column says what is one
    assert {"depth", "available", "acquired"} <= set(shown[0].split())
    (line,) = [line.split() for line in shown if line.startswith(f"{address} ")]
    assert "".join(line[1:]).removeprefix("queue").startswith("110")


def test_what_somebody_should_see_to_is_said(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with acquit.Broker(tmp_path / "data") as broker:
        monkeypatch.setattr(SegmentedJournal, "full", True)
        ran = shell("queues", "--url", broker.url)
        monkeypatch.undo()
    assert ran.err == "acquit: the disk is full: postings are refused until there is room\n"


def test_no_queues(shell: Shell) -> None:
    with acquit.Broker() as empty:
        assert shell("queues", "--url", empty.url).out == "no queues\n"


def test_purge(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one", "two")
    ran = at_broker("purge", address, "--yes")
    assert (ran.code, ran.out) == (Exit.OK, f"{address}: 2 messages purged\n")
    assert at_broker("purge", address, "--yes", "--json").documents == [{"queue": address, "purged": 0}]


def test_purge_asks_first(at_broker: Shell, address: str) -> None:
    at_broker("send", address, "one")
    ran = at_broker("purge", address, stdin="")
    assert ran.code == Exit.USAGE
    assert ran.err.endswith(
        "acquit: nobody answers the question on standard input; --yes, where there is it, asks none\n"
    )
    ran = at_broker("purge", address, stdin="n\n")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert f"Remove all messages of {address}?" in ran.err
    assert len(at_broker("browse", address, "--json").documents) == 1
    assert at_broker("purge", address, stdin="y\n").code == Exit.OK


def test_purging_what_is_not_there(at_broker: Shell) -> None:
    ran = at_broker("purge", "nobody.knows", "--yes")
    assert ran.code == Exit.FAILED
    assert ran.err == "acquit: there is no queue 'nobody.knows'\n"


def test_topics_and_subscriptions_have_rows_of_their_own(shell: Shell, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with acquit.Broker(data) as broker:
        with acquit.connect(broker.url, container_id="me") as connection:
            session = connection.session()
            sender = session.sender("news", topic=True)
            sender.send(acquit.Message("nobody takes it"))
            session.receiver("news", subscription=acquit.Subscription(name="audit"), prefetch=0)
            sender.send(acquit.Message("kept"))
        running = shell("queues", "--url", broker.url, "--json").documents
        assert "unrouted" in shell("queues", "--url", broker.url).out
    stopped = shell("queues", "--data", data, "--json").documents
    for rows in (running, stopped):
        by_name = {row["name"]: row for row in rows}
        assert by_name.keys() == {"news", "news::me/audit"}
        topic, subscription = by_name["news"], by_name["news::me/audit"]
        assert (topic["kind"], topic["unrouted"], topic["entered"]) == ("topic", 1, 0)
        assert (subscription["kind"], subscription["address"]) == ("subscription", "news")
        assert (subscription["depth"], subscription["unrouted"]) == (1, 0)


def test_a_queue_is_made_and_deleted(at_broker: Shell, address: str) -> None:
    assert at_broker("queues", "create", address).out == f"{address}: queue made\n"
    assert at_broker("queues", "create", address).code == Exit.FAILED
    at_broker("send", address, "one", "two")
    ran = at_broker("queues", "delete", address, "--yes", "--if-empty")
    assert (ran.code, ran.err) == (Exit.FAILED, f"acquit: '{address}' is not empty: it has 2 messages\n")
    assert at_broker("queues", "delete", address, "--yes", "--json").documents == [
        {"name": address, "messages": 2, "links": 0}
    ]
    assert address not in at_broker("queues").out


def test_what_stands_before_a_command_of_queues_is_for_that(at_broker: Shell, address: str) -> None:
    assert at_broker("queues", "create", address).code == Exit.OK
    with acquit.Broker() as other:
        gone = other.url
        for command in ("create", "delete"):
            ran = at_broker(
                "queues", "--url", other.url, "--json", command, address, *["--yes"] * (command == "delete")
            )
            assert (ran.code, ran.documents[0]["name"]) == (Exit.OK, address)
        assert at_broker("queues", "--url", other.url, "--json").documents == []
    # What stands behind the command wins.
    assert at_broker("queues", "--url", gone, "delete", address, "--yes").code == Exit.UNREACHABLE
    assert at_broker("queues", "--url", gone, "delete", address, "--yes", "--url", os.environ["ACQUIT_URL"]).code == 0


@pytest.mark.parametrize("option", [("--data", "."), ("--sort", "name"), ("--watch", "1"), ("--times", "1")])
def test_an_option_that_a_command_of_queues_has_not_is_refused_before_it(
    at_broker: Shell, address: str, option: tuple[str, str]
) -> None:
    ran = at_broker("queues", *option, "create", address)
    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert f"{option[0]} belongs to acquit queues, not to create" in ran.err
    assert address not in at_broker("queues").out


def test_deleting_asks_first(at_broker: Shell, address: str) -> None:
    at_broker("queues", "create", address)
    ran = at_broker("queues", "delete", address, stdin="n\n")
    assert (ran.code, ran.out) == (Exit.FAILED, "")
    assert f"Delete {address} and all that is in it?" in ran.err
    assert at_broker("queues", "delete", address, "--if-unused", stdin="y\n").code == Exit.OK


def test_a_topic_is_made_and_deleted(at_broker: Shell, address: str) -> None:
    assert at_broker("queues", "create", address, "--topic", "--json").documents == [{"name": address, "kind": "topic"}]
    assert at_broker("purge", address, "--yes").code == Exit.USAGE
    assert at_broker("queues", "delete", address, "--yes").code == Exit.OK


def test_people_see_what_there_is_within_a_hundred_columns(shell: Shell) -> None:
    with (
        acquit.Broker() as broker,
        acquit.connect(broker.url, container_id="the-billing-service") as connection,
        connection.session("individual") as session,
    ):
        sender = session.sender("orders.from.europe", topic=True)
        session.receiver("orders.from.europe", subscription=acquit.Subscription(name="for-the-audit"), prefetch=0)
        sender.send("kept")
        session.sender("later").send(acquit.Message("x", annotations={"x-opt-delivery-delay": 3_600_000}))
        session.sender("parcels").send("heavy")
        message = session.receiver("parcels").receive(timeout=5)
        assert message is not None
        message.modify(undeliverable_here=True).result()
        lines = shell("queues", "--url", broker.url).out.splitlines()
    assert max(map(len, lines)) <= 100
    text = [" ".join(line.split()) for line in lines]
    assert text[0] == "name kind depth available acquired consumers body bytes entered"
    below = dict(pairwise(" ".join(line.split()[:3]) for line in lines))
    assert below["later queue 1"] == "scheduled 1, producers"
    assert below["parcels queue 1"] == "undeliverable 1, producers"
    assert below["orders.from.europe::the-billing-service/for-the-audit"] == "subscription 1 1"


def test_who_may_see_no_queue_is_told_so(shell: Shell) -> None:
    """That there are none would be a lie, and exit code 0 another one."""
    import acquit
    from acquit.broker.options import BrokerOptions, Role, Security, User
    from acquit.store.options import JournalOptions

    roles = {"clerk": Role(send=("#",), consume=("#",)), "reader": Role(browse=("orders.#",))}
    users = {"eve": User(password="x", roles=("clerk",)), "ada": User(password="x", roles=("reader",))}
    config = BrokerOptions(security=Security(users=users, roles=roles), journal=JournalOptions.small())
    with acquit.Broker(config=config) as broker:
        at = f"@127.0.0.1:{broker.port}"
        refused = shell("queues", "--url", f"amqp://eve:x{at}")
        assert refused.code == Exit.FAILED
        assert "'eve' may not see any queue" in refused.err
        assert refused.out == ""
        watched = shell("queues", "--watch", "--url", f"amqp://eve:x{at}")
        assert (watched.code, watched.err) == (refused.code, refused.err)
        assert shell("queues", "--url", f"amqp://ada:x{at}").out == "no queues\n"
        nobody = shell("queues", "--url", f"amqp:{at.replace('@', '//')}")
        assert nobody.code == Exit.FAILED
        assert "--user" in nobody.err and "security.anonymous" in nobody.err


def test_queues_are_sorted(shell: Shell) -> None:
    with acquit.Broker() as broker:
        with acquit.connect(broker.url) as connection, connection.session() as session:
            for name, count in (("a", 1), ("b", 3), ("c", 2)):
                for _ in range(count):
                    session.sender(name).send("x")

        def names(*arguments: str) -> list[str]:
            return [row["name"] for row in shell("queues", "--url", broker.url, "--json", *arguments).documents]

        assert names() == ["a", "b", "c"]
        assert names("--sort", "depth") == ["a", "c", "b"]
        assert names("--sort", "-depth") == ["b", "c", "a"]
        assert names("--sort", "trouble") == ["b", "c", "a"]
        ran = shell("queues", "--url", broker.url, "--sort", "weight")
    assert ran.code == Exit.USAGE
    assert "no column 'weight'; there are trouble, name, address" in ran.err


def test_queues_are_watched_with_their_rates(shell: Shell) -> None:
    with acquit.Broker() as broker:
        shell("send", "orders", "x", "--url", broker.url)
        documents = shell(
            "queues", "--watch", "0.01", "--times", 2, "--sort", "-in_per_s", "--json", "--url", broker.url
        ).documents
        shown = shell("queues", "--watch", "0.01", "--times", 2, "--url", broker.url).out
    first, second = documents
    assert (first["in_per_s"], first["out_per_s"]) == (None, None)
    assert (second["in_per_s"], second["out_per_s"]) == (0.0, 0.0)
    assert first["at_ms"] <= second["at_ms"]
    heads = [line.split() for line in shown.splitlines() if line.startswith("name")]
    assert [head[-2:] for head in heads] == [["in/s", "out/s"]] * 2
    assert "every 0.01 s" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_what_does_not_go_with_watching(shell: Shell, tmp_path: Path) -> None:
    assert shell("queues", "--times", 2).code == Exit.USAGE
    ran = shell("queues", "--watch", "--data", tmp_path)
    assert (ran.code, "does not go with --data" in ran.err) == (Exit.USAGE, True)


@pytest.mark.parametrize("answer", [None, {}, {"results": []}, ["attributeNames", "results"]], ids=repr)
def test_an_answer_that_is_no_table(answer: object) -> None:
    with pytest.raises(ManagementFailed, match="not the table"):
        table_of(answer)
