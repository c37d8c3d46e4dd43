"""The forwarder as Lambda calls it: real agents and a real SQS client behind it, all on loopback."""

import base64
import json
import logging
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rft_agent_sdk import Rollout, rft_handler
from rft_agent_sdk.mtrl import forwarder
from rft_agent_sdk.serving import asgi_app
from tests.mtrl.sqs import Queue
from tests.servers import JOB_ARN, Answer, ScriptedServer, completion, managed_payload, serving

SECRET_PROMPT = "the answer is xyzzy"
REPORTED = {"reward": 1.0, "_rft": {"outcome": "completed", "reported": True}}


class Context:
    """What Lambda passes beside the event."""

    aws_request_id = "8f5e1f9c-0000-4000-8000-000000000000"

    def __init__(self, seconds=30.0):
        self._until = time.monotonic() + seconds

    def get_remaining_time_in_millis(self):
        return int(1000 * (self._until - time.monotonic()))


@pytest.fixture(autouse=True)
def logged(caplog):
    """Whatever happens, the prompt is in no line."""
    caplog.set_level(logging.DEBUG)
    yield caplog
    assert SECRET_PROMPT not in caplog.text


@pytest.fixture
def agent(monkeypatch):
    """A server in the agent's place; what it answers is `agent.answers`, by turns."""
    answers: list = []

    def answer(seen, count):
        return answers[min(count, len(answers) - 1)]

    with ScriptedServer(answer) as server:
        monkeypatch.setenv("RFT_AGENT_URL", server.url)
        server.answers = answers  # type: ignore[attr-defined]
        yield server


@pytest.fixture
def queue(monkeypatch):
    with Queue() as queue:
        for name, value in queue.environment().items():
            monkeypatch.setenv(name, value)
        yield queue


def event(**changes):
    return managed_payload("https://job-runtime.example", prompt=SECRET_PROMPT) | changes


def failure(reply):
    assert set(reply) == {"errorType", "errorMessage"}
    assert SECRET_PROMPT not in reply["errorMessage"]
    return reply["errorType"]


# ------------------------------------------------------------------ what it takes


@pytest.mark.parametrize("path", ["", "/", "/rollout", "/invocations", "/agents/7/rollout"])
def test_a_payload_reaches_the_agent_as_it_came(agent, monkeypatch, path):
    agent.answers.append(REPORTED)
    monkeypatch.setenv("RFT_AGENT_URL", agent.url + path)
    assert forwarder.handler(event(), Context()) == {}
    (seen,) = agent.seen
    assert seen.json == event()
    assert seen.path == (path if len(path) > 1 else "/rollout")
    assert seen.headers["content-type"] == "application/json"


@pytest.mark.parametrize("encode", [False, True])
def test_an_event_with_a_body_is_unwrapped(agent, encode):
    agent.answers.append(REPORTED)
    text = json.dumps(event())
    body = base64.b64encode(text.encode()).decode() if encode else text
    wrapped = {"body": body, "isBase64Encoded": encode, "headers": {}}
    assert forwarder.handler(wrapped, Context()) == {}
    assert agent.seen[0].json == event()


METADATA = {"jobArn": JOB_ARN, "rolloutId": "r1"}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        "text",
        {},
        {"body": "no json"},
        {"body": "[]"},
        {"body": "%%%", "isBase64Encoded": True},
        event(prompt=None),
        event(prompt={"a": 1}),
        event(metadata=None),
        event(metadata={}),
        event(metadata={"jobArn": JOB_ARN}),
        event(metadata={"rolloutId": "r1"}),
        event(metadata=METADATA | {"rolloutId": ""}),
        event(metadata=METADATA | {"rolloutId": 7}),
        event(metadata=METADATA | {"rolloutId": "x" * 257}),
        event(metadata=METADATA | {"rolloutId": "a\nb"}),
        event(metadata=METADATA | {"jobArn": " padded "}),
        event(inferenceParams=[]),
        event(inferenceParams={"temperature": float("nan")}),
    ],
)
def test_what_is_no_rollout_is_a_validation_error_and_goes_nowhere(agent, bad):
    assert failure(forwarder.handler(bad, Context())) == "ValidationError"
    assert agent.seen == []


@pytest.mark.parametrize("name", ["rolloutId", "rollout_id", "trajectoryId", "trajectory_id"])
@pytest.mark.parametrize("job", ["jobArn", "job_arn"])
def test_every_spelling_of_the_ids_is_taken(agent, job, name):
    agent.answers.append(REPORTED)
    assert forwarder.handler(event(metadata={job: JOB_ARN, name: "r1"}), Context()) == {}


# ------------------------------------------------------------------ what the agent says


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Answer(202, {"status": "accepted"}), None),
        (Answer(200, {"status": "accepted"}), None),
        (Answer(200, b"anything"), None),
        (Answer(200, {"_rft": {"outcome": "timeout", "reported": False}}), "InternalServerError"),
        (Answer(400, {"error": SECRET_PROMPT}), "ValidationError"),
        (Answer(413, {}), "ValidationError"),
        (Answer(401, {}), "AccessDenied"),
        (Answer(403, {"error": SECRET_PROMPT}), "AccessDenied"),
        (Answer(404, {}), "InternalServerError"),
        (Answer(302, {}, {"Location": "http://127.0.0.1:9/"}), "InternalServerError"),
        (Answer(500, {"error": SECRET_PROMPT}), "InternalServerError"),
    ],
)
def test_the_agent_s_answer_is_told_in_the_service_s_words(agent, answer, kind):
    agent.answers.append(answer)
    reply = forwarder.handler(event(), Context())
    assert (failure(reply) if reply else None) == kind
    assert len(agent.seen) == 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_an_agent_without_room_is_asked_again_with_the_same_key(agent, status):
    agent.answers += [Answer(status), Answer(status), REPORTED]
    assert forwarder.handler(event(), Context()) == {}
    assert len(agent.seen) == 3
    assert len({seen.headers["idempotency-key"] for seen in agent.seen}) == 1


def test_a_pause_that_is_no_number_is_none(agent):
    agent.answers += [Answer(429, {}, {"Retry-After": "\u00b2"}), REPORTED]
    assert forwarder.handler(event(), Context()) == {}


def test_the_key_is_the_rollout_s_own(agent):
    agent.answers.append(REPORTED)
    for rollout_id in ("r1", "r2", "r1"):
        forwarder.handler(event(metadata=METADATA | {"rolloutId": rollout_id}), Context())
    first, second, third = (seen.headers["idempotency-key"] for seen in agent.seen)
    assert first == third != second
    assert len(first) == 64


def test_a_connection_that_breaks_is_made_anew(agent):
    agent.answers += [Answer(drop=True), Answer(drop=True), REPORTED]
    assert forwarder.handler(event(), Context()) == {}
    assert len(agent.seen) == 3


@pytest.mark.parametrize(("status", "kind"), [(429, "Throttling"), (503, "InternalServerError")])
def test_a_pause_that_would_outlast_the_function_is_not_begun(agent, status, kind):
    agent.answers.append(Answer(status, {}, {"Retry-After": "60"}))
    began = time.monotonic()
    assert failure(forwarder.handler(event(), Context(10))) == kind
    assert time.monotonic() - began < 2
    assert len(agent.seen) == 1


@pytest.mark.parametrize("how", [{"delay_s": 20}, {"trickle_s": 0.2, "body": b"[\n" * 100}])
def test_a_silent_or_endless_answer_ends_before_lambda_does(agent, how):
    agent.answers.append(Answer(**how))
    context = Context(3.5)
    assert failure(forwarder.handler(event(), context)) == "InternalServerError"
    assert context.get_remaining_time_in_millis() > 1000
    assert len(agent.seen) == 1


def test_an_agent_that_is_not_there_is_tried_until_there_is_no_time(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    monkeypatch.setenv("RFT_AGENT_URL", f"http://127.0.0.1:{port}")
    context = Context(3.5)
    reply = forwarder.handler(event(), context)
    assert failure(reply) == "InternalServerError"
    assert "not reached" in reply["errorMessage"]
    assert context.get_remaining_time_in_millis() > 1000


@pytest.mark.parametrize("seconds", [0.0, 1.9])
def test_without_time_nothing_is_begun(agent, seconds):
    assert failure(forwarder.handler(event(), Context(seconds))) == "InternalServerError"
    assert agent.seen == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "agent.internal:8080",
        "ftp://127.0.0.1/",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://[::1",
        "http://127.0.0.1:9/?token=abc",
        "http://127.0.0.1:9/a b",
        "http://n\u00f6t.invalid",
    ],
)
def test_a_function_that_is_not_set_up_says_so(monkeypatch, url):
    monkeypatch.setenv("RFT_AGENT_URL", url)
    reply = forwarder.handler(event(), Context())
    assert failure(reply) == "InternalServerError"
    assert "RFT_AGENT_URL" in reply["errorMessage"]


# ------------------------------------------------------------------ a real agent behind it


@pytest.fixture
def keys(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


@pytest.fixture
def job_runtime(monkeypatch, keys):
    with ScriptedServer(lambda seen, count: completion() if "chat" in seen.path else {}) as server:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", server.host)
        yield server


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def real_agent(monkeypatch, release):
    @rft_handler
    def entrypoint(rollout: Rollout):
        rollout.openai().chat.completions.create(
            model="x", messages=[{"role": "user", "content": "hello"}]
        )
        release.wait(20)
        return 0.5

    with serving(asgi_app(entrypoint)) as url:
        monkeypatch.setenv("RFT_AGENT_URL", url)
        yield url


def wait_until(condition):
    until = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.01)


def test_a_rollout_is_waited_for_while_there_is_time(job_runtime, real_agent, release):
    release.set()
    assert forwarder.handler(managed_payload(job_runtime.url), Context()) == {}
    assert job_runtime.rewards == [[0.5]]


def test_a_rollout_longer_than_the_function_plays_on_and_is_not_played_twice(
    job_runtime, real_agent, release
):
    for _ in range(2):  # the service may well ask again
        assert forwarder.handler(managed_payload(job_runtime.url), Context(4)) == {}
    assert job_runtime.rewards == []
    release.set()
    wait_until(lambda: job_runtime.rewards)
    assert forwarder.handler(managed_payload(job_runtime.url), Context()) == {}
    assert job_runtime.rewards == [[0.5]]
    assert len(job_runtime.samples) == 1


def test_it_need_not_wait_at_all(job_runtime, real_agent, release, monkeypatch):
    monkeypatch.setenv("RFT_FORWARD", "accept")
    began = time.monotonic()
    assert forwarder.handler(managed_payload(job_runtime.url), Context(60)) == {}
    assert time.monotonic() - began < 3
    release.set()
    wait_until(lambda: job_runtime.rewards)


def test_the_documented_smoke_test_is_an_internal_server_error(
    real_agent, release, monkeypatch, keys
):
    """A job called `test` does not exist: the agent plays, and its reward is accepted nowhere."""
    release.set()
    refused = Answer(400, {"Message": "Could not find job"})
    with ScriptedServer(lambda seen, count: refused) as nowhere:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", nowhere.host)
        payload = managed_payload(nowhere.url)
        payload["metadata"]["jobArn"] = "test"
        assert failure(forwarder.handler(payload, Context())) == "InternalServerError"


# ------------------------------------------------------------------ a queue behind it


def test_a_payload_is_put_in_the_queue_with_its_key(queue):
    assert forwarder.handler(event(), Context()) == {}
    assert forwarder.handler(event(), Context()) == {}
    bodies = [json.loads(message["MessageBody"]) for message in queue.sent]
    keys = [message["MessageAttributes"]["IdempotencyKey"] for message in queue.sent]
    assert bodies == [event()] * 2
    assert keys[0] == keys[1]
    assert "MessageGroupId" not in queue.sent[0]


def test_a_fifo_queue_gets_a_group_for_each_rollout(monkeypatch):
    with Queue("SageMakerRollouts.fifo") as queue:
        for name, value in queue.environment().items():
            monkeypatch.setenv(name, value)
        forwarder.handler(event(), Context())
        other = Context()
        other.aws_request_id = "another"
        forwarder.handler(event(), other)
    first, second = queue.sent
    assert first["MessageGroupId"] == second["MessageGroupId"]
    assert first["MessageDeduplicationId"] != second["MessageDeduplicationId"]


def test_what_no_message_can_hold_is_a_validation_error(queue):
    long = event(prompt=SECRET_PROMPT + "x" * 262_144)
    assert failure(forwarder.handler(long, Context())) == "ValidationError"
    assert queue.calls == []
    just = event(prompt="x" * (forwarder.MAX_MESSAGE_BYTES - 400))
    assert forwarder.handler(just, Context()) == {}


def refusal(status, code):
    return Answer(status, {"__type": f"com.amazonaws.sqs#{code}", "message": SECRET_PROMPT})


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(403, "AccessDeniedException"), "AccessDenied"),
        (refusal(400, "QueueDoesNotExist"), "InternalServerError"),
        (refusal(400, "ThrottlingException"), "Throttling"),
        (refusal(500, "InternalError"), "InternalServerError"),
    ],
)
def test_a_queue_that_refuses_is_told_in_the_service_s_words(queue, answer, kind):
    queue.refusals["SendMessage"] = [answer] * 9
    assert failure(forwarder.handler(event(), Context())) == kind


def test_a_queue_s_moment_of_weakness_is_waited_out(queue):
    queue.refusals["SendMessage"] = [refusal(500, "InternalError")]
    assert forwarder.handler(event(), Context()) == {}
    assert len(queue.sent) == 1


def test_a_queue_that_is_not_there_ends_before_lambda_does(queue, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", f"http://127.0.0.1:{silent.getsockname()[1]}")
        context = Context(6.5)
        assert failure(forwarder.handler(event(), context)) == "InternalServerError"
    assert context.get_remaining_time_in_millis() > 0


# ------------------------------------------------------------------ the file alone


def test_the_file_alone_is_the_function(tmp_path, agent):
    """Zipped as it is: nothing of the package, and nothing that is not in the Lambda runtime."""
    agent.answers.append(REPORTED)
    source = Path(forwarder.__file__)
    folder = shutil.make_archive(str(tmp_path / "function"), "zip", source.parent, source.name)
    program = (
        "import json, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "import forwarder\n"
        "assert not {'boto3', 'botocore', 'rft_agent_sdk', 'requests'} & set(sys.modules)\n"
        "print(json.dumps(forwarder.handler(json.load(sys.stdin))))\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, folder],
        input=json.dumps(event()),
        env={"RFT_AGENT_URL": agent.url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {}
    assert len(agent.seen) == 1
