"""What can be told of a launch before any call to AWS: names and places, each fault with its reason and its cure.

Nothing is raised: a launch shows all that it finds at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.agent_arn import check_place, is_runtime_id, parse_agent
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.mtrl.launch_data import KINDS
from rft_agent_sdk.mtrl.launch_document import MAX_BASE_NAME, base_name
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.mtrl.models import check_model, read_model
from rft_agent_sdk.region import check_region

REQUIRED = ("model", "agent", "role", "region", "dataset", "s3_output", "mlflow_app")
_ADDED_TAGS = 2
_MAX_TAGS = 50 - _ADDED_TAGS
_EVENTS = ("Completed", "Failed", "Stopped", "InProgress")

_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[a-zA-Z_0-9+=,.@/-]+", re.ASCII)
_MLFLOW = re.compile(r"arn:aws[a-z-]*:sagemaker:([a-z0-9-]+):([0-9]{12}):mlflow-app/.+", re.ASCII)
_GROUP = re.compile(
    r"(?:arn:aws[a-z-]*:sagemaker:([a-z0-9-]+):([0-9]{12}):model-package-group/)?"
    r"([a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62})",
    re.ASCII,
)
_KEY = re.compile(r"arn:aws[a-z-]*:kms:([a-z0-9-]+):([0-9]{12}):key/([a-f0-9-]+|mrk-[a-f0-9]+)")
_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:([a-z0-9-]+):([0-9]{12}):.+")
_DATASET = re.compile(r"arn:aws[a-z-]*:sagemaker:([a-z0-9-]+):([0-9]{12}|aws):\S+")
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/\S*)?", re.ASCII)
_JOB_NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9])*", re.ASCII)
_VPC_IDS = {
    "security_groups": re.compile("sg-[0-9a-f]+"),
    "subnets": re.compile("subnet-[0-9a-f]+"),
}


def check_spec(spec: LaunchSpec) -> list[Finding]:
    """Return what is wrong with the names and places of a launch."""
    checks = (
        _required,
        _region,
        _role,
        _model,
        _agent,
        _mlflow,
        _groups,
        _storage,
        _datasets,
        _network,
        _key,
        _partition,
        _job_name,
        _tags,
        _notifications,
    )
    return [finding for check in checks for finding in check(spec)]


def error(kind: str, where: str, message: str, fix: str) -> Finding:
    """Return a finding that a launch is refused for."""
    return Finding(kind, Severity.ERROR, where, message, fix)


def warning(kind: str, where: str, message: str, fix: str) -> Finding:
    """Return a finding that a launch goes on after."""
    return Finding(kind, Severity.WARNING, where, message, fix)


def _required(spec: LaunchSpec) -> Iterator[Finding]:
    missing = [name for name in REQUIRED if not getattr(spec, name)]
    if missing:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        told = f"missing, and required: {', '.join(missing)}"
        yield error("missing", "launch", told, f"Give {options}, or the keys in a --config file.")
    if not spec.accept_eula:
        yield error(
            "eula",
            "accept_eula",
            "wanted the base model's licence to be accepted; it was not",
            "Read it on the model's page in the hub and add --accept-eula: nobody can accept it for you.",
        )


def _region(spec: LaunchSpec) -> Iterator[Finding]:
    try:
        if spec.region:
            check_region(spec.region, "region")
    except UsageError as refused:
        yield error("region", "region", str(refused), "Name the region of the agent.")


def _role(spec: LaunchSpec) -> Iterator[Finding]:
    if spec.role and not _ROLE.fullmatch(spec.role):
        yield error(
            "role-arn",
            "role",
            f"wanted arn:aws:iam::ACCOUNT:role/NAME, got {spec.role!r}",
            "Give the ARN of the job's execution role, not of a user, a session or a policy.",
        )


def _model(spec: LaunchSpec) -> Iterator[Finding]:
    if not spec.model:
        return
    source = read_model(spec.model)
    if source is None:
        wanted = "wanted a name of the hub, a hub content ARN or a model package ARN"
        yield error("model", "model", f"{wanted}, got {spec.model!r}", "See `rft mtrl models`.")
        return
    if source.name and spec.region:
        yield from check_model(source.name, spec.region, allow_unlisted=spec.allow_unlisted_model)
    yield from _place("model", source.region, source.account, spec)
    if source.version:
        yield warning(
            "model-version",
            "model",
            f"its ARN names version {source.version}, but the client takes the newest one of the hub",
            "Look at BaseModelArn in the document of --dry-run.",
        )
    if source.package_group:
        yield from _package(spec, source.package_group)


def _package(spec: LaunchSpec, group: str) -> Iterator[Finding]:
    """Say what going on from a package means, which depends on the group that it is in."""
    if not (spec.output_group and spec.checkpoint_group):
        yield error(
            "package-groups",
            "output_group, checkpoint_group",
            f"wanted both groups named when going on from a package of {group!r}",
            "Name the groups of the job that made it to resume that job, or new ones to train further.",
        )
    elif _name_of(spec.checkpoint_group) == group:
        told = "it is in the checkpoint group: the job goes on at the step after it"
        fix = (
            "Nothing, if dataset, LoRA shape and hyperparameters are those of the job that made it."
        )
        yield Finding("package-resume", Severity.NOTE, "model", told, fix)
    else:
        told = (
            f"it is in {group!r}: training starts at step 0 with a new optimizer, from its weights"
        )
        yield Finding("package-iterate", Severity.NOTE, "model", told, "Nothing.")


def _agent(spec: LaunchSpec) -> Iterator[Finding]:
    if not spec.agent or is_runtime_id(spec.agent):
        return
    try:
        agent = parse_agent(spec.agent, qualifier=spec.qualifier)
    except UsageError as refused:
        told = str(refused).removeprefix("agent: ")
        yield error("agent-arn", "agent", told, "See `rft mtrl runtimes`.")
        return
    if spec.region:
        try:
            check_place(agent, region=spec.region, account=_account(spec))
        except UsageError as refused:
            yield error("agent-place", "agent", str(refused), "Bring the two together.")
    if agent.is_lambda and "sagemaker" not in agent.name.lower():
        yield warning(
            "lambda-name",
            "agent",
            f"the function's name {agent.name!r} does not contain 'sagemaker', as the stock policies want it",
            "Rename it, or allow lambda:InvokeFunction on its ARN in the job's role.",
        )


def _mlflow(spec: LaunchSpec) -> Iterator[Finding]:
    if not spec.mlflow_app:
        return
    found = _MLFLOW.fullmatch(spec.mlflow_app)
    if found is None:
        is_server = ":mlflow-tracking-server/" in spec.mlflow_app
        yield error(
            "mlflow-arn",
            "mlflow_app",
            "wanted arn:aws:sagemaker:REGION:ACCOUNT:mlflow-app/ID, got "
            + ("a tracking server: " if is_server else "")
            + repr(spec.mlflow_app),
            "List yours by `aws sagemaker list-mlflow-apps`, or make one by `aws sagemaker create-mlflow-app`; "
            "these jobs log to no tracking server.",
        )
        return
    yield from _place("mlflow_app", found[1], found[2], spec)


def _groups(spec: LaunchSpec) -> Iterator[Finding]:
    for name in ("output_group", "checkpoint_group"):
        given = getattr(spec, name)
        found = _GROUP.fullmatch(given)
        if given and found is None:
            told = f"wanted a group's name of letters, digits and hyphens (up to 63), or its ARN, got {given!r}"
            yield error("group", name, told, "Leave it out for the client's own name.")
        elif found is not None and found[1]:
            yield from _place(name, found[1], found[2], spec)
    names = (_name_of(spec.output_group), _name_of(spec.checkpoint_group))
    if names[0] and names[0] == names[1]:
        yield error(
            "groups-equal",
            "checkpoint_group",
            f"wanted another group than output_group, got {names[0]!r} for both",
            "Checkpoints and trained models live in two groups: name two.",
        )


def _storage(spec: LaunchSpec) -> Iterator[Finding]:
    for name in ("s3_output", "s3_data"):
        given = getattr(spec, name)
        if given and not _S3.fullmatch(given):
            told = f"wanted s3://BUCKET/PREFIX, got {given!r}"
            yield error("s3-uri", name, told, "Name a bucket of the job's region.")


def _datasets(spec: LaunchSpec) -> Iterator[Finding]:
    for name in ("dataset", "validation_dataset"):
        given = getattr(spec, name)
        if given.startswith("s3://") and not _S3.fullmatch(given):
            yield error("dataset", name, f"wanted s3://BUCKET/KEY, got {given!r}", "Correct it.")
        elif given.startswith("arn:"):
            if found := _DATASET.fullmatch(given):
                yield from _place(name, found[1], None, spec)
            else:
                told = f"wanted the ARN of a SageMaker dataset, got {given!r}"
                yield error("dataset", name, told, "Give a file, an S3 URI or such an ARN.")
        elif given and not given.startswith("s3://") and not given.lower().endswith(KINDS):
            told = f"wanted a file named {', '.join(KINDS)}, which the service reads, got {given!r}"
            yield error("dataset", name, told, "Write the rows as JSON Lines.")
    if spec.dataset and spec.dataset == spec.validation_dataset:
        told = "it is the training dataset: a solve rate on it measures memory"
        yield warning("same-dataset", "validation_dataset", told, "Give rows that are held out.")


def _network(spec: LaunchSpec) -> Iterator[Finding]:
    if bool(spec.security_groups) != bool(spec.subnets):
        told = "wanted both security_groups and subnets, or neither"
        yield error("vpc", "security_groups, subnets", told, "Name both, or leave both out.")
    for name, form in _VPC_IDS.items():
        if wrong := [one for one in getattr(spec, name) if not form.fullmatch(one)]:
            told = f"wanted ids such as {form.pattern.partition('[')[0]}0123456789abcdef0, got {wrong!r}"
            yield error("vpc-id", name, told, "Copy them from the VPC console.")
    if len(spec.subnets) == 1:
        told = "one subnet was given; two or more private ones are wanted"
        yield warning("vpc-subnets", "subnets", told, "Add one in another availability zone.")


def _key(spec: LaunchSpec) -> Iterator[Finding]:
    if not spec.kms_key:
        return
    found = _KEY.fullmatch(spec.kms_key)
    if found is None or found[3].startswith("mrk-"):
        is_shared = ", a key of several regions" if found else ""
        yield error(
            "kms-key",
            "kms_key",
            f"wanted the ARN of a symmetric key of one region, arn:aws:kms:REGION:ACCOUNT:key/ID, got "
            f"{spec.kms_key!r}{is_shared}",
            "Give the key's own ARN, no alias; a job takes no multi-region key.",
        )
        return
    yield from _place("kms_key", found[1], None, spec)


def _partition(spec: LaunchSpec) -> Iterator[Finding]:
    """Yield it where ARNs are of several partitions, such as `aws` and `aws-cn`: nothing reaches from one to another."""
    names = ("role", "agent", "mlflow_app", "kms_key", "notify_topic", "notify_bus")
    named = {name: getattr(spec, name).split(":")[1] for name in names if _is_arn(spec, name)}
    if partition := _partition_of(spec.region):
        named["region"] = partition
    if len(set(named.values())) > 1:
        told = ", ".join(f"{name} of {partition!r}" for name, partition in named.items())
        yield error(
            "partition",
            ", ".join(named),
            f"wanted all of one partition, got {told}",
            "Use what is in the region's partition.",
        )


def _is_arn(spec: LaunchSpec, name: str) -> bool:
    value: str = getattr(spec, name)
    return value.startswith("arn:aws") and value.count(":") > 4


def _partition_of(region: str) -> str:
    """Return a region's partition; an empty text for no region, and for those apart from the public ones."""
    if not region or "-iso" in region:
        return ""
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def _job_name(spec: LaunchSpec) -> Iterator[Finding]:
    name = spec.model_name
    if not spec.job_name and name is None:
        return
    base = base_name(spec, name or "")
    if len(base) > MAX_BASE_NAME:
        yield error(
            "job-name-long",
            "job_name",
            f"wanted at most {MAX_BASE_NAME} characters, got {len(base)}: {base!r}. A random part and the "
            "time are added, and the client cuts at 63, so that a second launch could have the first one's name",
            "Give a shorter --job-name.",
        )
    if not _JOB_NAME.fullmatch(base):
        told = f"wanted letters, digits and single hyphens between them, got {base!r}"
        yield error("job-name", "job_name", told, "Give another --job-name.")


def _tags(spec: LaunchSpec) -> Iterator[Finding]:
    if len(spec.tags) > _MAX_TAGS:
        told = f"wanted at most {_MAX_TAGS} beside the client's {_ADDED_TAGS}, got {len(spec.tags)}"
        yield error("tags", "tags", told, "Leave some out.")
    if wrong := [key for key in spec.tags if not 0 < len(key) <= 128 or key.startswith("aws:")]:
        told = f"wanted keys of 1 to 128 characters that do not begin with 'aws:', got {wrong!r}"
        yield error("tags", "tags", told, "Rename them.")


def _notifications(spec: LaunchSpec) -> Iterator[Finding]:
    where = "notify_topic"
    if not spec.notify_topic:
        if spec.notify_events or spec.notify_bus or spec.notify_prefix:
            told = "wanted a topic beside notify_events, notify_bus and notify_prefix"
            yield error("notify", where, told, "Add --notify-topic, or leave the others out.")
        return
    if found := _TOPIC.fullmatch(spec.notify_topic):
        yield from _place(where, found[1], None, spec)
    else:
        told = f"wanted arn:aws:sns:REGION:ACCOUNT:NAME, got {spec.notify_topic!r}"
        yield error("notify", where, told, "Give the topic's ARN.")
    if wrong := [one for one in spec.notify_events if one not in _EVENTS]:
        told = f"wanted {', '.join(_EVENTS)}, got {wrong!r}"
        yield error("notify", "notify_events", told, "Leave them out for the first three.")
    yield warning(
        "notify-rule",
        where,
        "the client's rule watches training jobs, and a managed job is not known to raise their events",
        "Rely on `rft mtrl wait`; the rule stays until it is deleted.",
    )


def _place(
    where: str, region: str | None, account: str | None, spec: LaunchSpec
) -> Iterator[Finding]:
    """Yield what is wrong with the region and account that an ARN names; `None` is no part of it."""
    if region and spec.region and region != spec.region:
        told = f"is in {region!r}, but the job's region is {spec.region!r}"
        yield error("other-region", where, told, "Use what is in the job's region.")
    if account and (own := _account(spec)) and account != own:
        told = f"is of account {account}, but the role of {own}"
        yield error("other-account", where, told, "Use what is in the role's account.")


def _account(spec: LaunchSpec) -> str | None:
    return spec.account if _ROLE.fullmatch(spec.role) else None


def _name_of(group: str) -> str:
    return group.rpartition("/")[2]
