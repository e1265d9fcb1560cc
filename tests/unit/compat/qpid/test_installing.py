"""``import qpid.messaging`` finds the package, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

INSTALLED = "import acquit.compat.qpid as q; q.install(); "


def run(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_programs_import_is_there(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        INSTALLED + "import qpid.messaging, qpid.messaging.exceptions, qpid.messaging.endpoints\n"
        "from qpid.messaging import *; from qpid.util import URL; from qpid.log import enable, DEBUG, WARN\n"
        "from qpid.datatypes import uuid4; from qpid.messaging.address import parse\n"
        "assert qpid.messaging.Message is Message and qpid.messaging.endpoints.Session is Session\n"
        "assert issubclass(Empty, qpid.messaging.exceptions.FetchError) and uuid4() and AMQP_PORT == 5672\n"
        "import acquit.compat.qpid.messaging as ours; assert ours is qpid.messaging\n"
        "q.install()  # to do it again is to do nothing\n"
        "import sys; assert sys.modules['qpid.messaging'] is ours",
    )
    assert done.returncode == 0, done.stderr


def test_what_there_is_not_is_not_found(tmp_path: Path) -> None:
    done = run(tmp_path, INSTALLED + "import qpid.connection")
    assert "No module named 'qpid.connection'" in done.stderr


def test_another_package_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "qpid").mkdir()
    done = run(tmp_path, INSTALLED)  # a mere folder is no package
    assert done.returncode == 0, done.stderr
    (tmp_path / "qpid" / "__init__.py").touch()
    for program in (INSTALLED, "import qpid; " + INSTALLED):
        done = run(tmp_path, program)
        assert "ConfigurationError: a package 'qpid' is installed already, in " in done.stderr
        assert str(tmp_path) in done.stderr and "import acquit.compat.qpid.messaging" in done.stderr


def test_any_module_can_be_imported_first(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import importlib, pkgutil, sys, acquit.compat.qpid as package\n"
        "names = [one.name for one in pkgutil.walk_packages(package.__path__, 'acquit.compat.qpid.')]\n"
        "assert 'acquit.compat.qpid.messaging.endpoints' in names\n"
        "for name in names:\n"
        "    for known in [known for known in sys.modules if known.startswith('acquit.compat')]:\n"
        "        del sys.modules[known]\n"
        "    if not name.endswith('__main__'):\n"
        "        importlib.import_module(name)\n",
    )
    assert done.returncode == 0, done.stderr
