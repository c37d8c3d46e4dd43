"""The real `sagemaker-train` client drives a model that torch trains, served by `rft training-sessions serve`.

Client and model are in two environments, as neither wants the other's packages: the server is a process of its own.
"""

import importlib
import re
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RFT = ROOT / ".venv-local" / "bin" / "rft"

pytestmark = [
    pytest.mark.sagemaker,
    pytest.mark.skipif(
        not RFT.exists(), reason="`make test-sessions` makes .venv-local, with torch"
    ),
    # Its modules warn of themselves when they are first read.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

PREFIX = "arn:aws:sagemaker:us-west-2"
BASE = f"{PREFIX}:aws:hub-content/SageMakerPublicHub/Model/tiny/1.0.0"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
LESSON = ((5, 6, 7, 8), (6, 7, 8, 9))
PROMPT = [5, 6]
ADAM = {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.0}
WAIT_S = 60


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server of a small random model; yields what it says to export."""
    folder = tmp_path_factory.mktemp("made") / "tiny"
    sizes = ["--hidden", "32", "--layers", "1", "--heads", "2", "--inner", "64"]
    subprocess.run([RFT, "local", "init-tiny", "--out", folder, *sizes], check=True)
    options = ["--model", folder, "--device", "cpu", "--threads", "1"]
    command = [RFT, "training-sessions", "serve", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        told = dict(re.findall(r"export (\w+)=(\S+)\n", "".join(lines)))
        assert len(told) == 4
        yield told
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.fixture
def service(served, monkeypatch):
    """The client's `ServiceClient`, of the real package, which only its own environment has."""
    for name, value in {**KEYS, **served}.items():
        monkeypatch.setenv(name, value)
    sdk = importlib.import_module("sagemaker.train.training_session")
    return sdk.ServiceClient(
        role_arn="arn:aws:iam::123456789012:role/Sessions",
        model_package_group_arn=f"{PREFIX}:123456789012:model-package-group/g",
        s3_output_path="s3://bucket/output",
    )


@pytest.fixture
def client(service, request):
    name = re.sub(r"\W+|_", "-", request.node.name)[:60]
    made = service.create_lora_training_client(BASE, rank=8, alpha=16, training_session_name=name)
    yield made
    made.stop()


def datum(tokens, targets, **inputs):
    given = {"weights": [1.0] * len(targets), **inputs}
    tensors = {"target_tokens": tensor(targets, "int64")}
    return {
        "modelInput": {"chunks": [{"tokens": list(tokens), "type": "encoded_text"}]},
        "lossFnInputs": tensors | {name: tensor(values) for name, values in given.items()},
    }


def tensor(values, dtype="float32"):
    return {"data": list(values), "dtype": dtype, "shape": [len(values)]}


def step(client, batch, loss="cross_entropy", **config):
    """Train once; return what the pass told."""
    passed = client.forward_backward(batch, loss, **config).result(timeout=WAIT_S)
    client.optim_step(ADAM).result(timeout=WAIT_S)
    return passed


def taught(client, count):
    """Teach the lesson; return the loss of each step."""
    batch = [datum(*LESSON)]
    return [step(client, batch).metrics["actor/pg_loss"] for _ in range(count)]


def sampled(sampler, count=1, **params):
    given = {"max_tokens": 512, "temperature": 1.0, "top_p": 1.0, **params}
    return sampler.sample(PROMPT, count, given).result(timeout=WAIT_S).sequences


def logprobs(sampler, tokens=(5, 6, 7, 8, 9)):
    found = sampler.compute_logprobs(list(tokens)).result(timeout=WAIT_S)
    assert found[0] is None
    return found[1:]


def test_the_loss_falls_and_what_was_taught_is_sampled(client):
    losses = taught(client, 12)
    assert losses[-1] < losses[0] - 5
    assert losses == sorted(losses, reverse=True)
    sampler = client.save_weights_and_get_sampling_client()
    (said,) = sampled(sampler, temperature=0.0)
    assert said.tokens[:3] == [7, 8, 9]
    assert sum(logprobs(sampler)) > -losses[0]


def test_sampling_and_training_agree_on_every_logprob(client):
    taught(client, 2)
    sampler = client.save_weights_and_get_sampling_client()
    (said,) = sampled(sampler, seed=3)
    again = sampled(sampler, seed=3)[0]
    assert (said.tokens, said.logprobs) == (again.tokens, again.logprobs)
    ids = [*PROMPT, *said.tokens]
    (output,) = client.forward([datum(ids[:-1], ids[1:])]).result(timeout=WAIT_S).loss_fn_outputs
    trained = output["logprobs"]["data"][len(PROMPT) - 1 :]
    assert trained == pytest.approx(said.logprobs, abs=1e-3)
    assert logprobs(sampler, ids)[len(PROMPT) - 1 :] == pytest.approx(said.logprobs, abs=1e-3)


def test_reinforcement_raises_what_was_rewarded_and_lowers_the_rest(client):
    sampler = client.save_weights_and_get_sampling_client()
    sequences = sampled(sampler, 4, seed=1)
    batch = []
    for number, said in enumerate(sequences):
        ids = [*PROMPT, *said.tokens]
        given = [0.0] * (len(PROMPT) - 1)
        size = len(said.tokens)
        batch.append(
            datum(
                ids[:-1],
                ids[1:],
                weights=[*given, *[1.0] * size],
                logprobs=[*given, *said.logprobs],
                advantages=[*given, *[1.0 if number % 2 else -1.0] * size],
            )
        )
    passed = step(client, batch, "ppo", loss_fn_config={"clip_high_threshold": 1.2})
    assert passed.metrics["actor/ppo_kl"] == pytest.approx(0, abs=1e-4)
    assert passed.metrics["sampler/kl"] < 1e-6
    for _ in range(3):
        step(client, batch, "ppo")
    newer = client.save_weights_and_get_sampling_client()
    for number, said in enumerate(sequences):
        ids = [*PROMPT, *said.tokens]
        gained = sum(logprobs(newer, ids)) - sum(logprobs(sampler, ids))
        assert (gained > 0) is bool(number % 2)


def test_a_saved_state_is_taken_up_exactly_here_and_in_another_session(client, service):
    taught(client, 3)
    state = client.save_state("three steps").result(timeout=WAIT_S).model_package_arn
    kept = logprobs(client.create_sampling_client(state))
    onward = taught(client, 3)
    end = logprobs(client.save_weights_and_get_sampling_client())
    assert end != pytest.approx(kept, abs=0.01)
    client.load_state_with_optimizer(state).result(timeout=WAIT_S)
    assert taught(client, 3) == onward
    assert logprobs(client.save_weights_and_get_sampling_client()) == end
    other = service.create_training_client_from_state_with_optimizer(
        state, base_model=BASE, rank=8, alpha=16, training_session_name="another"
    )
    try:
        assert taught(other, 3) == onward
    finally:
        other.stop()


def test_a_stopped_session_is_told_as_stopped(service):
    client = service.create_lora_training_client(BASE, rank=8, training_session_name="stopped")
    taught(client, 1)
    client.stop()
    (found,) = service.list_sessions(name_contains="stopped")
    assert str(found.status.value) == "Stopped"
    service.delete_session("stopped")
    assert not service.list_sessions(name_contains="stopped")
