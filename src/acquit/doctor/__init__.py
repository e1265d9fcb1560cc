"""Examination of a machine, a configuration and a data folder, before a broker runs on them or while one does.

Nothing is changed: `machine` reads what the operating system says, `settings` the configuration, `folder` the disk and
the journal. Each check yields findings (`findings`), one line each.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from acquit.broker.admin.reload import load
from acquit.broker.options import BrokerOptions
from acquit.doctor import folder, machine, settings
from acquit.doctor.findings import Diagnosis, problem
from acquit.errors import ConfigurationError


def examine(data: Path, config: Path | None = None) -> Iterator[Diagnosis]:
    """Yield what is found of this machine, the broker's folder `data` and its configuration, one check after the other.

    Where the configuration is not valid, the rest is held to the defaults. A small file is written beside the journal,
    and removed, to time the disk. Raises nothing of the library: what cannot be read is a finding.
    """
    options = BrokerOptions()
    try:
        options, keys = load(config, options, data)
    except ConfigurationError as error:
        checked = [problem("configuration", str(error), "mend it: the broker would not start")]
    else:
        checked = list(settings.examine(config, options, keys))
    yield from machine.examine(options)
    yield from checked
    yield from folder.examine(data, options)


__all__ = ["Diagnosis", "examine"]
