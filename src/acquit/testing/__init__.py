"""Tools to test your own programs with: a broker for each test, a network that fails on command, whole systems.

::

    from acquit.testing import Proxy

    with acquit.Broker() as broker, Proxy(broker.url) as proxy, acquit.connect(proxy.url) as connection:
        proxy.after("transfer", 3, by="client").cut()

Where pytest is installed, `acquit.testing.plugin` gives it the fixtures ``acquit_broker``, ``acquit_broker_url`` and
``acquit_proxy``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from acquit.testing.frames import PassedFrame, Side
    from acquit.testing.proxy import HalfPoint, Point, Proxy
    from acquit.testing.rules import Rule
    from acquit.testing.simulation.system import Program, Simulation

__all__ = ["HalfPoint", "PassedFrame", "Point", "Program", "Proxy", "Rule", "Side", "Simulation"]

_HOMES = {
    "HalfPoint": "proxy",
    "PassedFrame": "frames",
    "Point": "proxy",
    "Program": "simulation.system",
    "Proxy": "proxy",
    "Rule": "rules",
    "Side": "frames",
    "Simulation": "simulation.system",
}


def __getattr__(name: str) -> object:
    # pytest imports this package at every start, wherever acquit is installed: it loads when it is asked for.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"acquit.testing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'acquit.testing' has no attribute {name!r}")
