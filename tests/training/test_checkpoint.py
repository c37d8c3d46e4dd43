"""A run's folder: what is written is whole, and the latest is what is found."""

import json

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.checkpoint import Checkpoint, RunFolder, read_checkpoint

ONE = Checkpoint(3, "state-3", {"epoch": 1, "seed": 42}, {"flat": 2.0}, {"mlflow": "r1"})


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    path = RunFolder(tmp_path / "run").save(ONE)
    assert path.name == "step-000003.json"
    assert read_checkpoint(path) == ONE
    assert json.loads(path.read_text())["format"] == 1


def test_the_latest_is_that_of_the_highest_step(tmp_path):
    folder = RunFolder(tmp_path)
    assert folder.latest() is None
    for step in (2, 10, 9, 1_000_000):
        folder.save(Checkpoint(step, f"state-{step}", {}))
    found = folder.latest()
    assert found is not None
    assert found.engine_state == "state-1000000"


def test_a_draft_that_a_crash_left_is_no_checkpoint(tmp_path):
    folder = RunFolder(tmp_path)
    folder.save(ONE)
    (folder.checkpoints / "step-000009.tmp").write_text('{"format": 1, "st')
    assert folder.latest() == ONE


@pytest.mark.parametrize(
    "text", ["", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "x": 0}']
)
def test_what_cannot_be_read_is_named(tmp_path, text):
    path = tmp_path / "step-000001.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"step-000001\.json"):
        read_checkpoint(path)


def test_the_config_is_kept(tmp_path):
    folder = RunFolder(tmp_path / "a" / "b")
    folder.write_config({"loss": "ppo"})
    assert json.loads((folder.path / "config.json").read_text()) == {"loss": "ppo"}
