"""Makes ``import qpid.messaging`` find this package."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Final

from acquit.errors import ConfigurationError

NAME: Final = "qpid"
MODULES: Final = (
    "messaging",
    "messaging.address",
    "messaging.constants",
    "messaging.endpoints",
    "messaging.exceptions",
    "messaging.message",
    "datatypes",
    "log",
    "util",
)
"""Modules that programs import, below the package."""


def install() -> None:
    """Let ``import qpid.messaging`` and its kin find this package, from now on and in this process.

    To do it again is to do nothing. Raises ConfigurationError where there is a package of that name: programs would get
    one or the other by chance.
    """
    present = sys.modules.get(NAME)
    if present is not None and getattr(present, "_by_acquit", False):
        return
    spec = None if present is not None else find_spec(NAME)
    where = getattr(present, "__file__", None) if present is not None else spec.origin if spec is not None else None
    if where is not None:  # a mere folder of that name has no origin
        raise ConfigurationError(
            f"a package {NAME!r} is installed already, in {where}: uninstall it, or import acquit.compat.qpid.messaging"
        )
    package = ModuleType(NAME, "The API of qpid.messaging, by acquit.")
    package.__path__ = []  # a package, of which there is nothing but what is entered here
    package._by_acquit = True  # type: ignore[attr-defined]
    sys.modules[NAME] = package
    for name in MODULES:
        module = importlib.import_module(f"acquit.compat.qpid.{name}")
        sys.modules[f"{NAME}.{name}"] = module
        if "." not in name:
            setattr(package, name, module)


__all__ = ["install"]
