"""Prometheus' own tool for rules, and brokers' figures as the series that it reads.

It is looked for on the PATH, and where .ci/run unpacks it. Where it is not, tests skip; in CI they fail.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from tests.support.pages import ROOT
from tests.support.syscalls import require

Labels = tuple[tuple[str, str], ...]
UNPACKED: Final = ROOT / "build" / "prometheus" / "usr" / "bin" / "promtool"
Samples = Mapping[tuple[str, Labels], float]
"""The samples of one scrape, by name and labels."""
TARGET: Final = (("instance", "acquit:8161"), ("job", "acquit"))


def promtool() -> str:
    """Return where promtool is. Skips without it, and fails in CI."""
    return shutil.which(str(UNPACKED)) or require("promtool")


def samples(text: str) -> dict[tuple[str, Labels], float]:
    """Return the samples of an answer of /metrics as Prometheus keeps them, with what it adds: its target, and `up`."""
    found: dict[tuple[str, Labels], float] = {("up", TARGET): 1.0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name, tuple(sorted((*sample.labels.items(), *TARGET)))] = sample.value
    return found


DOWN: Final[Samples] = {("up", TARGET): 0.0}
"""Figures of a target that does not answer."""


def series(told: Sequence[tuple[Samples, int]], rules: Path) -> list[dict[str, str]]:
    """Return these scrapes as input series of `promtool test rules`, each repeated for so many minutes: of the metrics
    that a file of rules names."""
    words = set(re.findall(r"\w+", rules.read_text()))
    names = {key for found, _ in told for key in found if key[0] in words}
    return [
        {
            "series": f"{name}{{{','.join(f'{label}={json.dumps(value)}' for label, value in labels)}}}",
            "values": " ".join(
                f"{found[name, labels]:.17g}x{minutes - 1}" if (name, labels) in found else f"_x{minutes}"
                for found, minutes in told
            ),
        }
        for name, labels in sorted(names)
    ]


def firing(alert: str, at_minutes: int, *, fires: bool) -> dict[str, object]:
    """Return a test of `promtool test rules`: whether an alert fires at this time."""
    return {
        "expr": f'group(ALERTS{{alertname="{alert}", alertstate="firing"}})',
        "eval_time": f"{at_minutes}m",
        "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
    }


def run(folder: Path, rules: Path, tests: Sequence[Mapping[str, object]]) -> subprocess.CompletedProcess[str]:
    """Run tests of rules. They are read as YAML, of which JSON is a part."""
    file = folder / "tests.yaml"
    file.write_text(json.dumps({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": list(tests)}))
    command = [promtool(), "test", "rules", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
