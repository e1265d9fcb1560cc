"""Threads that block for a broker: in order, to the end, and whatever fails in them."""

from __future__ import annotations

import asyncio
import logging
import sys

import pytest

from acquit.broker.machine import ThreadWorker


def test_jobs_run_in_order_and_tell_the_loop_before_the_worker_has_stopped() -> None:
    heard: list[int] = []

    async def run() -> None:
        worker = ThreadWorker("worker")
        for number in range(100):
            worker.submit(lambda number=number: worker.tell(heard.append, number))
        await worker.stop()
        assert heard == list(range(100))

    asyncio.run(run())


def test_a_job_that_fails_is_logged_and_keeps_nobody_waiting(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    async def run() -> None:
        worker = ThreadWorker("worker")
        worker.submit(fail)
        worker.submit(lambda: worker.tell(heard.append, "next"))
        async with asyncio.timeout(20):
            await worker.stop()

    with caplog.at_level(logging.ERROR):
        asyncio.run(run())
    assert heard == ["next"]
    assert "a job of the broker failed" in caplog.text


def test_a_thread_that_needs_the_interpreter_goes_on_while_the_loop_gives_way() -> None:
    async def run() -> None:
        worker = ThreadWorker("worker")
        done: list[bool] = []
        worker.submit(lambda: done.append(True))
        while not done:
            worker.give_way()  # nothing else lets the thread run: the switch interval is endless
        await worker.stop()

    usual = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        asyncio.run(run())
    finally:
        sys.setswitchinterval(usual)


def test_a_loop_that_is_closed_is_told_nothing() -> None:
    async def run() -> ThreadWorker:
        worker = ThreadWorker("worker")
        await worker.stop()
        return worker

    asyncio.run(run()).tell(print, "nobody hears this")
