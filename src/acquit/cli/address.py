"""``acquit address``: how messages at an address are treated, and other settings for it while the broker runs."""

from __future__ import annotations

import json
from collections.abc import Mapping

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import management, table_of
from acquit.cli.options import json_option, pair, seconds
from acquit.cli.output import emit_json, table
from acquit.protocol.extensions import ADDRESS
from acquit.protocol.jsonform import read_json, to_json
from acquit.protocol.types import Value


@click.group(cls=WholeGroup)
def address() -> None:
    """Show how messages at an address are treated, or give it other settings while the broker runs."""


@address.command()
@click.argument("name")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def show(name: str, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the settings in force at the address NAME, whether there is a queue or not, and where each comes from."""
    with management(broker, timeout_s) as node:
        answer = node.request("READ", ADDRESS, name=name)
    assert isinstance(answer, Mapping)
    if as_json:
        emit_json({str(key): to_json(value) for key, value in answer.items()})
        return Exit.OK
    rules = answer["rules"]
    assert isinstance(rules, list)
    origins: dict[str, str] = {}
    for rule in rules:
        for setting in rule["settings"]:
            origins.setdefault(setting, f"{rule['match']}, {rule['source']}")
    rows = [(setting, _shown(value), origins.get(setting, "")) for setting, value in answer["settings"].items()]
    table(["setting", "value", "rule"], rows)
    return Exit.OK


@address.command("list")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def list_(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Show the rules that operators gave the broker at URL, beside those of its configuration."""
    with management(broker, timeout_s) as node:
        columns, rows = table_of(node.request("QUERY", ADDRESS))
    found = [dict(zip(columns, row, strict=True)) for row in rows]
    if as_json:
        for rule in found:
            emit_json({name: to_json(value) for name, value in rule.items()})
    elif found:
        table(["match", "settings"], [(rule["match"], _together(rule["settings"])) for rule in found])
    else:
        click.echo("no operator gave a rule")
    return Exit.OK


@address.command("set")
@click.argument("match")
@click.argument("settings", nargs=-1, required=True, metavar="SETTING=VALUE...")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def set_(match: str, settings: tuple[str, ...], timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Give the address, or all that the pattern MATCH takes, these settings at once, and after a restart.

    They stand before the configuration's, and in place of those given for MATCH before."""
    given = dict(pair(text, "SETTING=VALUE") for text in settings)
    values: dict[Value, Value] = {name: _value(text) for name, text in given.items()}
    with management(broker, timeout_s) as node:
        node.request("UPDATE", ADDRESS, name=match, body={"settings": values})
    if as_json:
        emit_json({"match": match, "settings": to_json(values)})
    else:
        click.echo(f"{match}: {_together(values)}")
    return Exit.OK


@address.command()
@click.argument("match")
@seconds(10.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def reset(match: str, timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Take back what operators gave MATCH: what the configuration says counts again."""
    with management(broker, timeout_s) as node:
        node.request("DELETE", ADDRESS, name=match)
    if as_json:
        emit_json({"match": match})
    else:
        click.echo(f"{match}: as configured")
    return Exit.OK


def _value(text: str) -> bool | int | float | str:
    """Return what is said as the configuration file would: numbers and booleans as such, anything else as text."""
    try:
        value = read_json(text)
    except ValueError:
        return text
    return value if isinstance(value, bool | int | float | str) else text


def _shown(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | str) else str(value)


def _together(settings: object) -> str:
    assert isinstance(settings, Mapping)
    return ", ".join(f"{name} = {_shown(value)}" for name, value in settings.items())
