"""States of a trajectory, where the job's ARN may stand, and what is recorded."""

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway import Gateway, RolloutState
from tests.gateway.serve import BODY, JOB, bearer, echo, job_headers, mint, served

READY = {"TrajectoryId": "t1", "Status": "ready"}
RATED = {"TrajectoryId": "t1", "Rewards": [1.0]}


@pytest.fixture
def gateway():
    return Gateway()


@pytest.fixture
def job(gateway):
    return gateway.register_job(JOB, policy=echo)


@pytest.fixture
def post(gateway, job):
    """Post to the gateway as the SDK's bearer client does; returns status and message."""
    token = mint()
    with served(gateway) as http:

        def send(path, body, trajectory="t1"):
            reply = http.post(path, json=body, headers=job_headers(token, trajectory))
            return reply.status_code, reply.json().get("Message", "")

        yield send


def test_the_registry_starts_empty_and_takes_a_job_once(gateway):
    assert not gateway.jobs
    gateway.register_job(JOB, policy=echo)
    assert list(gateway.jobs) == [JOB]
    with pytest.raises(UsageError, match="registered already"):
        gateway.register_job(JOB, policy=echo)
    with pytest.raises(UsageError, match="got 'nonsense'"):
        gateway.register_job("nonsense", policy=echo)


def test_a_trajectory_exists_from_its_first_call(job, post):
    assert not job.trajectories
    assert post("/sample", BODY)[0] == 200
    assert job.trajectories["t1"].state is RolloutState.PENDING


def test_a_repetition_with_the_same_token_is_fine_and_changes_nothing(job, post):
    assert post("/complete-rollout", READY | {"ClientToken": "a"})[0] == 200
    assert post("/update-reward", RATED | {"ClientToken": "b"})[0] == 200
    assert post("/complete-rollout", READY | {"ClientToken": "a"})[0] == 200
    assert post("/update-reward", RATED | {"ClientToken": "b", "Rewards": [9.0]})[0] == 200
    assert job.trajectories["t1"].rewards == (1.0,)


@pytest.mark.parametrize("token", [{}, {"ClientToken": "other"}])
def test_a_repetition_with_another_token_or_none_is_a_conflict(job, post, token):
    post("/complete-rollout", READY | {"ClientToken": "a"})
    status, message = post("/complete-rollout", READY | token)
    assert (status, message[:28]) == (409, "Cannot transition trajectory")
    post("/update-reward", RATED | {"ClientToken": "b"})
    status, message = post("/update-reward", RATED | token)
    assert status == 409
    assert "not in valid status" in message


def test_a_reward_needs_a_completed_rollout(job, post):
    assert post("/update-reward", RATED)[0] == 409
    assert post("/complete-rollout", READY | {"Status": "failed"})[0] == 200
    assert post("/update-reward", RATED)[0] == 409
    assert job.trajectories["t1"].state is RolloutState.FAILED


def test_nothing_is_sampled_after_the_end(job, post):
    post("/sample", BODY)
    post("/complete-rollout", READY)
    status, message = post("/sample", BODY)
    assert status == 409
    assert "nothing can be sampled" in message
    assert len(job.trajectories["t1"].turns) == 1


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"TrajectoryId": "t1"},
        *(RATED | {"Rewards": bad} for bad in ([], None, 1.0, "1", ["1"], [True], [None], [[1]])),
        RATED | {"TrajectoryId": ""},
        RATED | {"TrajectoryId": "x" * 257},
        RATED | {"TrajectoryId": 3},
        RATED | {"ClientToken": 3},
        [],
    ],
)
def test_a_malformed_reward_is_400_and_changes_nothing(job, post, body):
    post("/complete-rollout", READY)
    assert post("/update-reward", body)[0] == 400
    assert job.trajectories["t1"].rewards == ()


def test_status_defaults_to_ready_and_takes_only_two_words(job, post):
    assert post("/complete-rollout", {"TrajectoryId": "t1", "Status": "done"})[0] == 400
    assert post("/complete-rollout", {"TrajectoryId": "t1"})[0] == 200
    assert job.trajectories["t1"].state is RolloutState.READY


def test_the_job_may_stand_in_the_body_but_must_agree(gateway, job):
    token = bearer(mint())
    with served(gateway) as http:
        alone = http.post("/complete-rollout", json=READY | {"JobArn": JOB}, headers=token)
        other = READY | {"JobArn": f"{JOB}x"}
        differs = http.post("/complete-rollout", json=other, headers=job_headers(mint()))
        missing = http.post("/complete-rollout", json=READY, headers=token)
        wrong = http.post("/complete-rollout", json=READY | {"JobArn": 3}, headers=token)
    assert alone.status_code == 200
    for reply in (differs, missing, wrong):
        assert reply.status_code == 400
        assert reply.headers["x-amzn-errortype"] == "ValidationException"
    assert "differs" in differs.json()["Message"]


def test_a_sample_without_trajectory_is_400(gateway, job):
    with served(gateway) as http:
        reply = http.post("/sample", json=BODY, headers=job_headers(mint(), None))
    assert reply.status_code == 400
    assert "X-Amzn-SageMaker-Trajectory-Id" in reply.json()["Message"]


def test_what_would_fail_the_job_is_told(job, post):
    post("/complete-rollout", READY)
    trajectory = job.trajectories["t1"]
    assert trajectory.failure_reason == "No sampling requests were received for this rollout"
    post("/sample", BODY, "t2")
    post("/complete-rollout", READY | {"TrajectoryId": "t2"})
    unrewarded = job.trajectories["t2"].failure_reason
    assert unrewarded == "The rollout completed but no reward was received in time"
    post("/update-reward", RATED | {"TrajectoryId": "t2"})
    assert job.trajectories["t2"].failure_reason is None
    post("/complete-rollout", {"TrajectoryId": "t3", "Status": "failed"}, "t3")
    assert job.trajectories["t3"].failure_reason == "The agent signaled that the trajectory failed"


def test_records_hold_telling_headers_and_no_token(gateway, job):
    token = mint()
    with served(gateway) as http:
        http.post("/complete-rollout", json=READY, headers=job_headers(token))
    (call,) = job.trajectories["t1"].calls
    assert call.headers["x-amzn-sagemaker-trajectory-id"] == "t1"
    assert call.body == READY
    assert "authorization" not in call.headers
    assert token not in repr(call)
