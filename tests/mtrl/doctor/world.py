"""A sound set-up, all of it real and on this machine: a project, an account on loopback, a deployed agent, tools."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from bedrock_agentcore import BedrockAgentCoreApp

from environments.wordle import environment
from rft_agent_sdk import Rollout, rft_handler
from rft_agent_sdk.mtrl.doctor.check import Checked
from rft_agent_sdk.mtrl.doctor.run import Report, choose, examine
from rft_agent_sdk.mtrl.doctor.setup import Dataset, Setup
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.twins.cloud import LocalCloud, Runtime
from tests.servers import Answer, ScriptedServer, serving

ROOT = Path(__file__).parents[3]
ACCOUNT, REGION = (
    "210987654321",
    "us-west-2",
)  # no account of the documentation: those are a finding
OTHER_ACCOUNT = "345678901234"
RUNTIME_ID = "RftAgent_Wordle-aBcDeFgHiJ"
NO_JOB = {"Message": "Could not find job"}
MAIN = """\
import os
from bedrock_agentcore import BedrockAgentCoreApp
from rft_agent_sdk import rft_handler

app = BedrockAgentCoreApp()

@app.entrypoint
@rft_handler(app=app, floor=-1.5)
def invoke(payload):
    return 1.0

if __name__ == "__main__":
    app.run()
"""


@dataclass
class World:
    """Everything that the doctor looks at; a test spoils one thing of it."""

    root: Path
    cloud: LocalCloud
    setup: Setup
    monkeypatch: pytest.MonkeyPatch
    answers: dict[str, Any]
    """`job_runtime`: what the Job Runtime answers."""
    stack: ExitStack

    def launch(self, **values: Any) -> None:
        """Mean another launch."""
        self.setup.launch = self.setup.launch.with_(**values)

    def edit(self, name: str, change: Callable[[Any], object]) -> None:
        """Change a JSON file of the project."""
        path = self.root / name
        found = json.loads(path.read_text())
        change(found)
        path.write_text(json.dumps(found))

    def main(self, text: str) -> None:
        """Write the entrypoint."""
        (self.root / "agentcore/app/main.py").write_text(text)

    def tool(self, name: str, says: str | None, *, interpreter: str = "/bin/sh") -> None:
        """Put a program on PATH that prints its version; `None` takes it away."""
        path = self.root / "bin" / name
        path.unlink(missing_ok=True)
        if says is not None:
            path.write_text(f"#!{interpreter}\necho {says}\n")
            path.chmod(0o755)

    def package(self, name: str, version: str | None) -> None:
        """Have another version of a package installed, or none."""
        where = self.root / "site"
        for one in where.glob(f"{name.replace('-', '_')}-*.dist-info"):
            shutil.rmtree(one)
        if version is not None:
            info = where / f"{name.replace('-', '_')}-{version}.dist-info"
            info.mkdir(parents=True)
            (info / "METADATA").write_text(
                f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
            )

    def rows(self, change: Callable[[list[tuple[str, str]]], object]) -> None:
        """Change the training rows."""
        assert self.setup.dataset is not None
        prompts = list(self.setup.dataset.prompts)
        change(prompts)
        self.setup.dataset = replace(self.setup.dataset, prompts=prompts)

    def deploy(self, serve: Callable[[BedrockAgentCoreApp], object]) -> None:
        """Deploy another agent."""
        app = BedrockAgentCoreApp()
        serve(app)
        self.runtime.url = self.stack.enter_context(serving(app))

    @property
    def runtime(self) -> Runtime:
        return self.cloud.runtimes[RUNTIME_ID]

    def check(self, check_id: str) -> Checked:
        """Make one check."""
        (found,) = examine(self.setup, choose([check_id])).checked
        return found

    def examine(self) -> Report:
        """Make all."""
        return examine(self.setup)


def sampling_agent(app: BedrockAgentCoreApp) -> None:
    """An agent of this package that asks the policy once."""

    @app.entrypoint
    @rft_handler(app=app)
    def invoke(rollout: Rollout) -> float:
        rollout.openai().chat.completions.create(
            model="default", messages=[{"role": "user", "content": rollout.prompt}]
        )
        return 1.0


@contextmanager
def sound(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_account: bool = True,
    has_agent: bool = True,
) -> Iterator[World]:
    """Yield a set-up in which nothing is wrong.

    Without an account there are no credentials, and without an agent its runtime has no server: both cost time, and
    most checks need neither.
    """
    answers: dict[str, Any] = {"job_runtime": Answer(400, NO_JOB)}
    with ExitStack() as stack:
        cloud = LocalCloud(region=REGION, account=ACCOUNT)
        monkeypatch.setenv("AWS_REGION", REGION)
        monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
        if has_account:
            stack.enter_context(cloud)
            for name, value in cloud.environment().items():
                monkeypatch.setenv(name, value)
        _project(tmp_path)
        world = World(tmp_path, cloud, _setup(tmp_path, cloud), monkeypatch, answers, stack)
        _tools(world)
        spec = json.loads((tmp_path / "agentcore/agentcore.json").read_text())
        variables = {one["name"]: one["value"] for one in spec["runtimes"][0]["envVars"]}
        cloud.runtimes[RUNTIME_ID] = Runtime(name="RftAgent_Wordle", environment=variables)
        if has_account:
            world.setup.endpoints |= {cloud.url}
        if has_agent:
            server = stack.enter_context(ScriptedServer(lambda seen, count: answers["job_runtime"]))
            monkeypatch.setenv("RFT_RUNTIME_ENDPOINT", server.url)
            world.setup.endpoints |= {server.url}
            world.deploy(sampling_agent)
        yield world


def _project(root: Path) -> None:
    """Lay a copy of the project out, with an account of its own in it."""
    for name in (
        "agentcore/agentcore.json",
        "agentcore/aws-targets.json",
        "agentcore/app/pyproject.toml",
        "payload.json",
    ):
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text((ROOT / name).read_text().replace("111122223333", ACCOUNT))
    for package in ("rft_agent_sdk", "environments"):
        (root / "agentcore/app" / package).symlink_to(ROOT / package)
    cdk = root / "agentcore/cdk"
    shutil.copytree(
        ROOT / "agentcore/cdk",
        cdk,
        ignore=shutil.ignore_patterns("node_modules", "dist", "cdk.out"),
    )
    (root / "agentcore/app/main.py").write_text(MAIN)


def _tools(world: World) -> None:
    (world.root / "bin").mkdir()
    world.tool("node", "v22.11.0")
    world.tool("agentcore", "0.30.0")
    world.tool("uv", "uv 0.13.9")
    world.setup.packages = [str(world.root / "site")]
    for name, version in {
        "bedrock-agentcore": "1.25.0",
        "strands-agents": "1.62.0",
        "openai": "2.54.0",
        "httpx": "0.28.1",
        "botocore": "1.44.8",
        "requests": "2.34.2",
        "pydantic": "2.14.4",
    }.items():
        world.package(name, version)


def _setup(root: Path, cloud: LocalCloud) -> Setup:
    cloud.make_bucket("rft-output")
    launch = LaunchSpec(
        agent=cloud.runtime_arn(RUNTIME_ID),
        role=cloud.role_arn("JobRole"),
        region=REGION,
        model="openai-reasoning-gpt-oss-20b",
        dataset="train.jsonl",
        validation_dataset="val.jsonl",
        s3_output="s3://rft-output/wordle",
        mlflow_app=cloud.make_mlflow_app("metrics").arn,
        accept_eula=True,
        global_batch_size=32,
        max_epochs=10,
        max_steps=100,
    )
    train, val = environment.tasks("train", 320), environment.tasks("validation", 32)
    return Setup(
        root=root,
        launch=launch,
        is_whole=True,
        dataset=Dataset("train.jsonl", _placed("train.jsonl", train)),
        validation=Dataset("val.jsonl", _placed("val.jsonl", val)),
        invoke=True,
    )


def _placed(name: str, prompts: list[str]) -> list[tuple[str, str]]:
    return [(f"{name}: line {number}", prompt) for number, prompt in enumerate(prompts, 1)]
