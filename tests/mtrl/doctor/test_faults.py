"""Faults, seeded one at a time into a sound set-up: each is found by its own check, told, and told how to mend."""

import json
import time
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from environments.wordle import Wordle
from rft_agent_sdk.mtrl.doctor.check import Result, problem
from rft_agent_sdk.mtrl.doctor.checks import GROUPS
from rft_agent_sdk.mtrl.doctor.checks.machine import proxies
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.reward import Tier, TieredReward
from rft_agent_sdk.twins.cloud import Function, JobRecord, Role, statement, trust
from tests.mtrl.doctor.world import ACCOUNT, MAIN, OTHER_ACCOUNT, World, sound
from tests.servers import Answer

JOB_POLICY = "arn:aws:iam::aws:policy/AmazonSageMakerJobFullAccess"
PROBLEM, WARNING = Result.PROBLEM, Result.WARNING


@dataclass(frozen=True)
class Fault:
    """What is spoiled, and what the doctor is to say of it."""

    name: str
    spoil: Callable[[World], object]
    check: str
    says: str
    fix: str
    result: Result = PROBLEM


def both(*spoils: Callable[[World], object]) -> Callable[[World], object]:
    """Spoil several things."""
    return lambda world: [spoil(world) for spoil in spoils]


def spoil_rewards(world: World, **numbers: float) -> None:
    """Change the numbers of a record that was proved once: what a later assignment does."""
    environment = Wordle()
    for name, value in numbers.items():
        object.__setattr__(environment.rewards, name, value)
    environment.rewards.__dict__.pop("tiers", None)
    world.setup._known["environment"] = (environment, None)


def overlapping(world: World) -> None:
    """Tiers edited after their proof."""
    environment = Wordle()
    tiers = environment.rewards.tiers
    tiers.tiers = (replace(tiers.tiers[0], weight=0.15), *tiers.tiers[1:])
    world.setup._known["environment"] = (environment, None)


def counted_loss(world: World) -> None:
    environment = Wordle()
    tiers = TieredReward([Tier("solved", (2.0,)), Tier("lost", (1.0,)), Tier("never", (-1.5,))])
    environment.rewards.__dict__["tiers"] = tiers
    world.setup._known["environment"] = (environment, None)


def high_floor(world: World) -> None:
    environment = Wordle()
    environment.floor = 0.0
    world.setup._known["environment"] = (environment, None)


def role(world: World, **changes: Any) -> None:
    world.cloud.roles["JobRole"] = replace(world.cloud.roles["JobRole"], **changes)


def agent_role(world: World, **changes: Any) -> None:
    world.cloud.roles["AgentRole"] = replace(world.cloud.roles["AgentRole"], **changes)


def run_a_job(world: World) -> None:
    """Have a job run that never ends by itself."""

    def runner(job: JobRecord) -> None:
        job.move("Training")
        job.sleep(600)

    world.cloud.runner = runner
    launch = world.setup.launch
    document = {
        "AgentConfig": {"BedrockAgentCoreConfig": {"AgentRuntimeArn": launch.agent}},
        "InputDataConfig": [
            {
                "ChannelName": "train",
                "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://rft-output/t.jsonl"}},
            }
        ],
        "OutputDataConfig": {"S3OutputPath": launch.s3_output},
        "ModelPackageConfig": {
            "OutputModelPackageGroupArn": world.cloud.make_model_package_group("out").arn,
            "IntermediateCheckpointModelPackageGroupArn": world.cloud.make_model_package_group("in").arn,
        },
        "TrainingConfig": {
            "BaseModelArn": world.cloud.hub.arn_of(launch.model),
            "MlflowConfig": {"MlflowResourceArn": launch.mlflow_app},
            "AcceptEula": True,
        },
    }  # fmt: skip
    world.cloud.buckets["rft-output"]["t.jsonl"] = b'{"prompt": "x"}\n'
    world.setup.clients("sagemaker").create_job(
        JobName="earlier",
        JobCategory="AgentRFT",
        RoleArn=launch.role,
        JobConfigSchemaVersion="1.0.0",
        JobConfigDocument=json.dumps(document),
    )


def forwarder(world: World, name: str) -> None:
    world.cloud.functions[name] = Function()
    world.launch(agent=f"arn:aws:lambda:us-west-2:{ACCOUNT}:function:{name}")


def forget_rows(world: World) -> None:
    assert world.setup.dataset is not None
    world.setup.dataset = replace(
        world.setup.dataset,
        prompts=(),
        findings=[problem("wanted a string", "Correct the row.", "train.jsonl: line 1")],
    )


def share_a_task(world: World) -> None:
    assert world.setup.dataset is not None
    assert world.setup.validation is not None
    _, prompt = world.setup.dataset.prompts[6]
    task = json.loads(prompt)
    shouted = json.dumps({**task, "answer": task["answer"].upper(), "id": "other"})
    world.setup.validation = replace(
        world.setup.validation, prompts=[("val.jsonl: line 1", shouted)]
    )


def packed(world: World) -> None:
    with zipfile.ZipFile(world.root / "agentcore/Wordle.zip", "w") as bundle:
        bundle.writestr("other.py", "")


def runtime_key(key: str, value: object) -> Callable[[World], object]:
    return lambda world: world.edit(
        "agentcore/agentcore.json", lambda spec: spec["runtimes"][0].update({key: value})
    )


def skew(seconds: float) -> Callable[[World], object]:
    def spoil(world: World) -> None:
        world.setup.clock = lambda: time.time() + seconds

    return spoil


def env(name: str, value: str) -> Callable[[World], object]:
    return lambda world: world.monkeypatch.setenv(name, value)


def job_runtime(answer: Answer) -> Callable[[World], object]:
    return lambda world: world.answers.update(job_runtime=answer)


def attribute(name: str, value: object) -> Callable[[World], object]:
    """Change an attribute of the deployed runtime."""
    return lambda world: setattr(world.runtime, name, value)


def only_generic_trust(world: World) -> None:
    role(world, trust=trust("sagemaker.amazonaws.com"))


def other_job(world: World) -> None:
    world.edit("payload.json", lambda body: body["metadata"].update(jobArn=_arn(OTHER_ACCOUNT)))


def _arn(account: str) -> str:
    return f"arn:aws:sagemaker:us-west-2:{account}:job/AgentRFT/smoke-test"


def no_credentials(world: World) -> None:
    """Take away the agent's, and not the doctor's: here both are one process."""
    from rft_agent_sdk import credentials

    source = credentials.SharedCredentials(load=lambda: None)
    world.monkeypatch.setattr(credentials, "_shared_credentials", source)


def plain_agent(app) -> None:
    """An agent under no handler."""

    @app.entrypoint
    def invoke(payload):
        return {"result": "hello"}


def failing_agent(app) -> None:
    @app.entrypoint
    def invoke(payload):
        raise RuntimeError("broken")


def quick(main: str) -> Callable[[World], object]:
    """Write the entrypoint, and do not wait long for it."""

    def spoil(world: World) -> None:
        world.main(main)
        world.setup.start_s = 6.0

    return spoil


SWAPPED = MAIN.replace(
    "@app.entrypoint\n@rft_handler(app=app, floor=-1.5)",
    "@rft_handler(app=app, floor=-1.5)\n@app.entrypoint",
)
BARE = MAIN.replace("@app.entrypoint\n", "")
UNHANDLED = MAIN.replace("@rft_handler(app=app, floor=-1.5)\n", "")
UNSERVED = MAIN.replace('if __name__ == "__main__":\n    app.run()\n', "")
SDK = MAIN.replace(
    "from rft_agent_sdk import rft_handler",
    "from sagemaker.train.rft import sagemaker_rft_handler as rft_handler",
)
ERRING = MAIN.replace("    return 1.0", '    return {"status": "error", "error": "no"}')

MACHINE = [
    Fault("old Python", lambda w: setattr(w.setup, "python", (3, 9, 2)), "python-version", "3.9.2", "3.12"),
    Fault("a package too old", lambda w: w.package("strands-agents", "1.40.0"), "package-versions", "strands-agents is 1.40.0", "strands-agents>=1.62"),
    Fault("a package too new", lambda w: w.package("openai", "3.0.0"), "package-versions", "openai is 3.0.0", "<3"),
    Fault("a package missing", lambda w: w.package("httpx", None), "package-versions", "httpx>=0.28 is not installed", "pip install"),
    Fault("botocore before AgentRFT", lambda w: w.package("botocore", "1.43.36"), "botocore-agentrft", "1.43.36", "botocore>=1.43.37"),
    Fault("no Node", both(lambda w: w.tool("node", None), lambda w: w.launch(agent="")), "node", "no node on PATH", "Node 20"),
    Fault("old Node", lambda w: w.tool("node", "v18.19.0"), "node", "v18.19.0", "Node 20", WARNING),
    Fault("no AgentCore CLI", both(lambda w: w.tool("agentcore", None), lambda w: w.launch(agent="")), "agentcore-cli", "no agentcore on PATH", "npm install -g @aws/agentcore"),
    Fault("the retired CLI", lambda w: w.tool("agentcore", "0.3.14", interpreter="/usr/bin/env python3"), "agentcore-cli", "starter toolkit", "pip uninstall", WARNING),
    Fault("no uv", lambda w: w.tool("uv", None), "uv", "no uv on PATH", "pip install uv", WARNING),
    Fault("two regions", env("AWS_DEFAULT_REGION", "us-east-1"), "aws-region", "AWS_DEFAULT_REGION says us-east-1", "Make them agree"),
    Fault("no AWS_REGION", lambda w: w.monkeypatch.delenv("AWS_REGION"), "aws-region", "reads nothing else", "Export AWS_REGION=us-west-2", WARNING),
    Fault("regions of another job", both(env("AWS_REGION", "us-east-1"), env("AWS_DEFAULT_REGION", "us-east-1")), "aws-region", "the job's region is us-west-2", "AWS_DEFAULT_REGION=us-west-2", WARNING),
    Fault("a proxy", env("HTTPS_PROXY", "http://me:hunter2@proxy.corp:3128"), "proxies", "proxy.corp:3128", "*.api.aws", WARNING),
    Fault("no CA bundle", env("AWS_CA_BUNDLE", "/nowhere/ca.pem"), "ca-bundle", "/nowhere/ca.pem", "Unset AWS_CA_BUNDLE"),
    Fault("calls go elsewhere", env("AWS_ENDPOINT_URL_IAM", "https://iam.example.com"), "aws-endpoints", "iam.example.com", "Unset", WARNING),
    Fault("a stand-in answers for AWS", env("AWS_ENDPOINT_URL_SAGEMAKER", "http://127.0.0.1:4566"), "aws-endpoints", "say nothing of the account", "--endpoint URL", WARNING),
]  # fmt: skip
PROJECT = [
    Fault("an account of the documentation", lambda w: w.edit("agentcore/aws-targets.json", lambda t: t[0].update(account="111122223333")), "agentcore-project", "111122223333", "aws sts get-caller-identity"),
    Fault("no permission to sample", runtime_key("additionalPolicies", []), "agentcore-project", "neither sample nor report", "AmazonSageMakerJobRuntimeAccess"),
    Fault("no entrypoint", lambda w: (w.root / "agentcore/app/main.py").unlink(), "agentcore-project", "main.py", "spelled right"),
    Fault("a bundle without its entrypoint", packed, "bundle", "main.py", ""),
    Fault("a payload of a gateway", lambda w: w.edit("payload.json", lambda b: b.update(_config={"base_url": "http://127.0.0.1", "api_key": "k" * 20})), "payload", "gateway", "jobArn"),
    Fault("a payload without a rollout", lambda w: w.edit("payload.json", lambda b: b["metadata"].pop("rolloutId")), "payload", "rolloutId", "rolloutId"),
    Fault("a payload whose prompt is an object", lambda w: w.edit("payload.json", lambda b: b.update(prompt={"a": 1})), "payload", "prompt must be a string", "prompt"),
    Fault("a payload of another kind of job", lambda w: w.edit("payload.json", lambda b: b["metadata"].update(jobArn="arn:aws:sagemaker:us-west-2:1:job/x")), "payload", "jobArn", "job/AgentRFT/"),
    Fault("the handler outermost", lambda w: w.main(SWAPPED), "decorators", "above @app.entrypoint", "outermost"),
    Fault("a handler alone", lambda w: w.main(BARE), "decorators", "starts no server", "outermost"),
    Fault("no handler", lambda w: w.main(UNHANDLED), "decorators", "under no @rft_handler", "outermost"),
    Fault("the SDK's decorator, with a context", lambda w: w.main(SDK.replace("invoke(payload)", "invoke(payload, context)")), "decorators", "takes 2 parameters", "payload alone"),
    Fault("the SDK's decorator", lambda w: w.main(SDK), "decorators", "starves", "rft_agent_sdk", WARNING),
    Fault("no Python", lambda w: w.main("def (\n"), "decorators", "cannot be read", "rft serve"),
    Fault("an error for a reward", lambda w: w.main(ERRING), "error-status", "fails the whole job", "floor"),
    Fault("nothing serves", quick(UNSERVED), "server-starts", "exit code 0", "app.run()"),
    Fault("a module is missing", quick("import nowhere_to_be_found\n" + MAIN), "server-starts", "nowhere_to_be_found", "pyproject.toml"),
    Fault("the handler outermost, started", quick(SWAPPED), "server-starts", "without a reward", "outermost"),
    Fault("no handler, started", quick(UNHANDLED.replace("return 1.0", "return payload")), "server-starts", "without a reward", "outermost"),
    Fault("slow to start", both(lambda w: w.main("import time; time.sleep(30)\n" + MAIN), lambda w: setattr(w.setup, "start_s", 1.0)), "server-starts", "within 1 s", "import what is heavy"),
]  # fmt: skip
REWARDS = [
    Fault("an environment that is not there", lambda w: setattr(w.setup, "environment", "chess"), "environment", "chess", "--environment"),
    Fault("shaping that outweighs a step", overlapping, "reward-order", "level with or above", "Lower the weights"),
    Fault("a solve below the threshold", lambda w: spoil_rewards(w, solved_last=0.95), "reward-threshold", "below success_threshold 1", "Raise the outcome"),
    Fault("a threshold above every solve", lambda w: w.launch(success_threshold=1.2), "reward-threshold", "success_threshold 1.2", "lower success_threshold"),
    Fault("a loss that counts", counted_loss, "reward-threshold", "'lost' pays 1", "raise success_threshold"),
    Fault("a floor above a loss", high_floor, "reward-floor", "preferred", "Lower the floor"),
]  # fmt: skip
DATASET = [
    Fault("rows without a prompt", forget_rows, "dataset-rows", "train.jsonl: line 1", "Correct the row"),
    Fault("an empty prompt", lambda w: w.rows(lambda p: p.append(("train.jsonl: line 321", " "))), "dataset-rows", "line 321", "right"),
    Fault("a row that is no task", lambda w: w.rows(lambda p: p.append(("train.jsonl: line 321", "Guess the word"))), "dataset-tasks", "line 321", "right"),
    Fault("fewer rows than a batch", lambda w: w.rows(lambda p: p.__delitem__(slice(20, None))), "dataset-size", "at least one batch of 32", "smaller global_batch_size"),
    Fault("one epoch for a hundred steps", lambda w: w.launch(max_epochs=1), "dataset-size", "after 10 of max_steps 100", "Raise max_epochs to 10", WARNING),
    Fault("rows again and again", lambda w: w.rows(lambda p: p.extend(p * 2)), "dataset-repeats", "640 of 960", "group_size", WARNING),
    Fault("a task in both files, in another case", share_a_task, "dataset-overlap", "train.jsonl: line 7", "rft dataset check"),
]  # fmt: skip
ACCOUNTS = [
    Fault("clock ahead", skew(400), "clock-skew", "ahead of", "NTP"),
    Fault("clock behind", skew(-120), "clock-skew", "behind", "NTP", WARNING),
    Fault("credentials that are refused", lambda w: w.cloud.faults.add("sts", "GetCallerIdentity", "InvalidClientTokenId", status=403), "identity", "InvalidClientTokenId", "aws sso login"),
    Fault("the root user", lambda w: setattr(w.cloud, "caller_arn", f"arn:aws:iam::{ACCOUNT}:root"), "identity", "root user", "role of your own", WARNING),
    Fault("a role of another account", lambda w: w.launch(role=f"arn:aws:iam::{OTHER_ACCOUNT}:role/JobRole"), "one-place", f"--role names account {OTHER_ACCOUNT}", f"account {ACCOUNT}"),
    Fault("an MLflow app elsewhere", lambda w: w.launch(mlflow_app=w.setup.launch.mlflow_app.replace("us-west-2", "us-east-1")), "one-place", "--mlflow-app names region us-east-1", "us-west-2"),
    Fault("targets elsewhere", lambda w: w.edit("agentcore/aws-targets.json", lambda t: t[0].update(region="us-east-1")), "one-place", "region us-east-1", "us-west-2", WARNING),
    Fault("a payload of another account", other_job, "one-place", "403", f"account {ACCOUNT}"),
    Fault("a caller of another account", lambda w: w.launch(agent=w.setup.agent.replace(ACCOUNT, OTHER_ACCOUNT), role=w.setup.launch.role.replace(ACCOUNT, OTHER_ACCOUNT)), "one-place", "the caller names account", "Sign in"),
    Fault("may not launch", lambda w: w.cloud.users.update(developer=Role(policies={"Some": statement("sagemaker:ListJobs")})), "launch-rights", "sagemaker:CreateJob", "Allow"),
    Fault("may not list", lambda w: w.cloud.users.update(developer=Role(policies={"Some": statement("sagemaker:*Job")})), "launch-rights", "sagemaker:ListJobs", "Allow"),
    Fault("may not pass the role", lambda w: w.cloud.users.update(developer=Role(policies={"Some": statement("iam:PassRole", condition={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}})})), "pass-role", "iam:PassRole", "job.sagemaker.amazonaws.com"),
    Fault("may not simulate", lambda w: w.cloud.faults.add("iam", "SimulatePrincipalPolicy", "AccessDenied", status=403, times=None), "pass-role", "not known whether", "iam:SimulatePrincipalPolicy", WARNING),
]  # fmt: skip
ROLES = [
    Fault("the general principal", only_generic_trust, "job-role-trust", "classic mistake", "job.sagemaker.amazonaws.com"),
    Fault("no TagSession", lambda w: role(w, trust=trust("job.sagemaker.amazonaws.com", actions=["sts:AssumeRole"])), "job-role-trust", "not sts:TagSession", "sts:TagSession"),
    Fault("another service", lambda w: role(w, trust=trust("ec2.amazonaws.com")), "job-role-trust", "but ec2.amazonaws.com", "job.sagemaker.amazonaws.com"),
    Fault("no such role", lambda w: w.cloud.roles.pop("JobRole"), "job-role-trust", "no such role", "Make it"),
    Fault("a user for a role", lambda w: w.launch(role=f"arn:aws:iam::{ACCOUNT}:user/developer"), "launch-names", "role", "execution role"),
    Fault("a role that may do nothing", lambda w: role(w, attached=()), "job-role-rights", "bedrock-agentcore:InvokeAgentRuntime", JOB_POLICY),
    Fault("a role that may not write", lambda w: role(w, attached=(), policies={"Some": statement("bedrock-agentcore:*", "s3:GetObject", "s3:ListBucket", "sagemaker:*", "logs:*")}), "job-role-rights", "s3:PutObject", JOB_POLICY),
    Fault("a role that the SDK refuses", both(lambda w: w.package("sagemaker-train", "1.27.0"), lambda w: w.monkeypatch.setenv("SAGEMAKER_VALIDATE_ROLE", "true")), "sdk-role-validation", "sagemaker.amazonaws.com", "SAGEMAKER_VALIDATE_ROLE=false", WARNING),
    Fault("AgentCore is not trusted", lambda w: agent_role(w, trust=trust("lambda.amazonaws.com")), "runtime-role-trust", "but lambda.amazonaws.com", "bedrock-agentcore.amazonaws.com"),
    Fault("an agent that may not report", lambda w: agent_role(w, attached=(), policies={"Some": statement("sagemaker:Sample*", "sagemaker:CallWithBearerToken")}), "runtime-role-rights", "sagemaker:CompleteRollout", "AmazonSageMakerJobRuntimeAccess"),
    Fault("an agent that may not sign", lambda w: agent_role(w, attached=(), policies={"Some": statement("sagemaker:Sample*", "sagemaker:CompleteRollout", "sagemaker:UpdateReward")}), "runtime-role-rights", "sagemaker:CallWithBearerToken", "AmazonSageMakerJobRuntimeAccess"),
]  # fmt: skip
RUNTIMES = [
    Fault("a doubled colon", lambda w: w.launch(agent=f"arn:aws:bedrock-agentcore::us-west-2:{ACCOUNT}:runtime/A-aBcDeFgHiJ"), "agent-arn", "one colon too many", "agentcore status"),
    Fault("a job elsewhere", lambda w: w.launch(region="us-east-1"), "agent-arn", "us-east-1", "where the agent is"),
    Fault("a job that the environment puts elsewhere", both(lambda w: w.launch(region=""), both(env("AWS_REGION", "us-east-1"), env("AWS_DEFAULT_REGION", "us-east-1"))), "agent-arn", "us-east-1", "where the agent is"),
    Fault("no such runtime", lambda w: w.cloud.runtimes.clear(), "runtime-ready", "no such runtime", "agentcore status"),
    Fault("an update that runs", attribute("status", "UPDATING"), "runtime-ready", "UPDATING", "Wait"),
    Fault("a deployment that failed", both(lambda w: setattr(w.runtime, "status", "CREATE_FAILED"), lambda w: setattr(w.runtime, "failure_reason", "image too large")), "runtime-ready", "image too large", "agentcore deploy"),
    Fault("an MCP server", attribute("protocol", "MCP"), "runtime-ready", "speaks MCP", "HTTP"),
    Fault("an old Python", attribute("artifact", {"codeConfiguration": {"code": {"s3": {"bucket": "bundles", "prefix": "code.zip"}}, "runtime": "PYTHON_3_11", "entryPoint": ["main.py"]}}), "runtime-ready", "PYTHON_3_11", "PYTHON_3_13", WARNING),
    Fault("no such endpoint", lambda w: w.launch(qualifier="stable"), "runtime-endpoint", "no endpoint 'stable'", "DEFAULT"),
    Fault("a VPC", both(lambda w: setattr(w.setup, "invoke", False), attribute("network", {"networkMode": "VPC", "networkModeConfig": {"subnets": ["subnet-0a1b2c3d4e5f60718"], "securityGroups": ["sg-0a1b2c3d4e5f60718"]}})), "runtime-network", ".api.aws", "TCP 443", WARNING),
    Fault("another effort is deployed", attribute("environment", {"RFT_ENVIRONMENT": "wordle", "REASONING_EFFORT": "high", "REASONING_PROMPT_HINT": "true"}), "runtime-variables", "'high' there and 'low' here", "Not while a job runs", WARNING),
    Fault("no such function", lambda w: w.launch(agent=f"arn:aws:lambda:us-west-2:{ACCOUNT}:function:sagemaker-f"), "lambda", "no such function", "Name"),
    Fault("a function of another name", lambda w: forwarder(w, "forward"), "lambda", "does not contain SageMaker", "Rename", WARNING),
]  # fmt: skip
LAUNCHES = [
    Fault("no model", lambda w: w.launch(model=""), "launch-names", "model", "--model"),
    Fault("no licence", lambda w: w.launch(accept_eula=False), "launch-names", "licence", "--accept-eula"),
    Fault("a tracking server", lambda w: w.launch(mlflow_app=f"arn:aws:sagemaker:us-west-2:{ACCOUNT}:mlflow-tracking-server/t"), "launch-names", "tracking server", "list-mlflow-apps"),
    Fault("a hyperparameter out of range", lambda w: w.launch(sampling_max_tokens=16384), "hyperparameters", "16384", "4096"),
    Fault("a hyperparameter that is none", lambda w: w.launch(hyperparameters={"seed": 1}), "hyperparameters", "seed", "Leave it out"),
    Fault("a high learning rate", lambda w: w.launch(learning_rate=1e-3), "hyperparameters", "0.001", "1e-5", WARNING),
    Fault("short replies", lambda w: w.launch(sampling_max_tokens=4096), "hyperparameters", "before its first tool call", "8192", WARNING),
    Fault("a model that is not trained here", both(lambda w: w.launch(model="huggingface-vlm-qwen3-6-27b", region="us-east-1"), lambda w: w.launch(agent=w.setup.agent.replace("us-west-2", "us-east-1"))), "model-offered", "not in us-east-1", "Launch it there"),
    Fault("an agent slower than the service", lambda w: setattr(w.runtime, "environment", {"ROLLOUT_BUDGET_SECONDS": "700"}), "rollout-budget", "700 s", "ROLLOUT_BUDGET_SECONDS"),
    Fault("no time left to report", lambda w: setattr(w.runtime, "environment", {"ROLLOUT_BUDGET_SECONDS": "580"}), "rollout-budget", "late", "ROLLOUT_BUDGET_SECONDS", WARNING),
    Fault("a budget beyond an invocation", both(lambda w: w.main(MAIN.replace("app=app", "app=app, budget_s=1200")), lambda w: w.launch(rollout_timeout=3600.0)), "rollout-budget", "after 900 s", "background=True"),
    Fault("a job in a VPC", lambda w: w.launch(subnets=("subnet-1", "subnet-2"), security_groups=("sg-1",)), "job-network", "endpoints", "private DNS", WARNING),
    Fault("a job that runs", run_a_job, "running-jobs", "earlier", "do not deploy"),
    Fault("no such MLflow app", lambda w: w.cloud.mlflow_apps.clear(), "mlflow-app", "no such MLflow app", "create-mlflow-app"),
    Fault("an old MLflow app", lambda w: w.launch(mlflow_app=w.cloud.make_mlflow_app("old", version="3.4.0").arn), "mlflow-app", "3.4.0", "Make a new app"),
    Fault("an MLflow app that failed", lambda w: setattr(w.cloud.mlflow_apps[w.setup.launch.mlflow_app], "status", "CreateFailed"), "mlflow-app", "CreateFailed", "another one"),
    Fault("no bucket", lambda w: w.launch(s3_output="s3://nobodys-bucket/x"), "output-bucket", "nobodys-bucket", "Make it"),
    Fault("another account's bucket", both(lambda w: w.cloud.make_bucket("theirs", owner=OTHER_ACCOUNT), lambda w: w.launch(s3_output="s3://theirs/x")), "output-bucket", "theirs", "your own"),
    Fault("a bucket elsewhere", both(lambda w: setattr(w.cloud.make_bucket("far"), "region", "eu-west-1"), lambda w: w.launch(s3_output="s3://far/x")), "output-bucket", "eu-west-1", "job's region"),
    Fault("rows that are not in S3", lambda w: w.launch(dataset="s3://rft-output/none.jsonl"), "dataset-uploaded", "none.jsonl", "Upload"),
]  # fmt: skip
AGENTS = [
    Fault("a foreign job's ARN", job_runtime(Answer(403, {"Message": "not authorized to access this resource"})), "smoke-test", "another account", "jobArn"),
Fault("no credentials in the agent", no_credentials, "agent-self-check", "no AWS credentials", "execution role"),
    Fault("an endpoint that nobody reaches", env("RFT_RUNTIME_ENDPOINT", "http://127.0.0.1:9"), "agent-self-check", "*.amazonaws.com and not *.api.aws", "*.api.aws"),
    Fault("an agent that plays too long", env("ROLLOUT_BUDGET_SECONDS", "700"), "agent-self-check", "700 s", "rollout_timeout"),
    Fault("an agent under no handler", lambda w: w.deploy(plain_agent), "smoke-test", "without a reward", "@rft_handler"),
    Fault("an agent that does not know the question", lambda w: w.deploy(plain_agent), "agent-self-check", "no @rft_handler", "Deploy it with this package", WARNING),
    Fault("an agent that raises", lambda w: w.deploy(failing_agent), "smoke-test", "invocation failed", "/aws/bedrock-agentcore/runtimes/"),
    Fault("no server", both(lambda w: setattr(w.runtime, "url", None), lambda w: setattr(w.cloud.invocations, "start_s", 0.1)), "smoke-test", "invocation failed", "/aws/bedrock-agentcore/runtimes/"),
    Fault("a Job Runtime that is another server", job_runtime(Answer(404, {"Message": "no such page"})), "smoke-test", "not for want of a job", "log", WARNING),
    Fault("nothing at the URL", lambda w: setattr(w.setup, "url", "http://127.0.0.1:9"), "local-self-check", "nothing answers", "rft serve"),
]  # fmt: skip
OFFLINE = [*MACHINE, *PROJECT, *REWARDS, *DATASET]
ONLINE = [*ACCOUNTS, *ROLES, *RUNTIMES, *LAUNCHES]


@pytest.mark.parametrize("fault", OFFLINE, ids=lambda fault: fault.name)
def test_a_fault_of_a_machine_or_project_is_found_without_credentials(fault, tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_account=False, has_agent=False) as world:
        see(fault, world)


@pytest.mark.parametrize("fault", ONLINE, ids=lambda fault: fault.name)
def test_a_fault_of_an_account_or_a_launch_is_found(fault, tmp_path, monkeypatch):
    with sound(tmp_path, monkeypatch, has_agent=False) as world:
        see(fault, world)


@pytest.mark.parametrize("fault", AGENTS, ids=lambda fault: fault.name)
def test_a_fault_of_a_deployed_agent_is_found_by_asking_it(fault, world):
    see(fault, world)


def see(fault: Fault, world: World) -> None:
    """See that a fault is found, named, and told how to mend."""
    fault.spoil(world)
    found = world.check(fault.check)
    told = " ".join([found.found, *(f"{one.where} {one.message}" for one in found.findings)])
    fixes = " ".join(one.fix for one in found.findings)
    assert found.result is fault.result, told
    assert fault.says in told
    assert fault.fix in fixes
    assert all(one.fix for one in found.findings)
    assert found.findings[0].id not in ("", "check-failed")


def test_every_check_has_a_fault_that_it_finds():
    seeded = {fault.check for fault in [*OFFLINE, *ONLINE, *AGENTS]}
    assert {check.id for checks in GROUPS.values() for check in checks} - seeded == set()


def test_a_password_in_a_proxy_is_not_told(tmp_path, monkeypatch):
    monkeypatch.setenv("HTTPS_PROXY", "http://me:hunter2@proxy.corp:3128")
    found = proxies(Setup(root=tmp_path))
    assert "hunter2" not in str(found)
    assert "proxy.corp:3128" in str(found)
