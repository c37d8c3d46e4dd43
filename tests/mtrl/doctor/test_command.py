"""`rft doctor`, run as a person runs it."""

import io
import json
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from environments.wordle import environment
from rft_agent_sdk.cli import main
from rft_agent_sdk.mtrl.doctor.checks import GROUPS
from tests.mtrl.doctor.world import ROOT, sound

EVERY = [check.id for checks in GROUPS.values() for check in checks]


def doctor(*args, cwd=ROOT):
    """Run it within this process: starting one takes most of a second."""
    out, err, path, code = io.StringIO(), io.StringIO(), list(sys.path), 0
    with redirect_stdout(out), redirect_stderr(err), chdir(cwd):
        try:
            main(["doctor", *args])
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    sys.path[:] = path
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def in_a_process(*args, cwd=ROOT):
    return subprocess.run(
        [sys.executable, "-m", "rft_agent_sdk.cli", "doctor", *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=120,
        check=False,
    )


def write_rows(path: Path, split: str, count: int) -> Path:
    lines = [json.dumps({"prompt": task}) for task in environment.tasks(split, count)]
    path.write_text("\n".join(lines) + "\n")
    return path


def options(world, tmp_path) -> list[str]:
    launch = world.setup.launch
    train = write_rows(tmp_path / "train.jsonl", "train", 320)
    val = write_rows(tmp_path / "val.jsonl", "validation", 32)
    return [
        "--agent", launch.agent, "--role", launch.role, "--region", launch.region, "--model", launch.model,
        "--s3-output", launch.s3_output, "--mlflow-app", launch.mlflow_app, "--global-batch-size", "32",
        "--max-epochs", "10", "--dataset", str(train), "--validation-dataset", str(val),
        "--project", str(tmp_path), "--skip", "package-versions",
    ]  # fmt: skip


def test_a_sound_launch_is_safe_and_exit_code_0_says_so(world, tmp_path):
    done = doctor(*options(world, tmp_path), "--invoke", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Safe to launch" in done.stdout
    assert "PROBLEM" not in done.stdout
    assert "Could not find job" in done.stdout


def test_a_fault_is_told_with_its_fix_and_exit_code_1_says_so(tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_agent=False) as world:
        world.cloud.roles.pop("JobRole")
        done = doctor(*options(world, tmp_path), "--skip", "agent", cwd=tmp_path)
    assert done.returncode == 1
    assert "PROBLEM job-role-trust" in done.stdout
    assert "there is no such role" in done.stdout
    assert "fix: Make it" in done.stdout
    assert "Not safe to launch: job-role-trust, job-role-rights." in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_alone_it_makes_what_it_can_says_what_was_skipped_and_how_to_make_it(tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_account=False, has_agent=False):
        done = in_a_process("--skip", "server-starts", cwd=tmp_path)
    assert done.returncode == 1
    assert "ok      agentcore-project" in done.stdout
    assert "Not known to be safe to launch" in done.stdout
    assert "export" in done.stdout.lower()
    assert "Give --role ARN." in done.stdout
    assert "PROBLEM" not in done.stdout


def test_json_tells_every_check_that_was_chosen(tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_account=False, has_agent=False):
        done = doctor("--json", "--only", "machine", "--only", "rewards", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [one["id"] for one in found["checks"]] == [
        check.id for group in ("machine", "rewards") for check in GROUPS[group]
    ]
    assert set(found["checks"][0]) == {"id", "group", "title", "result", "found", "fix", "took_s", "findings"}  # fmt: skip
    assert found["safe"] is False
    assert found["unknown"] == ["clock-skew"]
    assert sum(found["counts"].values()) == len(found["checks"])


def test_what_is_chosen_and_well_is_safe_without_credentials(tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_account=False, has_agent=False):
        done = doctor("--only", "rewards", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""


def test_a_bad_row_is_named_by_its_line(tmp_path, monkeypatch):
    rows = write_rows(tmp_path / "train.jsonl", "train", 2)
    with rows.open("a") as file:
        file.write('{"question": "?"}\n{"prompt": "Guess the word"}\n')
    done = doctor("--only", "dataset", "--dataset", str(rows), cwd=tmp_path)
    assert done.returncode == 1
    assert "line 3" in done.stdout
    assert "the service would send its first one, 'question'" in done.stdout
    assert "line 4" in done.stdout


def test_the_list_names_every_check_with_what_it_needs():
    done = doctor("--list")
    assert done.returncode == 0
    rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    assert [line.split("`")[1] for line in rows[2:]] == EVERY
    assert "--invoke" in rows[-2]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--only", "nodes"], "--list"),
        (["--project", "/nowhere/at/all"], "--project"),
        (["--config", "absent.yaml"], "absent.yaml"),
        (["--max-steps", "many"], "many"),
    ],
)
def test_wrong_options_are_exit_code_2(args, says, tmp_path):
    done = doctor(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
