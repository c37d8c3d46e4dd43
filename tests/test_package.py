"""The deployed bundle, built as the AgentCore CLI builds it, plays a rollout on its own."""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest
import requests

from environments.wordle import environment
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.testing import FakeCredentials

ROOT = Path(__file__).parent.parent
APP = ROOT / "agentcore" / "app"
LEFT_OUT = shutil.ignore_patterns("__pycache__", ".venv", "uv.lock", ".*")


def build(folder: Path) -> Path:
    """Install the pinned dependencies into a folder, put the code over them, and zip it.

    For this machine's platform in place of AgentCore's ARM64, so that it can be run here.
    """
    project = tomllib.loads((APP / "pyproject.toml").read_text("utf-8"))["project"]
    staging = folder / "staging"
    uv = Path(sys.executable).with_name("uv")
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", sys.executable, "--target", staging]
        + project["dependencies"],
        check=True,
        # This machine's own certificate authorities, as pip takes them.
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never", "UV_SYSTEM_CERTS": "true"},
    )
    shutil.copytree(APP, staging, dirs_exist_ok=True, ignore=LEFT_OUT)
    archive = folder / "bundle.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as target:
        for path in staging.rglob("*"):
            if path.is_file():
                target.write(path, path.relative_to(staging))
    shutil.rmtree(staging)
    return archive


def wait_for(port: int, process: subprocess.Popen) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"the bundle did not start: {process.communicate()}")


@pytest.mark.slow
def test_the_unzipped_package_plays_a_rollout(tmp_path):
    bundle = tmp_path / "bundle"
    with zipfile.ZipFile(build(tmp_path)) as archive:
        archive.extractall(bundle)
    assert not (bundle / "rft_agent_sdk").is_symlink()

    payload = json.loads((ROOT / "payload.json").read_text("utf-8"))
    keys = FakeCredentials()
    gateway = Gateway(secrets={keys.access_key: keys.secret_key})
    job = gateway.register_job(
        payload["metadata"]["jobArn"], policy=environment.policies()["solver"]
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with GatewayServer(gateway) as server:
        settings = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ACCESS_KEY_ID": keys.access_key,
            "AWS_SECRET_ACCESS_KEY": keys.secret_key,
            "RFT_RUNTIME_ENDPOINT": server.url,
            **{item["name"]: item["value"] for item in runtime()["envVars"]},
        }
        # -S: no site-packages of this environment; what runs is what is in the bundle.
        code = f"import sys; sys.path[:0] = ['']; import main; main.app.run(port={port})"
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", code],
            cwd=bundle,
            env=settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            wait_for(port, process)
            url = f"http://127.0.0.1:{port}/invocations"
            body = requests.post(url, json=payload, timeout=60).json()
        finally:
            process.terminate()
            process.communicate(timeout=30)
    assert body["_rft"]["outcome"] == "completed", body
    assert body["_rft"]["reported"] is True
    assert body["_rft"]["components"]["solved"] == 1
    assert job.trajectories[payload["metadata"]["rolloutId"]].rewards == (body["reward"],)


def runtime() -> dict:
    spec = json.loads((ROOT / "agentcore" / "agentcore.json").read_text("utf-8"))
    return spec["runtimes"][0]
