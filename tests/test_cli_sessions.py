"""`rft sessions`, against the training-session server."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rft_agent_sdk.training.orphans import control_plane
from rft_agent_sdk.twins.tiny import TinyBackend
from rft_agent_sdk.twins.training_sessions import TrainingSessionServer

ROOT = Path(__file__).parent.parent
ARN = "arn:aws:sagemaker:us-west-2"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}


@pytest.fixture
def server(monkeypatch):
    with TrainingSessionServer(lambda _: TinyBackend(8)) as found:
        for name, value in {**KEYS, **found.environment(), "AWS_REGION": "us-west-2"}.items():
            monkeypatch.setenv(name, value)
        yield found


def create(name):
    client = control_plane()
    client.create_training_session(
        TrainingSessionName=name,
        LoraConfig={"Rank": 8, "Alpha": 16},
        RoleArn="arn:aws:iam::123456789012:role/Sessions",
        ModelConfig={"BaseModelArn": f"{ARN}:aws:hub-content/SageMakerPublicHub/Model/tiny/1.0.0"},
        OutputConfig={"S3Location": {"Path": "s3://bucket/output"}},
    )
    client.close()


def sessions(*args):
    return subprocess.run(
        [sys.executable, "-m", "rft_agent_sdk.cli", "sessions", *args],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )


def test_what_runs_is_listed_and_stopped_by_name(server):
    create("rft-1")
    create("other")
    listed = sessions("list", "--name", "rft-")
    name, status, _, tokens = listed.stdout.strip().split("\t")
    assert (name, status, tokens) == ("rft-1", "Running", "0 tokens")
    assert sessions("stop", "rft-1").stdout == "rft-1\tstopping\n"
    assert server.sessions["rft-1"].status == "Stopped"
    assert server.sessions["other"].status == "Running"


def test_what_has_ended_is_listed_on_request_and_not_stopped_twice(server):
    create("rft-1")
    server.sessions["rft-1"].stop()
    nothing = sessions("list")
    assert (nothing.stdout, nothing.stderr, nothing.returncode) == ("", "no session runs\n", 0)
    assert sessions("list", "--all").stdout.split("\t")[1] == "Stopped"
    assert sessions("stop", "rft-1").stdout == "rft-1\thad ended already\n"


def test_a_session_nobody_knows_is_an_error_in_one_sentence(server):
    done = sessions("stop", "nothing")
    assert done.returncode == 1
    assert "rft: training session 'nothing' cannot be stopped" in done.stderr
    assert "Traceback" not in done.stderr


def test_stopping_nothing_says_where_names_are(server):
    done = sessions("stop")
    assert done.returncode == 2
    assert "see `rft sessions list`" in done.stderr


def test_without_a_region_it_says_how_to_give_one(server, monkeypatch):
    monkeypatch.delenv("AWS_REGION")
    done = sessions("list")
    assert done.returncode == 2
    assert "say --region or set AWS_REGION" in done.stderr
