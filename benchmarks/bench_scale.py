"""The broker with many queues and many connections: messages a second over all of them, end to end.

    python benchmarks/bench_scale.py [--short] [--messages N] [--rounds N]

`benchmarks/amqpload.c` opens pairs of connections, each pair one that sends and one that receives with credit 100, and
spreads the messages over them: every pair on a queue of its own, or all pairs on one queue. 100 bytes, not durable and
durable. *End to end* is from the first transfer sent to the last one received and settled, both ways; the generator
runs on the same machine as `acquit serve`. Given are medians and ranges, and the broker's largest resident memory.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_broker import compiled, peak_mib

CASES = [(pairs, queues) for pairs in (1, 100, 1_000) for queues in sorted({1, pairs})]
CONFIG = """
[limits]
connections_max = 4096
unauthenticated_max = 4096
"""


def rate(program: Path, port: int, messages: int, pairs: int, queues: int, durable: bool) -> float:
    """One run: messages a second. Raises SystemExit where a message was rejected or did not come."""
    command = [str(program), "-p", str(port), "-a", f"scale-{pairs}-{queues}", "-n", str(messages), "-s", "100"]
    command += ["-c", "100", "-k", str(pairs), "-q", str(queues), *(["-D"] if durable else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    found = re.search(r"(\d+) msg/s.*rej=0\b", done.stdout)
    if done.returncode or found is None:
        raise SystemExit(f"the load generator said: {done.stdout}{done.stderr}")
    return float(found[1])


def main() -> int:
    """Run the rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="few messages: shows that it runs, not how fast")
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    messages, rounds = (20_000, 1) if arguments.short else (arguments.messages, arguments.rounds)

    print("| connections | queues | durable | messages/s, median (range) | broker's peak MiB |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = compiled(folder)
        config = folder / "acquit.toml"
        config.write_text(CONFIG)
        for pairs, queues in CASES:
            for durable in (False, True):
                data = folder / f"data-{pairs}-{queues}-{durable}"
                command = [sys.executable, "-m", "acquit", "serve", "--port", "0", "--config", str(config)]
                with subprocess.Popen(
                    [*command, "--data", str(data)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
                ) as broker:
                    assert broker.stdout is not None
                    try:
                        ready = re.search(r"amqp://127\.0\.0\.1:(\d+)", broker.stdout.readline())
                        assert ready is not None, "acquit serve did not start"
                        port = int(ready[1])
                        rates = [rate(program, port, messages, pairs, queues, durable) for _ in range(rounds)]
                        peak = peak_mib(broker.pid)
                    finally:
                        broker.terminate()
                shown = f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
                print(f"| {2 * pairs} | {queues} | {'yes' if durable else 'no'} | {shown} | {peak:.0f} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
