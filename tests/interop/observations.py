"""What brokers were seen to do, while tests ran: `docs/brokers.md` is made of it.

A test observes a capability and says what it saw. That must be what `foreign.Capabilities` of the broker expects, so a
broker that changes its ways fails the test that noticed; and it is written to `build/interop/observations.json` at the
end of the run, so the table cannot say what no test has seen.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.interop.foreign import Capabilities, ForeignBroker
from tests.interop.java import BUILD

FILE = BUILD / "observations.json"


@dataclass
class Recorder:
    """All that was seen in this run."""

    products: dict[str, str] = field(default_factory=dict)
    seen: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By broker and capability."""

    def observe(self, broker: ForeignBroker, test: str, capability: str, value: object, note: str = "") -> None:
        expected = getattr(broker.can, capability)
        assert value == expected, f"{broker.name}: {capability} is {value!r}, expected {expected!r}"
        self.products[broker.name] = broker.product
        self.seen.setdefault(broker.name, {})[capability] = {"value": value, "note": note, "test": test}

    def report(self) -> dict[str, Any]:
        """What was seen of each, and what there is to see."""
        return {
            "capabilities": [{"name": row.name, **row.metadata} for row in fields(Capabilities)],
            "brokers": {
                name: {"product": self.products[name], "observed": self.seen[name]} for name in sorted(self.seen)
            },
        }

    def write(self) -> None:
        """Nothing where nothing was seen: a run of other tests takes nothing away."""
        if self.seen:
            FILE.parent.mkdir(parents=True, exist_ok=True)
            FILE.write_text(json.dumps(self.report(), indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Observer:
    """The recorder, for one test of one broker. Call it."""

    recorder: Recorder
    broker: ForeignBroker
    test: str

    def __call__(self, capability: str, value: object, note: str = "") -> None:
        assert capability in Capabilities.__dataclass_fields__, f"no capability {capability} in foreign.Capabilities"
        self.recorder.observe(self.broker, self.test, capability, value, note)


def read(path: Path = FILE) -> dict[str, Any]:
    """What the last run saw."""
    found = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
