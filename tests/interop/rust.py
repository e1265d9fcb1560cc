"""fe2o3-amqp, by a Rust program of ours: cargo builds it below `build/interop`, and a test gives it orders.

The lock of its crates is kept without the name of their registry, as no file here names one: `_lock` adds what cargo
expects there.
"""

from __future__ import annotations

import os
import queue
import re
import shutil
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.interop.java import BUILD, HERE, PeerMissing

SOURCES: Final = HERE / "fe2o3"
BUILT: Final = BUILD / "fe2o3"
PROGRAM: Final = BUILT / "target/debug/acquit-interop"
RUST_MIN: Final = (1, 88)
"""What the crates of the lock ask for (`rust-version` in `Cargo.toml`)."""
ANSWER_S: Final = 20.0
"""The program itself gives an order up after 5 seconds."""

_REGISTRY: Final = f"registry+https://github.com/rust-lang/{'crates'}.io-index"
"""How a lock names the crates' registry, wherever cargo is told to get them from."""


def _cargo() -> str:
    """The cargo to use. rustup puts it where not every PATH leads."""
    folder = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin"
    found = {
        path: _run(path, "--version") for where in (None, str(folder)) if (path := shutil.which("cargo", path=where))
    }
    for path, said in found.items():
        version = re.match(r"cargo (\d+)\.(\d+)", said)
        if version is not None and (int(version[1]), int(version[2])) >= RUST_MIN:
            return path
    needed, seen = ".".join(map(str, RUST_MIN)), ", ".join(map(str.strip, found.values())) or "none"
    raise PeerMissing(f"fe2o3-amqp needs cargo of Rust {needed} or newer, on the PATH or in {folder}; there is {seen}")


def _lock() -> str:
    """The lock as cargo wants it: each crate that has a checksum comes from the registry."""
    kept = (SOURCES / "Cargo.lock").read_text(encoding="utf-8")
    return kept.replace("\nchecksum = ", f'\nsource = "{_REGISTRY}"\nchecksum = ')


def build() -> Path:
    """Build the program where it is older than its sources. Raises PeerMissing where that cannot be done."""
    sources = [path for path in SOURCES.rglob("*") if path.is_file()]
    newest = max(source.stat().st_mtime for source in sources)
    if not (PROGRAM.exists() and PROGRAM.stat().st_mtime >= newest):
        cargo = _cargo()
        shutil.copytree(SOURCES, BUILT, dirs_exist_ok=True)
        (BUILT / "Cargo.lock").write_text(_lock(), encoding="utf-8")
        _run(cargo, "build", "--locked", "--quiet", folder=BUILT)
        os.utime(PROGRAM)  # cargo leaves what is up to date as it was
    return PROGRAM


def _run(command: str, *arguments: str, folder: Path | None = None) -> str:
    finished = subprocess.run(
        [command, *arguments],
        cwd=folder,
        # cargo starts the rustc of the PATH, which is to be its own.
        env={**os.environ, "PATH": f"{Path(command).parent}{os.pathsep}{os.environ.get('PATH', '')}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if finished.returncode:
        raise PeerMissing(f"{command} ended with {finished.returncode}: {finished.stdout}{finished.stderr}")
    return finished.stdout


class OrderFailed(Exception):
    """What fe2o3-amqp said of an order that it could not do."""


class Fe2o3:
    """The process. Use as a context manager: leaving it kills the process, and with it the connection."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([build()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._said: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, where: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()

    def do(self, *words: object) -> str:
        """Give an order, and return what the program says of it. Raises OrderFailed."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        try:
            said = self._said.get(timeout=ANSWER_S)
        except queue.Empty:
            said = None
        assert said is not None, f"the program did not answer {words}"
        verdict, _, rest = said.partition(" ")
        if verdict != "done":
            raise OrderFailed(rest)
        return rest

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(line.rstrip("\n"))
        self._said.put(None)
