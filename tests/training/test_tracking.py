"""Trackers: what is told to one is what can be read back, and none ends a run."""

import asyncio
import importlib
import importlib.util
import json
import math
import socket
import threading
import time
from typing import Any

import pytest

from rft_agent_sdk.cli.trackers import open_trackers
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.checkpoint import RunFolder
from rft_agent_sdk.training.tracking import (
    BackgroundTracker,
    ConsoleTracker,
    JsonlTracker,
    MLflowTracker,
    Trackers,
    WandbTracker,
)
from tests.training.killable import config_of


def lines(path):
    return [json.loads(line) for line in path.read_text().split("\n")[:-1]]


def test_metrics_are_one_line_a_step(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    tracker = JsonlTracker(path)
    tracker.log(1, {"a": 1.5, "b": math.nan, "c": math.inf})
    tracker.log(2, {"a": 2.0})
    tracker.close()
    assert lines(path) == [{"step": 1, "a": 1.5, "b": None, "c": None}, {"step": 2, "a": 2.0}]


def test_a_resumed_run_writes_its_later_steps_anew(tmp_path):
    path = tmp_path / "metrics.jsonl"
    tracker = JsonlTracker(path)
    for step in (1, 2, 3):
        tracker.log(step, {"a": step})
    tracker.close()
    with path.open("ab") as file:
        file.write(b'{"step": 1, "cut off')
    again = JsonlTracker(path, resume_after=2)
    again.log(3, {"a": 30})
    again.close()
    assert lines(path) == [{"step": 1, "a": 1}, {"step": 2, "a": 2}, {"step": 3, "a": 30}]


def test_the_console_gets_one_line_a_step():
    told: list[str] = []
    tracker = ConsoleTracker(told.append, total_steps=20)
    numbers = {"sampler/mean_reward": 0.123456, "time/train": 2.0, "train/other": 1.0}
    tokens = {"training/total_tokens": 1234567.0, "training/trainable_token_positions": 89012.0}
    tracker.log(3, numbers | tokens)
    assert told == ["step 3/20  mean_reward 0.1235  tokens 1234567  trained_tokens 89012  train 2"]


class Broken:
    run_id = "r1"

    def log(self, step, metrics):
        raise ConnectionError("the server is away")

    def close(self):
        raise ConnectionError("the server is away")


def test_a_tracker_that_fails_neither_ends_the_run_nor_keeps_the_others_from_it(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    trackers = Trackers([Broken(), JsonlTracker(path)])
    trackers.log(1, {"a": 1.0})
    trackers.close()
    assert lines(path) == [{"step": 1, "a": 1.0}]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert not any(record.exc_info for record in caplog.records)
    assert trackers.run_ids == {"Broken": "r1"}


class Slow:
    """A tracker whose server takes its time."""

    run_id = "s1"

    def __init__(self):
        self.go = threading.Event()
        self.told: list[Any] = []

    def log(self, step, metrics):
        self.go.wait(10)
        self.told.append(step)

    def rename(self, name):
        self.told.append(name)

    def close(self):
        self.told.append("closed")


def test_a_slow_tracker_holds_up_nobody_and_gets_everything_in_order():
    slow = Slow()
    tracker = BackgroundTracker(slow)
    trackers = Trackers([tracker], known={"Other": "o1", "Slow": "s0"})
    began = time.monotonic()
    trackers.log(1, {"a": 1.0})
    trackers.rename("n")
    trackers.log(2, {"a": 2.0})
    assert time.monotonic() - began < 1.0
    assert slow.told == []
    slow.go.set()
    trackers.close()
    assert slow.told == [1, "n", 2, "closed"]
    assert trackers.run_ids == {"Other": "o1", "Slow": "s1"}


def test_a_tracker_that_hangs_is_left_behind_with_what_waits_for_it(caplog):
    slow = Slow()
    tracker = BackgroundTracker(slow, capacity=2, close_s=0.1)
    for step in range(6):
        tracker.log(step, {})
    tracker.close()
    assert "dropped=<" in caplog.text
    assert "metrics.jsonl has all" in caplog.text
    slow.go.set()


@pytest.mark.skipif(bool(importlib.util.find_spec("mlflow")), reason="MLflow is installed")
def test_without_mlflow_its_tracker_says_what_to_install():
    with pytest.raises(UsageError, match="pip install mlflow-skinny"):
        MLflowTracker("sqlite:///x")


@pytest.mark.skipif(bool(importlib.util.find_spec("wandb")), reason="wandb is installed")
def test_without_wandb_its_tracker_says_what_to_install():
    with pytest.raises(UsageError, match="pip install wandb"):
        WandbTracker("project")


# sagemaker-train brings MLflow along, whose own database code warns of itself
@pytest.mark.sagemaker
@pytest.mark.filterwarnings("ignore")
def test_mlflow_reads_back_what_was_logged(tmp_path):
    mlflow: Any = importlib.import_module("mlflow")
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = MLflowTracker(uri, run_name="n", config={"loss": "ppo"})
    tracker.log(1, {"sampler/mean_reward": 0.5})
    again = MLflowTracker(uri, run_id=tracker.run_id)
    again.log(2, {"sampler/mean_reward": 0.75})
    again.close()
    client = mlflow.MlflowClient(tracking_uri=uri)
    history = client.get_metric_history(tracker.run_id, "sampler/mean_reward")
    assert [(one.step, one.value) for one in history] == [(1, 0.5), (2, 0.75)]
    assert client.get_run(tracker.run_id).data.params == {"loss": "ppo"}


@pytest.mark.sagemaker
@pytest.mark.filterwarnings("ignore")
def test_an_mlflow_server_that_is_away_is_left_out_before_the_run_begins(
    tmp_path, caplog, monkeypatch
):
    for name in ("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    config = config_of(tmp_path, "http://127.0.0.1:1")
    config = config.model_copy(update={"mlflow_uri": f"http://127.0.0.1:{port}"})
    folder = RunFolder(tmp_path)

    async def work():
        async def tick():
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.02)

        ticking = asyncio.create_task(tick())
        try:
            return await open_trackers(config, folder, 8, None)
        finally:
            ticking.cancel()

    ticks: list[float] = []
    began = time.monotonic()
    trackers = asyncio.run(work())
    trackers.log(1, {"a": 1.0})
    trackers.close()
    assert time.monotonic() - began < 40
    assert len(ticks) > 5
    assert trackers.run_ids == {}
    assert lines(folder.metrics) == [{"step": 1, "a": 1.0}]
    assert "setting=<mlflow_uri> | not reached" in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.skipif(not importlib.util.find_spec("wandb"), reason="wandb is not installed")
@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_gets_what_was_logged_without_a_network(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("WANDB_MODE", "offline")
    config = config_of(tmp_path, "http://127.0.0.1:1")
    config = config.model_copy(update={"wandb_project": "p"})
    trackers = asyncio.run(open_trackers(config, RunFolder(tmp_path), 8, None))
    assert set(trackers.run_ids) == {"WandbTracker"}
    trackers.rename("session-1")
    trackers.log(1, {"sampler/mean_reward": 0.71875})
    trackers.close()
    (written,) = tmp_path.glob("wandb/offline-run-*/*.wandb")
    kept = written.read_bytes()
    assert all(word in kept for word in (b"sampler/mean_reward", b"0.71875", b"session-1", b"drop"))
    assert "failed" not in caplog.text
