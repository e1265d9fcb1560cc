"""`acquit address`."""

from __future__ import annotations

from pathlib import Path

import acquit
from acquit.broker.options import AddressRule, BrokerOptions
from acquit.cli.exits import Exit
from tests.support.shell import Shell

RULES = BrokerOptions(address=(AddressRule("orders", {"max_delivery_attempts": 7, "messages_max": 50}),))


def test_settings_are_given_shown_and_taken_back(shell: Shell, tmp_path: Path) -> None:
    with acquit.Broker(tmp_path, config=RULES) as broker:
        at = ("--url", broker.url)
        assert shell("address", "list", *at).out == "no operator gave a rule\n"
        told = shell(
            "address", "set", "orders", "max_delivery_attempts=3", "dead_letter_address=Lost", "create=true", *at
        )
        assert told.out == 'orders: max_delivery_attempts = 3, dead_letter_address = "Lost", create = true\n'
    with acquit.Broker(tmp_path, config=RULES) as broker:
        at = ("--url", broker.url)
        (shown,) = shell("address", "show", "orders", *at, "--json").documents
        settings = shown["settings"]
        assert (settings["max_delivery_attempts"], settings["dead_letter_address"]) == (3, "Lost")
        assert settings["messages_max"] == 50, "as configured"
        assert [rule["source"] for rule in shown["rules"]] == ["operator", "configuration"]
        lines = shell("address", "show", "orders", *at).out.splitlines()
        assert [line.split() for line in lines if line.startswith(("max_deliv", "messages_max"))] == [
            ["max_delivery_attempts", "3", "orders,", "operator"],
            ["messages_max", "50", "orders,", "configuration"],
        ]
        (rule,) = shell("address", "list", *at, "--json").documents
        assert rule["match"] == "orders"
        assert shell("address", "reset", "orders", *at).out == "orders: as configured\n"
        (shown,) = shell("address", "show", "orders", *at, "--json").documents
        assert shown["settings"]["max_delivery_attempts"] == 7
        again = shell("address", "reset", "orders", *at)
        assert again.code == Exit.FAILED and "no operator gave a rule for 'orders'" in again.err


def test_what_cannot_be_set_is_said_and_changes_nothing(shell: Shell, broker: acquit.Broker) -> None:
    for setting, why in (("nonsense=1", "no such setting"), ("max_delivery_attempts=-1", "max_delivery_attempts")):
        ran = shell("address", "set", "orders", setting, "--url", broker.url)
        assert ran.code == Exit.USAGE and why in ran.err
    assert shell("address", "set", "orders", "nonsense", "--url", broker.url).code == Exit.USAGE
    assert shell("address", "list", "--url", broker.url, "--json").documents == []
