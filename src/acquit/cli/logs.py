"""The logs of a serving process: standard error, one event a line, for people or as JSON.

The library's modules log through the standard library or through structlog and know nothing of this; both end in one
handler here, so that a line looks the same whoever wrote it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import Full, Queue
from typing import Final, TextIO


@contextlib.contextmanager
def _absent(name: str) -> Iterator[None]:
    """Lets modules be imported as where that package is not installed, unless it was imported before."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # this is how the language says it
    try:
        yield
    finally:
        del sys.modules[name]


# structlog loads rich, where it finds it, for tracebacks that are not used here: a tenth of the memory of a broker.
with _absent("rich"):
    import structlog

FORMATS = ("console", "json")
LEVELS = ("debug", "info", "warning", "error")
LINES_MAX: Final = 10_000
"""Lines that wait to be written where nobody reads; what comes beyond is lost, and counted."""
_PATIENCE_S: Final = 1.0
"""Seconds that the end of a process waits for who reads its log."""

logger = logging.getLogger("acquit.log")


def configure(log_format: str, level: str) -> None:
    """Send everything of `level` and above to standard error. `log_format` is one of FORMATS, `level` of LEVELS."""
    # Where it was closed at the start, nobody is told.
    stderr = sys.stderr if sys.stderr is not None else Path(os.devnull).open("w")  # noqa: SIM115 - until the process ends
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    render: list[structlog.typing.Processor]
    if log_format == "json":
        render = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    else:
        # The renderer's default, where rich is installed, prints local variables: passwords, and bytes of the wire.
        render = [
            structlog.dev.ConsoleRenderer(
                colors=stderr.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
            )
        ]
    handler = logging.StreamHandler(stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *render],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # asyncio at debug level tells of every selector it makes.
    logging.getLogger("asyncio").setLevel(max(logging.INFO, root.level))
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Write the log on a thread of its own during the block. A pipe that nobody reads, or a terminal that was stopped
    by Ctrl-S, holds up that thread, and not what says something."""
    (handler,) = logging.getLogger().handlers
    assert isinstance(handler, logging.StreamHandler)
    lines = _Lines(handler.stream)
    handler.setStream(lines)
    try:
        yield
    finally:
        lines.close()
        handler.setStream(lines.stream)


class _Lines:
    """Stream for a handler: takes text at once, and writes it as it can.

    Its thread writes to the descriptor, beside the stream: as long as nobody reads, it would hold the stream's lock,
    and a process that ends flushes the stream.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self._texts = Queue[str | None](LINES_MAX)
        self._lost = 0
        """Texts that found no room. Whoever logs counts them, and the thread only reads it."""
        self._thread = threading.Thread(target=self._run, name="acquit-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> None:
        """Take text to be written, if not too much waits."""
        try:
            self._texts.put_nowait(text)
        except Full:
            self._lost += 1

    def flush(self) -> None:
        """Do nothing: each text is flushed."""

    def close(self) -> None:
        """Wait until all is written, for as long as a process that ends should."""
        with contextlib.suppress(Full):
            self._texts.put_nowait(None)
            self._thread.join(_PATIENCE_S)

    def _run(self) -> None:
        told = 0
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # whoever handles signals has a thread for it
        while (text := self._texts.get()) is not None:
            left = text.encode(self.stream.encoding, self.stream.errors or "strict")
            with contextlib.suppress(OSError):  # nobody will read it
                while left:
                    left = left[os.write(self.stream.fileno(), left) :]
            lost = self._lost - told
            if lost:
                told += lost
                logger.warning("%d lines of the log are lost: nobody read it", lost)
