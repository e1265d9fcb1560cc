"""What a console and a scraper cost the others: the latency of a bystander while a page of queues refreshes.

    python benchmarks/bench_console.py [--short] [--queues N] [--connections N] [--rounds N] [--seconds N] [--every S]

A broker of its own process has many queues, a message in each, and many connections that say nothing: 5,000, or as many
as the limit of open files lets it have. A bystander sends one message at a time to its own queue, waits until it is
accepted and received, and takes the time. In turn, in each round, it is alone, or another process asks by HTTP as a
browser with the console would: the overview, and the queues by trouble, each second; or for /metrics; or for both. A
request that is not answered with 200 ends the benchmark. Given are medians over the rounds and their ranges.
"""

from __future__ import annotations

import argparse
import http.client
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from acquit.protocol.constants import AMQP_HEADER
from acquit.protocol.definitions import Detach, Open, Transfer
from bench_bystander import SMALL_MESSAGE, Peer, bystand, frame, sender

CONFIG: Final = """
[http]
port = 0
[limits]
queues_max = {queues}
queues_per_user_max = {queues}
connections_max = {connections}
connections_per_address_max = {connections}
unauthenticated_max = {connections}
[connection]
idle_timeout_ms = 0
"""
SPARE: Final = 512
"""Descriptors that are not for connections which say nothing."""
BURST: Final = 500
PAGES: Final = ("/api/v1/broker", "/api/v1/queues?sort=trouble&descending=true&limit=100")
ASKED: Final = {"alone": (), "page": PAGES, "metrics": ("/metrics",), "both": (*PAGES, "/metrics")}
"""What is asked for each second, in each case."""


def fill(address: tuple[str, int], count: int) -> None:
    """Make so many queues, with a message in each."""
    peer = Peer(address)
    for first in range(0, count, BURST):
        numbers = range(first, min(first + BURST, count))
        peer.say(*(sender(f"s{n}", n - first, f"queue-{n:05}") for n in numbers))
        for n in numbers:
            peer.wait(lambda handle=n - first: peer.credit_end.get(handle, 0) > 0)  # type: ignore[misc]
        peer.sent += len(numbers)
        peer.wait(lambda: peer.sent <= peer.window_end)
        transfers = (Transfer(n - first, n, n.to_bytes(4, "big"), 0, True) for n in numbers)
        peer.socket.sendall(b"".join(frame(transfer, SMALL_MESSAGE) for transfer in transfers))
        peer.say(*(Detach(n - first, True) for n in numbers))
        peer.wait_for(Detach, numbers[-1] + 1)
        peer.credit_end.clear()
    peer.socket.close()


def crowd(address: tuple[str, int], count: int) -> list[socket.socket]:
    """Return so many connections that are open and say nothing more."""
    hello = AMQP_HEADER + frame(Open("crowd", None, 65_536, 255, None))
    found = []
    for _ in range(count):
        one = socket.create_connection(address)
        one.sendall(hello)
        found.append(one)
    for one in found:
        if one.recv(len(AMQP_HEADER)) != AMQP_HEADER:
            raise SystemExit("the broker did not take all connections")
    return found


def look(url: str, case: str, every_s: float) -> None:
    """Ask for all of a case, as often as that, until the process is ended; print how long it took each time."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=60)
    while True:
        begun = time.perf_counter()
        for path in ASKED[case]:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise SystemExit(f"{path}: {answer.status} {text[:500]!r}")
        taken = time.perf_counter() - begun
        print(f"{taken * 1000:.1f}", flush=True)
        time.sleep(max(0.0, every_s - taken))


def measure(url: str, http_url: str, case: str, arguments: argparse.Namespace) -> tuple[float, float, float, float]:
    """Return what the bystander took in the middle, at the 99th percentile and at worst, and a request, all in ms."""
    looker = None
    if ASKED[case]:
        command = [sys.executable, __file__, "--look", http_url, "--case", case, "--every", str(arguments.every)]
        looker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert looker.stdout is not None
        if not looker.stdout.readline():
            raise SystemExit("no answer")
    taken = sorted(bystand(url, arguments.seconds))
    asked = [0.0]
    if looker is not None:
        if looker.poll() is not None:
            raise SystemExit("a request failed")
        looker.kill()
        asked = [float(line) for line in looker.communicate()[0].split()] or [0.0]
    return statistics.median(taken), taken[int(len(taken) * 0.99)], taken[-1], statistics.median(asked)


def spread(values: list[float]) -> str:
    """Return a median and a range."""
    return f"{statistics.median(values):7.1f} ({min(values):.1f} to {max(values):.1f})"


def main() -> int:
    """Start a broker, fill it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few queues: shows that it runs, not how fast")
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each row of a round")
    parser.add_argument("--every", type=float, default=1.0, help="seconds from one look to the next")
    parser.add_argument("--look", help=argparse.SUPPRESS)
    parser.add_argument("--case", choices=tuple(ASKED), help="this one alone, besides `alone`")
    arguments = parser.parse_args()
    if arguments.look:
        look(arguments.look, arguments.case, arguments.every)
        return 0
    if arguments.short:
        arguments.queues, arguments.connections, arguments.rounds, arguments.seconds = 200, 20, 1, 0.5
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = max(0, min(arguments.connections, hard - SPARE))
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "acquit.toml"
        config.write_text(CONFIG.format(queues=arguments.queues + 100, connections=connections + 100))
        command = [sys.executable, "-m", "acquit", "serve", "--data", f"{folder}/data", "--port", "0"]
        broker = subprocess.Popen(
            [*command, "--config", str(config)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            run(broker, connections, arguments)
        finally:
            broker.terminate()
            broker.wait()
    return 0


def run(broker: subprocess.Popen[str], connections: int, arguments: argparse.Namespace) -> None:
    """Fill a broker, measure and print."""
    assert broker.stdout is not None
    ready = next((line for line in broker.stdout if " ready: amqp://" in line), None)
    if ready is None:
        raise SystemExit("the broker did not start")
    threading.Thread(target=broker.stdout.read, daemon=True).start()
    url = "amqp://" + ready.split("amqp://")[1].split(",")[0].strip()
    http_url = "http://" + ready.split("http://")[1].split(",")[0].strip()
    parts = urlsplit(url)
    address = str(parts.hostname), int(parts.port or 0)
    fill(address, arguments.queues)
    idle = crowd(address, connections)
    print(f"{arguments.queues} queues, {len(idle)} connections, {arguments.rounds} rounds of {arguments.seconds:g} s")
    cases = [case for case in ASKED if arguments.case in (None, case) or case == "alone"]
    found: dict[str, list[tuple[float, float, float, float]]] = {case: [] for case in cases}
    for _ in range(arguments.rounds):
        for case in cases:
            found[case].append(measure(url, http_url, case, arguments))
    print(f"{'asked':9}{'bystander, median ms':>26}{'p99 ms':>26}{'worst ms':>26}{'all answers ms':>26}")
    for case, rows in found.items():
        print(f"{case:9}" + "".join(f"{spread(list(column)):>26}" for column in zip(*rows, strict=True)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
