"""Get all that the interop tests run against into ``build/interop``, all at once: most of the time is spent waiting.

    python -m tests.interop.get_peers

What cannot be had here is named with the reason. With CI set that is a failure; elsewhere the tests that need it skip,
and name the reason again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.interop import rabbitmq_program, rust
from tests.interop.java import ARTEMIS, BROKER_J, BUILD, HERE, JMS, SPRING, PeerMissing, in_ci


def rhea() -> None:
    """As `package-lock.json` has it, unless that is what is there."""
    lock = BUILD / "package-lock.json"
    if (BUILD / "node_modules/rhea").is_dir() and lock.read_bytes() == (HERE / lock.name).read_bytes():
        return
    BUILD.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", lock.name):
        shutil.copy(HERE / name, BUILD)
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise PeerMissing("rhea needs node and npm on the PATH")
    command = [npm, "ci", "--prefix", str(BUILD), "--silent", "--no-audit", "--no-fund"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PeerMissing(f"rhea: npm ended with {done.returncode}: {done.stdout}{done.stderr}")


def java() -> None:
    """One after the other: Maven's repository is theirs together."""
    for program in (JMS, SPRING, ARTEMIS, BROKER_J):
        program.classpath()


def rabbitmq() -> None:
    rabbitmq_program.install()


def fe2o3() -> None:
    rust.build()


def missing(get: Callable[[], None]) -> str | None:
    """Why this cannot be had, if so."""
    try:
        get()
    except PeerMissing as reason:
        return str(reason)
    return None


def main() -> int:
    with ThreadPoolExecutor() as pool:
        reasons = [reason for reason in pool.map(missing, (rhea, java, rabbitmq, fe2o3)) if reason is not None]
    for reason in reasons:
        sys.stderr.write(f"{reason}\n")
    return 1 if reasons and in_ci() else 0


if __name__ == "__main__":
    sys.exit(main())
