"""RabbitMQ and the Erlang it runs on, in a folder of their own: nothing of the machine is changed, no service started.

Debian packages RabbitMQ 4 from `SUITE` on. Most machines have another suite, or one that is older, so the packages are
downloaded by apt with lists of its own (from the mirror that the machine's apt is set to), checked by it against
Debian's key, and unpacked, not installed: that takes no root. Their programs need the C library of that suite: each is
replaced by two lines of shell that start it with the dynamic linker and the libraries that were unpacked beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.interop.java import PeerMissing

SUITE = "trixie"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
FOLDER = Path(__file__).parents[2] / "build/interop/rabbitmq"
GET = "`make interop-peers` gets it, on Debian"
DOWNLOAD_S = 300.0

PACKAGES = (
    "rabbitmq-server",
    *(
        f"erlang-{part}"
        for part in (
            *("asn1", "base", "crypto", "eldap", "inets", "mnesia", "os-mon", "parsetools", "public-key"),
            *("runtime-tools", "ssl", "syntax-tools", "tools", "xmerl"),
        )
    ),
    *("libc6", "libcap2", "libgcc-s1", "libssl3t64", "libstdc++6", "libsystemd0", "libtinfo6", "libzstd1", "zlib1g"),
)

ELF = b"\x7fELF"
SHIM = """\
#!/bin/sh
exec "{linker}" --library-path "{libraries}" --argv0 "{program}" "{program}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Program:
    """Where the parts of an unpacked RabbitMQ are."""

    folder: Path

    def _only(self, pattern: str) -> Path:
        found = sorted(self.folder.glob(pattern))
        if not found:
            raise PeerMissing(f"RabbitMQ is missing: nothing is {self.folder / pattern}; {GET}")
        return found[0]

    @property
    def erlang(self) -> Path:
        return self._only("usr/lib/erlang")

    @property
    def emulator_folder(self) -> Path:
        """Erlang's own programs."""
        return self._only("usr/lib/erlang/erts-*/bin")

    @property
    def server(self) -> Path:
        """The folder of the broker's code and plugins."""
        return self._only("usr/lib/rabbitmq/lib/rabbitmq_server-*")

    @property
    def version(self) -> str:
        return self.server.name.removeprefix("rabbitmq_server-")


def program() -> Program:
    """The one that was installed before. Raises PeerMissing."""
    found = Program(FOLDER)
    _ = found.version
    return found


def install() -> Program:
    """Download and unpack it, unless that was done before. Raises PeerMissing where that cannot be done."""
    if not FOLDER.is_dir():
        scratch = FOLDER.with_suffix(".new")
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for package in _download(scratch):
            _run("dpkg-deb", "--extract", str(package), str(scratch / "root"))
        _bring_libraries(scratch / "root", FOLDER)
        (scratch / "root").rename(FOLDER)
        shutil.rmtree(scratch)
    return program()


def _run(*command: str, folder: Path | None = None, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_S,
        check=False,
    )
    if done.returncode != 0:
        raise PeerMissing(f"RabbitMQ is missing, and {command[0]} could not get it: {done.stderr.strip()[-500:]}")
    return done.stdout


def _mirror() -> str:
    """Where this machine gets Debian from."""
    if shutil.which("apt-get") is None or not KEYRING.is_file():
        raise PeerMissing(f"RabbitMQ is missing: expected it in {FOLDER}, or apt-get and {KEYRING} to get it with")
    targets = _run("apt-get", "indextargets", "--format", "$(ORIGIN) $(LABEL) $(REPO_URI)", "Created-By: Packages")
    for target in targets.splitlines():
        origin, _, rest = target.partition(" ")
        label, _, address = rest.partition(" ")
        if origin == label == "Debian":
            return address
    raise PeerMissing(f"RabbitMQ is missing: expected it in {FOLDER}, or an apt that is set to a mirror of Debian")


def _download(scratch: Path) -> list[Path]:
    """With lists, state and cache below `scratch`; the machine's proxies and other settings hold."""
    for name in ("lists/partial", "cache/archives/partial", "packages"):
        (scratch / name).mkdir(parents=True)
    (scratch / "status").touch()
    (scratch / "sources.list").write_text(f"deb [signed-by={KEYRING}] {_mirror()} {SUITE} main\n", encoding="utf-8")
    settings = {
        "Dir::Etc::sourcelist": scratch / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::Etc::preferences": "/dev/null",
        "Dir::Etc::preferencesparts": "/dev/null",
        "Dir::State": scratch,
        "Dir::State::status": scratch / "status",
        "Dir::Cache": scratch / "cache",
        "Acquire::Languages": "none",
        # As root, apt would download as a user who cannot write here.
        "APT::Sandbox::User": "root",
    }
    config = scratch / "apt.conf"
    config.write_text("".join(f'{name} "{value}";\n' for name, value in settings.items()), encoding="utf-8")
    environment = {"APT_CONFIG": str(config)}
    _run("apt-get", "update", "--quiet", environment=environment)
    _run("apt-get", "download", "--quiet", *PACKAGES, folder=scratch / "packages", environment=environment)
    return sorted((scratch / "packages").glob("*.deb"))


def _bring_libraries(root: Path, final: Path) -> None:
    """Have each program of `root`, which will be called `final`, started with the libraries that came with it."""
    (linker,) = root.glob("usr/lib/*-linux-gnu*/ld-linux*.so.*")
    linker = final / linker.relative_to(root)
    for path in list((root / "usr/lib/erlang").rglob("*")):
        if path.is_symlink() or not path.is_file() or path.suffix == ".so" or not path.stat().st_mode & 0o111:
            continue
        with path.open("rb") as file:
            if file.read(len(ELF)) != ELF:
                continue
        real = path.with_name(path.name + ".elf")
        path.rename(real)
        shim = SHIM.format(linker=linker, libraries=linker.parent, program=final / real.relative_to(root))
        path.write_text(shim, encoding="utf-8")
        path.chmod(0o755)
