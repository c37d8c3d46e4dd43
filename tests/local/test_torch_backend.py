"""A training-session server with a real model behind it, driven by botocore's own clients."""

import contextlib
import re
import signal
import subprocess
import sys

import botocore.session
import pytest

from rft_agent_sdk.local.model import ModelSettings, load
from rft_agent_sdk.local.score import score
from rft_agent_sdk.twins.torch_backend import TorchBackend
from rft_agent_sdk.twins.training_sessions import TrainingSessionServer
from tests.local.folders import tiny_folder
from tests.twins.test_training_sessions import CREATE, Service, datum, model_input, supervised

pytestmark = pytest.mark.local

ADAM = {"adamParamsConfig": {"learningRate": 0.01}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_folder(tmp_path_factory.mktemp("made") / "tiny")


@pytest.fixture(scope="module")
def base(folder):
    return load(ModelSettings(str(folder), device="cpu"))


@pytest.fixture(params=[0, 8])
def service(base, request):
    def make(_):
        return TorchBackend(base, lora_rank=request.param, lora_alpha=16)

    # A poll waits for the result, however slow the machine.
    server = TrainingSessionServer(make, threads=64, hold_s=50)
    with server, contextlib.closing(Service(server)) as found:
        yield found


def saved(answer, name="saveWeights"):
    assert answer["status"] == "Completed", answer
    return answer["operationResult"][name]["modelPackageArn"]


def test_a_loop_over_the_wire_teaches_a_model(service):
    sequence = (5, 6, 7, 8, 9)
    arns = [saved(service.train(1, {"saveWeights": {}}))]
    for step in range(12):
        lesson = supervised(datum(sequence[:-1], sequence[1:]))
        taught = service.train(3 * step + 2, lesson)
        assert taught["status"] == "Completed"
        service.train(3 * step + 3, {"optimizerStep": ADAM})
        arns.append(saved(service.train(3 * step + 4, {"saveWeights": {}})))
    likely = [sum(service.logprobs(sequence, arn)[1:]) for arn in arns]
    assert likely[-1] > likely[0] + 2
    # Earlier packages are what they were.
    assert sum(service.logprobs(sequence, arns[0])[1:]) == pytest.approx(likely[0], abs=1e-6)


def test_the_base_model_is_what_was_loaded(service, base):
    wanted = score(base, [5, 6, 7, 8]).logprobs
    assert service.logprobs((5, 6, 7, 8), "")[1:] == pytest.approx(wanted[1:], abs=1e-5)


def test_sampled_logprobs_are_those_that_the_server_computes(service):
    found = service.sample((5, 6), seed=3, temperature=0.8, topK=50, topP=0.95)
    (sequence,) = found["sequences"]
    assert (
        sequence
        == service.sample((5, 6), seed=3, temperature=0.8, topK=50, topP=0.95)["sequences"][0]
    )
    logprobs = service.logprobs((5, 6, *sequence["tokens"]), "")
    assert sequence["logprobs"] == pytest.approx(logprobs[2:], abs=2e-5)


def test_many_sequences_differ_and_come_with_what_the_prompt_was_worth(service):
    config = {
        "prompt": model_input(5, 6, 7),
        "numSamples": 5,
        "samplingParams": {"maxTokens": 512, "seed": 1},
        "includePromptLogprobs": True,
        "topkPromptLogprobs": 3,
    }
    found = service.ask({"sample": config})["operationResult"]["sample"]
    assert len({tuple(one["tokens"]) for one in found["sequences"]}) == 5
    assert found["promptLogprobs"][0] is None
    for place, logprob in zip(
        found["topkPromptLogprobs"][1:], found["promptLogprobs"][1:], strict=True
    ):
        assert [one["logprob"] for one in place] == sorted(
            (one["logprob"] for one in place), reverse=True
        )
        assert place[0]["logprob"] >= logprob


def test_a_stop_text_ends_a_sequence(service, base):
    free = service.sample((5, 6), seed=2)["sequences"][0]
    text = base.tokenizer.decode(free["tokens"][3:5])
    found = service.sample((5, 6), seed=2, stop=[text])["sequences"][0]
    assert found["stopReason"] == "stop"
    assert text in base.tokenizer.decode(found["tokens"])
    assert text not in base.tokenizer.decode(found["tokens"][:-1])


def test_a_saved_state_goes_on_exactly(service):
    lesson = supervised(datum((5, 6, 7), (6, 7, 8)))
    service.train(1, lesson)
    service.train(2, {"optimizerStep": ADAM})
    state = saved(service.train(3, {"saveState": {}}), "saveState")
    ends = []
    for start, reloads in ((4, False), (7, True)):
        if reloads:
            loaded = service.train(
                start, {"loadState": {"modelPackageArn": state, "loadOptimizer": True}}
            )
            assert loaded["status"] == "Completed"
            start += 1
        service.train(start, lesson)
        service.train(start + 1, {"optimizerStep": ADAM})
        ends.append(saved(service.train(start + 2, {"saveWeights": {}})))
    assert service.logprobs((5, 6, 7, 8), ends[0]) == service.logprobs((5, 6, 7, 8), ends[1])


def test_what_the_model_cannot_read_fails_the_operation_with_a_reason(service):
    failed = service.ask({"computeLogprobs": {"prompt": model_input(10**6)}})
    assert failed["status"] == "Failed"
    assert "is not one of the" in failed["errorDetails"]
    failed = service.train(1, supervised(datum((10**6,), (1,))))
    assert failed["status"] == "Failed"
    assert service.detail()["TrainingSessionStatus"] == "Failed"


def test_a_deleted_session_ends_its_thread(base):
    made = []

    def make(_):
        made.append(TorchBackend(base, lora_rank=4))
        return made[0]

    with TrainingSessionServer(make) as server, contextlib.closing(Service(server)) as service:
        thread = made[0]._decoder._thread
        assert thread.is_alive()
        service.control.stop_training_session(TrainingSessionName="s1")
        service.control.delete_training_session(TrainingSessionName="s1")
        assert not thread.is_alive()


def test_the_command_serves_and_says_how_to_get_there(folder):
    command = [sys.executable, "-m", "rft_agent_sdk.cli", "training-sessions", "serve"]
    options = ["--model", str(folder), "--device", "cpu", "--threads", "1", "--lora-rank", "0"]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        told = dict(re.findall(r"export (\w+)=(\S+)\n", "".join(lines)))
        assert len(told) == 4
        client = botocore.session.Session().create_client(
            "sagemaker",
            region_name=told["AWS_DEFAULT_REGION"],
            endpoint_url=told["SAGEMAKER_TRAINING_SESSION_ENDPOINT"],
            aws_access_key_id="AKIAIOSFODNN7EXAMPLE",
            aws_secret_access_key="wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        )
        client.create_training_session(**CREATE)
        detail = client.describe_training_session(TrainingSessionName="s1")
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert detail["TrainingSessionDetail"]["TrainingSessionStatus"] == "Running"
