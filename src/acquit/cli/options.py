"""Options that several commands share, so that they are spelled and explained once."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., object])

MODES: Final = ("individual", "client", "auto", "dups-ok", "pre-ack", "no-ack")
"""The acknowledgement modes of commands: all but TRANSACTED. Here because the client is not loaded for a help text."""
DEFAULT_URL = "amqp://127.0.0.1:5672"
CREDENTIAL_VARIABLE: Final = "ACQUIT_PASSWORD"
"""Environment variable with the password of ``--user``. There is no option for one: command lines are for all to
read."""
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)


class PathType(click.Path):
    """A path, as a `pathlib.Path`. The empty one, of a variable that a script has not set, is refused: it would be the
    folder in which the command runs. So is a URL: ``s3://bucket/table`` would be a folder ``s3:`` in there."""

    def __init__(self, **rules: bool) -> None:
        super().__init__(path_type=Path, **rules)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("expected a path, found an empty text", param, ctx)
        if _SCHEME.match(str(value)):
            self.fail("expected a path on this machine, found a URL", param, ctx)
        return super().convert(value, param, ctx)


_FILE: Final = PathType(exists=True, dir_okay=False)

SECONDS_MAX: Final = 2_147_483
"""The longest time that an option may say, unless it says otherwise: what the client can wait, 24 days."""
RATE_MAX: Final = 1_000_000_000
"""The highest rate that an option may say, a second."""


class FiniteRange(click.types.FloatParamType):
    """A number from `low` to `high`. For click's own range *nan* is within all bounds, and it shows an upper bound that
    nobody comes near in the help of each option."""

    def __init__(self, low: float, high: float = SECONDS_MAX, *, min_open: bool = False) -> None:
        self._low = low
        self._high = high
        self._min_open = min_open

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not self._low <= number <= self._high or (self._min_open and number == self._low):
            least = "above" if self._min_open else "from"
            self.fail(f"expected a number {least} {self._low:g} up to {self._high:,}, found {value!r}", param, ctx)
        return number


def url_option(text: str) -> Callable[[Command], Command]:
    """``--url``: where the broker is; `text` says how."""
    return click.option(
        "--url",
        envvar="ACQUIT_URL",
        default=DEFAULT_URL,
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help=text,
    )


def user_option(text: str) -> Callable[[Command], Command]:
    """``--user``: who to log in as; `text` says where the password is."""
    return click.option(
        "--user", envvar="ACQUIT_USER", show_envvar=True, metavar="NAME", help=f"Who to log in as. {text}"
    )


def password_file_option(command: Command) -> Command:
    """``--password-file``: where the password is."""
    return click.option(
        "--password-file",
        type=_FILE,
        envvar="ACQUIT_PASSWORD_FILE",
        show_envvar=True,
        metavar="FILE",
        help="Its first line is the password.",
    )(command)


TLS_OPTIONS: Final = (
    click.option(
        "--ca",
        type=_FILE,
        envvar="ACQUIT_CA",
        show_envvar=True,
        metavar="FILE",
        help="Trust these authorities (PEM), and not the system's, to sign the broker's certificate. One that signed "
        "itself is its own authority.",
    ),
    click.option(
        "--cert",
        type=_FILE,
        envvar="ACQUIT_CERT",
        show_envvar=True,
        metavar="FILE",
        help="Our certificate (PEM), for brokers that ask for one.",
    ),
    click.option(
        "--key",
        type=_FILE,
        envvar="ACQUIT_KEY",
        show_envvar=True,
        metavar="FILE",
        help="Its key, where that is not in the same file.",
    ),
)
"""``--ca``, ``--cert`` and ``--key``: whom to trust, and what to show, over TLS."""


def json_option(command: Command) -> Command:
    """``--json``: output for machines."""
    return click.option("--json", "as_json", is_flag=True, help="One JSON document a line, for machines.")(command)


def data_option(*, required: bool) -> Callable[[Command], Command]:
    """``--data``: a broker's folder, which must exist."""

    def decorate(command: Command) -> Command:
        return click.option(
            "--data",
            "data",
            type=PathType(exists=True, file_okay=False, readable=False),
            required=required,
            envvar="ACQUIT_DATA",
            show_envvar=True,
            metavar="DIR",
            help="The broker's folder of data.",
        )(command)

    return decorate


def own_data_option(text: str) -> Callable[[Command], Command]:
    """``--data``: a broker's folder, which may not be there yet; `text` says what for."""
    return click.option(
        "--data",
        type=PathType(file_okay=False, readable=False),
        default="acquit-data",
        show_default=True,
        envvar="ACQUIT_DATA",
        show_envvar=True,
        metavar="DIR",
        help=text,
    )


def config_option(text: str) -> Callable[[Command], Command]:
    """``--config``: a broker's configuration."""
    return click.option(
        "--config",
        type=PathType(),
        envvar="ACQUIT_CONFIG",
        show_envvar=True,
        metavar="FILE",
        help=text,
    )


def seconds(
    default: float | None, text: str, *, name: str = "--timeout", least: float = 0
) -> Callable[[Command], Command]:
    """An option that is a time in seconds, no shorter than `least`, and not longer than `SECONDS_MAX`."""
    return click.option(
        name,
        f"{name.strip('-').replace('-', '_')}_s",
        type=FiniteRange(least),
        default=default,
        show_default=default is not None,
        metavar="SECONDS",
        help=text,
    )


def pair(text: str, option: str) -> tuple[str, str]:
    """The two halves of KEY=VALUE. Raises click.BadParameter, naming the option."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"expected KEY=VALUE, found {text!r}", param_hint=option)
    return key, value
