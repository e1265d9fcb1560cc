"""On another event loop than asyncio's own: what a program sees whose framework has installed uvloop.

Its transports are of none of asyncio's classes, and not all of its handles know when they are due.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.platform == "win32":
    pytest.skip("uvloop is not made for Windows", allow_module_level=True)

ROOT = Path(__file__).parents[2]
MODULES = ("test_aio", "test_blocking", "test_listening", "test_requests", "test_transacting")
"""Of the client. Requests time out, connections are lost and come back, handlers run on threads. With TLS, also of the
broker, in `test_security`: a transport that is lost refuses what asyncio's lets pass."""


def test_the_client_and_an_embedded_broker_work_there() -> None:
    places = [f"tests/unit/client/{name}.py" for name in MODULES]
    command = [sys.executable, "-m", "pytest", "-p", "tests.support.on_uvloop", "-p", "no:cacheprovider", "-q"]
    if os.environ.get("ACQUIT_TEST_NATIVE"):
        command += ["-m", "not pure"]
    done = subprocess.run(
        [*command, *places, "tests/unit/test_embedded.py", "tests/system/test_security.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
