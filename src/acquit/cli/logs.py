"""The logs of a serving process: standard error, one event a line, for people or as JSON.

The library's modules log through the standard library or through structlog and know nothing of this; both end in one
handler here, so that a line looks the same whoever wrote it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path


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
