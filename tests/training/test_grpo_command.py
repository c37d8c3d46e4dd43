"""`rft grpo` and `rft evaluate`, as a person runs them."""

import asyncio
import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.asked import Asked, asked_of, check_states, labelled, states_of
from rft_agent_sdk.cli.evaluate import command as evaluate_command
from rft_agent_sdk.cli.evaluate import with_engine
from rft_agent_sdk.cli.grpo import loop_settings, rollout_settings, train
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
from rft_agent_sdk.training.files import locked
from rft_agent_sdk.training.matrix import Results
from tests.servers import Answer, ScriptedServer, completion, serving
from tests.training.killable import ROWS, config_of
from tests.training.two_words import TableEngine, TableSampler, entrypoint

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def agent_url():
    with serving(asgi_app(entrypoint())) as url:
        yield url


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def start(folder, url, *options):
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.training.killable", str(folder), url, *options],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def finish(process):
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors


@pytest.mark.slow
def test_a_run_ended_by_sigterm_stops_its_session_and_goes_on_as_if_it_had_not(tmp_path, agent_url):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    cut.mkdir()
    (cut / "hold").touch()
    one, other = start(whole, agent_url), start(cut, agent_url)
    until = time.monotonic() + 60
    while time.monotonic() < until and not (cut / "held").exists():
        time.sleep(0.02)
    other.send_signal(signal.SIGTERM)
    code, errors = finish(other)
    assert code == composing.SIGTERM_EXIT, errors
    assert (cut / "stopped").exists()
    metrics = cut / "metrics.jsonl"
    assert len(lines(metrics)) >= 4
    checkpoint = RunFolder(cut).latest()
    assert checkpoint is not None
    assert 0 < checkpoint.step <= len(lines(metrics)) < 8
    (cut / "hold").unlink()
    code, errors = finish(start(cut, agent_url, "--resume"))
    assert code == 0, errors
    code, errors = finish(one)
    assert code == 0, errors
    assert "step 8/8" in errors

    def told(folder):
        return [
            {name: pytest.approx(value) for name, value in line.items() if "time/" not in name}
            for line in lines(folder / "metrics.jsonl")
        ]

    assert [line["step"] for line in lines(metrics)] == list(range(1, 9))
    assert told(cut) == [
        {name: value for name, value in line.items() if "time/" not in name}
        for line in lines(whole / "metrics.jsonl")
    ]
    assert json.loads((whole / "config.json").read_text())["advantage"] == "dr_grpo"


def test_a_folder_with_a_run_is_resumed_or_refused(tmp_path, agent_url, capsys):
    engine = TableEngine(tmp_path)

    async def open_engine(config):
        return engine

    def run(**options):
        config = config_of(tmp_path, agent_url).model_copy(update={"epochs": 1})
        options = {"open_engine": open_engine, "sampler_of": TableSampler, **options}
        return composing.run(train(config, ROWS, [], **options))

    with pytest.raises(UsageError, match="no checkpoint in"):
        run(resume=True)
    assert run() == 0  # with a probe before it
    assert len(lines(tmp_path / "rollouts.jsonl")) == 24
    with pytest.raises(UsageError, match="holds a run"):
        run()
    stopped = engine.stopped
    assert run(resume=True) == 0
    assert "nothing is left of" in capsys.readouterr().err
    assert engine.stopped == stopped  # none was opened
    assert len(lines(tmp_path / "metrics.jsonl")) == 2
    for checkpoint in (tmp_path / "checkpoints").iterdir():
        checkpoint.unlink()
    with pytest.raises(UsageError, match=r"nothing to resume from.*another run_dir, or remove"):
        run()
    with pytest.raises(UsageError, match=r"no checkpoint in .* without --resume, in another"):
        run(resume=True)


def test_every_key_reaches_what_it_is_for(tmp_path):
    config = config_of(tmp_path, "http://127.0.0.1:1").model_copy(
        update={"stop_on": ("no_answer",)}
    )
    loop, played = loop_settings(config), rollout_settings(config, "http://gateway")
    assert (loop.batch_size, loop.group_size, loop.save_every) == (2, 6, 2)
    assert (loop.sampling.temperature, loop.sampling.max_tokens) == (1.0, 64)
    assert (loop.eval_sampling.temperature, loop.adam.learning_rate) == (0.0, 0.01)
    assert loop.loss_config == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
    assert loop.stop_on == ("no_answer",)
    plain = loop_settings(config.model_copy(update={"loss": "importance_sampling"}))
    assert plain.loss_config == loop.loss_config
    assert (played.model_id, played.deadline_s) == ("two-words", 60.0)
    assert (played.failed_rollout, played.failure_rate_limit) == ("drop", 0.2)


def rft(*args, **environment):
    return subprocess.run(
        [sys.executable, "-m", "rft_agent_sdk.cli", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_dry_run_says_what_it_would_play(tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"prompt": "go"}\n' * 5)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"engine: local\nbase_model: m\nagent_url: http://127.0.0.1:8080\n"
        f"dataset_path: {tmp_path / 'rows.jsonl'}\nbatch_size: 2\n"
    )
    done = rft("grpo", "--config", str(config), "--set", "epochs=2", "--dry-run")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["plan"]["steps"], told["plan"]["rollouts"]) == (6, 40)
    assert told["config"]["epochs"] == 2
    missing = rft("grpo", "--config", str(config), "--set", 'base_model=""')
    assert missing.returncode == 2
    assert "base_model" in missing.stderr


def test_a_policy_is_evaluated_over_a_dataset(tmp_path):
    from environments.wordle import environment as wordle

    rows = tmp_path / "rows.jsonl"
    tasks = wordle.tasks("validation", 2)
    rows.write_text("".join(json.dumps({"prompt": task}) + "\n" for task in tasks))
    out = tmp_path / "rollouts.jsonl"
    with serving(asgi_app(entrypoint(wordle))) as url:
        given = ["--dataset", str(rows), "--agent-url", url, "--policy", "solver"]
        done = rft("evaluate", *given, "--per-task", "2", "--out", str(out))
        assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["tasks"], told["rollouts"], told["failed_rollouts"]) == (2, 4, 0)
    assert told["solved"] == 1.0
    assert (told["policy"], told["temperature"], told["reasoning_effort"]) == ("solver", 0.0, None)
    assert told["pass_at"]["2"]["low"] < 1.0
    assert [line["components"]["solved"] for line in lines(out)] == [1.0] * 4


def test_policies_and_temperatures_are_told_side_by_side(tmp_path):
    """The base policy says "yes" only where it is warm, and the trained one always."""

    def script(name):
        def answer(seen, count):
            is_yes = name == "trained" or seen.json["temperature"] > 0
            word = json.dumps({"word": "yes" if is_yes else "no"})
            return completion("", calls=[("say", word)])

        return answer

    rows, folder = tmp_path / "rows.jsonl", tmp_path / "run"
    rows.write_text("".join(json.dumps({"payload": row.payload}) + "\n" for row in ROWS))
    with (
        serving(asgi_app(entrypoint())) as url,
        ScriptedServer(script("base")) as base,
        ScriptedServer(script("trained")) as trained,
    ):
        given = ["--dataset", str(rows), "--agent-url", url, "--run-dir", str(folder)]
        given += ["--policy", f"base=openai:{base.url}#m", "--reasoning-effort", "low"]
        given += ["--policy", f"trained=openai:{trained.url}#m", "--per-task", "2"]
        given += ["--temperature", "0,0.5", "--temperature", "1"]
        done = rft("evaluate", *given)
        assert done.returncode == 0, done.stderr
        again = rft("evaluate", *given)
    head, *body = done.stdout.splitlines()
    assert re.split(r"  +", head) == [
        "policy",
        "temperature",
        "solved [95 %]",
        "pass@2",
        "mean reward",
    ]
    combinations = [(name, t) for name in ("base", "trained") for t in (0.0, 0.5, 1.0)]
    shares = [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    for line, (name, t), share in zip(body, combinations, shares, strict=True):
        cells = re.split(r"  +", line)
        assert cells[:2] == [name, f"{t:g}"]
        assert cells[2].startswith(f"{share:.1%} [")
        assert cells[3:] == [f"{share:.1%}", f"{share:.3f}"]
    found = json.loads((folder / "evaluation.json").read_text())["results"]
    assert [(one["policy"], one["temperature"]) for one in found] == combinations
    assert [one["solved"] for one in found] == shares
    assert {one["reasoning_effort"] for one in found} == {"low"}
    assert {(one["tasks"], one["rollouts"]) for one in found} == {(len(ROWS), 2 * len(ROWS))}
    told = Counter((one["policy"], one["temperature"]) for one in lines(folder / "rollouts.jsonl"))
    assert told == dict.fromkeys(combinations, 2 * len(ROWS))
    assert (again.returncode, "holds an evaluation" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "needed"),
    [
        (["--temperature", "0,hot"], "numbers from 0 to 2, got 'hot'"),
        (["--temperature", "nan"], "numbers from 0 to 2, got 'nan'"),
        (["--temperature", "2.1"], "numbers from 0 to 2, got '2.1'"),
        (["--policy", "solver"], "got 'solver' twice"),
        (["--checkpoint", "state"], "--config names"),
        (["--policy", "x=nobody"], "has no policy 'nobody'"),
        (["--reasoning-effort", "enormous"], "'low', 'medium', 'high'"),
    ],
)
def test_what_cannot_be_evaluated_is_told_before_anything_is_played(options, needed):
    given = ["--dataset", "x", "--agent-url", "http://127.0.0.1:1", "--policy", "solver", *options]
    done = CliRunner().invoke(evaluate_command, given)
    told = done.output if isinstance(done.exception, SystemExit) else str(done.exception)
    assert needed in told


def test_a_model_is_evaluated_before_and_after_training(tmp_path, agent_url):
    engine = TableEngine(tmp_path, weight=-1.0)
    state = tmp_path / "state"
    state.write_text("1.0")
    saved = RunFolder(tmp_path).save(Checkpoint(4, str(state), {}, {}))

    async def open_engine(config):
        return engine

    asked = Asked(agent_url, "", (0.0, 1.0), 64, None, 4, 60.0, 8, 1.0)
    states, results = states_of(["base", f"trained={saved}"]), Results()
    work = with_engine(
        asked,
        ROWS,
        config_of(tmp_path, agent_url),
        states,
        results,
        open_engine=open_engine,
        sampler_of=TableSampler,
    )
    assert composing.run(work) == 0
    told = {(one.policy, one.temperature): one.report.solved for one in results.cells}
    assert list(told) == [("base", 0.0), ("base", 1.0), ("trained", 0.0), ("trained", 1.0)]
    assert (told["base", 0.0], told["trained", 0.0]) == (0.0, 1.0)
    assert 0.0 < told["base", 1.0] < told["trained", 1.0] < 1.0
    assert engine.stopped == 1


def test_a_model_that_starts_from_a_package_is_evaluated_with_it_and_without_its_optimizer(
    tmp_path, agent_url
):
    loaded = []

    class Watched(TableEngine):
        async def load_state(self, name, *, with_optimizer=True):
            loaded.append((name, with_optimizer))
            await super().load_state(name)

    engine, package = Watched(tmp_path, weight=-1.0), tmp_path / "package"
    package.write_text("1.0")

    async def open_engine(config):
        return engine

    config = config_of(tmp_path, agent_url)
    config = config.model_copy(update={"resume_from_model_package": str(package)})
    asked = Asked(agent_url, "", (0.0,), 64, None, 1, 60.0, 8, 1.0)
    results = Results()
    work = with_engine(
        asked,
        ROWS,
        config,
        states_of(["base"]),
        results,
        open_engine=open_engine,
        sampler_of=TableSampler,
    )
    assert composing.run(work) == 0
    assert results.cells[0].report.solved == 1.0
    assert loaded == [(str(package), False)]


OPTIONS = (
    *("agent_url", "agent_arn", "temperatures", "max_tokens", "reasoning_effort", "rollout_time"),
    *("concurrency", "success_threshold", "gateway_host", "gateway_port"),
)


def test_what_an_evaluation_is_not_told_is_as_the_config_says(tmp_path):
    config = config_of(tmp_path, "http://127.0.0.1:1")
    config = config.model_copy(update={"gateway_port": 4567, "eval_temperature": 0.5})
    given = {**dict.fromkeys(OPTIONS), "per_task": 1}
    asked = asked_of(given, config)
    assert (asked.agent_url, asked.agent_arn, asked.temperatures) == (config.agent_url, "", (0.5,))
    assert (asked.port, asked.rollout_s, asked.concurrency) == (4567, 60.0, 128)
    asked = asked_of({**given, "agent_arn": "arn", "gateway_port": 0, "concurrency": 3}, config)
    assert (asked.agent_url, asked.agent_arn, asked.port, asked.concurrency) == ("", "arn", 0, 3)
    asked = asked_of({**given, "agent_url": "http://x"}, None)
    assert (asked.temperatures, asked.rollout_s, asked.concurrency) == ((0.0,), 1800.0, 64)


@pytest.mark.parametrize("name", ["missing.json", "arn:aws:s3:::bucket", "package"])
def test_a_state_that_no_session_knows_is_refused_before_one_begins(tmp_path, name):
    if name.endswith(".json"):
        with pytest.raises(
            UsageError, match=r"wanted the record of a checkpoint, got .*missing.json.* not there"
        ):
            states_of([str(tmp_path / name)])
        return
    config = config_of(tmp_path, "http://127.0.0.1:1").model_copy(update={"engine": "sagemaker"})
    with pytest.raises(UsageError, match="or the ARN of a model package, got"):
        check_states(config, states_of([name]))
    package = "arn:aws:sagemaker:us-west-2:123456789012:model-package/g/1"
    check_states(config, states_of(["base", f"best={package}"]))


def test_a_hosted_model_is_evaluated_with_the_key_of_the_environment(tmp_path):
    def script(seen, count):
        if seen.headers.get("authorization") != "Bearer sk-example":
            return Answer(401, {"error": {"message": "no key"}})
        return completion("", calls=[("say", json.dumps({"word": "yes"}))])

    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"payload": row.payload}) + "\n" for row in ROWS))
    with serving(asgi_app(entrypoint())) as url, ScriptedServer(script) as hosted:
        given = ["--dataset", str(rows), "--agent-url", url]
        given += ["--policy", f"hosted=openai:{hosted.url}/openai/v1#some.model-1"]
        done = rft("evaluate", *given, OPENAI_API_KEY="sk-example")
        refused = rft("evaluate", *given, OPENAI_API_KEY="")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["solved"] == 1.0
    assert {seen.path for seen in hosted.seen} == {"/openai/v1/chat/completions"}
    assert {seen.json["model"] for seen in hosted.seen} == {"some.model-1"}
    assert "sk-example" not in done.stdout + done.stderr
    assert (refused.returncode, "requests reached the gateway" in refused.stderr) == (2, True)


@pytest.mark.parametrize(("given", "needed"), [(["a", "base"], "first"), (["a", "a"], "twice")])
def test_states_that_cannot_be_told_apart_or_reached_are_refused(given, needed):
    with pytest.raises(UsageError, match=needed):
        states_of(given)


def test_a_server_without_a_label_is_labelled_without_its_secrets():
    given = [
        "openai:http://user:word@127.0.0.1:1/v1?key=word#m",
        "base=openai:http://127.0.0.1:1?a=b",
    ]
    assert list(labelled(given, "wordle")) == ["openai:http://127.0.0.1:1/v1#m", "base"]


def test_an_evaluation_says_what_it_needs(tmp_path):
    done = rft("evaluate", "--policy", "solver", "--agent-url", "http://127.0.0.1:1")
    assert (done.returncode, "say what to play: --dataset" in done.stderr) == (2, True)
    done = rft("evaluate", "--dataset", "x.jsonl", "--policy", "solver")
    assert (done.returncode, "--agent-url or --agent-arn" in done.stderr) == (2, True)
    done = rft("evaluate", "--dataset", "x.jsonl", "--agent-url", "http://127.0.0.1:1")
    assert (done.returncode, "--policy or --config" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_ends_a_run_in_order_and_a_second_one_changes_nothing(name):
    closed = []

    async def work():
        os.kill(os.getpid(), getattr(signal, name))
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
            closed.append(True)
            raise

    assert composing.run(work()) == 128 + getattr(signal, name)
    assert closed == [True]


def test_a_run_under_nohup_outlives_its_terminal():
    async def work():
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert composing.run(work()) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


class Never:
    """An engine that may not be opened: everything is to be found out before."""

    opened = 0

    async def open(self, config):
        self.opened += 1
        raise AssertionError("nothing may be billed yet")


def test_what_costs_nothing_is_checked_before_the_engine_is_opened(tmp_path, agent_url):
    never = Never()

    def run(**changed):
        config = config_of(tmp_path / "run", agent_url).model_copy(update=changed)
        return composing.run(train(config, ROWS, [], open_engine=never.open))

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=r"Address already in use\. Set gateway_port"):
            run(gateway_port=port)
    with pytest.raises(UsageError, match="gateway_host to an address of this machine"):
        run(gateway_host="192.0.2.1")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="run_dir: wanted a place"):
        run(run_dir=str(tmp_path / "file" / "run"))
    with pytest.raises(UsageError, match="rollout_log_path: wanted a place"):
        run(rollout_log_path=str(tmp_path / "file" / "x.jsonl"))
    with (
        locked(tmp_path / "run"),
        pytest.raises(UsageError, match=r"belongs to a run that is at work \(process \d+\)"),
    ):
        run()
    if not importlib.util.find_spec("wandb"):
        with pytest.raises(UsageError, match="pip install wandb"):
            run(wandb_project="p")
    if not importlib.util.find_spec("mlflow"):
        with pytest.raises(UsageError, match="pip install mlflow-skinny"):
            run(mlflow_uri="sqlite:///x")
    assert never.opened == 0


@pytest.mark.skipif(bool(importlib.util.find_spec("transformers")), reason="transformers is here")
def test_a_missing_tokenizer_is_told_before_the_engine_is_opened(tmp_path):
    config = config_of(tmp_path, "http://127.0.0.1:1").model_copy(update={"engine": "sagemaker"})
    with pytest.raises(UsageError, match=r"sagemaker-train\[tokenizer\]"):
        composing.check_engine(config)


def test_a_run_resumed_with_another_config_says_so_and_keeps_both(tmp_path, agent_url, capsys):
    engine = TableEngine(tmp_path, weight=-0.5)

    async def open_engine(config):
        return engine

    def run(resume, **changed):
        config = config_of(tmp_path, agent_url).model_copy(update=changed)
        work = train(
            config,
            ROWS,
            [],
            resume=resume,
            preflight=False,
            open_engine=open_engine,
            sampler_of=TableSampler,
        )
        return composing.run(work)

    assert run(False, epochs=1) == 0
    first = json.loads((tmp_path / "config.json").read_text())
    with pytest.raises(UsageError, match="lora_rank: was 32, is 8"):
        run(True, epochs=2, lora_rank=8)
    assert json.loads((tmp_path / "config.json").read_text()) == first
    assert run(True, epochs=2) == 0
    assert "resumed with another config, after step 2:\n  epochs: was 1, is 2" in (
        capsys.readouterr().err
    )
    assert json.loads((tmp_path / "config-until-step-000002.json").read_text()) == first
    assert json.loads((tmp_path / "config.json").read_text())["epochs"] == 2
    assert run(True, epochs=2, save_weights_at_end=True) == 0
    assert json.loads((tmp_path / "weights.json").read_text())["weights"] == "published"
    stopped = engine.stopped
    assert run(True, epochs=2, save_weights_at_end=True) == 0
    assert engine.stopped == stopped
