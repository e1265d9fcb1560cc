"""Connecting as the command line does: where to, as whom, and over which TLS.

No password is taken from the command line, where every process of the machine can read it: it is in a file, in the
environment, in a URL that the environment gives, or asked for on a terminal. There is no way to connect over TLS
without looking at the broker's certificate: one that no authority has signed is given as the authority itself.
"""

from __future__ import annotations

import itertools
import logging
import os
import socket
import ssl
import sys
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from acquit.cli.options import CREDENTIAL_VARIABLE, DEFAULT_URL, TLS_OPTIONS, password_file_option, user_option
from acquit.cli.output import remark
from acquit.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from acquit import Connection, ConnectionEvent, Reconnect
    from acquit.client.aio import Connection as AioConnection

DELAY_MAX_MS: Final = 1_000
"""Milliseconds between two attempts to restore a connection, at most: somebody is watching."""
OPENS_S_MIN: Final = 1.0
"""Seconds that a connection may take to open, however soon somebody wants an answer."""
OPENS_S_MAX: Final = 10.0
"""Seconds that a connection may take to open, where nobody asked for more: the client's own limit."""
LEAVES_S: Final = 2.0
"""Seconds that a broker has to answer the last acknowledgements, and then the close, where somebody waits to leave."""
_UNTOLD: Final = logging.NullHandler()
"""Handler for the client's log, which drops it: the commands report the same by themselves."""


def opens_within(timeout_s: float) -> float:
    """Return how long a connection may take to open in a command that waits `timeout_s` for an answer: as long,
    within bounds. Who gives a broker ten minutes to move messages need not wait so long for a host that is away, and
    who waits for nothing has to connect all the same."""
    return min(max(timeout_s, OPENS_S_MIN), OPENS_S_MAX)


@contextmanager
def hanging_up(connection: Connection) -> Iterator[None]:
    """Close the connection soon where a broker that has not answered in time, or an interrupt, ends what is done with
    it. Its links and its session would each be waited for in turn. It is entered after them."""
    import acquit

    try:
        yield
    except acquit.ConnectTimeout:
        connection.close(0)
        raise
    except KeyboardInterrupt:
        connection.close(LEAVES_S)
        raise


class BrokerAt(NamedTuple):
    """A broker, or several of which any will do, and what it takes to be let in."""

    urls: tuple[str, ...]
    user: str | None = None
    password_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None

    def connect(self, timeout_s: float, *, outage_max_s: float = 0.0) -> Connection:
        """A connection that says in logs and in the ledger which process it was: ``acquit-4711@host``. If it is lost,
        it is restored within `outage_max_s` seconds (0: not at all), with a remark about each such outage. It opens
        within `timeout_s` seconds, and each session and link as well."""
        return self.opener(timeout_s, outage_max_s=outage_max_s)()

    def opener(self, timeout_s: float, *, outage_max_s: float = 0.0) -> Callable[[], Connection]:
        """Return a function that connects as `connect` does. A password is asked for once, now."""
        import acquit

        reconnect = (
            acquit.Reconnect(delay_max_ms=DELAY_MAX_MS, outage_max_ms=max(1, int(outage_max_s * 1000)))
            if outage_max_s
            else None
        )
        arguments = self._arguments(timeout_s, reconnect)

        def connect() -> Connection:
            with self._explaining():
                return acquit.connect(container_id=_container_id(), **arguments)

        return connect

    def connector(self, timeout_s: float) -> Callable[[], Awaitable[AioConnection]]:
        """Return a function that makes connections of the asyncio API, each with a container id of its own. None of
        them is restored. `timeout_s` and the password are as for `opener`."""
        import acquit

        arguments = self._arguments(timeout_s, None)
        numbers = itertools.count(1)

        async def connect() -> AioConnection:
            with self._explaining():
                return await acquit.aio.connect(container_id=f"{_container_id()}-{next(numbers)}", **arguments)

        return connect

    def _arguments(self, timeout_s: float, reconnect: Reconnect | None) -> dict[str, Any]:
        """The arguments of `connect`, for both APIs."""
        import acquit
        from acquit.client.url import FAILOVER, parse_urls, split_failover

        urls = list(self.urls)
        if reconnect is None and len(urls) == 1 and urls[0].startswith(FAILOVER):
            # To programs such a URL means to go on trying, and to ask again what was asked when the connection was
            # lost. Here somebody waits for an answer, and two moves are not one.
            parse_urls(urls[0], None)
            urls, _ = split_failover(urls[0])
        logging.getLogger("acquit.client").addHandler(_UNTOLD)
        timeout_ms = max(1, int(timeout_s * 1000))
        return {
            "url": urls if len(urls) > 1 else urls[0],
            "username": self.user,
            "password": self._password(),
            "ssl_context": self._ssl_context(),
            "options": acquit.ConnectOptions(
                reconnect=reconnect, connect_timeout_ms=timeout_ms, answer_timeout_ms=timeout_ms
            ),
            "on_event": _tell,
        }

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Say in the error of a connection that does not open which option would help."""
        import acquit

        try:
            yield
        except acquit.AuthenticationFailed as error:
            if self.user is not None or self.cert is not None or any("@" in url for url in self.urls):
                raise
            raise acquit.AuthenticationFailed(
                f"{error}; --user NAME says who to log in as, or the broker's security.anonymous lets in who does not"
            ) from error
        except acquit.ConnectionFailed as error:
            if not isinstance(error.__cause__, ssl.SSLCertVerificationError):
                raise
            raise acquit.ConnectionFailed(f"{error}; --ca FILE says whom to trust") from error

    def _password(self) -> str | None:
        if self.password_file is not None:
            try:
                lines = self.password_file.read_text(encoding="utf-8").splitlines()
            except UnicodeDecodeError:  # which shows what it has read
                raise ConfigurationError(f"--password-file {self.password_file}: not text in UTF-8") from None
            if not lines or not lines[0]:
                raise ConfigurationError(f"--password-file {self.password_file}: expected a password in its first line")
            return lines[0]
        if self.user is None:
            return None  # what the URL says, or nobody in particular
        if (password := os.environ.get(CREDENTIAL_VARIABLE)) is not None:
            return password
        if self.cert is not None:
            raise ConfigurationError("--user needs a password beside --cert; without --user the certificate says who")
        if not _asks():
            raise ConfigurationError(
                f"--user needs a password: --password-file, {CREDENTIAL_VARIABLE}, or a terminal to ask on"
            )
        asked: str = click.prompt(f"Password of {self.user}", hide_input=True, err=True)
        return asked

    def _ssl_context(self) -> ssl.SSLContext | None:
        if self.key is not None and self.cert is None:
            raise ConfigurationError("--key is given without the certificate (--cert) that it belongs to")
        from acquit.client.tls import make_ssl_context

        return make_ssl_context(self.ca, self.cert, self.key, said="--{} {}", asks=True)


def _container_id() -> str:
    """Return who this process is to brokers."""
    return f"acquit-{os.getpid()}@{socket.gethostname()}"


def _asks() -> bool:
    """True if there is a terminal, on which a password can be asked for."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def _tell(event: ConnectionEvent) -> None:
    """Print a line for a person when the connection is interrupted, and when it is restored."""
    from acquit import ConnectionEventKind

    if event.kind is ConnectionEventKind.INTERRUPTED:
        remark(f"interrupted: {event.reason}; trying again")
    elif event.kind is ConnectionEventKind.RESTORED:
        remark(f"connected again, to {event.where}, after {event.outage_s:.1f} s")


def broker_options(command: Callable[..., object]) -> Callable[..., object]:
    """``--url``, ``--user``, ``--ca`` and their kin: where the broker is, given to the command as one `BrokerAt`."""

    @wraps(command)
    def run(
        *args: object,
        urls: tuple[str, ...],
        user: str | None,
        password_file: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        **options: object,
    ) -> object:
        return command(*args, broker=BrokerAt(urls, user, password_file, ca, cert, key), **options)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


_OPTIONS: Final = (
    click.option(
        "--url",
        "urls",
        multiple=True,
        envvar="ACQUIT_URL",
        default=(DEFAULT_URL,),
        show_default=True,
        show_envvar=True,
        metavar="URL",
        help="The broker: amqp://[USER:PASSWORD@]HOST[:PORT], or amqps:// for TLS. Several, of which the first that "
        "answers is taken, are given one by one or as failover:(URL,URL).",
    ),
    user_option(f"The password is in --password-file or in {CREDENTIAL_VARIABLE}, or is asked for."),
    password_file_option,
    *TLS_OPTIONS,
)
