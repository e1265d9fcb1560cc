"""What deploy/ says: its files, read as those programs read them that they are for."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import click

from acquit.broker.configuration import parse_options
from acquit.broker.options import BrokerOptions
from acquit.cli.serve import serve
from tests.support.pages import ROOT

DEPLOY: Final = ROOT / "deploy"
HTTP_PORT: Final = 8161
AMQP_PORT: Final = 5672


def options_in(path: Path) -> BrokerOptions:
    """The options of a configuration, as `acquit serve` reads them."""
    return options_of(path.read_text(), str(path))


def options_of(text: str, source: str) -> BrokerOptions:
    """The same, of one that stands in another file."""
    return parse_options(text, source)


def serve_parameters(arguments: Iterable[str]) -> Mapping[str, object]:
    """What `acquit serve` understands of these arguments, whose files need not be there. Raises click's errors."""
    command = click.Command("serve", params=[_without_files(parameter) for parameter in serve.params])
    return command.make_context("serve", list(arguments)).params


def _without_files(parameter: click.Parameter) -> click.Parameter:
    if not isinstance(parameter, click.Option) or not isinstance(parameter.type, click.Path):
        return parameter
    return click.Option(parameter.opts, type=click.Path(path_type=Path), default=parameter.default)


def here(command: str, places: Mapping[str, str]) -> list[str]:
    """A command line of a file, as it runs here: with this interpreter's `acquit`, and other `places`."""
    words = shlex.split(command)
    assert words[0].endswith("acquit"), command
    for place, other in places.items():
        assert place in words, f"{place} is no word of {command}"
        words = [other if word == place else word for word in words]
    return [sys.executable, "-m", "acquit", *words[1:]]
