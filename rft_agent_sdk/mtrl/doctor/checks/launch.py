"""The launch itself: its names, its hyperparameters, and what must be there and free when it comes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from rft_agent_sdk.errors import CloudError, RftError
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.checks.entrypoint import entrypoint_options
from rft_agent_sdk.mtrl.doctor.setup import PROJECT_FILE, Setup
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.job import CATEGORIES, list_jobs
from rft_agent_sdk.mtrl.launch_checks import check_spec
from rft_agent_sdk.mtrl.launch_settings import (
    BUDGET_VARIABLE,
    DEFAULT_BUDGET_S,
    Budget,
    budget_of,
    check_run,
    project_budget,
)
from rft_agent_sdk.mtrl.models import find_model
from rft_agent_sdk.mtrl.project_variables import AFTER_S, SYNCHRONOUS_S

MOST_TOKENS = 8192
_TOLD_ELSEWHERE = frozenset(
    {"agent-arn", "agent-place", "lambda-name", "other-region", "other-account"}
)
"""Findings about the launch's names that other checks here tell better."""
_ONLY_WHOLE = frozenset({"missing", "eula"})
_QUOTA = re.compile(r"agent.?rft|multi.?turn", re.IGNORECASE)
_QUOTA_PAGES = 40
_MLFLOW = re.compile(r"arn:[^:]*:sagemaker:[^:]*:[0-9]{12}:mlflow-app/.+")


def launch_names(setup: Setup) -> Answer:
    """See that the launch's names are ones, before any of them is looked up."""
    launch = setup.launch
    told = launch.model_fields_set
    if not told:
        raise Skipped(
            "nothing was told of the launch",
            "Give --config FILE, or options of the launch.",
        )
    findings = [
        one
        for one in check_spec(launch)
        if one.id not in _TOLD_ELSEWHERE and (setup.is_whole or one.id not in _ONLY_WHOLE)
    ]
    return findings or f"{len(told)} as wanted: {', '.join(sorted(told))}"


def hyperparameters(setup: Setup) -> Answer:
    """See that the hyperparameters are ones, in range, and not such as have gone wrong for others."""
    settings = setup.settings
    findings = [
        one
        for one in check_run(
            setup.launch, settings, budget=Budget(1, "not looked at here"), worst_solve=None
        )
        if one.id not in ("budget", "worst-solve-unknown")
    ]
    if settings.is_sound:
        findings += _short_replies(setup)
    asked = ", ".join(
        f"{name}={settings.values.get(name)}" for name in sorted(settings.chosen.asked)
    )
    return findings or (asked or "the defaults")


def _short_replies(setup: Setup) -> Iterable[Finding]:
    tokens = setup.settings.values["sampling_max_tokens"]
    if "gpt-oss" in (setup.launch.model_name or "") and tokens < MOST_TOKENS:
        yield warning(
            f"sampling_max_tokens is {tokens}: gpt-oss has often run out of them while reasoning, before its first "
            "tool call",
            f"Leave it at {MOST_TOKENS}, the most there is.",
            "hyperparameters.sampling_max_tokens",
        )


def model_offered(setup: Setup) -> Answer:
    """See that the model is one that is trained in the job's region."""
    source = setup.launch.model_name
    if source is None:
        return "a model package tells its own base model"
    model = find_model(source)
    region = setup.job_region()
    if model is None or region is None:
        return f"{source}: see launch-names, which knows the published list where a region is told"
    if region not in model.regions:
        return problem(
            f"{model.name} is trained in {', '.join(model.regions)}, not in {region}",
            "Launch it there, with an agent deployed there, or take another model.",
            "--model",
        )
    return f"{model.name} is trained in {region}"


def rollout_budget(setup: Setup) -> Answer:
    """See that the agent gives up, and has reported, before the service does."""
    if not setup.settings.is_sound:
        raise Skipped("the hyperparameters are not sound", "See the check hyperparameters.")
    budget, is_background = _budget(setup)
    timeout_s = setup.settings.values["rollout_timeout"]
    findings = [
        one
        for one in check_run(setup.launch, setup.settings, budget=budget, worst_solve=None)
        if one.id == "budget"
    ]
    told = f"the agent allows itself {budget.seconds:g} s ({budget.source}), rollout_timeout is {timeout_s:g} s"
    fix = "Lower ROLLOUT_BUDGET_SECONDS of the agent, or raise rollout_timeout."
    if not findings and budget.seconds + AFTER_S > timeout_s:
        findings.append(
            warning(
                f"{told}, and ending a rollout may take {AFTER_S:g} s more: a reward that is late fails the job",
                fix,
            )
        )
    if budget.seconds + AFTER_S > SYNCHRONOUS_S and not is_background:
        findings.append(
            problem(
                f"{told}, but a runtime ends an invocation after {SYNCHRONOUS_S:g} s, whatever it is doing",
                "Play longer rollouts in the background: @rft_handler(app=app, background=True).",
            )
        )
    return findings or told


def running_jobs(setup: Setup) -> Answer:
    """See that no job runs: the usual quota is one of each kind, and a deployment of its agent would fail it."""
    names = {
        category: [
            job.name for job in list_jobs(setup.clients("sagemaker"), category, status="InProgress")
        ]
        for category in CATEGORIES
    }
    training = names[CATEGORIES[0]]
    if training and not setup.launch.allow_running and len(training) >= _quota(setup):
        return problem(
            f"{', '.join(training)} runs already, and no more training jobs may: CreateJob would be refused",
            "Wait for it, or ask for a higher quota; and do not deploy the agent now: that fails a job that uses it.",
            CATEGORIES[0],
        )
    if running := [name for some in names.values() for name in some]:
        return warning(
            f"{', '.join(running)} runs: a deployment of its agent would fail it",
            "Do not deploy the agent until it has ended.",
        )
    return "none"


def mlflow_app(setup: Setup) -> Answer:
    """See that the MLflow app, which every job needs, is there and new enough."""
    arn = setup.launch.mlflow_app
    if not _MLFLOW.fullmatch(arn):
        raise Skipped(f"{arn!r} is no MLflow app's ARN", "See the check launch-names.")
    try:
        app = setup.ask("looking up the MLflow app", "sagemaker", "describe_mlflow_app", Arn=arn)
    except CloudError as error:
        if not error.is_missing:
            raise
        return problem(
            f"there is no such MLflow app in {setup.job_region()}: {arn}",
            "List yours: aws sagemaker list-mlflow-apps; or make one: aws sagemaker create-mlflow-app.",
            "--mlflow-app",
        )
    status, version = app.get("Status"), str(app.get("MlflowVersion", ""))
    if status not in ("Created", "Updated"):
        return problem(
            f"its status is {status}",
            "Wait until it is Created, or make another one.",
            "--mlflow-app",
        )
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if numbers and numbers < (3, 10):
        return problem(
            f"it runs MLflow {version}; a job needs 3.10 or newer",
            "Make a new app: aws sagemaker create-mlflow-app.",
            "--mlflow-app",
        )
    return f"{app.get('Name')}: {status}, MLflow {version or 'of a version that it does not say'}"


def output_bucket(setup: Setup) -> Answer:
    """See that the bucket that the job writes to is the account's own, in the job's region."""
    bucket = setup.launch.bucket
    try:
        answer = setup.ask(
            f"looking up the bucket {bucket}",
            "s3",
            "head_bucket",
            Bucket=bucket,
            ExpectedBucketOwner=setup.caller().account,
        )
    except CloudError as error:
        if error.is_missing:
            return problem(
                f"there is no bucket {bucket!r}", "Make it in the job's region.", "--s3-output"
            )
        if error.code not in ("403", "AccessDenied", "Forbidden"):
            raise
        return problem(
            f"the bucket {bucket!r} is another account's, or the caller may not look at it",
            "Name a bucket of your own, or allow s3:ListBucket on it to the caller.",
            "--s3-output",
        )
    region = answer.get("BucketRegion") or setup.job_region()
    if region != setup.job_region():
        return problem(
            f"the bucket {bucket!r} is in {region}, the job in {setup.job_region()}",
            "Name a bucket of the job's region.",
            "--s3-output",
        )
    return f"{bucket}, in {region}"


def dataset_uploaded(setup: Setup) -> Answer:
    """See that rows that are in S3 already are there."""
    uris = [
        uri
        for uri in (setup.launch.dataset, setup.launch.validation_dataset)
        if uri.startswith("s3://")
    ]
    findings = []
    for uri in uris:
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        answer = setup.ask(
            f"looking for {uri}", "s3", "list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1
        )
        if not any(one["Size"] for one in answer.get("Contents", [])):
            findings.append(
                problem(
                    f"there is nothing at {uri}",
                    "Upload the rows, or correct the URI.",
                    "--dataset",
                )
            )
    return findings or (f"{len(uris)} there" if uris else "no rows are named in S3")


def job_network(setup: Setup) -> Answer:
    """Tell what a job in a VPC needs there."""
    if not setup.launch.subnets:
        return "not in a VPC"
    return warning(
        "the job runs in a VPC, which must hold endpoints for all that it talks to: S3 (a gateway one), logs, "
        "bedrock-agentcore or lambda, and the MLflow app's; nothing here can see whether it does",
        "Make them with private DNS; their security group lets TCP 443 in from the VPC, the job's lets TCP 443 and "
        "UDP 53 out.",
        "subnets",
    )


CHECKS = (
    Check("launch-names", "The launch's names are ones", launch_names),
    Check(
        "hyperparameters",
        "The hyperparameters are ones, in range, and known to go well",
        hyperparameters,
    ),
    Check("model-offered", "The model is trained in the job's region", model_offered, ("model",)),
    Check(
        "rollout-budget",
        "The agent gives up, and has reported, before the service does",
        rollout_budget,
    ),
    Check("job-network", "A job in a VPC finds there what it needs", job_network),
    Check(
        "running-jobs",
        "No more jobs run than may, nor one that a deployment would fail",
        running_jobs,
        ("aws",),
    ),
    Check(
        "mlflow-app",
        "The MLflow app is there, Created, and 3.10 or newer",
        mlflow_app,
        ("aws", "mlflow_app"),
    ),
    Check(
        "output-bucket",
        "The output bucket is the account's own, in the job's region",
        output_bucket,
        ("aws", "s3_output"),
    ),
    Check(
        "dataset-uploaded", "Rows named in S3 are there", dataset_uploaded, ("aws",), matters=False
    ),
)


def _quota(setup: Setup) -> float:
    """Return how many training jobs may run at once, as far as the account's quotas tell; else the default, 1.

    Its name is not published: of the quotas whose names speak of such jobs the first counts.
    """
    parameters: dict[str, Any] = {"ServiceCode": "sagemaker"}
    for _ in range(_QUOTA_PAGES):
        try:
            answer = setup.ask(
                "listing quotas", "service-quotas", "list_service_quotas", **parameters
            )
        except CloudError:
            return 1.0
        for one in answer["Quotas"]:
            if _QUOTA.search(one["QuotaName"]) and "valuation" not in one["QuotaName"]:
                return float(one["Value"])
        if not answer.get("NextToken"):
            return 1.0
        parameters["NextToken"] = answer["NextToken"]
    return 1.0


def _budget(setup: Setup) -> tuple[Budget, bool]:
    """Return the agent's budget, and whether it plays in the background."""
    options = entrypoint_options(setup)
    is_background = options.get("background") is True
    stated = options.get("budget_s")
    if setup.launch.agent_budget_s is not None:
        return Budget(setup.launch.agent_budget_s, "agent_budget_s"), is_background
    if isinstance(stated, int | float) and not isinstance(stated, bool):
        return Budget(float(stated), "budget_s of @rft_handler"), is_background
    found = _deployed_budget(setup) or project_budget(setup.root / PROJECT_FILE)
    return found or Budget(
        DEFAULT_BUDGET_S, f"the default without {BUDGET_VARIABLE}"
    ), is_background


def _deployed_budget(setup: Setup) -> Budget | None:
    if not setup.agent:
        return None
    try:
        setup.credentials()
        variables = setup.runtime().get("environmentVariables") or {}
    except RftError:
        return None  # what cannot be looked up is told by its own check
    return budget_of(variables, "the deployed runtime")
