"""Renders deploy/helm/acquit to deploy/kubernetes/acquit.yaml, for who has no Helm.

    python tools/render_chart.py            write it, with the `helm` of the PATH
    python tools/render_chart.py --check    exit 1 where the chart has changed since

The file begins with a hash of the chart, so that it is seen without Helm as well that it is of another chart. Where
there is Helm, its output is compared.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parent.parent
CHART: Final = ROOT / "deploy/helm/acquit"
RENDERED: Final = ROOT / "deploy/kubernetes/acquit.yaml"
KUBERNETES: Final = "1.31.0"
"""The version that the chart is rendered for: Helm does not ask a cluster."""


def chart_hash() -> str:
    """Return the SHA-256 of names and contents of the chart's files."""
    digest = hashlib.sha256()
    for path in sorted(CHART.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            digest.update(f"{path.relative_to(CHART).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def head() -> str:
    return (
        "# deploy/helm/acquit with its default values, written by tools/render_chart.py. See docs/deploying.md.\n"
        f"# chart: {chart_hash()}\n"
    )


def render() -> str | None:
    """Return what Helm makes of the chart, or None where there is no Helm. Raises CalledProcessError."""
    helm = shutil.which("helm")
    if helm is None:
        return None
    command = [helm, "template", "acquit", str(CHART), "--kube-version", KUBERNETES]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return head() + "".join(f"{line.rstrip()}\n" for line in printed.splitlines())


def main(arguments: list[str]) -> int:
    rendered = render()
    if "--check" in arguments:
        found = RENDERED.read_text()
        if found.startswith(head()) and rendered in (None, found):
            return 0
        print("deploy/kubernetes/acquit.yaml is not of this chart: python tools/render_chart.py, with Helm 3")
        return 1
    if rendered is None:
        print("there is no helm on the PATH")
        return 1
    RENDERED.write_text(rendered)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
