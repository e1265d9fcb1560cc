"""Spring's JmsTemplate and listener container, which open and close consumers all the time (`spring/src`)."""

from __future__ import annotations

import subprocess

import pytest

from tests.interop.foreign import ATTEMPTS_MAX, GRAVES, PASSWORD, THRICE, USERNAME, ForeignBroker
from tests.interop.java import QUICK_START, SPRING, PeerMissing, in_ci

pytestmark = [
    pytest.mark.interop,
    pytest.mark.parametrize("foreign", ["acquit", "artemis"], indirect=True, scope="session"),
]

TIMEOUT_S = 180.0


def run(broker: ForeignBroker, queue: str, cache_level: str) -> dict[str, str]:
    """What the program prints, by the first word of each line."""
    try:
        classes = SPRING.classpath()
    except PeerMissing as missing:
        (pytest.fail if in_ci() else pytest.skip)(str(missing))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
    program = [
        "java",
        *QUICK_START,
        quiet,
        "-Djava.util.logging.config.file=/dev/null",
        "-cp",
        classes,
        "SpringProgram",
    ]
    arguments = [broker.url, USERNAME, PASSWORD, queue, GRAVES, cache_level, str(ATTEMPTS_MAX)]
    done = subprocess.run([*program, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(line.split(" ", 1) for line in done.stdout.splitlines())


@pytest.mark.promise("attempts")
@pytest.mark.parametrize("cache_level", ["CACHE_NONE", "CACHE_CONSUMER"])
def test_what_fails_once_is_processed_and_only_poison_dies(foreign: ForeignBroker, cache_level: str) -> None:
    """Each consumer is sent all there is ahead of time, and closes over it: none of that is an attempt."""
    broker = foreign
    broker.queue(GRAVES)
    name = f"spring-{cache_level.lower()}{THRICE}"
    queue = broker.queue(name, max_delivery_attempts=ATTEMPTS_MAX, dead_letter=GRAVES)
    assert run(broker, queue, cache_level) == {
        "template": "20",
        "template-counts": "[1]",
        "all": "true",
        "processed": "40",
        "first-counts": "[1]",
        "poison-attempts": str(ATTEMPTS_MAX),
        "dead": "[poison]",
        "left": "null",
    }
