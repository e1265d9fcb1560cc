"""A program with a broker of its own, and a worker that it has forked: the worker outlives it, and holds nothing up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import acquit

SERVICE = """
import os, sys, acquit

broker = acquit.Broker("data")
store = acquit.FileStore("links")
connection = acquit.connect(sys.argv[1], container_id="service")
sender = connection.session().sender("jobs", name="jobs", exactly_once=store)
sender.send("one")
print(broker.url, flush=True)
sys.stdin.readline()  # somebody has connected
child = os.fork()
if child == 0:
    sys.stdin.read()  # to the end of the test
    os._exit(0)
print(child, flush=True)
sys.stdin.read()
"""


def test_a_service_that_is_killed_starts_again_though_its_worker_lives_on(tmp_path: Path) -> None:
    lost = threading.Event()

    def hear(event: acquit.ConnectionEvent) -> None:
        if event.kind is acquit.ConnectionEventKind.FAILED:
            lost.set()

    with (
        acquit.Broker() as elsewhere,
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", SERVICE, elsewhere.url],
            cwd=tmp_path,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as service,
    ):
        assert service.stdin is not None and service.stdout is not None
        url = service.stdout.readline().strip()
        options = acquit.ConnectOptions(reconnect=None, idle_timeout_ms=0)
        with acquit.connect(url, options=options, on_event=hear):
            service.stdin.write("fork\n")
            service.stdin.flush()
            child = int(service.stdout.readline())
            service.kill()
            service.wait()
            assert lost.wait(20), "its clients hear of it, though they wait for no heartbeat"
        os.kill(child, 0)  # it lives
        with (
            acquit.Broker(tmp_path / "data", port=int(url.rpartition(":")[2])) as broker,
            acquit.FileStore(tmp_path / "links"),
            acquit.connect(broker.url) as connection,
        ):
            connection.session().sender("orders").send("one")
            queue = elsewhere.inspect().queue("jobs")
            assert queue is not None and queue.depth == 1
        os.kill(child, signal.SIGKILL)
