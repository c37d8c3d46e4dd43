"""An account in which a launch works, and the launch."""

import contextlib
import json

import pytest

from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.twins.cloud import LocalCloud, Role, Runtime

RUNTIME = "Wordle_Wordle-aBcDeFgHiJ"
MODEL = "openai-reasoning-gpt-oss-20b"
BUCKET = "wordle-rl"
ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/JobRole"
AGENT = f"arn:aws:bedrock-agentcore:us-west-2:{ACCOUNT}:runtime/{RUNTIME}"
APP = f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:mlflow-app/app-EXAMPLE"


def launch(**values):
    """A launch that nothing is wrong with, but for what is said."""
    sound = {
        "model": MODEL,
        "agent": AGENT,
        "region": "us-west-2",
        "role": ROLE,
        "accept_eula": True,
        "dataset": "train.jsonl",
        "validation_dataset": "val.jsonl",
        "s3_output": f"s3://{BUCKET}/out",
        "mlflow_app": APP,
    }
    return LaunchSpec.model_validate({**sound, **values})


def environment(monkeypatch: pytest.MonkeyPatch, cloud: LocalCloud) -> None:
    """Send the environment's clients to a local cloud."""
    for name, value in cloud.environment().items():
        monkeypatch.setenv(name, value)


def furnish(cloud: LocalCloud) -> None:
    """Put into an account what a launch needs, and take away what an earlier one left."""
    for found in (cloud.runtimes, cloud.mlflow_apps, cloud.model_package_groups, cloud.functions):
        found.clear()
    cloud.faults.clear()
    cloud.calls.clear()
    cloud.roles["JobRole"] = Role()
    cloud.buckets.pop(BUCKET, None)
    cloud.make_bucket(BUCKET)
    app = cloud.make_mlflow_app("metrics")
    del cloud.mlflow_apps[app.arn]
    app.arn = APP
    cloud.mlflow_apps[APP] = app
    cloud.runtimes[RUNTIME] = Runtime(name="Wordle")


@contextlib.contextmanager
def account(monkeypatch: pytest.MonkeyPatch, **told):
    """A local cloud of its own with all that a launch needs."""
    with LocalCloud(**told) as cloud:
        environment(monkeypatch, cloud)
        furnish(cloud)
        yield cloud


def write_rows(path, count, first=0):
    """A dataset of Wordle rows; returns its path."""
    words = ["riser", "cigar", "rebut", "sissy", "humph", "awake", "blush", "focal"]
    rows = [
        {"prompt": json.dumps({"prompt": "Guess", "answer": words[(first + n) % 8], "id": f"w{n}"})}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def changed(cloud):
    """The calls that changed something, as text."""
    return [f"{call.service} {call.operation}" for call in cloud.mutations]
