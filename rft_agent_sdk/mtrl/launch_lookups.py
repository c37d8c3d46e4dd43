"""What only AWS can tell of a launch, asked by reading calls: the role, the agent, the model, what is there already.

Nothing is changed here. What the caller may not look at is told as such and does not stop a launch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.agent_arn import (
    DEFAULT_QUALIFIER,
    Agent,
    check_place,
    is_runtime_id,
    parse_agent,
)
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.hub import ClientOf, HubRecipe, read_hub_model
from rft_agent_sdk.mtrl.job import TRAINING, list_jobs
from rft_agent_sdk.mtrl.launch_checks import error, warning
from rft_agent_sdk.mtrl.launch_data import bucket_and_key
from rft_agent_sdk.mtrl.launch_document import checkpoint_group, output_group
from rft_agent_sdk.mtrl.launch_settings import Budget, budget_of
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.mtrl.models import check_model, find_model, hub_name, read_model
from rft_agent_sdk.mtrl.trust import JOB_SERVICE, TRUST_ACTIONS, trusted_actions
from rft_agent_sdk.types import JSON

DENIED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})
_USABLE_APP = ("Created", "Updated")
_MLFLOW = (3, 10)
"""Oldest MLflow of an app that jobs log to."""


@dataclass
class Seen:
    """What was found of a launch."""

    agent: Agent | None = None
    model_name: str = ""
    recipe: HubRecipe | None = None
    """What the hub says about the model; `None` where it could not be asked."""
    budget: Budget | None = None
    """What the deployed agent allows itself; `None` where it does not say."""
    missing_groups: list[str] = field(default_factory=list)
    """Names of the model package groups that are not there yet."""
    is_prefix_empty: bool = False
    """Whether nothing lies under `s3_output`; the client then puts an empty object there."""
    findings: list[Finding] = field(default_factory=list)

    @property
    def has_errors(self) -> bool:
        """Whether the launch is refused."""
        return any(finding.severity is Severity.ERROR for finding in self.findings)


def look_up(spec: LaunchSpec, clients: Clients) -> Seen:
    """Ask AWS about a launch whose names and places are sound.

    Args:
        spec: The launch.
        clients: Of its region.

    Raises:
        CredentialsError: There are no credentials.
        CloudError: AWS cannot be reached.
    """
    seen = Seen()
    for ask in (_caller, _role, _agent, _mlflow, _model, _groups, _buckets, _datasets, _running):
        try:
            seen.findings += ask(spec, clients, seen)
        except CloudError as refused:
            if refused.is_transient or refused.code is None:
                raise
            seen.findings.append(_unseen(ask, refused))
    return seen


def resolve_runtime(clients: ClientOf, runtime_id: str) -> str:
    """Return the ARN of a runtime's id, looked up with these clients and no others.

    Raises:
        UsageError: There is none in the clients' region.
        CloudError: AgentCore refused.
    """
    try:
        return str(_runtime(clients, runtime_id)["agentRuntimeArn"])
    except CloudError as refused:
        if not refused.is_missing:
            raise
        region = clients("bedrock-agentcore-control").meta.region_name
        raise UsageError(
            f"agent: there is no runtime {runtime_id!r} in {region}: see `rft mtrl runtimes`"
        ) from refused


def base_model_of(clients: ClientOf, package: str) -> str:
    """Return the name of the base model that a model package was trained from.

    Raises:
        UsageError: The package names none, so no job can go on from it.
        CloudError: The service refused.
    """
    with told(f"the model package {package} cannot be looked at"):
        found = clients("sagemaker").describe_model_package(ModelPackageName=package)
    containers = (found.get("InferenceSpecification") or {}).get("Containers") or [{}]
    name = (containers[0].get("BaseModel") or {}).get("HubContentName")
    if not name:
        raise UsageError(f"{package} names no base model, so no job can go on from it")
    return str(name)


def _caller(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    with told("asking who calls"):
        account = clients("sts").get_caller_identity()["Account"]
    if account != spec.account:
        yield error(
            "caller-account",
            "role",
            f"the role is of account {spec.account}, but the credentials here are of {account}",
            "Take the credentials of the role's account: check AWS_PROFILE.",
        )


def _role(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    name = spec.role.rpartition("/")[2]
    try:
        with told(f"the role {name} cannot be looked at"):
            role = clients("iam").get_role(RoleName=name)["Role"]
    except CloudError as refused:
        if not refused.is_missing:
            raise
        yield error(
            "role-missing", "role", f"there is no role {name!r}", "Create it, or name another."
        )
        return
    if role["Arn"] != spec.role:
        told_ = f"the role {name!r} has the ARN {role['Arn']}, got {spec.role}"
        yield error("role-path", "role", told_, "Give that ARN, its path included.")
    missing = TRUST_ACTIONS - trusted_actions(role.get("AssumeRolePolicyDocument"), JOB_SERVICE)
    if missing:
        yield error(
            "role-trust",
            "role",
            f"wanted it to trust {JOB_SERVICE} with {' and '.join(sorted(TRUST_ACTIONS))}; it lacks "
            f"{' and '.join(sorted(missing))}",
            f"Add them for the principal {JOB_SERVICE} to its trust policy; sagemaker.amazonaws.com alone does not do.",
        )


def _agent(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    agent = spec.agent
    if is_runtime_id(agent):
        try:
            agent = resolve_runtime(clients, agent)
        except UsageError as refused:
            told_ = str(refused).removeprefix("agent: ")
            yield error("agent-missing", "agent", told_, "Deploy it, or name another region.")
            return
    seen.agent = parse_agent(agent, qualifier=spec.qualifier)
    try:
        check_place(seen.agent, region=spec.region, account=spec.account)
    except UsageError as refused:
        yield error("agent-place", "agent", str(refused), "Bring the two together.")
        return
    try:
        yield from (_function if seen.agent.is_lambda else _deployed)(seen.agent, clients, seen)
    except CloudError as refused:
        if not refused.is_missing:
            raise
        told_ = f"there is no agent {seen.agent.arn}"
        yield error("agent-missing", "agent", told_, "See `rft mtrl runtimes`.")


def _deployed(agent: Agent, clients: Clients, seen: Seen) -> Iterator[Finding]:
    runtime = _runtime(clients, agent.name)
    seen.budget = budget_of(runtime.get("environmentVariables") or {}, "the deployed runtime")
    if runtime["status"] != "READY":
        reason = f": {runtime['failureReason']}" if runtime.get("failureReason") else ""
        yield error(
            "agent-not-ready",
            "agent",
            f"wanted the runtime to be READY, it is {runtime['status']}{reason}",
            "Wait for its deployment, or deploy it anew.",
        )
    if agent.qualifier == DEFAULT_QUALIFIER:
        return
    try:
        with told(f"the endpoint {agent.qualifier} cannot be looked at"):
            clients("bedrock-agentcore-control").get_agent_runtime_endpoint(
                agentRuntimeId=agent.name, endpointName=agent.qualifier
            )
    except CloudError as refused:
        if not refused.is_missing:
            raise
        told_ = f"the runtime {agent.name} has no endpoint {agent.qualifier!r}"
        yield error(
            "endpoint-missing", "qualifier", told_, f"Make it, or take {DEFAULT_QUALIFIER}."
        )


def _function(agent: Agent, clients: Clients, seen: Seen) -> Iterator[Finding]:
    with told(f"the function {agent.name} cannot be looked at"):
        found = clients("lambda").get_function_configuration(FunctionName=agent.arn)
    variables = found.get("Environment", {}).get("Variables") or {}
    seen.budget = budget_of(variables, "the function's environment")
    if found.get("State", "Active") != "Active":
        told_ = f"wanted the function to be Active, it is {found['State']}"
        yield error("agent-not-ready", "agent", told_, "Wait for it, or deploy it anew.")


def _mlflow(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    try:
        with told(f"the MLflow app {spec.mlflow_app} cannot be looked at"):
            app = clients("sagemaker").describe_mlflow_app(Arn=spec.mlflow_app)
    except CloudError as refused:
        if not refused.is_missing:
            raise
        yield error(
            "mlflow-missing",
            "mlflow_app",
            f"there is no MLflow app {spec.mlflow_app}",
            "List yours by `aws sagemaker list-mlflow-apps`, or make one by `aws sagemaker create-mlflow-app`.",
        )
        return
    if app["Status"] not in _USABLE_APP:
        told_ = f"wanted it to be {' or '.join(_USABLE_APP)}, it is {app['Status']}"
        yield error("mlflow-not-ready", "mlflow_app", told_, "Wait for it, or name another.")
    version = app.get("MlflowVersion") or ""
    numbers = [int(part) for part in version.split(".")[:2] if part.isdecimal()]
    if len(numbers) == 2 and tuple(numbers) < _MLFLOW:
        told_ = f"wanted MLflow 3.10 or later, it has {version}"
        yield error("mlflow-old", "mlflow_app", told_, "Update the app, or make a new one.")


def _model(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    source = read_model(spec.model)
    package = source.package if source else None
    if package:
        try:
            seen.model_name = base_model_of(clients, package)
        except UsageError as refused:
            fix = "Name a package that such a job made."
            yield error("package-base", "model", str(refused), fix)
            return
        listed = check_model(seen.model_name, spec.region, allow_unlisted=spec.allow_unlisted_model)
        yield from listed
    else:
        seen.model_name = spec.model_name or ""
    try:
        seen.recipe = read_hub_model(clients, seen.model_name)
    except CloudError as refused:
        if not refused.is_missing:
            raise
        told_ = f"the hub {hub_name(os.environ)} has no model {seen.model_name!r} in {spec.region}"
        yield error("model-missing", "model", told_, "See `rft mtrl models`.")
        return
    except UsageError as refused:
        yield error("model-recipe", "model", str(refused), "See `rft mtrl models`.")


def _groups(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    if not seen.model_name:
        return
    listed = find_model(seen.model_name)
    for where, name in (
        ("output_group", output_group(spec, seen.model_name)),
        ("checkpoint_group", checkpoint_group(spec, seen.model_name)),
    ):
        try:
            with told(f"the model package group {name} cannot be looked at"):
                found = clients("sagemaker").describe_model_package_group(
                    ModelPackageGroupName=name
                )
        except CloudError as refused:
            # The service says ValidationException of a group that is not there; its name is valid here.
            if not refused.is_missing and refused.code != "ValidationException":
                raise
            seen.missing_groups.append(name)
            continue
        storage = (found.get("ManagedConfiguration") or {}).get("ManagedStorageType")
        if listed is not None and listed.family == "nova" and storage != "Restricted":
            told_ = f"Nova's packages need a group of managed storage, Restricted; {name!r} is none"
            yield error("group-storage", where, told_, "Name a new group: it is made as one.")


def _buckets(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    output, data = bucket_and_key(spec.s3_output)[0], bucket_and_key(spec.data_prefix)[0]
    for where, bucket in {data: ("s3_data", data), output: ("s3_output", output)}.values():
        try:
            with told(f"the bucket {bucket} cannot be looked at"):
                found = clients("s3").head_bucket(Bucket=bucket, ExpectedBucketOwner=spec.account)
        except CloudError as refused:
            if not refused.is_missing and refused.code not in {"403", "301", *DENIED}:
                raise
            why = (
                "does not exist"
                if refused.is_missing
                else f"is not of account {spec.account}, or its owner does not let you look"
            )
            told_ = f"the bucket {bucket!r} {why}"
            yield error("bucket", where, told_, "Make it in the job's region, or name another.")
            continue
        region = found.get("BucketRegion") or spec.region
        if region != spec.region:
            told_ = f"the bucket {bucket!r} is in {region!r}, the job in {spec.region!r}"
            yield error("bucket-region", where, told_, "Name one in the job's region.")
    if not any(finding.id.startswith("bucket") for finding in seen.findings):
        seen.is_prefix_empty = not _has_objects(clients, spec.s3_output)


def _datasets(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    for where in ("dataset", "validation_dataset"):
        uri = getattr(spec, where)
        if uri.startswith("s3://") and not _has_objects(clients, uri):
            told_ = f"nothing lies under {uri}"
            yield error("dataset-missing", where, told_, "Upload it, or name a file here.")


def _running(spec: LaunchSpec, clients: Clients, seen: Seen) -> Iterator[Finding]:
    names = [job.name for job in list_jobs(clients("sagemaker"), TRAINING, status="InProgress")]
    if names:
        yield (warning if spec.allow_running else error)(
            "job-running",
            "launch",
            f"{', '.join(names)} runs already, and the default quota is one job at a time",
            "Wait for it (`rft mtrl wait`), or add --allow-running where your quota is higher.",
        )


def _has_objects(clients: Clients, uri: str) -> bool:
    bucket, key = bucket_and_key(uri)
    with told(f"{uri} cannot be looked at"):
        found = clients("s3").list_objects_v2(Bucket=bucket, Prefix=key, MaxKeys=1)
    return bool(found.get("Contents"))


def _runtime(clients: ClientOf, runtime_id: str) -> JSON:
    with told(f"the runtime {runtime_id} cannot be looked at"):
        found: JSON = clients("bedrock-agentcore-control").get_agent_runtime(
            agentRuntimeId=runtime_id
        )
    return found


def _unseen(ask: Callable[..., object], refused: CloudError) -> Finding:
    """Tell a lookup that was refused: one that is not allowed leaves a question open, another one stops."""
    where = ask.__name__.removeprefix("_")
    if refused.code in DENIED:
        fix = "Nothing, if you know that it is in order; or ask for the permission to look."
        return warning(f"{where}-unseen", where, str(refused), fix)
    return error(f"{where}-refused", where, str(refused), "See what the service says.")
