"""`rft grpo` and `rft evaluate`, as a person runs them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from rft_agent_sdk.cli import composing
from rft_agent_sdk.cli.evaluate import Asked, labelled, states_of, with_engine
from rft_agent_sdk.cli.evaluate import command as evaluate_command
from rft_agent_sdk.cli.grpo import loop_settings, rollout_settings, train
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder
from rft_agent_sdk.training.matrix import Results
from tests.servers import ScriptedServer, completion, serving
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


def test_a_folder_with_a_run_is_resumed_or_refused(tmp_path, agent_url):
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
    assert run(resume=True) == 0
    assert len(lines(tmp_path / "metrics.jsonl")) == 2


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
    assert (played.model_id, played.deadline_s) == ("two-words", 60.0)
    assert (played.failed_rollout, played.failure_rate_limit) == ("drop", 0.2)


def rft(*args):
    return subprocess.run(
        [sys.executable, "-m", "rft_agent_sdk.cli", *args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
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
    done = rft("evaluate", "--dataset", "x.jsonl", "--policy", "solver")
    assert (done.returncode, "--agent-url or --agent-arn" in done.stderr) == (2, True)
    done = rft("evaluate", "--dataset", "x.jsonl", "--agent-url", "http://127.0.0.1:1")
    assert (done.returncode, "--policy or --config" in done.stderr) == (2, True)
