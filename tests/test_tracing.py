"""Spans of whole rollouts against the gateway: their trees, and what must stand in none of them."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import requests
from bedrock_agentcore import BedrockAgentCoreApp
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from rft_agent_sdk import Reward, Rollout, UsageError, load_environment, play, rft_handler, tracing
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.testing import call, scripted
from rft_agent_sdk.types import Message, ToolCall
from tests.servers import JOB_ARN, Answer, ScriptedServer, completion, managed_payload, serving
from tests.test_shutdown import ROOT, answers, ends, free_port, wait_until
from tests.traced import KEYS, Spans, as_in_a_new_process, job_runtime, scope, told

WORDLE = load_environment("wordle")
TASK = WORDLE.tasks("validation", 1, 3)[0]
GAME = scripted(
    call("guess_word", '{"guess": "slate"}'),
    'guess_word({"guess": "crony"})',  # as text, as a drifting policy writes it
    call("guess_word", '{"guess": "pudgy"}'),
)


@rft_handler(floor=WORDLE.floor)
def wordle(rollout: Rollout) -> Reward:
    return play(WORDLE, rollout)


@pytest.fixture
def untraced(monkeypatch):
    """As a process begins: nobody has set a provider."""
    as_in_a_new_process(monkeypatch)


@pytest.fixture
def spans(untraced):
    spans = Spans()
    yield spans
    spans.provider.shutdown()


def rollout(url, rollout_id="r1", prompt=TASK, entrypoint=wordle):
    return asyncio.run(entrypoint(managed_payload(url, rollout_id, prompt)))


# ------------------------------------------------------------------ the tree of a rollout


def test_a_rollout_is_a_tree_of_its_turns_tools_token_and_reports(monkeypatch, spans):
    with job_runtime(monkeypatch, GAME) as (url, _):
        body = rollout(url)
    (top,) = spans.named("rollout")
    assert top.parent is None
    below = spans.below(top)
    assert len(below) == len(spans.all) - 1
    ours = Counter(one.name for one in below if scope(one) == tracing.SCOPE)
    assert ours == {
        "mint_token": 1,
        "turn": 4,
        "execute_tool": 1,
        "CompleteRollout": 1,
        "UpdateReward": 1,
    }
    strands = Counter(one.name for one in below if scope(one) != tracing.SCOPE)
    assert strands["execute_tool guess_word"] == 2  # told once: not by us again
    assert strands["chat"] == 4
    assert told(top) == {
        "rft.trajectory_id": "r1",
        "rft.job_arn": JOB_ARN,
        "rft.invocation_id": told(top)["rft.invocation_id"],
        "rft.budget_s": pytest.approx(420, abs=5),
        "rft.environment": "wordle",
        "rft.outcome": "completed",
        "rft.reward.total": body["reward"],
        "rft.reported": True,
        "rft.calls.attempted": 4,
        "rft.calls.succeeded": 4,
        "rft.calls.throttled": 0,
        "rft.tokens.prompt": body["_rft"]["usage"]["prompt_tokens"],
        "rft.tokens.completion": body["_rft"]["usage"]["completion_tokens"],
        **{
            f"rft.reward.component.{name}": value
            for name, value in body["_rft"]["components"].items()
        },
    }


def test_a_turn_says_what_came_of_its_request(monkeypatch, spans):
    with job_runtime(monkeypatch, GAME) as (url, _):
        rollout(url)
    turns = [told(one) for one in spans.named("turn")]
    assert [one["rft.turn"] for one in turns] == [1, 2, 3, 4]
    assert {one["rft.trajectory_id"] for one in turns} == {"r1"}
    assert {(one["rft.attempt"], one["http.response.status_code"]) for one in turns} == {(1, 200)}
    assert [one["rft.finish_reason"] for one in turns] == ["tool_calls", "stop"] * 2
    assert all(one["rft.prompt_tokens"] > one["rft.completion_tokens"] > 0 for one in turns)
    # Dashboards add these up: Strands has told them already.
    assert not any(name.startswith("gen_ai.usage") for one in turns for name in one)


def test_spans_of_children_lie_within_their_parents(monkeypatch, spans):
    with job_runtime(monkeypatch, GAME) as (url, _):
        rollout(url)
    by_id = {one.get_span_context().span_id: one for one in spans.all}
    for one in spans.all:
        if one.parent is not None:
            parent = by_id[one.parent.span_id]
            assert parent.start_time <= one.start_time <= one.end_time <= parent.end_time


def play_plainly(rollout: Rollout):
    """Ask once with a plain OpenAI client; do what the prompt says after that."""
    rollout.openai().chat.completions.create(
        model="x", messages=[{"role": "user", "content": "hello"}]
    )
    if rollout.prompt == "fail":
        raise RuntimeError("boom")
    return 0.5


@pytest.fixture
def server(monkeypatch):
    """A Job Runtime whose answers the test writes; by turns, by path."""
    plans: dict[str, list] = {}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)

    def answer(seen, count):
        plan = plans.get(seen.path.rsplit("/", 1)[-1], [])
        usual = completion() if "chat" in seen.path else {}
        return plan.pop(0) if plan else usual

    with ScriptedServer(answer) as server:
        server.plans = plans  # type: ignore[attr-defined]
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


def test_each_attempt_at_a_turn_has_a_span_of_its_own(server, spans):
    server.plans["completions"] = [Answer(429), Answer(drop=True), Answer(500), completion()]
    rollout(server.url, entrypoint=rft_handler(play_plainly))
    turns = spans.named("turn")
    assert [told(one)["rft.turn"] for one in turns] == [1] * 4
    assert [told(one)["rft.attempt"] for one in turns] == [1, 2, 3, 4]
    assert [told(one).get("http.response.status_code") for one in turns] == [429, None, 500, 200]
    assert [one.status.is_ok for one in turns] == [False, False, False, True]
    assert told(turns[1])["error.type"] in ("ReadError", "RemoteProtocolError")
    (top,) = spans.named("rollout")
    assert told(top)["rft.calls.throttled"] == 1


@pytest.mark.parametrize("style", ["async", "stream", "async stream"])
def test_every_way_to_ask_is_a_turn(server, spans, style):
    async def asks(rollout: Rollout):
        messages = [{"role": "user", "content": "hello"}]
        client: Any = rollout.async_openai() if "async" in style else rollout.openai()
        options = {"stream": True} if "stream" in style else {}
        made = client.chat.completions.create(model="x", messages=messages, **options)
        reply = await made if "async" in style else made
        if style == "stream":
            list(reply)
        elif style == "async stream":
            async for _ in reply:
                pass
        return 0.5

    rollout(server.url, entrypoint=rft_handler(asks))
    (turn,) = spans.named("turn")
    (top,) = spans.named("rollout")
    assert turn.parent.span_id == top.get_span_context().span_id
    assert told(turn)["rft.completion_tokens"] == 2
    (token,) = spans.named("mint_token")  # on a thread of its own where the caller is a coroutine
    assert token in spans.below(top)


def test_a_failed_rollout_says_why_in_a_word(server, spans):
    body = rollout(server.url, prompt="fail", entrypoint=rft_handler(play_plainly))
    assert body["_rft"]["outcome"] == "agent_error"
    (top,) = spans.named("rollout")
    assert told(top)["rft.outcome"] == "agent_error"
    assert told(top)["rft.reward.total"] == -1.5
    assert told(top)["error.type"] == "RuntimeError"
    assert top.status.description == "RuntimeError"
    assert top.events == ()
    assert [one.name for one in spans.below(top)] == [
        "mint_token",
        "turn",
        "CompleteRollout",
        "UpdateReward",
    ]


def test_a_report_says_how_often_it_was_tried_and_how_it_ended(server, spans):
    server.plans["complete-rollout"] = [Answer(500)]
    server.plans["update-reward"] = [Answer(400, {"Message": "Could not find job"})]
    rollout(server.url, entrypoint=rft_handler(play_plainly))
    (complete,), (update,) = spans.named("CompleteRollout"), spans.named("UpdateReward")
    assert told(complete)["rft.attempts"] == 2
    assert told(complete)["http.response.status_code"] == 200
    assert told(update)["http.response.status_code"] == 400
    assert told(update)["error.type"] == "ValidationError"
    assert told(update)["rft.job_arn"] == JOB_ARN
    assert not update.status.is_ok
    (top,) = spans.named("rollout")
    assert told(top)["rft.reported"] is False


def test_a_rollout_without_a_sample_is_seen_to_be_rescued(server, spans):
    rollout(server.url, entrypoint=rft_handler(lambda payload: 0.5))
    (top,) = spans.named("rollout")
    assert told(top)["rft.outcome"] == "no_sampling"
    assert told(top)["rft.rescued"] is True
    (rescue,) = spans.named("rescue")
    assert rescue.status.is_ok


def test_a_payload_nobody_can_read_is_a_rollout_too(server, spans):
    asyncio.run(wordle({"prompt": {}}))
    (top,) = spans.named("rollout")
    assert told(top)["error.type"] == "PayloadError"


def test_a_rollout_below_a_server_s_own_span_belongs_to_it(server, spans):
    """As on AgentCore, whose distribution traces the invocation."""
    tracer = spans.provider.get_tracer("web")
    with tracer.start_as_current_span("POST /invocations") as outer:
        rollout(server.url, entrypoint=rft_handler(play_plainly))
    (top,) = spans.named("rollout")
    assert top.parent.span_id == outer.get_span_context().span_id


@pytest.mark.parametrize("served", ["agentcore", "own"])
def test_rollouts_at_one_time_keep_to_their_own_trees(monkeypatch, spans, served):
    count = 12

    async def slow(messages, tools):
        await asyncio.sleep(0.05)
        said = GAME(messages, tools)
        assert isinstance(said, Message)
        return said

    app = BedrockAgentCoreApp()
    app.entrypoint(wordle)
    with (
        job_runtime(monkeypatch, slow) as (url, _),
        serving(app if served == "agentcore" else asgi_app(wordle)) as agent,
        ThreadPoolExecutor(count) as pool,
    ):

        def ask(number):
            body = managed_payload(url, f"r{number}", TASK)
            return requests.post(agent + "/invocations", json=body, timeout=60)

        assert {answer.status_code for answer in pool.map(ask, range(count))} == {200}
    tops = spans.named("rollout")
    assert {told(one)["rft.trajectory_id"] for one in tops} == {f"r{n}" for n in range(count)}
    for top in tops:
        below = spans.below(top)
        ids = {told(one).get("rft.trajectory_id") for one in below} - {None}
        assert ids == {told(top)["rft.trajectory_id"]}
        assert Counter(one.name for one in below)["turn"] == 4
        assert len({one.get_span_context().trace_id for one in [top, *below]}) == 1
    assert len(spans.named("mint_token")) == 1  # one token serves them all


# ------------------------------------------------------------------ where nobody asked


def test_without_a_provider_nothing_is_imported_and_nothing_recorded(server):
    program = (
        "import asyncio, json, sys\n"
        "from rft_agent_sdk import Rollout, rft_handler\n"
        "from rft_agent_sdk.tracing import NOTHING, span\n"
        "@rft_handler\n"
        "def play(rollout: Rollout):\n"
        "    rollout.openai().chat.completions.create(model='x', messages=[{'role': 'user', 'content': 'x'}])\n"
        "    assert span('mine', {}) is NOTHING\n"
        "    return 0.5\n"
        "body = asyncio.run(play(json.load(sys.stdin)))\n"
        "assert body['_rft']['reported'], body\n"
        "print('opentelemetry' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(managed_payload(server.url)),
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.split() == ["False"]


def test_without_a_provider_a_span_costs_next_to_nothing(untraced):
    def each_ns():
        began = time.perf_counter_ns()
        for number in range(2000):
            with tracing.span("turn", {"turn": number}) as traced:
                traced.set({"attempts": 1})
        return (time.perf_counter_ns() - began) / 2000

    best = min(each_ns() for _ in range(10))
    print(f"\n{best:.0f} ns for a span that nobody records")
    assert best < 20_000


def test_a_provider_that_breaks_costs_no_rollout(server, untraced, caplog):
    class Broken(trace.TracerProvider):
        def get_tracer(self, *args, **kwargs):
            raise RuntimeError("broken")

    trace.set_tracer_provider(Broken())
    body = rollout(server.url, entrypoint=rft_handler(play_plainly))
    assert body["reward"] == 0.5
    assert body["_rft"]["reported"] is True
    assert "not begun" in caplog.text


# ------------------------------------------------------------------ where it goes, and what does not


SAID = "xyzzy"
"""Stands in everything that is said in the next rollouts, and in their secrets."""
SECRETS = (SAID, KEYS.secret_key, KEYS.access_key, "sagemaker-api-key", "slate", "crony")


def tell_all(messages, tools):
    if sum(message.role == "assistant" for message in messages) == 0:
        odd = ToolCall(f"{SAID} is the secret tool", '{"guess": "crony"}', "call_2")
        guess = ToolCall("guess_word", '{"guess": "slate"}', "call_1")
        return Message("assistant", SAID, SAID, (guess, odd))
    return Message("assistant", f"I give up, {SAID}.")


class Telling(RuntimeError):
    """An error whose text tells all."""


@rft_handler
def tells(rollout: Rollout) -> Reward:
    reward = play(WORDLE, rollout)
    if rollout.request.rollout_id == "r2":
        raise Telling(f"{SAID} {KEYS.secret_key}")
    return reward


def play_and_tell(monkeypatch):
    task = json.dumps(json.loads(TASK) | {"prompt": f"Play, {SAID}."})
    with job_runtime(monkeypatch, tell_all) as (url, job):
        for number in range(3):
            payload = managed_payload(url, f"r{number}", task)
            if number == 0:
                payload["metadata"]["secretNote"] = SAID
            asyncio.run(tells(payload))
        heard = " ".join(
            message.text
            for one in job.trajectories.values()
            for turn in one.turns
            for message in turn.messages
        )
    assert SAID in heard


def names_in(path):
    found: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        for resource in json.loads(line)["resourceSpans"]:
            for scoped in resource["scopeSpans"]:
                found.update(one["name"] for one in scoped["spans"])
    return found


def test_a_file_gets_every_span_and_nothing_that_was_said(monkeypatch, untraced, tmp_path):
    path = tmp_path / "deep" / "traces.jsonl"
    monkeypatch.setenv("RFT_TRACES", str(path))
    play_and_tell(monkeypatch)
    found = names_in(path)
    assert found["rollout"] == found["CompleteRollout"] == found["UpdateReward"] == 3
    assert found["turn"] == found["chat"] > 3
    assert found["execute_tool guess_word"] == 3
    text = path.read_text()
    assert "Telling" in text
    for secret in SECRETS:
        assert secret not in text
    assert path.stat().st_mode & 0o777 == 0o600


class Collector:
    """An OTLP collector on loopback."""

    def __init__(self):
        self.raw = []
        self.server = ScriptedServer(self._take)

    def _take(self, seen, count):
        assert seen.path == "/v1/traces"
        self.raw.append(seen.body)
        return Answer(body=b"", headers={"content-type": "application/x-protobuf"})

    def names(self):
        found: Counter[str] = Counter()
        for body in self.raw:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for scoped in resource.scope_spans:
                    found.update(one.name for one in scoped.spans)
        return found


@pytest.fixture
def collector():
    collector = Collector()
    with collector.server:
        yield collector


def test_a_file_gets_no_text_of_other_libraries_spans(monkeypatch, untraced, tmp_path):
    path = tmp_path / "traces.jsonl"
    monkeypatch.setenv("RFT_TRACES", str(path))
    tracing.configure()
    tracer = trace.get_tracer("other")
    long: dict[str, Any] = {
        "gen_ai.tool.name": f"tell me {SAID}",
        "gen_ai.input.messages": SAID,
        "http.url": SAID,
    }
    kept: dict[str, Any] = {"gen_ai.operation.name": "execute_tool", "gen_ai.usage.total_tokens": 7}
    with tracer.start_as_current_span(
        f"execute_tool tell me {SAID}", attributes=long | kept
    ) as one:
        one.add_event("gen_ai.choice", {"message": SAID})
        one.set_status(trace.StatusCode.ERROR, SAID)
    text = path.read_text()
    assert SAID not in text
    (span,) = json.loads(text)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (span["name"], span["status"]) == ("execute_tool", {"code": 2})
    assert {item["key"] for item in span["attributes"]} == set(kept)


def test_an_otlp_endpoint_gets_every_span_and_nothing_that_was_said(
    monkeypatch, untraced, collector
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
    play_and_tell(monkeypatch)
    tracing.flush()
    trace.get_tracer_provider().shutdown()  # type: ignore[attr-defined]
    found = collector.names()
    assert found["rollout"] == found["UpdateReward"] == 3
    assert found["execute_tool guess_word"] == 3
    raw = b"".join(collector.raw)
    assert b"rft.outcome" in raw
    for secret in SECRETS:
        assert secret.encode() not in raw


def test_our_own_spans_hold_nothing_that_was_said_whoever_takes_them(monkeypatch, spans):
    play_and_tell(monkeypatch)
    ours = [one.to_json() for one in spans.all if scope(one) == tracing.SCOPE]
    assert len(ours) > 12
    for secret in SECRETS:
        assert not [text for text in ours if secret in text]


def test_a_file_is_written_beside_a_provider_that_somebody_set(
    monkeypatch, server, untraced, tmp_path
):
    monkeypatch.setenv("RFT_TRACES", str(tmp_path / "traces.jsonl"))
    spans = Spans()
    rollout(server.url, entrypoint=rft_handler(play_plainly))
    assert spans.named("rollout")
    assert names_in(tmp_path / "traces.jsonl")["rollout"] == 1
    spans.provider.shutdown()


def test_an_endpoint_is_left_to_a_provider_that_somebody_set(
    monkeypatch, server, untraced, collector
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.server.url)
    spans = Spans()
    rollout(server.url, entrypoint=rft_handler(play_plainly))
    tracing.flush()
    assert spans.named("rollout")
    assert collector.raw == []


@pytest.mark.parametrize(
    ("name", "value"), [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")]
)
def test_the_standard_switches_are_heeded(monkeypatch, server, untraced, collector, name, value):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.server.url)
    monkeypatch.setenv(name, value)
    rollout(server.url, entrypoint=rft_handler(play_plainly))
    tracing.flush()
    assert collector.raw == []


def test_an_endpoint_that_cannot_be_spoken_to_does_not_cost_the_file(
    monkeypatch, server, untraced, collector, tmp_path, caplog
):
    monkeypatch.setenv("RFT_TRACES", str(tmp_path / "traces.jsonl"))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.server.url)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    rollout(server.url, entrypoint=rft_handler(play_plainly))
    assert names_in(tmp_path / "traces.jsonl")["rollout"] == 1
    assert "http/protobuf here, not as 'grpc'" in caplog.text


def test_a_file_that_cannot_be_written_costs_no_rollout(monkeypatch, server, untraced, caplog):
    monkeypatch.setenv("RFT_TRACES", str(ROOT / "README.md" / "traces.jsonl"))
    caplog.set_level(logging.ERROR)
    body = rollout(server.url, entrypoint=rft_handler(play_plainly))
    assert body["_rft"]["reported"] is True
    assert "spans are not sent" in caplog.text


def test_whoever_asks_first_is_told_that_a_file_cannot_be_written(monkeypatch, untraced):
    monkeypatch.setenv("RFT_TRACES", str(ROOT / "README.md" / "traces.jsonl"))
    with pytest.raises(UsageError, match="cannot be written"):
        tracing.configure()


@pytest.mark.slow
def test_what_is_held_back_is_sent_before_a_signal_ends_the_server(server, collector):
    program = (
        "import sys\n"
        "from rft_agent_sdk import rft_handler, serve\n"
        "from tests.test_tracing import play_plainly\n"
        "serve(rft_handler(play_plainly), port=int(sys.argv[1]))\n"
    )
    port = free_port()
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.server.url,
        "OTEL_BSP_SCHEDULE_DELAY": "60000",
    }
    with subprocess.Popen([sys.executable, "-c", program, str(port)], env=environ) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until(lambda: answers(url), 40)
            requests.post(url + "/rollout", json=managed_payload(server.url), timeout=20)
            assert collector.raw == []
            process.send_signal(signal.SIGTERM)
            ends(process)
        finally:
            process.kill()
    assert collector.names()["rollout"] == 1
