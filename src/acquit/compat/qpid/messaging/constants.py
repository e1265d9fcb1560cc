"""Values of the API that are only equal to themselves."""

from __future__ import annotations

from typing import Final


class Constant:
    """A named value. `value` is what it stands for where it stands for something."""

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: object = None) -> None:
        self.name = name
        self.value = self if value is None else value

    def __repr__(self) -> str:
        return self.name


AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671

UNLIMITED: Final = Constant("UNLIMITED", 0xFFFF_FFFF)
"""A capacity without a limit."""

REJECTED: Final = Constant("REJECTED")
"""The type of a `Disposition`: the message is no good."""
RELEASED: Final = Constant("RELEASED")
"""The type of a `Disposition`: the message is for somebody else, or for later."""

__all__ = ["AMQPS_PORT", "AMQP_PORT", "REJECTED", "RELEASED", "UNLIMITED", "Constant"]
