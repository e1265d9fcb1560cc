"""The broker under an independent load generator: messages a second through one queue, end to end.

    python benchmarks/bench_broker.py [--short] [--messages N] [--rounds N] [--peer PORT]

`benchmarks/amqpload.c` (one process, one sending and one receiving connection, raw AMQP, credit 500) is compiled with
the machine's `cc` and run against `acquit serve`: 100 bytes and 1 KB, not durable and durable. *End to end* is from the
first transfer sent to the last one received and settled, both ways. With --peer PORT a second broker that listens there
is measured in turns with ours (its queue `bench` must exist, or be made on first use), so that both see the same
machine. Given are medians and ranges; only ratios of one run mean anything.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
CASES = [(size, durable) for durable in (False, True) for size in (100, 1024)]


def compiled(folder: Path) -> Path:
    """The load generator, built."""
    program = folder / "amqpload"
    subprocess.run(["cc", "-O2", "-w", "-o", str(program), str(HERE / "amqpload.c")], check=True)
    return program


def rate(program: Path, port: int, messages: int, size: int, durable: bool) -> float:
    """One run: messages a second. Raises where a message was rejected or did not come."""
    command = [str(program), "-p", str(port), "-a", "bench", "-n", str(messages), "-s", str(size), "-c", "500"]
    if durable:
        command.append("-D")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = re.search(r"(\d+) msg/s.*rej=0\b", done.stdout)
    if found is None:
        raise SystemExit(f"the load generator said: {done.stdout}{done.stderr}")
    return float(found[1])


def peak_mib(pid: int) -> float:
    """The largest resident memory of a process so far (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) / 1024 if found is not None else float("nan")


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", type=int, metavar="PORT", help="another broker on 127.0.0.1, measured in turns")
    arguments = parser.parse_args()
    messages, rounds = (20_000, 1) if arguments.short else (arguments.messages, arguments.rounds)

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled(folder)
        command = [sys.executable, "-m", "acquit", "serve", "--host", "127.0.0.1", "--port", "0"]
        with subprocess.Popen(
            [*command, "--data", str(folder / "data")], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as broker:
            assert broker.stdout is not None
            try:
                ready = re.search(r"amqp://127\.0\.0\.1:(\d+)", broker.stdout.readline())
                assert ready is not None, "acquit serve did not start"
                ports = {"acquit": int(ready[1])}
                if arguments.peer:
                    ports["peer"] = arguments.peer
                rates: dict[tuple[str, int, bool], list[float]] = {}
                for _ in range(rounds):
                    for size, durable in CASES:
                        for who, port in ports.items():
                            measured = rate(program, port, messages, size, durable)
                            rates.setdefault((who, size, durable), []).append(measured)
                memory = peak_mib(broker.pid)
            finally:
                broker.terminate()

    print(f"{messages} messages, {rounds} rounds: messages/s, median (lowest to highest)")
    for (who, size, durable), values in rates.items():
        kind = "durable" if durable else "not durable"
        middle = statistics.median(values)
        print(f"{who:7} {size:5} B  {kind:12} {middle:10,.0f}  ({min(values):,.0f} to {max(values):,.0f})")
    print(f"acquit's peak resident memory: {memory:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
