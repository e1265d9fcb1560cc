"""``acquit serve``: a broker in a process of its own, from its first line to its last.

When it is ready it prints one line with its URL on standard output, so that a script can wait for it and, with
``--port 0``, learn the port; the URL of the HTTP interface stands at its end, if there is one. Everything else is
logged on standard error. SIGTERM and SIGINT stop it in order: connections are closed, what was answered is on the disk,
the journal says that the stop was clean. A second signal does not wait, and one that comes when all is done changes
nothing: the exit code says how the broker ended. SIGHUP has the configuration read again, as soon as it is ready, also
one that came before the handlers here were there (`cli.early_signals`). A service manager, where there is one, is told
all of that (`service_manager`).
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from acquit._version import version
from acquit.cli import STOPS, early_signals, logs
from acquit.cli.exits import Exit
from acquit.cli.options import config_option, own_data_option
from acquit.cli.service_manager import ServiceManager
from acquit.errors import AcquitError

if TYPE_CHECKING:
    from acquit.broker.options import BrokerOptions, Http
    from acquit.broker.server import Server


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=5672, show_default=True, help="The port; 0: a free one.")
@click.option(
    "--http-port",
    type=click.IntRange(0, 65535),
    help="The port of the HTTP interface (health, metrics, management); 0: a free one. There is none without it, "
    "unless the configuration has [http].",
)
@own_data_option("The folder of the journal, made if it is not there.")
@config_option("Options in TOML: policies by address, users, limits.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Start although the journal lacks messages that it accounts for: record that they are lost, and go on.",
)
@click.option("--log-format", type=click.Choice(logs.FORMATS), default="console", show_default=True)
@click.option("--log-level", type=click.Choice(logs.LEVELS), default="info", show_default=True)
def serve(
    host: str,
    port: int,
    http_port: int | None,
    data: Path,
    config: Path | None,
    accept_loss: bool,
    log_format: str,
    log_level: str,
) -> int:
    """Run a broker on the folder DIR until it is told to stop."""
    from acquit.broker.configuration import load_options
    from acquit.broker.options import BrokerOptions, Http

    options = load_options(config) if config is not None else BrokerOptions()
    if options.listen and any(map(_given, ("host", "port"))):
        raise click.UsageError(f"--host and --port: {config} says itself where to listen ([[listen]])")

    def adjust(options: BrokerOptions) -> BrokerOptions:
        return options if http_port is None else replace(options, http=replace(options.http or Http(), port=http_port))

    options = adjust(options)
    if options.http is not None:
        from acquit.http import check_installed

        check_installed()
    logs.configure(log_format, log_level)
    from acquit.broker.server import Server

    def make_server() -> Server:
        return Server(
            data,
            options,
            host=host,
            port=port,
            config=config,
            adjust=adjust,
            accept_loss=accept_loss,
            own_process=True,
        )

    with logs.apart():
        asyncio.run(_serve(make_server, data, options.http))
    return Exit.OK


def _given(option: str) -> bool:
    return click.get_current_context().get_parameter_source(option) is not ParameterSource.DEFAULT


async def _serve(make_server: Callable[[], Server], data: Path, http: Http | None) -> None:
    """Run one broker, from its start to its end; to be the last thing that its process does."""
    try:
        await _live(make_server, data, http)
    finally:
        # A signal that came late would be the exit code. They are ignored, and no more the loop's, which gives its own
        # their defaults back at its end; and they are blocked in this thread, the only one that is left then.
        loop = asyncio.get_running_loop()
        await loop.shutdown_default_executor()
        for number in (*STOPS, signal.SIGHUP):
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, signal.SIGHUP))


async def _live(make_server: Callable[[], Server], data: Path, http: Http | None) -> None:
    from acquit.broker.server import tune_process

    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    hung_up = asyncio.Event()

    def stop() -> None:
        for number in STOPS:
            loop.remove_signal_handler(number)
        stopping.set()

    for number in STOPS:
        loop.add_signal_handler(number, stop)
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)
    if not early_signals.isdisjoint(STOPS):  # and what it interrupted did not hear of it
        stop()
    if signal.SIGHUP in early_signals:
        hung_up.set()
    manager = ServiceManager.of(os.environ)
    server = make_server()
    await server.start()
    face = None
    try:
        tune_process()
        place = f"{' '.join(server.urls)}, data in {data}"
        if http is not None:
            from acquit.http import start_face

            face = await start_face(server, http)
            place = f"{place}, {face.url}"

        def ready() -> None:
            if not stopping.is_set():
                manager.ready(place)

        def reload() -> None:
            if not stopping.is_set():
                manager.reloading()
                server.reload_soon().when_finished(lambda _: ready())

        _say(f"acquit {version()} ready: {place}")
        ready()
        loop.add_signal_handler(signal.SIGHUP, reload)
        if hung_up.is_set():
            reload()
        told = asyncio.create_task(stopping.wait())
        ended = asyncio.create_task(server.wait())  # before it is told to: its journal failed
        await asyncio.wait([told, ended], return_when=asyncio.FIRST_COMPLETED)
        told.cancel()
    finally:
        stopping.set()
        manager.stopping()
        if face is not None:
            await face.stop()
        await server.stop()
    await ended


def _say(line: str) -> None:
    """Print the line that a script waits for. Raises AcquitError where nobody can be told, which is no reader's wish to
    hear no more, as for other commands."""
    try:
        click.echo(line)
    except OSError as error:
        raise AcquitError(f"standard output, on which it is said where the broker listens: {error.strerror}") from error
