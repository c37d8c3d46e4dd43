"""The whole loop over the real `sagemaker-train` client: a training-session server, agents over HTTP."""

import itertools
import json
import math
import os
import signal
from typing import Any

import numpy as np
import pytest

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.grpo import train
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.checkpoint import RunFolder
from rft_agent_sdk.training.config import Config
from rft_agent_sdk.training.dataset import Row
from rft_agent_sdk.twins.tiny import TinyBackend
from rft_agent_sdk.twins.training_sessions import TrainingSessionServer
from tests.servers import serving
from tests.training.two_words import RENDERER, SayEnvironment, entrypoint, said

pytestmark = [pytest.mark.sagemaker, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ROWS = [Row({"prompt": f"Say word {n}.", "answer": "yes"}) for n in range(4)]
STEPS = 20
VOCABULARY = 1 + max([*said("yes"), *said("no"), *RENDERER.stop_ids, 4096])
FORCED = 40.0
WORDS = [said("yes"), said("no")]
FORK = next(at for at, (a, b) in enumerate(zip(*WORDS, strict=False)) if a != b)


def prior(context):
    """Logits of a model that can only call the tool, and knows nothing of what to say."""
    logits = np.zeros(VOCABULARY)
    tail = list(context[-max(map(len, WORDS)) :])
    for at in range(min(map(len, WORDS)), -1, -1):
        following = {
            word[at] for word in WORDS if at < len(word) and tail[len(tail) - at :] == word[:at]
        }
        if following:
            logits[list(following)] = FORCED
            break
    return logits


def config_of(folder, agent_url):
    return Config(
        region="us-west-2",
        role_arn="arn:aws:iam::123456789012:role/Sessions",
        base_model_arn="arn:aws:sagemaker:us-west-2:aws:hub-content/SageMakerPublicHub/Model/tiny/1.0.0",
        s3_output_path="s3://bucket/output",
        model_package_group_arn="arn:aws:sagemaker:us-west-2:123456789012:model-package-group/g",
        agent_url=agent_url or "http://127.0.0.1:1",
        dataset_path="rows.jsonl",
        batch_size=2,
        responses_per_prompt=6,
        epochs=STEPS // 2,
        max_new_tokens=512,
        learning_rate=0.0015,
        max_rollout_time=60.0,
        eval_every=8,
        save_every=10,
        run_dir=str(folder),
        mlflow_uri="none",
    )


@pytest.fixture
def server(monkeypatch):
    def base_model(_):
        return TinyBackend(VOCABULARY, eos_ids=sorted(RENDERER.stop_ids), prior=prior, seed=1)

    keys = {
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    }
    with TrainingSessionServer(base_model) as found:
        for name, value in {**keys, **found.environment()}.items():
            monkeypatch.setenv(name, value)
        yield found


async def open_engine(config):
    """The real engine, whose model has the small tokenizer: that of its hub is not on this machine."""
    engine = await composing.open_engine(config)
    engine.get_tokenizer = lambda: None  # type: ignore[method-assign]
    return engine


def test_the_loop_trains_through_a_training_session(server, tmp_path):
    with serving(asgi_app(entrypoint())) as url:
        work = train(config_of(tmp_path, url), ROWS, ROWS[:1], open_engine=open_engine)
        assert composing.run(work) == 0
    told = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in told] == list(range(1, STEPS + 1))
    assert [n for n, line in enumerate(told, 1) if "eval/accuracy" in line] == [8, 16, 20]
    rewards = [line["sampler/mean_reward"] for line in told]
    assert rewards[0] < 0.7  # of the model that knows nothing; it learns within three steps
    assert sum(rewards[-3:]) / 3 > 0.9
    assert told[-1]["eval/accuracy"] == 1.0
    assert all(line["sampler/failed_rollouts"] == 0 for line in told)
    trained = [line for line in told if line["sampler/num_datums"]]
    # the sampler's log-probabilities are those of the weights that are trained
    assert all(math.isclose(line["train/actor/ppo_kl"], 0, abs_tol=1e-5) for line in trained)
    checkpoint = RunFolder(tmp_path).latest()
    assert checkpoint is not None
    assert checkpoint.step == STEPS
    assert checkpoint.engine_state.startswith("arn:aws:sagemaker:")
    (session,) = server.sessions.values()
    assert session.status == "Stopped"
    assert operations_of(server) == expected_operations(told)
    check_datums(server, sum(int(line["sampler/num_datums"]) for line in told))


def operations_of(server):
    """What was called, in order, but for samples and polls."""
    left_out = ("sample", "DescribeTrainingSession")
    return [name for name in server.operations() if name not in left_out]


def expected_operations(told):
    rebind = ["saveWeights", "loadWeightsForSampling"]
    expected = ["CreateTrainingSession", *rebind]
    for line in told:
        if line["sampler/num_datums"]:
            expected += ["forwardBackward", "optimizerStep", *rebind]
        if line["step"] in (10, STEPS):
            expected.append("saveState")
    return [*expected, "StopTrainingSession"]


def check_datums(server, count):
    """Each datum trains the ids of one reply, whole, at the log-probability it was sampled with."""
    configs = [call.body.get("operationConfig") or {} for call in server.calls]
    sent = [c["forwardBackward"] for c in configs if "forwardBackward" in c]
    datums = [datum for body in sent for datum in body["datumList"]]
    assert len(datums) == count
    for datum in datums:
        (chunk,) = datum["modelInput"]["chunks"]
        inputs = {name: one["data"] for name, one in datum["lossFnInputs"].items()}
        targets, weights = inputs["target_tokens"], inputs["weights"]
        assert chunk["tokens"][1:] == targets[:-1]
        first = weights.index(1.0)
        assert targets[first:] in WORDS
        assert weights == [0.0] * first + [1.0] * (len(targets) - first)
        assert all(logprob < 0 for logprob in inputs["logprobs"][first:])
        assert {*inputs["advantages"][:first], *inputs["logprobs"][:first]} == {0.0}
        assert len(set(inputs["advantages"][first:])) == 1


def test_a_stopped_run_goes_on_in_another_session(server, tmp_path):
    config = config_of(tmp_path, "").model_copy(update={"epochs": 1, "save_every": 1})
    with serving(asgi_app(entrypoint())) as url:
        config = config.model_copy(update={"agent_url": url})
        assert composing.run(train(config, ROWS, [], open_engine=open_engine)) == 0
        further = config.model_copy(update={"epochs": 2})
        work = train(further, ROWS, [], resume=True, preflight=False, open_engine=open_engine)
        assert composing.run(work) == 0
    told = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in told] == [1, 2, 3, 4]
    first, second = server.sessions
    assert [one.status for one in server.sessions.values()] == ["Stopped", "Stopped"]
    resumed = [name for name in server.operations(second) if name != "sample"]
    assert "saveState" in server.operations(first)
    assert "loadState" in resumed
    assert resumed.index("loadState") < resumed.index("saveWeights")


class Interrupting(SayEnvironment):
    """Sends this process SIGTERM when an episode of a certain number begins; 0 never does."""

    def __init__(self, at: int = 0) -> None:
        self.at = at
        self.begun = itertools.count(1)

    def start(self, task: str) -> Any:
        if next(self.begun) == self.at:
            os.kill(os.getpid(), signal.SIGTERM)
        return super().start(task)


def test_a_run_ended_by_sigterm_goes_on_in_another_session_as_if_it_had_not(server, tmp_path):
    rollouts_of_a_step = 2 * 6

    def play(folder, environment, *, resume=False):
        with serving(asgi_app(entrypoint(environment))) as url:
            config = config_of(tmp_path / folder, url)
            config = config.model_copy(update={"epochs": 3, "eval_every": 2, "save_every": -1})
            work = train(
                config, ROWS, ROWS[:1], resume=resume, preflight=False, open_engine=open_engine
            )
            return composing.run(work)

    def told(folder):
        lines = (tmp_path / folder / "metrics.jsonl").read_text().splitlines()
        steps = [json.loads(line).items() for line in lines]
        return [{name: value for name, value in step if "time/" not in name} for step in steps]

    assert play("whole", Interrupting()) == 0
    in_step_4 = 3 * rollouts_of_a_step + 1 + 5  # with the evaluation after step 2
    assert play("cut", Interrupting(in_step_4)) == composing.SIGTERM_EXIT
    checkpoint = RunFolder(tmp_path / "cut").latest()
    assert checkpoint is not None
    assert checkpoint.step == 3
    assert {one.status for one in server.sessions.values()} == {"Stopped"}
    assert play("cut", Interrupting(), resume=True) == 0
    whole, cut = told("whole"), told("cut")
    assert [line["step"] for line in whole] == list(range(1, 7))
    assert 0 < whole[0]["sampler/mean_reward"] < 1
    assert cut == [{name: pytest.approx(value) for name, value in line.items()} for line in whole]
