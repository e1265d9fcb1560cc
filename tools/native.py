"""Compile the hot path with mypyc: the same sources, and a build that is optional (docs/native.md).

    HATCH_BUILD_HOOK_ENABLE_CUSTOM=true pip install .      # a wheel has it where the hook is asked for
    python tools/native.py build/native                    # that wheel, unpacked: for PYTHONPATH, and for tests

It needs a C compiler and the headers of Python.

Theory of operation. `HOT` names the modules; all others stay as they are, and import the compiled ones by the same
names. mypyc lays out the attributes of a class by itself, so that what says it to the interpreter (``__slots__``,
``slots=True``) is taken out of the copies that it reads, and it wants to be told of classes that others derive from, or
that are pickled. Nothing else is changed. A wheel holds the sources beside the compiled modules; Python takes the
latter where they are.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT: Final = Path(__file__).resolve().parent.parent
HOOK: Final = "HATCH_BUILD_HOOK_ENABLE_CUSTOM"
GROUP: Final = "acquit_native"
HOT: Final = (
    "protocol/connection.py",
    "protocol/connection_base.py",
    "protocol/contexts.py",
    "protocol/credit.py",
    "protocol/delivery.py",
    "protocol/dispositions.py",
    "protocol/endpoint.py",
    "protocol/fastpath.py",
    "protocol/frames.py",
    "protocol/link.py",
    "protocol/link_base.py",
    "protocol/liveness.py",
    "protocol/numbered.py",
    "protocol/received_runs.py",
    "protocol/receiver.py",
    "protocol/resumption.py",
    "protocol/rope.py",
    "protocol/sections.py",
    "protocol/sender.py",
    "protocol/serial.py",
    "protocol/session.py",
    "protocol/session_base.py",
    "protocol/settlement.py",
    "protocol/states.py",
    "ledger/duplicates.py",
    "ledger/recorder.py",
    "ledger/rows.py",
    "ledger/sequences.py",
    "store/journal.py",
    "store/record.py",
    "broker/clock.py",
    "broker/holdings.py",
    "broker/machine.py",
    "broker/memory.py",
    "broker/message.py",
    "broker/message_run.py",
    "broker/parking.py",
    "broker/queue.py",
    "broker/scribe.py",
    "broker/tally.py",
    "broker/dispatching/*.py",
    "broker/intake/*.py",
    "broker/links/crediting.py",
    "broker/links/endpoints.py",
    "broker/links/peers.py",
    "broker/links/receivers.py",
    "broker/links/senders.py",
    "broker/links/terminus.py",
    "broker/nodes/node.py",
    "broker/nodes/subscription.py",
    "broker/outcomes/*.py",
    "broker/selector/closures.py",
    "broker/selector/fields.py",
    "broker/selector/like.py",
    "broker/transact/*.py",
)
"""Modules that are compiled: those that messages go through one by one, and those that they cannot do without."""

TRAITS: Final = {
    "Actor": "allow_interpreted_subclasses=True",
    "Event": "allow_interpreted_subclasses=True",
    "Predictions": "allow_interpreted_subclasses=True",
    "Sections": "serializable=True",
}
"""Classes of these modules that mypyc is told more of."""

_TOLD: Final = """
import typing

if typing.TYPE_CHECKING:  # what it says is read by the compiler: it need not be there when it runs
    from mypy_extensions import mypyc_attr
"""


_SETUP: Final = """
import os
from concurrent.futures import ThreadPoolExecutor

from mypyc.build import mypycify
from setuptools import setup
from setuptools.command.build_ext import build_ext

CPUS = os.cpu_count() or 1


class InParallel(build_ext):
    def build_extensions(self):
        compile_together = self.compiler.compile

        def compile_each(sources, **settings):
            with ThreadPoolExecutor(CPUS) as pool:
                done = list(pool.map(lambda source: compile_together([source], **settings), sources))
            return [path for paths in done for path in paths]

        self.compiler.compile = compile_each
        super().build_extensions()


extensions = mypycify({modules!r}, group_name={group!r}, opt_level="2", debug_level="0", multi_file=True)
setup(name={group!r}, packages=[], ext_modules=extensions, cmdclass={{"build_ext": InParallel}})
"""
"""Nearly all of the C is one extension, whose files setuptools compiles one by one."""


def hot_modules(package: Path) -> list[Path]:
    """Return the modules to compile of the package `acquit` that is there."""
    found = {pattern: sorted(package.glob(pattern)) for pattern in HOT}
    if not all(found.values()):
        raise SystemExit("tools/native.py: HOT names a module that is not there")
    return [path for paths in found.values() for path in paths if path.name != "__init__.py"]


def prepared(text: str) -> str:
    """Return the source of a module as mypyc reads it."""
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    edits: list[tuple[int, int, str]] = []
    traits = False
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            edits.extend(_slots(node))
            edits.extend(_slots_of_dataclass(node))
            if node.name in TRAITS:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                edits.append((first, first - 1, f"{' ' * node.col_offset}@mypyc_attr({TRAITS[node.name]})\n"))
                traits = True
    if traits:
        future = next(node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
        edits.append((future.lineno + 1, future.lineno, _TOLD))
    for first, last, new in sorted(edits, reverse=True):
        lines[first - 1 : last] = [new]
    return "".join(lines)


def _slots(node: ast.ClassDef) -> Iterator[tuple[int, int, str]]:
    """Yield what takes the place of ``__slots__``: lines from, to, and the text."""
    for statement in node.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name) and target.id == "__slots__":
                yield statement.lineno, statement.end_lineno or statement.lineno, f"{' ' * statement.col_offset}pass\n"


def _slots_of_dataclass(node: ast.ClassDef) -> Iterator[tuple[int, int, str]]:
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and any(word.arg == "slots" for word in decorator.keywords):
            decorator.keywords = [word for word in decorator.keywords if word.arg != "slots"]
            yield (
                decorator.lineno,
                decorator.end_lineno or decorator.lineno,
                f"{' ' * node.col_offset}@{ast.unparse(decorator)}\n",
            )


def compile_tree(target: Path) -> list[Path]:
    """Compile the hot path on all CPUs into a folder that is laid out like src/; return the files. Takes two or three
    minutes."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        shutil.copytree(ROOT / "src", work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        hot = hot_modules(work / "acquit")
        for path in hot:
            path.write_text(prepared(path.read_text()))
        (work / "mypy.ini").write_text("[mypy]\nfollow_imports = silent\nignore_missing_imports = True\n")
        modules = ["--config-file=mypy.ini", *(str(path.relative_to(work)) for path in hot)]
        (work / "setup.py").write_text(_SETUP.format(modules=modules, group=GROUP))
        command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        done = subprocess.run(
            command, cwd=work, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if done.returncode:
            raise SystemExit(f"{done.stdout}\ntools/native.py: the compiler has failed (above)")
        compiled = [path.relative_to(work) for path in sorted(work.rglob("*.so")) if "build" not in path.parts]
        for path in compiled:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(work / path, target / path)
    return [target / path for path in compiled]


class NativeHook(BuildHookInterface[BuilderConfig]):
    """Puts the compiled modules into a wheel."""

    PLUGIN_NAME = "custom"
    folder: tempfile.TemporaryDirectory[str] | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and add what came of it. An editable install has none of it: its sources may change."""
        if version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory()
        target = Path(self.folder.name)
        for path in compile_tree(target):
            build_data["force_include"][str(path)] = str(path.relative_to(target))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what the wheel holds now."""
        if self.folder is not None:
            self.folder.cleanup()


def unpack_wheel(target: Path) -> int:
    """Build the wheel and unpack it, so that what runs from there is what users install; return how many modules of it
    are compiled. Raises SystemExit if pip fails, which has said why."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-build-isolation", "--wheel-dir", folder, str(ROOT)]
        if subprocess.run(command, env={**os.environ, HOOK: "true"}, check=False).returncode:
            raise SystemExit("tools/native.py: no wheel was made (above)")
        (wheel,) = Path(folder).glob("*.whl")
        shutil.rmtree(target, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if ".dist-info/" not in name]
            archive.extractall(target, names)
    return sum(name.endswith(".so") for name in names)


def main() -> int:
    """Build the wheel into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    arguments = parser.parse_args()
    count = unpack_wheel(arguments.target.resolve())
    print(f"{count} modules are compiled: PYTHONPATH={arguments.target} {Path(sys.executable).parent}/acquit serve")
    return 0


if __name__ == "__main__":
    sys.exit(main())
