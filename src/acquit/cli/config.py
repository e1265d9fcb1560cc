"""``acquit config``: the configuration file of a broker, checked, and read again by one that runs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from acquit.cli.connecting import BrokerAt, broker_options
from acquit.cli.exits import Exit
from acquit.cli.lazy import WholeGroup
from acquit.cli.management import management
from acquit.cli.options import PathType, json_option, own_data_option, seconds
from acquit.cli.output import counted, emit_json, table
from acquit.protocol.extensions import BROKER
from acquit.protocol.jsonform import to_json


@click.group(cls=WholeGroup)
def config() -> None:
    """Check a configuration file, or have a running broker read its own again."""


@config.command()
@click.argument("file", type=PathType())
@own_data_option("The broker's folder, whose users are checked with it.")
@json_option
def check(file: Path, data: Path, as_json: bool) -> int:
    """Say whether a broker would take FILE: its keys and values, whether its rules fit together, and the files that it
    names. Exits with 2 and one line where it would not."""
    from acquit.broker.admin.reload import load
    from acquit.broker.options import BrokerOptions

    options, keys = load(file, BrokerOptions(), data)
    listeners, secured = len(options.tls_modes), sum(mode != "off" for mode in options.tls_modes)
    found = {
        "file": str(file),
        "address_rules": len(options.address),
        "users": len(keys.security.users),
        "roles": len(keys.security.roles),
        "tls": keys.tls is not None,
        "listeners": listeners,
        "tls_listeners": secured,
    }
    if as_json:
        emit_json({name: to_json(value) for name, value in found.items()})
    else:
        tls = "with TLS" if secured else "without TLS"
        if 0 < secured < listeners:
            tls = f"with TLS on {secured} of {counted(listeners, 'listener')}"
        elif keys.tls is not None and not secured:
            tls = "AMQP without TLS: no listener uses the certificate"
        click.echo(
            f"{file}: valid, {counted(found['address_rules'], 'address rule')}, {counted(found['users'], 'user')}, "
            f"{counted(found['roles'], 'role')}, {tls}"
        )
    return Exit.OK


@config.command()
@seconds(60.0, "How long to wait for the broker's answer.")
@broker_options
@json_option
def reload(timeout_s: float, broker: BrokerAt, as_json: bool) -> int:
    """Make the broker at URL read its configuration, its users and its certificates again, and show what changed.

    Nothing changes where any of it is not valid. SIGHUP does the same, and tells the log."""
    with management(broker, timeout_s) as node:
        answer = node.request("RELOAD", BROKER)
    changes = answer.get("changes") if isinstance(answer, Mapping) else None
    rows = [change for change in changes if isinstance(change, Mapping)] if isinstance(changes, list) else []
    if as_json:
        for row in rows:
            emit_json({str(name): to_json(value) for name, value in row.items()})
    elif rows:
        columns = ("key", "old", "new", "applies")
        table(list(columns), [[str(row.get(name, "")) for name in columns] for row in rows])
    else:
        click.echo("nothing has changed")
    return Exit.OK
