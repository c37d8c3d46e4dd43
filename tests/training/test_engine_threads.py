"""Blocking calls beside a loop: what becomes of a cancel that comes as they end."""

import asyncio
import os
import signal
import time

import pytest

from rft_agent_sdk.cli import composing
from rft_agent_sdk.training.engines.threads import on_thread


def test_a_signal_that_comes_as_the_thread_ends_ends_the_run():
    went_on = []

    async def work():
        def busy():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.4)  # the thread's work is done within it, too

        asyncio.get_running_loop().call_later(0.1, busy)
        await on_thread(lambda: time.sleep(0.25), 30.0, name="rft-test")
        await asyncio.sleep(0.3)
        went_on.append(True)

    assert composing.run(work()) == 128 + signal.SIGTERM
    assert not went_on


async def test_a_call_that_does_not_end_in_time_is_told_by_its_name():
    with pytest.raises(TimeoutError, match=r"rft-slow did not end within 0\.05 s"):
        await on_thread(lambda: time.sleep(0.5), 0.05, name="rft-slow")


async def test_a_timeout_that_the_work_itself_raises_is_its_own():
    def work():
        raise TimeoutError("the server took too long")

    with pytest.raises(TimeoutError, match="the server took too long"):
        await on_thread(work, 5.0, name="rft-test")
