"""A run's folder: one run at a time, and errors that name the file."""

import errno
import os
import subprocess
import sys

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.checkpoint import RunFolder
from rft_agent_sdk.training.files import locked
from rft_agent_sdk.training.tracking import JsonlTracker


def test_a_folder_is_one_runs_until_that_ends_however_it_ends(tmp_path):
    code = (
        "import pathlib, sys, time\n"
        "from rft_agent_sdk.training.files import locked\n"
        "with locked(pathlib.Path(sys.argv[1])):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(UsageError, match=f"process {other.pid}"), locked(tmp_path):
            pass
        other.kill()
        other.wait()
    with locked(tmp_path):
        assert (tmp_path / ".lock").read_text() == str(os.getpid())


def test_a_full_disk_is_told_with_the_file():
    tracker = JsonlTracker("/dev/full")
    with pytest.raises(OSError, match=r"No space left on device: '/dev/full'") as caught:
        tracker.log(1, {"a": 1.0})
    assert caught.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="/dev/full"):
        tracker.close()


def test_places_that_cannot_be_written_are_told_by_their_setting(tmp_path):
    (tmp_path / "file").write_text("")
    folder = RunFolder(tmp_path / "run", rollouts=tmp_path / "file" / "rollouts.jsonl")
    with pytest.raises(UsageError, match="rollout_log_path: wanted a place that can be written"):
        folder.check_writable()
    with (
        pytest.raises(UsageError, match="run_dir: wanted a place that can be written"),
        locked(tmp_path / "file" / "run"),
    ):
        pass


def test_what_a_run_was_told_before_is_kept_beside_what_it_is_told_now(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.read_config() == {}
    folder.write_config({"loss": "ppo"})
    folder.write_config({"loss": "cispo"}, old_until=7)
    assert folder.read_config() == {"loss": "cispo"}
    assert (tmp_path / "config-until-step-000007.json").read_text() == '{\n  "loss": "ppo"\n}\n'


def test_the_latest_steps_are_read_back(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.recent(5, 2) == []
    folder.metrics.write_text('{"step": 1}\n{"step": 2, "a": null}\n[]\n{"step": 3}\n{"st')
    assert folder.recent(2, 5) == [{"step": 1}, {"step": 2, "a": None}]
    assert folder.recent(3, 1) == [{"step": 3}]
