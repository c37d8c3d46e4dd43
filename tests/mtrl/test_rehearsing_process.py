"""Rehearsals with agents in processes of their own: as deployed, redeployed, crowded; and the verb itself."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rft_agent_sdk import load_environment
from rft_agent_sdk.cli.mtrl._rehearsal_settings import Settings, deployed_variables
from rft_agent_sdk.cli.mtrl._rehearsing import rehearse
from rft_agent_sdk.mtrl.rehearsal import Status

ROOT = Path(__file__).parents[2]
RFT = [sys.executable, "-m", "rft_agent_sdk.cli"]
SMALL = ("--steps", "1", "--batch", "2", "--group", "2", "--validation-rows", "0", "--speed", "20")
ENVIRONMENT = "tests.mtrl.rehearsal_environment:environment"


def run(*args, timeout=90):
    return subprocess.run(
        [*RFT, "mtrl", "rehearse", *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=timeout,
    )


@contextmanager
def agent_at(port, *, crash_at=0):
    """Serve the slow agent as a process, which may end in the middle of a rollout, as in a redeployment."""
    app = "tests.mtrl.rehearsal_agents:slow"
    command = [sys.executable, "-m", "uvicorn", app, "--port", str(port), "--log-level", "error"]
    environment = {**os.environ, "CRASH_AT": str(crash_at)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_verb_tells_a_completed_job_as_json_and_exits_with_0(tmp_path):
    done = run(*SMALL, "--runs", str(tmp_path), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["status"] == "Completed"
    assert told["summary"]["rollouts"]["training"] == 4
    assert "job runtime" in done.stderr
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "report.json").read_text()) == told
    assert (folder / "agent.log").exists()


def test_the_verb_tells_a_failed_job_and_exits_with_1(tmp_path):
    path = tmp_path / "main.py"
    path.write_text(
        "from bedrock_agentcore import BedrockAgentCoreApp\n"
        "app = BedrockAgentCoreApp()\n"
        "@app.entrypoint\n"
        "def invoke(payload):\n"
        "    raise ValueError('no such tool')\n"
        "app.run(port=8080)\n"
    )
    done = run(*SMALL, "--agent", str(path), "--runs", str(tmp_path / "runs"))
    assert done.returncode == 1, done.stderr
    first = done.stdout.splitlines()[0]
    assert first == (
        "JobStatus Failed, FailureReason: No sampling requests were received for this rollout"
    )
    assert "ERROR handler-not-called" in done.stdout
    assert "no such tool" in done.stdout
    assert "fix: Write @app.entrypoint on top" in done.stdout


def test_the_verb_exits_with_3_for_a_job_that_would_teach_nothing(tmp_path):
    done = run(*SMALL, "--noise", "0", "--runs", str(tmp_path))
    assert done.returncode == 3, done.stderr
    assert done.stdout.startswith("JobStatus Completed, and nothing learned: every rollout got")


def test_the_verb_exits_with_4_for_a_job_that_no_launch_takes(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = load_environment("wordle").tasks("train", 2)
    path.write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows))
    done = run(*SMALL, "--dataset", str(path), "--runs", str(tmp_path / "runs"))
    assert done.returncode == 4, done.stderr
    assert done.stdout.splitlines()[0].endswith("not to be launched like this: rows-below-batch")
    assert "$0" not in done.stdout


def test_an_agent_process_that_dies_is_told_with_its_exit_code_and_no_row_is_blamed(tmp_path):
    path = tmp_path / "main.py"
    path.write_text(
        "import itertools, os\n"
        "from bedrock_agentcore import BedrockAgentCoreApp\n"
        "from rft_agent_sdk import Rollout, load_environment, play, rft_handler\n"
        "app, played = BedrockAgentCoreApp(), itertools.count()\n"
        "@app.entrypoint\n"
        "@rft_handler(app=app)\n"
        "def invoke(rollout: Rollout):\n"
        "    if next(played) == 4:\n"
        "        os._exit(7)\n"
        "    return play(load_environment('wordle'), rollout)\n"
        "app.run()\n"
    )
    few = ("--steps", "2", "--batch", "2", "--group", "2", "--validation-rows", "0")
    # Every limit of the service is divided by it: at 60 a busy machine's agent may not call the model in time.
    done = run(*few, "--speed", "20", "--agent", str(path), "--runs", str(tmp_path / "runs"))
    assert done.returncode == 1, done.stderr
    assert "ERROR agent-gone" in done.stdout
    assert "played 4 rollouts" in done.stdout
    assert "the process ended with exit code 7" in done.stdout
    assert "this row's data" not in done.stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--agent", "nowhere.py"), "there is no entrypoint 'nowhere.py'"),
        (("--policy", "genius"), "has no policy 'genius'"),
        (("--set", "group_size"), "--set wants NAME=VALUE"),
        (("--set", "max_turns=3"), "the agent limits its own turns"),
        (("--model", "my-model"), "us-west-2 trains no model 'my-model'"),
    ],
)
def test_what_a_person_can_put_right_is_told_in_a_sentence(args, told, tmp_path):
    done = run(*SMALL, "--runs", str(tmp_path), *args)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_interrupted_rehearsal_ends_its_agent(tmp_path):
    lines = []
    with subprocess.Popen(
        [*RFT, "mtrl", "rehearse", "--steps", "500", "--runs", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if line.startswith("step 1/"):
                process.send_signal(signal.SIGINT)
    assert process.returncode == 130, lines
    agent = next(line.split()[1] for line in lines if line.startswith("agent "))
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(agent.rpartition(":")[2]))) != 0


@pytest.mark.slow
def test_an_agent_that_is_redeployed_mid_job_costs_a_retry_and_a_warning(tmp_path):
    port = free_port()
    settings = Settings(
        tmp_path / "run",
        "",
        agent_url=f"http://127.0.0.1:{port}",
        steps=4,
        batch=2,
        validation_rows=0,
        speed=2.0,  # 15 s to come up again
    )
    with agent_at(port, crash_at=11) as first:
        rehearsing = _Threaded(settings)
        first.wait(60)
        with agent_at(port):
            report = rehearsing.result()
    assert report.rehearsed.status is Status.COMPLETED
    found = [finding for finding in report.findings if finding.id == "retried-connection-lost"]
    assert "broke" in found[0].message
    assert "Never deploy or update the runtime while a job runs" in found[0].fix


@pytest.mark.slow
def test_an_agent_that_goes_for_good_fails_the_job(tmp_path):
    port = free_port()
    settings = Settings(
        tmp_path / "run",
        "",
        agent_url=f"http://127.0.0.1:{port}",
        steps=4,
        batch=2,
        validation_rows=0,
        speed=30.0,
    )
    with agent_at(port, crash_at=11):
        report = rehearse(settings, print)
    assert report.rehearsed.status is Status.FAILED
    killer = next(finding for finding in report.findings if finding.id == "agent-gone")
    assert "rollouts, and then nothing took connections" in killer.message


class _Threaded:
    """A rehearsal on a thread, so that the test can meddle with its agent."""

    def __init__(self, settings):
        self._found: list[Any] = []
        self._thread = threading.Thread(
            target=lambda: self._found.append(rehearse(settings, print)), daemon=True
        )
        self._thread.start()

    def result(self):
        self._thread.join(90)
        (report,) = self._found
        return report


@pytest.mark.slow
def test_one_agent_process_plays_96_rollouts_at_the_same_time(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    settings = Settings(
        tmp_path / "run",
        str(ROOT / "agentcore/app/main.py"),
        environment=ENVIRONMENT,
        policy="patient",
        steps=1,
        batch=12,
        group=8,
        validation_rows=0,
        speed=20.0,
        hyperparameters={"rollout_timeout": "3600"},
    )
    report = rehearse(settings, print)
    assert report.rehearsed.status is Status.COMPLETED
    attempts = [rollout.last for rollout in report.rehearsed.rollouts]
    assert len(attempts) == 96
    assert all(attempt.number == 1 for attempt in attempts)
    moments = [(attempt.started_at, 1) for attempt in attempts]
    moments += [(attempt.ended_at, -1) for attempt in attempts]
    inside = most = 0
    for _, change in sorted(moments):
        inside += change
        most = max(most, inside)
    assert most == 96


def test_the_deployed_variables_are_the_project_s(monkeypatch):
    monkeypatch.chdir(ROOT)
    assert deployed_variables("agentcore/app/main.py")["REASONING_EFFORT"] == "low"
    assert deployed_variables("other.py") == {}
