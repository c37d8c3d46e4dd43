"""CompleteRollout and UpdateReward: the wire, retries inside the deadline, and what a 409 means."""

import logging
import random
import time
from email.utils import formatdate

import pytest

from rft_agent_sdk import job_runtime
from rft_agent_sdk.context import Deadline
from rft_agent_sdk.endpoint import resolve_endpoint
from rft_agent_sdk.errors import (
    AccessDeniedError,
    ConflictError,
    JobRuntimeError,
    NotFoundError,
    QuotaExceededError,
    ServerError,
    ThrottledError,
    UnreachableError,
    ValidationError,
)
from rft_agent_sdk.job_runtime import JobRuntimeClient, Report
from rft_agent_sdk.payload import parse_request
from rft_agent_sdk.testing import FakeClock
from rft_agent_sdk.types import Outcome
from tests.servers import JOB_ARN, Answer, ScriptedServer, managed_payload

KEY = "key-of-this-session"
CONFLICT = Answer(
    409, {"Message": "not in valid status"}, {"x-amzn-errortype": "ConflictException"}
)
BUSY = Answer(429, {"Message": "slow down"}, {"x-amzn-errortype": "ThrottlingException"})
BROKEN = Answer(500, {"Message": "oops"}, {"x-amzn-errortype": "InternalServerException"})


@pytest.fixture(autouse=True)
def credentials(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


class Service:
    """Moves trajectories as the Job Runtime does; `faults` come first, one to a request.

    A fault is an answer in place of the service's own, or a pair whose second part says that the
    request takes effect all the same.
    """

    def __init__(self, *faults):
        self.faults = list(faults)
        self.state = "PENDING"
        self.effects = []
        self.tokens = set()

    def __call__(self, seen, count):
        fault = self.faults[count] if count < len(self.faults) else None
        answer, takes_effect = fault if isinstance(fault, tuple) else (fault, False)
        own = self._serve(seen) if answer is None or takes_effect else None
        return own if answer is None else answer

    def _serve(self, seen):
        operation, token = seen.path.strip("/"), seen.json["ClientToken"]
        needed, after = {
            "complete-rollout": ("PENDING", "READY"),
            "update-reward": ("READY", "REWARD_RECEIVED"),
        }[operation]
        if token in self.tokens:
            return {}
        if self.state != needed:
            return CONFLICT
        self.state = after
        self.tokens.add(token)
        self.effects.append((operation, seen.json.get("Rewards")))
        return {}


def client(server, *, invocation_id="i1", rollout_id="r1", clock=None) -> JobRuntimeClient:
    request = parse_request(managed_payload(server.url, rollout_id))
    return JobRuntimeClient(
        resolve_endpoint(request, allow_hosts=[server.host]),
        job_arn=JOB_ARN,
        trajectory_id=rollout_id,
        invocation_id=invocation_id,
        **({"sleep": clock.sleep} if clock else {}),
    )


def report(*faults, rewards=(0.5,), seconds=60.0, service=None):
    """Report against a service with these faults; no pause takes real time."""
    clock = FakeClock()
    with ScriptedServer(service or Service(*faults)) as server:
        result = client(server, clock=clock).report(
            rewards, Outcome.COMPLETED, Deadline(seconds, clock)
        )
    return result, server, clock


def paths(server):
    return [seen.path.strip("/") for seen in server.seen]


# ------------------------------------------------------------------ the wire


def test_a_report_is_two_posts_with_the_job_in_header_and_body():
    result, server, _ = report(rewards=(1, 0.5))
    assert result == Report(True)
    complete, update = server.seen
    assert complete.path == "/complete-rollout"
    assert update.path == "/update-reward"
    token = complete.json["ClientToken"]
    assert complete.json == {
        "JobArn": JOB_ARN,
        "TrajectoryId": "r1",
        "Status": "ready",
        "ClientToken": token,
    }
    assert update.json == {
        "JobArn": JOB_ARN,
        "TrajectoryId": "r1",
        "Rewards": [1.0, 0.5],
        "ClientToken": update.json["ClientToken"],
    }
    for seen in server.seen:
        assert seen.headers["x-amzn-sagemaker-job-arn"] == JOB_ARN
        assert seen.headers["content-type"] == "application/json"
        assert seen.headers["authorization"].startswith("Bearer sagemaker-api-key-")
        assert 1 <= len(seen.json["ClientToken"]) <= 64


def test_a_gateway_gets_the_outcome_and_no_job():
    config = {"base_url": "", "api_key": KEY, "report": True}
    with ScriptedServer(Service()) as server:
        request = parse_request({"prompt": "go", "_config": {**config, "base_url": server.url}})
        reporter = JobRuntimeClient(
            resolve_endpoint(request), job_arn=None, trajectory_id="t", invocation_id="i"
        )
        assert reporter.report([1.0], Outcome.TRUNCATED, Deadline(10)).reported
    assert server.seen[1].json["Outcome"] == "truncated"
    assert all("JobArn" not in seen.json for seen in server.seen)
    assert all(seen.headers["authorization"] == f"Bearer {KEY}" for seen in server.seen)


def test_the_client_token_is_stable_over_retries_and_differs_by_operation_and_invocation():
    tokens: dict[tuple[str, str, str], set[str]] = {}
    with ScriptedServer(lambda seen, count: BROKEN if count % 3 < 2 else Answer()) as server:
        for rollout_id in ("r1", "r2"):
            for invocation_id in ("i1", "i2"):
                clock, start = FakeClock(), len(server.seen)
                reporter = client(
                    server, rollout_id=rollout_id, invocation_id=invocation_id, clock=clock
                )
                assert reporter.report([1.0], Outcome.COMPLETED, Deadline(60, clock)).reported
                for seen in server.seen[start:]:
                    key = (rollout_id, invocation_id, seen.path)
                    tokens.setdefault(key, set()).add(seen.json["ClientToken"])
    assert len(server.seen) == 24  # each of 8 calls was tried three times
    assert all(len(same) == 1 for same in tokens.values())
    assert len(set.union(*tokens.values())) == 8


REFUSED = Answer(400, {"error": {"type": "ValidationException", "message": "3 turns"}})


def test_rewards_by_turn_that_are_refused_are_sent_as_their_sum(caplog):
    result, server, _ = report(None, REFUSED, rewards=(1.0, 0.5))
    assert result == Report(True)
    _, refused, summed = server.seen
    assert (refused.json["Rewards"], summed.json["Rewards"]) == ([1.0, 0.5], [1.5])
    assert refused.json["ClientToken"] != summed.json["ClientToken"]
    assert "sending their sum" in caplog.text


def test_one_reward_that_is_refused_is_not_sent_again():
    result, server, _ = report(None, REFUSED, rewards=(1.0,))
    assert not result.reported
    assert paths(server) == ["complete-rollout", "update-reward"]


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ValidationError),
        (401, AccessDeniedError),
        (402, QuotaExceededError),
        (403, AccessDeniedError),
        (404, NotFoundError),
        (409, ConflictError),
        (418, JobRuntimeError),
        (429, ThrottledError),
        (500, ServerError),
        (503, ServerError),
        (302, JobRuntimeError),
    ],
)
@pytest.mark.parametrize(
    "body", [{"Message": "because"}, {}, b"", b"<html>", b"[1]", b"7", b"\xff"]
)
def test_an_error_is_typed_by_its_status_whatever_its_body(status, kind, body):
    with ScriptedServer(lambda seen, count: Answer(status, body)) as server:
        clock = FakeClock()
        with pytest.raises(JobRuntimeError) as caught:
            client(server, clock=clock).complete_rollout(Deadline(3, clock))
    error = caught.value
    assert type(error) is kind
    assert (error.status, error.operation) == (status, "CompleteRollout")
    assert str(error).startswith(f"CompleteRollout answered {status}")
    if isinstance(body, dict) and body:
        assert "because" in str(error)


@pytest.mark.parametrize(
    ("headers", "body", "code", "text"),
    [
        (
            {"x-amzn-errortype": "ResourceNotFoundException:http://internal.amazon.com/coral/"},
            {"Message": "none such"},
            "ResourceNotFoundException",
            "none such",
        ),
        (
            {},
            {"__type": "com.amazon#ResourceNotFoundException", "message": "a"},
            "ResourceNotFoundException",
            "a",
        ),
        ({}, {"error": {"message": "b", "type": "x", "code": "not_found"}}, "not_found", "b"),
        ({}, {"error": "plain"}, None, "plain"),
        ({}, {"Message": {"deep": 1}}, None, "deep"),
        ({}, {"__type": ["odd"]}, None, "Not Found"),
    ],
)
def test_an_error_says_what_the_body_says_in_any_of_its_shapes(headers, body, code, text):
    with (
        ScriptedServer(lambda seen, count: Answer(404, body, headers)) as server,
        pytest.raises(NotFoundError) as caught,
    ):
        client(server).update_reward([1.0], Deadline(5))
    assert caught.value.code == code
    assert text in str(caught.value)


def test_the_services_own_error_type_says_more_than_the_status():
    busy = Answer(400, {"__type": "ThrottlingException"})
    result, server, _ = report(busy, busy)
    assert result.reported
    assert paths(server) == ["complete-rollout"] * 3 + ["update-reward"]


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"Message": "' + b"x" * 100_000 + b'"}'])
def test_a_body_of_any_size_or_depth_makes_a_short_error(body):
    with (
        ScriptedServer(lambda seen, count: Answer(400, body)) as server,
        pytest.raises(ValidationError) as caught,
    ):
        client(server).complete_rollout(Deadline(5))
    assert len(str(caught.value)) < 1000


def test_no_answer_at_all_is_unreachable():
    clock = FakeClock()
    with ScriptedServer(Service()) as server:
        reporter = client(server, clock=clock)
    with pytest.raises(UnreachableError, match="CompleteRollout got no answer") as caught:
        reporter.complete_rollout(Deadline(3, clock))
    assert caught.value.status is None


def test_a_ca_bundle_that_is_not_there_is_a_reason_and_not_a_crash(monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "absent.pem"))
    request = parse_request(managed_payload("https://127.0.0.1:9"))
    endpoint = resolve_endpoint(request, allow_hosts=["127.0.0.1:9"])
    clock = FakeClock()
    reporter = JobRuntimeClient(
        endpoint, job_arn=JOB_ARN, trajectory_id="r", invocation_id="i", sleep=clock.sleep
    )
    result = reporter.report([1.0], Outcome.COMPLETED, Deadline(2, clock))
    assert result.reported is False
    assert "absent.pem" in (result.error or "")


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_every_success_is_one(status):
    result, _, _ = report(Answer(status, b""), Answer(status, b""))
    assert result.reported


# ------------------------------------------------------------------ retries


@pytest.mark.parametrize("fault", [BUSY, BROKEN, Answer(drop=True), Answer(503, b"")])
def test_a_passing_fault_is_tried_again(fault):
    result, server, clock = report(fault, fault, None, fault)
    assert result == Report(True)
    assert paths(server) == ["complete-rollout"] * 3 + ["update-reward"] * 2
    assert len(clock.slept) == 3
    assert all(0 < pause <= 8 for pause in clock.slept)


@pytest.mark.parametrize("status", [400, 402, 404, 418, 302])
def test_a_refusal_is_not_tried_again(status):
    result, server, clock = report(Answer(status, {"Message": "no"}))
    assert result.reported is False
    assert str(status) in (result.error or "")
    assert paths(server) == ["complete-rollout"]
    assert clock.slept == []


def test_pauses_grow_and_are_jittered():
    random.seed(7)
    _, _, one = report(*[BUSY] * 8)
    _, _, other = report(*[BUSY] * 8)
    assert one.slept != other.slept
    for pauses in (one.slept, other.slept):
        for attempt, pause in enumerate(pauses, start=1):
            longest = min(8, 0.5 * 2**attempt)
            assert 0.2 * longest <= pause <= longest


@pytest.mark.parametrize("fault", [BUSY, BROKEN, Answer(drop=True)])
def test_retries_use_the_whole_deadline_and_never_pass_it(fault):
    result, server, clock = report(service=lambda seen, count: fault, seconds=30)
    assert result.reported is False
    assert set(paths(server)) == {"complete-rollout"}
    assert len(server.seen) > 4
    assert 29 <= clock.now <= 30


def test_a_service_that_comes_back_just_before_the_deadline_gets_the_report():
    clock = FakeClock()

    def service(seen, count):
        return BUSY if clock.now < 29 else Answer()

    with ScriptedServer(service) as server:
        result = client(server, clock=clock).report([1.0], Outcome.COMPLETED, Deadline(30, clock))
    assert result.reported


def test_a_hanging_service_is_left_when_the_time_is_up():
    with ScriptedServer(lambda seen, count: Answer(delay_s=3)) as server:
        started = time.monotonic()
        result = client(server).report([1.0], Outcome.COMPLETED, Deadline(0.4))
    assert time.monotonic() - started < 2
    assert "UnreachableError" in (result.error or "")
    assert len(server.seen) == 1


def test_a_report_whose_time_is_up_is_tried_once_all_the_same():
    result, server, clock = report(seconds=0)
    assert result.reported
    assert len(server.seen) == 2
    assert clock.slept == []


@pytest.mark.parametrize("value", ["7", "7.0"])
def test_a_pause_the_service_asks_for_is_kept(value):
    busy = Answer(429, {}, {"retry-after": value})
    result, _, clock = report(busy)
    assert result.reported
    assert clock.slept == [7.0]


def test_a_pause_may_be_asked_for_as_a_date():
    busy = Answer(503, {}, {"retry-after": formatdate(time.time() + 20, usegmt=True)})
    _, _, clock = report(busy)
    assert 18 < clock.slept[0] <= 20


def test_a_pause_past_the_deadline_leaves_time_for_a_last_try():
    busy = Answer(429, {}, {"retry-after": "900"})
    result, server, clock = report(busy, seconds=30)
    assert result.reported
    assert clock.slept == [30 - job_runtime.LAST_TRY_S]
    assert paths(server) == ["complete-rollout", "complete-rollout", "update-reward"]


@pytest.mark.parametrize("value", ["soon", "-5", "nan", "inf", "", "Thu, 99 Foo 9999 99:99:99 GMT"])
def test_a_pause_that_cannot_be_read_is_passed_over(value):
    result, _, clock = report(Answer(429, {}, {"retry-after": value}))
    assert result.reported
    assert clock.slept[0] <= 1


def test_a_rejected_token_is_signed_anew_once():
    rejected = Answer(403, {"Message": "Authentication failed"})
    result, server, _ = report(rejected)
    assert result.reported
    first, second = (seen.headers["authorization"] for seen in server.seen[:2])
    assert first != second
    assert server.seen[0].body == server.seen[1].body
    result, server, clock = report(rejected, rejected)
    assert result.reported is False
    assert "AccessDeniedError" in (result.error or "")
    assert len(server.seen) == 2
    assert clock.slept == []


def test_a_500_that_speaks_of_403_is_not_signed_anew():
    result, server, _ = report(Answer(500, {"Message": "upstream gave up after 403 ms"}))
    assert result.reported
    assert len({seen.headers["authorization"] for seen in server.seen}) == 1


# ------------------------------------------------------------------ what a 409 means

LOST = (Answer(drop=True), True)
"""The request takes effect and its answer is lost."""


class Forgetful(Service):
    """A service that does not know a repeated token, so that a repetition is a conflict."""

    def _serve(self, seen):
        self.tokens.clear()
        return super()._serve(seen)


@pytest.mark.parametrize("kind", [Service, Forgetful])
@pytest.mark.parametrize("lost", [(LOST,), (None, LOST), (LOST, None, LOST), (LOST, LOST)])
@pytest.mark.parametrize("answer", [Answer(drop=True), BROKEN])
def test_a_lost_answer_has_its_effect_exactly_once(kind, lost, answer):
    faults = [(answer, True) if fault is LOST else fault for fault in lost]
    service = kind(*faults)
    result, _, _ = report(service=service)
    assert result == Report(True)
    assert service.effects == [("complete-rollout", None), ("update-reward", [0.5])]
    assert service.state == "REWARD_RECEIVED"


def test_a_conflict_on_a_first_completion_still_sends_the_reward():
    service = Service()
    service.state = "READY"  # completed by somebody else
    result, server, _ = report(service=service)
    assert result == Report(True)
    assert paths(server) == ["complete-rollout", "update-reward"]
    assert service.effects == [("update-reward", [0.5])]


@pytest.mark.parametrize("refusal", [CONFLICT, Answer(404, {}), BUSY, BROKEN, Answer(drop=True)])
def test_after_a_conflict_the_reward_is_sent_once_and_a_refusal_is_the_end(refusal):
    result, server, clock = report(CONFLICT, refusal, refusal)
    assert result.reported is False
    assert result.error
    assert paths(server) == ["complete-rollout", "update-reward"]
    assert clock.slept == []


def test_a_conflict_after_mere_throttling_is_somebody_elses():
    result, server, _ = report(BUSY, CONFLICT, CONFLICT)
    assert result.reported is False
    assert "ConflictError" in (result.error or "")
    assert paths(server) == ["complete-rollout"] * 2 + ["update-reward"]


def test_a_conflict_on_a_first_reward_is_not_a_success():
    result, server, _ = report(None, CONFLICT)
    assert result.reported is False
    assert paths(server) == ["complete-rollout", "update-reward"]


def test_a_completion_that_fails_for_good_sends_no_reward():
    result, server, _ = report(Answer(404, {"Message": "none"}))
    assert result == Report(False, "NotFoundError: CompleteRollout answered 404: none")
    assert paths(server) == ["complete-rollout"]


# ------------------------------------------------------------------ where it goes


def test_a_redirect_is_not_followed():
    with ScriptedServer(lambda seen, count: Answer()) as other:
        away = Answer(307, {}, {"location": other.url + "/complete-rollout"})
        result, _, _ = report(away)
    assert result.reported is False
    assert other.seen == []


def test_nothing_of_the_environment_changes_who_is_asked(monkeypatch, tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login a password b\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    result, server, _ = report()
    assert result.reported
    assert server.seen[0].headers["authorization"].startswith("Bearer ")


def test_no_token_is_logged_or_in_an_error(caplog):
    caplog.set_level(logging.DEBUG)
    faults = [Answer(403, {"Message": "x"}), BROKEN, Answer(drop=True), CONFLICT, Answer(404, {})]
    result, server, _ = report(*faults)
    assert result.reported is False
    for record in caplog.records:
        assert "sagemaker-api-key" not in record.getMessage() + repr(record.args)
    assert "sagemaker-api-key" not in repr(result)
    assert all("sagemaker-api-key" in seen.headers["authorization"] for seen in server.seen)
