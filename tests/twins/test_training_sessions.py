"""The training-session server, driven by botocore's own models of both services."""

import functools
import threading
import time
from contextlib import contextmanager

import botocore.session
import pytest
import requests
from botocore.config import Config
from botocore.exceptions import ClientError

from rft_agent_sdk.twins.tiny import TinyBackend
from rft_agent_sdk.twins.training_sessions import TrainingSessionServer

BASE = "arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/tiny/1.0.0"
CREATE = {
    "TrainingSessionName": "s1",
    "LoraConfig": {"Rank": 8, "Alpha": 16},
    "RoleArn": "arn:aws:iam::123456789012:role/Sessions",
    "ModelConfig": {"BaseModelArn": BASE},
    "OutputConfig": {"S3Location": {"Path": "s3://bucket/output"}},
    "ModelPackageGroupArn": "arn:aws:sagemaker:us-west-2:123456789012:model-package-group/g",
}
ADAM = {"adamParamsConfig": {"learningRate": 0.01}}


@functools.cache
def aws():
    """One session for all: it keeps the services' models, which are slow to read."""
    return botocore.session.Session()


class Service:
    """Both clients of one server, with the session `s1`."""

    def __init__(self, server):
        session = aws()
        options = {
            "region_name": "us-west-2",
            "endpoint_url": server.url,
            "aws_access_key_id": "AKIAIOSFODNN7EXAMPLE",
            "aws_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "config": Config(retries={"total_max_attempts": 1}),
        }
        self.server = server
        self.control = session.create_client("sagemaker", **options)
        self.runtime = session.create_client("sagemakertrainingsessionruntime", **options)
        self.control.create_training_session(**CREATE)

    def close(self):
        self.control.close()
        self.runtime.close()

    def submit(self, number, config, **more):
        return self.runtime.execute_training_operation(
            trainingSessionName="s1", sequenceNumber=number, operationConfig=config, **more
        )["operationId"]

    def poll(self, operation_id):
        return self.runtime.get_training_operation_result(
            trainingSessionName="s1", operationId=operation_id
        )

    def train(self, number, config):
        return self.poll(self.submit(number, config))

    def ask(self, config):
        operation_id = self.runtime.execute_sampling_operation(
            trainingSessionName="s1", operationConfig=config
        )["operationId"]
        return self.runtime.get_sampling_operation_result(
            trainingSessionName="s1", operationId=operation_id
        )

    def sample(self, prompt, package=None, **params):
        config = {
            "prompt": model_input(*prompt),
            "numSamples": 1,
            "samplingParams": {"maxTokens": 512, "seed": 1, **params},
            **({"modelPackageArn": package} if package else {}),
        }
        return self.ask({"sample": config})["operationResult"]["sample"]

    def logprobs(self, prompt, package):
        config = {"prompt": model_input(*prompt), "modelPackageArn": package}
        return self.ask({"computeLogprobs": config})["operationResult"]["computeLogprobs"][
            "logprobs"
        ]

    def detail(self):
        found = self.control.describe_training_session(TrainingSessionName="s1")
        return found["TrainingSessionDetail"]


@contextmanager
def serving(make_backend=lambda _: TinyBackend(8), **options):
    with TrainingSessionServer(make_backend, **options) as server:
        service = Service(server)
        try:
            yield service
        finally:
            service.close()


@pytest.fixture
def service():
    with serving() as found:
        yield found


def model_input(*tokens):
    return {"chunks": [{"tokens": list(tokens), "type": "encoded_text"}]}


def tensor(values, dtype="float32"):
    return {"data": list(values), "dtype": dtype, "shape": [len(values)]}


def datum(tokens=(1, 2), targets=(2, 0), **inputs):
    ones = [1.0] * len(tokens)
    given = {"weights": ones, **inputs}
    return {
        "modelInput": model_input(*tokens),
        "lossFnInputs": {
            "target_tokens": tensor(targets, "int64"),
            **{name: tensor(values) for name, values in given.items()},
        },
    }


def supervised(*datums):
    return {"forwardBackward": {"lossFnName": "cross_entropy", "datumList": list(datums)}}


def refused(call, code, status, match):
    with pytest.raises(ClientError, match=match) as caught:
        call()
    response = caught.value.response
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (
        code,
        status,
    )


def test_a_loop_learns_what_it_is_taught(service):
    packages = []
    for step in range(10):
        taught = service.train(3 * step + 1, supervised(datum((1,), (5,))))
        assert taught["status"] == "Completed"
        assert taught["tokenUsage"] == {"trainingTokens": 1}
        service.train(3 * step + 2, {"optimizerStep": ADAM})
        saved = service.train(3 * step + 3, {"saveWeights": {}})
        packages.append(saved["operationResult"]["saveWeights"]["modelPackageArn"])
    found = [service.logprobs((1, 5), package)[1] for package in packages]
    assert found == sorted(found)
    assert found[-1] > -0.05
    assert service.sample((1,), packages[-1])["sequences"][0]["tokens"][0] == 5


def test_reinforcement_raises_the_rewarded_token_and_lowers_the_other(service):
    first = service.logprobs((1, 5), "")[1]
    inputs = {"logprobs": (first,)}
    batch = [datum((1,), (5,), advantages=(1.0,), **inputs)]
    batch.append(datum((1,), (6,), advantages=(-1.0,), **inputs))
    config = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    result = service.train(
        1,
        {"forwardBackward": {"lossFnName": "ppo", "datumList": batch, "lossFnConfig": config}},
    )["operationResult"]["forwardBackward"]
    assert result["metrics"]["actor/pg_loss"] == pytest.approx(0.0, abs=1e-9)
    assert result["metrics"]["global_token_num"] == 2
    assert result["lossFnOutputs"][0]["logprobs"]["data"] == pytest.approx([first])
    service.train(2, {"optimizerStep": ADAM})
    saved = service.train(3, {"saveWeights": {}})["operationResult"]["saveWeights"]
    arn = saved["modelPackageArn"]
    assert service.logprobs((1, 5), arn)[1] > first > service.logprobs((1, 6), arn)[1]


def test_old_weights_keep_being_sampled_by_their_package(service):
    before = service.train(1, {"saveWeights": {}})["operationResult"]["saveWeights"]
    service.train(2, supervised(datum((1,), (5,))))
    service.train(3, {"optimizerStep": ADAM})
    after = service.train(4, {"saveWeights": {}})["operationResult"]["saveWeights"]
    old, new = before["modelPackageArn"], after["modelPackageArn"]
    loaded = service.ask({"loadWeightsForSampling": {"modelPackageArn": new}})
    assert loaded["status"] == "Completed"
    assert service.logprobs((1, 5), old) != service.logprobs((1, 5), new)
    assert (
        service.logprobs((1, 5), new)
        == service.ask({"computeLogprobs": {"prompt": model_input(1, 5)}})["operationResult"][
            "computeLogprobs"
        ]["logprobs"]
    )


def test_sampling_tells_exact_logprobs_and_a_seed_repeats_it(service):
    found, again = service.sample((1, 2), seed=7), service.sample((1, 2), seed=7)
    assert found == again
    (sequence,) = found["sequences"]
    assert sequence["stopReason"] == "stop"
    assert sequence["tokenUsage"] == {"prefill": 2, "decode": len(sequence["tokens"])}
    tokens = (1, 2, *sequence["tokens"])
    wanted = service.ask({"computeLogprobs": {"prompt": model_input(*tokens)}})
    logprobs = wanted["operationResult"]["computeLogprobs"]["logprobs"]
    assert logprobs[0] is None
    assert logprobs[2:] == pytest.approx(sequence["logprobs"])


def test_a_saved_state_resumes_exactly_also_in_another_session(service):
    service.train(1, supervised(datum()))
    service.train(2, {"optimizerStep": ADAM})
    saved = service.train(3, {"saveState": {"description": "one"}})["operationResult"]["saveState"]
    ends = []
    for at in (4, 8):
        load = {"modelPackageArn": saved["modelPackageArn"], "loadOptimizer": True}
        assert service.train(at, {"loadState": load})["operationResult"] == {"loadState": {}}
        service.train(at + 1, supervised(datum((3,), (4,))))
        service.train(at + 2, {"optimizerStep": ADAM})
        end = service.train(at + 3, {"saveWeights": {}})["operationResult"]["saveWeights"]
        ends.append(service.logprobs((1, 2, 3, 4), end["modelPackageArn"]))
    assert ends[0] == ends[1]


def test_operations_run_in_order_of_their_numbers_and_wait_on_a_gap():
    with serving(hold_s=0.05) as service:
        late = service.submit(2, {"optimizerStep": ADAM})
        assert service.poll(late)["status"] == "Pending"
        service.train(1, supervised(datum()))
        until = time.monotonic() + 10
        while service.poll(late)["status"] != "Completed" and time.monotonic() < until:
            pass
        metrics = service.poll(late)["operationResult"]["optimizerStep"]["metrics"]
        assert metrics["actor/grad_norm"] > 0
        assert service.detail()["LastReceivedSequenceNumber"] == 2


def test_the_same_token_and_number_is_the_same_operation_and_another_token_is_refused(service):
    first = service.submit(1, {"saveWeights": {}}, clientToken="a-1")
    assert service.submit(1, {"saveWeights": {}}, clientToken="a-1") == first
    refused(
        lambda: service.submit(1, {"saveWeights": {}}, clientToken="b-2"),
        "ValidationException",
        400,
        "sequence number 1 was received already",
    )


def wrong(change):
    config = supervised(datum(logprobs=(0.0, 0.0), advantages=(1.0, 1.0)))
    change(config["forwardBackward"])
    return config


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (wrong(lambda c: c.update(lossFnConfig={"clip_ratio": 0.2})), "unknown keys"),
        (wrong(lambda c: c.update(lossFnConfig={"clip_high_threshold": 0.2})), "from 1.0 to 10.0"),
        (wrong(lambda c: c.update(lossFnName="grpo")), "not a loss function"),
        (
            wrong(lambda c: c["datumList"][0]["lossFnInputs"].update(labels=tensor([1.0]))),
            "unknown keys",
        ),
        (
            wrong(lambda c: c["datumList"][0]["lossFnInputs"].update(weights=tensor([1], "int64"))),
            "has dtype 'int64'",
        ),
        (
            wrong(lambda c: c["datumList"][0]["lossFnInputs"]["weights"].update(shape=[3])),
            "shape does not fit",
        ),
        (wrong(lambda c: c.update(datumList=[])), "at least one datum"),
        ({"optimizerStep": {"adamParamsConfig": {"learningRate": 0.0}}}, "greater than 0"),
        ({"optimizerStep": {"adamParamsConfig": {"learningRate": 0.02}}}, "from 0.0 to 0.01"),
    ],
)
def test_what_breaks_the_service_s_limits_is_refused_at_once(service, config, match):
    refused(lambda: service.submit(1, config), "ValidationException", 400, match)
    assert "LastReceivedSequenceNumber" not in service.detail()


def test_a_datum_without_what_its_loss_needs_fails_the_session_and_skips_the_rest():
    with serving() as service:
        later = [service.submit(at, {"saveWeights": {}}) for at in (3, 4)]
        failed = service.train(
            1, {"forwardBackward": {"lossFnName": "ppo", "datumList": [datum()]}}
        )
        assert failed["status"] == "Failed"
        assert "loss inputs are missing" in failed["errorDetails"]
        assert [service.poll(one)["status"] for one in later] == ["Skipped", "Skipped"]
        detail = service.detail()
        assert detail["TrainingSessionStatus"] == "Failed"
        assert failed["errorDetails"] in detail["ErrorDetails"]
        refused(lambda: service.submit(5, {"saveWeights": {}}), "ConflictException", 409, "Failed")


def test_arrays_of_another_length_than_the_tokens_fail_the_operation(service):
    failed = service.train(1, supervised(datum(weights=(1.0,))))
    assert failed["status"] == "Failed"
    assert "length of the model input" in failed["errorDetails"]


def test_a_package_nobody_saved_fails_the_sampling_and_not_the_session(service):
    arn = "arn:aws:sagemaker:us-west-2:123456789012:model-package/g/9"
    failed = service.ask({"computeLogprobs": {"prompt": model_input(1), "modelPackageArn": arn}})
    assert failed["status"] == "Failed"
    assert "does not exist" in failed["errorDetails"]
    assert service.detail()["TrainingSessionStatus"] == "Running"


class Slow(TinyBackend):
    """Waits in every optimizer step until it is let go."""

    def __init__(self):
        super().__init__(8)
        self.go = threading.Event()

    def optimizer_step(self, params):
        self.go.wait(10)
        return super().optimizer_step(params)


def test_a_submission_is_answered_while_the_backend_still_computes():
    backend = Slow()
    with serving(lambda _: backend, hold_s=0.01) as service:
        running = service.submit(1, {"optimizerStep": ADAM})
        assert service.poll(running)["status"] == "InProgress"
        assert service.sample((1,))["sequences"]
        waiting = service.submit(2, {"saveWeights": {}})
        service.control.stop_training_session(TrainingSessionName="s1")
        assert service.detail()["TrainingSessionStatus"] == "Stopping"
        assert service.poll(waiting)["status"] == "Skipped"
        backend.go.set()
        until = time.monotonic() + 10
        while service.detail()["TrainingSessionStatus"] != "Stopped" and time.monotonic() < until:
            pass
        assert service.poll(running)["status"] == "Completed"
        assert service.detail()["TrainingSessionStatus"] == "Stopped"


def test_a_stopped_session_takes_nothing_and_a_second_stop_is_an_invalid_transition(service):
    service.control.stop_training_session(TrainingSessionName="s1")
    assert service.detail()["TrainingSessionStatus"] == "Stopped"
    refused(
        lambda: service.control.stop_training_session(TrainingSessionName="s1"),
        "ValidationException",
        400,
        "invalid session state transition from Stopped to Stopping",
    )
    refused(lambda: service.sample((1,)), "ConflictException", 409, "is Stopped")
    service.control.delete_training_session(TrainingSessionName="s1")
    refused(service.detail, "ResourceNotFound", 400, "does not exist")


def test_a_running_session_is_not_deleted_and_its_name_is_taken(service):
    refused(
        lambda: service.control.delete_training_session(TrainingSessionName="s1"),
        "ValidationException",
        400,
        "from Running to Deleting",
    )
    refused(
        lambda: service.control.create_training_session(**CREATE), "ResourceInUse", 400, "exists"
    )


def test_sessions_are_listed_newest_first_by_page_and_by_status(service):
    for name in ("s2", "other"):
        service.control.create_training_session(**{**CREATE, "TrainingSessionName": name})
    service.control.stop_training_session(TrainingSessionName="s2")

    def names(**filters):
        pages = service.control.get_paginator("list_training_sessions").paginate(**filters)
        return [
            one["TrainingSessionArn"].rpartition("/")[2]
            for page in pages
            for one in page["TrainingSessionSummaries"]
        ]

    assert names(PaginationConfig={"PageSize": 1}) == ["other", "s2", "s1"]
    assert names(NameContains="s") == ["s2", "s1"]
    assert names(StatusEquals="Running") == ["other", "s1"]


def test_tokens_are_counted_by_what_they_are_billed_as(service):
    service.train(1, supervised(datum((1, 2, 3), (2, 3, 0))))
    sampled = len(service.sample((1, 2))["sequences"][0]["tokens"])
    service.ask({"computeLogprobs": {"prompt": model_input(1, 2, 3, 4)}})
    assert service.detail()["BillableTokenUsage"] == {
        "PrefillTokenCount": 6,
        "SampleTokenCount": sampled,
        "TrainingTokenCount": 3,
    }


def test_faults_come_on_request_and_change_nothing(service):
    service.server.fail_next("ExecuteTrainingOperation", 429, "ThrottlingException", "slow down")
    refused(lambda: service.submit(1, {"saveWeights": {}}), "ThrottlingException", 429, "slow down")
    assert service.train(1, {"saveWeights": {}})["status"] == "Completed"


def test_every_call_but_polls_is_remembered_in_order(service):
    service.train(1, {"saveWeights": {}})
    service.sample((1,))
    assert service.server.operations() == ["CreateTrainingSession", "saveWeights", "sample"]
    assert service.server.operations("s1")[-1] == "sample"
    assert service.server.calls[1].body["sequenceNumber"] == 1


def test_prompt_logprobs_come_when_they_are_asked_for(service):
    config = {
        "prompt": model_input(1, 2),
        "numSamples": 3,
        "samplingParams": {"maxTokens": 512, "seed": 1},
        "includePromptLogprobs": True,
        "topkPromptLogprobs": 2,
    }
    found = service.ask({"sample": config})["operationResult"]["sample"]
    assert len(found["sequences"]) == 3
    assert found["promptLogprobs"][0] is None
    best = [one["tokenId"] for one in found["topkPromptLogprobs"][1]]
    assert best == [0, 1]


def test_the_hub_tells_where_the_tokenizer_is():
    with serving(tokenizer="some/folder") as service:
        found = service.control.describe_hub_content(
            HubName="SageMakerPublicHub", HubContentType="Model", HubContentName="tiny"
        )
    assert found["HubContentDocument"] == '{"HuggingfaceId": "some/folder"}'


def test_an_unknown_session_or_operation_is_not_found(service):
    refused(lambda: service.poll("nothing"), "ResourceNotFoundException", 404, "no such operation")
    refused(
        lambda: service.runtime.execute_sampling_operation(
            trainingSessionName="s9", operationConfig={"sample": sample_config()}
        ),
        "ResourceNotFoundException",
        404,
        "s9 does not exist",
    )


def sample_config():
    return {"prompt": model_input(1), "numSamples": 1, "samplingParams": {"maxTokens": 512}}


def test_chat_completions_are_refused_in_words(service):
    refused(
        lambda: service.runtime.sample_training_session(trainingSessionName="s1", body=b"{}"),
        "ValidationException",
        400,
        "token ids only",
    )


@pytest.mark.parametrize("params", [{"maxTokens": 8}, {"maxTokens": 512, "minP": 0.1}, {}])
def test_the_server_itself_holds_the_limits_that_botocore_does(service, params):
    config = {"sample": {**sample_config(), "samplingParams": params}}
    answer = requests.post(
        f"{service.server.url}/v1/training-sessions/s1/sampling-operations",
        json={"operationConfig": config},
        timeout=10,
    )
    assert (answer.status_code, answer.headers["x-amzn-errortype"]) == (400, "ValidationException")
    assert "message" in answer.json()
