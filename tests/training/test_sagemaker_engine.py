"""The SageMaker engine, with the real `sagemaker-train` client against the training-session server."""

import asyncio
import importlib.util
import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from rft_agent_sdk.errors import EngineError, UsageError
from rft_agent_sdk.training.engines.base import AdamParams, Datum
from rft_agent_sdk.training.engines.sagemaker import SageMakerEngine, wire_datum
from rft_agent_sdk.training.engines.sagemaker_start import SageMakerSettings, load_sdk
from rft_agent_sdk.twins.backend import Loss, TrainingDatum
from rft_agent_sdk.twins.tiny import TinyBackend
from rft_agent_sdk.twins.training_sessions import TrainingSessionServer

ROOT = Path(__file__).parents[2]
SETTINGS = SageMakerSettings(
    role_arn="arn:aws:iam::123456789012:role/Sessions",
    base_model_arn="arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/tiny/1.0.0",
    s3_output_path="s3://bucket/output",
    model_package_group_arn="arn:aws:sagemaker:us-west-2:123456789012:model-package-group/g",
    region="us-west-2",
    operation_timeout_s=20,
)
DATUM = Datum((1, 2), (2, 5), (0.0, 1.0), (0.0, math.log(1 / 8)), (0.0, 1.5))
CLIPS = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
ADAM = AdamParams(learning_rate=0.01)
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


def real_client(test):
    """Needs `sagemaker-train`, whose own modules warn of themselves when they are first read."""
    return pytest.mark.sagemaker(pytest.mark.filterwarnings("ignore::DeprecationWarning")(test))


@pytest.fixture
def server(monkeypatch):
    yield from serving(monkeypatch, TinyBackend(8))


def serving(monkeypatch, backend):
    with TrainingSessionServer(lambda _: backend) as found:
        for name, value in {**KEYS, **found.environment()}.items():
            monkeypatch.setenv(name, value)
        yield found


@asynccontextmanager
async def opened(settings=SETTINGS):
    async with await SageMakerEngine.open(settings) as engine:
        yield engine


def only(server):
    (session,) = server.sessions.values()
    return session


def wait_for_stop(server):
    until = time.monotonic() + 20
    while only(server).status != "Stopped" and time.monotonic() < until:
        time.sleep(0.05)


def bodies(server, member):
    configs = [call.body.get("operationConfig") or {} for call in server.calls]
    return [config[member] for config in configs if member in config]


async def steps(engine, count):
    """Train on the same datum; return each step's weights as a sampling client."""
    clients = []
    for _ in range(count):
        await engine.forward_backward([DATUM], "ppo", CLIPS)
        await engine.optim_step(ADAM)
        clients.append(await engine.save_weights_and_get_sampling_client())
    return clients


async def logprobs(client, prompt=(1, 2, 5)):
    return await client.compute_logprobs(list(prompt)).result_async(timeout=20)


# Without the client


def test_a_datum_holds_what_its_loss_needs_and_no_more():
    assert wire_datum(DATUM, "ppo") == {
        "modelInput": {"chunks": [{"tokens": [1, 2], "type": "encoded_text"}]},
        "lossFnInputs": {
            "target_tokens": {"data": [2, 5], "dtype": "int64", "shape": [2]},
            "weights": {"data": [0.0, 1.0], "dtype": "float32", "shape": [2]},
            "logprobs": {"data": [0.0, math.log(1 / 8)], "dtype": "float32", "shape": [2]},
            "advantages": {"data": [0.0, 1.5], "dtype": "float32", "shape": [2]},
        },
    }
    assert set(wire_datum(DATUM, "cross_entropy")["lossFnInputs"]) == {"target_tokens", "weights"}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"base_model_arn": "qwen3-6-27b"}, "base_model_arn: wanted an ARN, got 'qwen3-6-27b'"),
        ({"s3_output_path": ""}, "s3_output_path: wanted s3://"),
        ({"model_package_group_arn": ""}, "model_package_group_arn: wanted an ARN"),
    ],
)
def test_settings_ask_for_what_the_client_would_otherwise_look_up(change, match):
    with pytest.raises(UsageError, match=match):
        replace(SETTINGS, **change)


async def test_without_sagemaker_train_it_says_what_to_install():
    try:
        load_sdk()
    except UsageError:
        with pytest.raises(UsageError, match=r"pip install 'rft-agent-sdk\[sagemaker\]'"):
            await SageMakerEngine.open(SETTINGS)
    else:
        pytest.skip("sagemaker-train is installed here")


# With it


@real_client
async def test_a_loop_trains_samples_and_stops_its_session(server):
    async with opened() as engine:
        name = engine.session_name
        clients = await steps(engine, 4)
        found = [(await logprobs(client))[2] for client in clients]
    assert found == sorted(found)
    assert found[-1] > math.log(1 / 8) + 1
    assert only(server).status == "Stopped"
    assert server.operations(name) == [
        "CreateTrainingSession",
        "DescribeTrainingSession",
        *(["forwardBackward", "optimizerStep", "saveWeights", "loadWeightsForSampling"] * 4),
        *(["computeLogprobs"] * 4),
        "StopTrainingSession",
    ]


@real_client
async def test_clip_bounds_and_every_parameter_of_adam_arrive(server):
    async with opened() as engine:
        metrics = await engine.forward_backward([DATUM], "ppo", CLIPS)
        assert metrics["global_token_num"] == 2
        step = await engine.optim_step(AdamParams(learning_rate=0.003, grad_clip_norm=0.5))
        assert step["actor/lr"] == 0.003
    assert bodies(server, "forwardBackward") == [
        {"lossFnName": "ppo", "datumList": [wire_datum(DATUM, "ppo")], "lossFnConfig": CLIPS}
    ]
    assert bodies(server, "optimizerStep") == [
        {
            "adamParamsConfig": {
                "learningRate": 0.003,
                "beta1": 0.9,
                "beta2": 0.95,
                "eps": 1e-8,
                "weightDecay": 0.0,
                "gradClipNorm": 0.5,
            }
        }
    ]


@real_client
async def test_the_session_is_made_from_the_settings_alone(server):
    async with opened(replace(SETTINGS, lora_rank=4, lora_alpha=8)) as engine:
        assert engine.session_name.startswith("rft-")
    (created,) = [call.body for call in server.calls if call.operation == "CreateTrainingSession"]
    del created["TrainingSessionName"]
    assert created == {
        "LoraConfig": {"Rank": 4, "Alpha": 8},
        "RoleArn": SETTINGS.role_arn,
        "ModelConfig": {"BaseModelArn": SETTINGS.base_model_arn},
        "OutputConfig": {"S3Location": {"Path": SETTINGS.s3_output_path}},
        "ModelPackageGroupArn": SETTINGS.model_package_group_arn,
    }
    assert "DescribeHubContent" not in server.operations()


@real_client
async def test_an_earlier_sampling_client_keeps_its_weights(server):
    async with opened() as engine:
        (first,) = await steps(engine, 1)
        before = await logprobs(first)
        await steps(engine, 1)
        assert await logprobs(first) == before
    arns = [body["modelPackageArn"] for body in bodies(server, "computeLogprobs")]
    assert arns == [first.model_package_arn] * 2


@real_client
async def test_a_saved_state_resumes_exactly_in_another_session(server):
    async with opened() as engine:
        await steps(engine, 1)
        state = await engine.save_state("one step")
        wanted = await logprobs((await steps(engine, 1))[0])
    async with opened() as engine:
        await engine.load_state(state)
        assert await logprobs((await steps(engine, 1))[0]) == wanted
        await engine.load_state(state, with_optimizer=False)
        assert await logprobs((await steps(engine, 1))[0]) != wanted


@real_client
async def test_the_gateway_s_sampler_samples_through_its_client(server):
    from rft_agent_sdk.gateway.samplers.sagemaker import SageMakerSampler
    from rft_agent_sdk.gateway.samplers.token import SampleRequest
    from rft_agent_sdk.types import SamplingParams

    async with opened() as engine:
        (client,) = await steps(engine, 1)
        sampler = SageMakerSampler(client)
        request = SampleRequest(
            (1, 2), SamplingParams(max_tokens=3), stop_ids=frozenset({0}), seed=4
        )
        sampled = await sampler.sample(request)
        recomputed = await logprobs(client, (1, 2, *sampled.ids))
    assert 1 <= len(sampled.ids) <= 3
    assert list(sampled.logprobs) == pytest.approx(recomputed[2:])
    assert sampler.version == client.model_package_arn
    (asked,) = bodies(server, "sample")
    assert asked["samplingParams"]["maxTokens"] == 512
    assert asked["modelPackageArn"] == client.model_package_arn


@real_client
async def test_a_refused_operation_leaves_its_number_to_the_next(server):
    async with opened() as engine:
        await steps(engine, 1)
        server.fail_next("ExecuteTrainingOperation", 400, "ValidationException", "not this one")
        with pytest.raises(EngineError, match="not this one") as caught:
            await engine.forward_backward([DATUM], "ppo", CLIPS)
        assert caught.value.usable
        await steps(engine, 1)
        sequence = [call.body.get("sequenceNumber") for call in server.calls]
    numbers = [number for number in sequence if number is not None]
    assert numbers == [1, 2, 3, 4, 4, 5, 6]
    assert only(server).status == "Stopped"


@real_client
async def test_a_batch_sent_in_parts_trains_like_one(server):
    async with opened() as engine:
        await engine.forward_backward([DATUM] * 1100, "ppo", CLIPS)
        step = await engine.optim_step(replace(ADAM, grad_clip_norm=0.0))
        await engine.forward_backward([DATUM], "ppo", CLIPS)
    parts = [len(body["datumList"]) for body in bodies(server, "forwardBackward")]
    assert len(parts) == 3
    assert sum(parts) == 1101
    one = TinyBackend(8)
    given = TrainingDatum(
        DATUM.tokens, DATUM.targets, DATUM.weights, DATUM.logprobs, DATUM.advantages
    )
    alone = one.forward_backward([given], Loss("ppo"), backward=True)
    assert step["actor/grad_norm"] == pytest.approx(1100 * alone.metrics["actor/grad_norm"])


@real_client
async def test_a_batch_of_which_a_part_was_refused_ends_the_engine(server):
    async with opened() as engine:
        server.fail_next("ExecuteTrainingOperation", 400, "ValidationException", "not this part")
        with pytest.raises(EngineError, match="not this part") as caught:
            await engine.forward_backward([DATUM] * 1100, "ppo", CLIPS)
        assert not caught.value.usable
    assert only(server).status == "Stopped"


@real_client
async def test_a_tokenizer_without_transformers_says_what_to_install(server):
    if importlib.util.find_spec("transformers") is not None:
        pytest.skip("transformers is installed here")
    async with opened() as engine:
        with pytest.raises(UsageError, match=r"pip install 'sagemaker-train\[tokenizer\]'"):
            engine.get_tokenizer()


@real_client
async def test_what_the_client_itself_refuses_leaves_its_number_too(server):
    async with opened() as engine:
        with pytest.raises(EngineError, match="beta1") as caught:
            await engine.optim_step(replace(ADAM, beta1=-1.0))
        assert caught.value.usable
        await steps(engine, 1)
    assert only(server).last_sequence_number == 3


@real_client
async def test_a_refused_load_after_a_save_changes_nothing(server):
    async with opened() as engine:
        server.fail_next("ExecuteSamplingOperation", 400, "ValidationException", "not loaded")
        with pytest.raises(EngineError, match="not loaded") as caught:
            await engine.save_weights_and_get_sampling_client()
        assert caught.value.usable
        await steps(engine, 1)


@real_client
async def test_a_throttled_submission_is_sent_again_by_the_client(server):
    async with opened() as engine:
        server.fail_next("ExecuteTrainingOperation", 429, "ThrottlingException")
        await engine.forward_backward([DATUM], "ppo", CLIPS)
    tokens = [call.body["clientToken"] for call in server.calls if "clientToken" in call.body]
    assert len(tokens) == 2
    assert len(set(tokens)) == 1


class Stuck(TinyBackend):
    """Never ends an optimizer step until it is let go."""

    def __init__(self):
        super().__init__(8)
        self.go = threading.Event()

    def optimizer_step(self, params):
        self.go.wait(60)
        return super().optimizer_step(params)


@pytest.fixture
def stuck(monkeypatch):
    backend = Stuck()
    yield from serving(monkeypatch, backend)
    backend.go.set()


@real_client
async def test_an_operation_that_does_not_end_is_given_up_and_the_session_stopped(stuck):
    try:
        async with opened(replace(SETTINGS, operation_timeout_s=1)) as engine:
            await engine.forward_backward([DATUM], "ppo", CLIPS)
            with pytest.raises(EngineError, match="did not complete within") as caught:
                await engine.optim_step(ADAM)
            assert not caught.value.usable
            with pytest.raises(EngineError, match="cannot go on since optim_step did not end"):
                await engine.save_state()
        assert only(stuck).status == "Stopping"
    finally:
        only(stuck).backend.go.set()


@real_client
async def test_a_failed_operation_ends_the_engine(server):
    async with opened() as engine:
        with pytest.raises(EngineError, match="token 99") as caught:
            await engine.forward_backward([replace(DATUM, targets=(2, 99))], "importance_sampling")
        assert not caught.value.usable
        with pytest.raises(EngineError, match="cannot go on since forward_backward failed"):
            await engine.optim_step(ADAM)
    assert only(server).status == "Failed"


@real_client
async def test_a_session_stopped_from_outside_ends_the_engine(server):
    from rft_agent_sdk.training.orphans import control_plane, stop_session

    async with opened() as engine:
        assert await asyncio.to_thread(
            lambda: stop_session(control_plane("us-west-2"), engine.session_name)
        )
        with pytest.raises(EngineError, match="refused and the session is Stopped") as caught:
            await engine.optim_step(ADAM)
        assert not caught.value.usable
        await engine.stop()


@real_client
async def test_a_refused_session_says_why(server):
    server.fail_next("CreateTrainingSession", 400, "ResourceLimitExceeded", "one at a time")
    with pytest.raises(EngineError, match=r"did not start: .*ResourceLimitExceeded.*one at a time"):
        await SageMakerEngine.open(SETTINGS)


@real_client
async def test_a_session_is_stopped_whose_start_is_cancelled(server, monkeypatch):
    arrived, go = threading.Event(), threading.Event()
    make = server._make_backend

    def slow(request):
        arrived.set()
        go.wait(10)
        return make(request)

    server._make_backend = slow
    opening = asyncio.ensure_future(SageMakerEngine.open(SETTINGS))
    await asyncio.to_thread(arrived.wait, 20)
    opening.cancel()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await asyncio.to_thread(wait_for_stop, server)
    assert only(server).status == "Stopped"


@real_client
async def test_the_limits_of_the_service_are_told_before_anything_is_sent(server):
    async with opened() as engine:
        with pytest.raises(UsageError, match=r"at most 0\.01, got 0\.1"):
            await engine.optim_step(AdamParams(learning_rate=0.1))
        with pytest.raises(UsageError, match="clip_high_threshold: wanted a bound of the ratio"):
            await engine.forward_backward([DATUM], "ppo", {"clip_high_threshold": 0.2})
        with pytest.raises(UsageError, match="at least one datum"):
            await engine.forward_backward([], "ppo")
    assert only(server).last_sequence_number is None


PROGRAM = """
import asyncio, signal, sys
from rft_agent_sdk.training.engines.sagemaker import SageMakerEngine
from tests.training.test_sagemaker_engine import SETTINGS

async def main(how):
    if how == "sigterm":
        task = asyncio.current_task()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    engine = await SageMakerEngine.open(SETTINGS)
    print(engine.session_name, flush=True)
    if how == "exit":
        sys.exit(3)
    async with engine:
        await asyncio.sleep(60)

asyncio.run(main(sys.argv[1]))
"""


def program(server, how):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, how],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **KEYS, **server.environment()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@real_client
@pytest.mark.parametrize("how", ["exit", "sigterm"])
def test_a_process_that_ends_stops_its_session(server, how):
    process = program(server, how)
    assert process.stdout is not None
    name = process.stdout.readline().strip()
    if how == "sigterm":
        process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=60)
    assert process.returncode != 0
    assert name in server.sessions, log
    assert only(server).status == "Stopped", log
