"""A thousand rollouts at a time and one long one, at a gateway in a process of its own."""

import asyncio
import http.client
import json
import re
import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from rft_agent_sdk.gateway.render import load_renderer
from rft_agent_sdk.trajectory import Trajectory, trajectory_from_json
from tests.gateway.players import (
    KEY,
    MARK,
    TURNS,
    GatewayProcess,
    gateway_process,
    marked_reply,
)

RENDERER = load_renderer()
SESSIONS = 1000
CONCURRENCY = 256
SYSTEM = (
    "You are playing Wordle. Guess a secret five-letter word in at most six guesses. After each guess you "
    "see for every letter whether it is right, elsewhere in the word, or not in it. Use the tool."
)
FUNCTION: Any = {
    "name": "guess_word",
    "description": "Submit one guess, a five-letter English word, and read the feedback on it.",
    "parameters": {
        "type": "object",
        "properties": {"guess": {"type": "string", "description": "A five-letter word."}},
        "required": ["guess"],
    },
}
TOOLS = [{"type": "function", "function": FUNCTION}]


def opening(mark: str) -> list[Any]:
    return [
        {"role": "system", "content": SYSTEM},
        {"role": "user", "content": f"Play the game of {mark}. You have six guesses."},
    ]


def feedback(mark: str, turn: int, call: Any) -> Any:
    text = (
        f"Guess {turn + 1}/6: {mark}\nC: not in the word\nR: right, at position 2\nA: elsewhere\n"
        f"N: not in the word\nE: elsewhere\nLetters left: B D F G H I J K L M O P Q S T U V W X Y Z"
    )
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


class Line:
    """One connection to a gateway that is kept; a client library would take most of the time there is."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Line":
        self._reader, self._writer = await asyncio.open_connection(
            "127.0.0.1", self._port, limit=2**20
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def post(self, path: str, key: str, body: Any) -> bytes:
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n"
            f"authorization: Bearer {key}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(content)}\r\n\r\n"
        )
        self._writer.write(head.encode() + content)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        (length,) = re.findall(r"content-length: ([0-9]+)", answer)
        found = await self._reader.readexactly(int(length))
        assert answer.startswith("HTTP/1.1 200 "), found
        return found


class Crowd:
    """Agents and a trainer: as many at a time as `lines`, each on a connection of its own."""

    def __init__(self, gateway: GatewayProcess, count: int, lines: int) -> None:
        self.marks = [f"mark{number:04d}x" for number in range(count)]
        self.sealed: dict[str, bytes] = {}
        self.secrets: list[str] = []
        self.latencies: list[float] = []
        self._port = gateway.port
        self._lines = lines

    async def play(self) -> float:
        """Play every rollout to its end; returns the seconds it took."""
        waiting = iter(self.marks)

        async def work() -> None:
            async with Line(self._port) as line:
                for mark in waiting:
                    await self._rollout(line, mark)

        start = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(self._lines)))
        return time.perf_counter() - start

    async def _rollout(self, line: Line, mark: str) -> None:
        opened = json.loads(await line.post("/sessions", KEY, {"task": mark}))
        secret, messages = opened["secret"], opening(mark)
        self.secrets.append(secret)
        for turn in range(TURNS):
            body = {"model": "m", "messages": messages, "tools": TOOLS}
            start = time.perf_counter()
            answer = await line.post("/v1/chat/completions", secret, body)
            self.latencies.append(time.perf_counter() - start)
            message = json.loads(answer)["choices"][0]["message"]
            assert MARK.findall(message["content"]) == [mark]
            message.pop("reasoning_content", None)  # as most agents do
            messages.append(message)
            messages += [feedback(mark, turn, call) for call in message.get("tool_calls") or ()]
        body = {"secret": secret, "outcome": "completed", "rewards": [1.0]}
        self.sealed[mark] = await line.post("/sessions/seal", KEY, body)

    async def drop(self) -> None:
        """Have the gateway forget everything."""
        async with Line(self._port) as line:
            for secret in self.secrets:
                await line.post("/sessions/drop", KEY, {"secret": secret})


def check_trajectory(mark: str, trajectory: Trajectory) -> None:
    """It is whole, of this session alone, and trains what the sampler said and nothing else."""
    assert (trajectory.task, trajectory.turns, trajectory.reward) == (mark, TURNS, 1.0)
    (sample,) = trajectory.samples
    assert sample.weight == 1
    ids, end = list(sample.token_ids), 0
    for turn, span in enumerate(sample.spans):
        # What the player says, written down once more: the ids that were sampled, and so served.
        sampled = RENDERER.write(marked_reply(mark, turn), prompt=ids[: span.start])
        assert ids[span.start : span.end] == sampled
        assert set(sample.loss_mask[end : span.start]) == {0}
        assert set(sample.loss_mask[span.start : span.end]) == {1}
        end = span.end
    assert (len(sample.spans), end) == (TURNS, len(ids))
    text = RENDERER.parse(ids, prompt=[], tools=[], finish_reason="stop").raw_text
    assert set(MARK.findall(text)) == {mark}
    assert set(MARK.findall(repr(sample.messages))) == {mark}


def resident_bytes(gateway: GatewayProcess) -> int:
    assert gateway.process is not None
    status = Path(f"/proc/{gateway.process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_thousand_rollouts_at_once_stay_apart_and_in_bounded_memory():
    with gateway_process("marked") as gateway:
        first = Crowd(gateway, CONCURRENCY, CONCURRENCY)  # whatever is made once is made now
        asyncio.run(first.play())
        asyncio.run(first.drop())
        before = resident_bytes(gateway)
        crowd = Crowd(gateway, SESSIONS, CONCURRENCY)
        took_s = asyncio.run(crowd.play())
        held = resident_bytes(gateway)
        asyncio.run(crowd.drop())
        again = Crowd(gateway, SESSIONS // 2, CONCURRENCY)
        asyncio.run(again.play())
        after = resident_bytes(gateway)
    assert sorted(crowd.sealed) == crowd.marks
    tokens = 0
    for mark, text in crowd.sealed.items():
        trajectory = trajectory_from_json(json.loads(text))
        check_trajectory(mark, trajectory)
        tokens += len(trajectory.samples[0].token_ids)
    each = (held - before) / SESSIONS
    print(
        f"\n{SESSIONS} sessions x {TURNS} turns in {took_s:.1f} s: {SESSIONS * TURNS / took_s:.0f} turns/s, "
        f"median latency {1e3 * statistics.median(crowd.latencies):.0f} ms at {CONCURRENCY} at once; "
        f"{each / 1024:.1f} KiB a session of {tokens / SESSIONS:.0f} tokens; RSS {before / 2**20:.0f}, "
        f"{held / 2**20:.0f}, after dropping and {SESSIONS // 2} more {after / 2**20:.0f} MiB"
    )
    # Ids, logprobs and texts take some 20 bytes a token; nodes, keys and calls the rest.
    assert each < 24 * 1024 + 32 * tokens / SESSIONS
    # What was dropped makes room for what comes.
    assert after < held + 0.25 * (held - before)


@pytest.mark.slow
def test_a_turn_costs_the_same_however_many_there_were_but_for_its_history_being_copied():
    turns, rounds = (1, 30, 60, 120), 5
    took: dict[int, list[float]] = {turn: [] for turn in turns}
    sealed: Any = None
    with gateway_process("endless") as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)

        def post(path: str, key: str, body: bytes) -> bytes:
            headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            answer = response.read()
            assert response.status == 200, answer
            return answer

        for _ in range(rounds):
            secret = json.loads(post("/sessions", KEY, b"{}"))["secret"]
            messages = opening("mark0000x")
            for turn in range(1, max(turns) + 1):
                body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS}).encode()
                start = time.perf_counter()
                answer = post("/v1/chat/completions", secret, body)
                elapsed = time.perf_counter() - start
                for mark in turns:
                    if (
                        abs(turn - mark) <= 2
                    ):  # its neighbours cost the same: more to take the median of
                        took[mark].append(elapsed)
                message = json.loads(answer)["choices"][0]["message"]
                message.pop("reasoning_content", None)
                (call,) = message["tool_calls"]
                messages += [message, feedback("mark0000x", turn, call)]
            sealed = json.loads(
                post("/sessions/seal", KEY, json.dumps({"secret": secret}).encode())
            )
        connection.close()
    (sample,) = sealed["samples"]
    assert sealed["turns"] == max(turns)
    medians = {turn: 1e3 * statistics.median(took[turn]) for turn in turns}
    figures = ", ".join(f"{turn}: {value:.2f} ms" for turn, value in medians.items())
    print(f"\nlatency by turn: {figures}; {len(sample['token_ids'])} tokens at the end")
    assert medians[120] < 4 * medians[1]
    assert medians[120] < 6 * medians[30]
