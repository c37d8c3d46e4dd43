"""The Job Runtime protocol as botocore's own client of the service speaks it."""

import json

import pytest
from botocore.exceptions import ClientError

from rft_agent_sdk.gateway import Fault, Faults, Gateway, RolloutState
from tests.gateway.serve import ACCESS_KEY, BODY, JOB, SECRET_KEY, echo, events, job_runtime, served

SAMPLE = {"JobArn": JOB, "TrajectoryId": "t1", "Body": json.dumps(BODY).encode()}
RATED = {"JobArn": JOB, "TrajectoryId": "t1", "Rewards": [1.0]}
ENDED = {"JobArn": JOB, "TrajectoryId": "t1", "Status": "ready"}


@pytest.fixture
def gateway():
    return Gateway(secrets={ACCESS_KEY: SECRET_KEY})


def test_a_whole_rollout_leaves_its_turns_and_rewards(gateway):
    job = gateway.register_job(JOB, policy=echo)
    with served(gateway) as http, job_runtime(http) as client:
        reply = client.sample(**SAMPLE)
        assert reply["ContentType"] == "application/json"
        text = json.loads(reply["Body"].read())["choices"][0]["message"]["content"]
        client.complete_rollout(**ENDED)
        client.update_reward(**RATED | {"Rewards": [0, 1.5]})
    trajectory = job.trajectories["t1"]
    assert text == trajectory.turns[0].reply.text == "you said go"
    assert trajectory.turns[0].messages[-1].text == "go"
    assert (trajectory.state, trajectory.rewards) == (RolloutState.REWARD_RECEIVED, (0.0, 1.5))
    assert [call.operation for call in trajectory.calls] == [
        "Sample",
        "CompleteRollout",
        "UpdateReward",
    ]
    assert {call.auth for call in trajectory.calls} == {"sigv4"}


def test_a_streamed_sample_is_an_event_stream(gateway):
    job = gateway.register_job(JOB, policy=echo)
    with served(gateway) as http, job_runtime(http) as client:
        reply = client.sample_with_response_stream(**SAMPLE)
        assert reply["ContentType"].startswith("text/event-stream")
        found = events(reply["Body"].read().decode())
    assert found[-1] == "[DONE]"
    deltas = [event["choices"][0]["delta"].get("content") for event in found[:-1]]
    assert "".join(filter(None, deltas)) == "you said go"
    assert len(job.trajectories["t1"].turns) == 1


def test_botocores_retries_wait_out_throttling(gateway):
    job = gateway.register_job(JOB, policy=echo, faults=Faults(throttle_first=2))
    with served(gateway) as http, job_runtime(http) as client:
        reply = client.sample(**SAMPLE)
    trajectory = job.trajectories["t1"]
    assert reply["ResponseMetadata"]["RetryAttempts"] == 2
    assert [call.status for call in trajectory.calls] == [429, 429, 200]
    assert len(trajectory.turns) == 1
    assert job.fault_counts == {Fault.THROTTLE: 2}


def test_a_lost_reply_to_a_report_is_repeated_and_counts_once(gateway):
    job = gateway.register_job(JOB, policy=echo, report_faults=Faults(lose_reply_first=1))
    with served(gateway) as http, job_runtime(http) as client:
        client.complete_rollout(**ENDED)
        client.update_reward(**RATED)
    trajectory = job.trajectories["t1"]
    assert [call.status for call in trajectory.calls] == [None, 200, 200]
    assert trajectory.rewards == (1.0,)


@pytest.mark.parametrize(
    ("operation", "arguments", "status", "code"),
    [
        ("sample", SAMPLE | {"JobArn": f"{JOB}-other"}, 400, "ValidationException"),
        ("sample", SAMPLE | {"JobArn": "arn"}, 400, "ValidationException"),
        ("sample", SAMPLE | {"Body": b"{"}, 400, "ValidationException"),
        ("sample", SAMPLE | {"TrajectoryId": "unknown"}, 404, "ResourceNotFoundException"),
        (
            "complete_rollout",
            ENDED | {"TrajectoryId": "unknown"},
            404,
            "ResourceNotFoundException",
        ),
        ("update_reward", RATED, 409, "ConflictException"),
        ("update_reward", RATED | {"Rewards": []}, 400, "ValidationException"),
        ("update_reward", RATED | {"Rewards": [1.0, float("nan")]}, 400, "ValidationException"),
        (
            "sample",
            SAMPLE | {"JobArn": JOB.replace("123456789012", "999999999999")},
            403,
            "AccessDeniedException",
        ),
    ],
)
def test_errors_arrive_as_the_services_own_types(operation, arguments, status, code):
    gateway = Gateway(account="123456789012")
    gateway.register_job(JOB, policy=echo, trajectories=["t1"])
    with served(gateway) as http, job_runtime(http, attempts=1) as client:
        with pytest.raises(ClientError) as caught:
            getattr(client, operation)(**arguments)
        assert isinstance(caught.value, getattr(client.exceptions, code))
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status
    assert caught.value.response["Error"]["Message"]


def test_an_unknown_job_is_told_in_the_services_words(gateway):
    with (
        served(gateway) as http,
        job_runtime(http, attempts=1) as client,
        pytest.raises(client.exceptions.ValidationException, match="Could not find job"),
    ):
        client.sample(**SAMPLE)
    assert [call.status for call in gateway.stray_calls] == [400]


def test_a_fault_of_the_service_arrives_as_its_internal_error(gateway):
    gateway.register_job(JOB, policy=echo, faults=Faults(error_first=1))
    with (
        served(gateway) as http,
        job_runtime(http, attempts=1) as client,
        pytest.raises(client.exceptions.InternalServiceError),
    ):
        client.sample(**SAMPLE)


def test_a_request_signed_with_the_wrong_secret_is_refused(gateway):
    gateway.register_job(JOB, policy=echo)
    with (
        served(gateway) as http,
        job_runtime(http, secret_key="x" * 40) as client,
        pytest.raises(client.exceptions.AccessDeniedException, match="signature"),
    ):
        client.sample(**SAMPLE)


def test_any_access_key_is_let_in_where_no_secret_is_known():
    gateway = Gateway()
    gateway.register_job(JOB, policy=echo)
    with served(gateway) as http, job_runtime(http, secret_key="x" * 40) as client:
        assert client.sample(**SAMPLE)["ContentType"] == "application/json"
