"""Policies that a gateway in a process of its own plays by, and that process.

A gateway finds them as `--environment tests.gateway.players:environment`.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from environments.wordle import environment as wordle
from rft_agent_sdk import Environment, Message, TaskError, ToolCall, ToolSpec

ROOT = Path(__file__).parents[2]
KEY_VARIABLE = "RFT_TEST_ADMIN_KEY"
KEY = "admin-key-of-these-tests"
GATES = "PLAYERS_GATES"
MARK = re.compile(r"mark[0-9]{4}x")
TURNS = 6


def gated(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Wordle's solver, thinking aloud. It notes each time it is asked, and waits at closed gates."""
    turn = sum(message.role == "assistant" for message in messages)
    folder = Path(os.environ[GATES])
    with (folder / "asked").open("a") as asked:
        asked.write(f"{turn}\n")
    while (folder / f"closed-{turn}").exists():
        time.sleep(0.01)
    reply = wordle.policies()["solver"](messages, tools)
    return Message("assistant", reply.text, f"thought {turn}", reply.tool_calls)


async def marked(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Says the mark of its conversation again and again, as a Wordle player says words."""
    turn = sum(message.role == "assistant" for message in messages)
    return marked_reply(MARK.findall(messages[1].text)[0], turn)


async def endless(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Message:
    """Plays on, the same every turn."""
    return marked_reply(MARK.findall(messages[1].text)[0], 0)


def marked_reply(mark: str, turn: int) -> Message:
    """What `marked` says."""
    if turn == TURNS - 1:
        return Message("assistant", f"That is all of {mark}.", "Done now.")
    call = ToolCall("guess_word", f'{{"guess": "{mark} {turn}"}}')
    thought = f"The letters of {mark} go where they go; turn {turn} is one more try."
    return Message("assistant", f"I try {mark}.", thought, (call,))


class Players(Environment):
    name = "players"
    floor = -1.0

    def start(self, task: str) -> Any:
        raise TaskError("these players bring their own conversations")

    def policies(self) -> dict[str, Any]:
        return {"endless": endless, "gated": gated, "marked": marked}


environment = Players()


class GatewayProcess:
    """`rft gateway` with these players, on one port that outlives its processes."""

    def __init__(self, sampler: str, *options: str, gates: Path | None = None) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._command = [
            *(sys.executable, "-m", "rft_agent_sdk.cli", "gateway", "--port", str(self.port)),
            *("--environment", "tests.gateway.players:environment", "--sampler", sampler),
            *("--admin-key-env", KEY_VARIABLE, *options),
        ]
        self._environ = {**os.environ, KEY_VARIABLE: KEY, GATES: str(gates or "")}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start a process; it answers a while later."""
        self.process = subprocess.Popen(
            self._command, cwd=ROOT, env=self._environ, stderr=subprocess.DEVNULL
        )

    def wait(self) -> None:
        """Wait until it takes connections."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            assert self.process is not None
            assert self.process.poll() is None, "the gateway process ended"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise AssertionError("the gateway process takes no connections")

    def kill(self) -> None:
        """SIGKILL, which nothing can answer."""
        process, self.process = self.process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self) -> None:
        """Kill the process and start another; return before it answers."""
        self.kill()
        self.start()


@contextmanager
def gateway_process(sampler: str, *options: str, gates: Path | None = None):
    """Run a gateway; yields it once it takes connections."""
    gateway = GatewayProcess(sampler, *options, gates=gates)
    gateway.start()
    try:
        gateway.wait()
        yield gateway
    finally:
        gateway.kill()
