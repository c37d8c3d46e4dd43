"""Looks for what a project leaves in an account, service by service; changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.in_use import block_what_runs
from rft_agent_sdk.mtrl.job import CATEGORIES, Job, describe_job, list_jobs
from rft_agent_sdk.mtrl.leftovers import Inventory, Leftover, Scope, is_within, size, split_uri
from rft_agent_sdk.types import JSON

_ACTIVE_SESSIONS = frozenset({"Created", "Scheduled", "Running", "Blocked"})
_RUNNING = ("InProgress", "Stopping")
"""Statuses to ask for by name: a job that runs may be older than the newest ones."""
_RUNTIME_LOGS = "/aws/bedrock-agentcore/runtimes/"
_MOST_JOBS = 200
"""How many jobs of a category are looked at, newest first: each has to be described."""


def take_inventory(clients: Clients, scope: Scope) -> Inventory:
    """Return what is there; a service that refuses to list is told of, and the others are listed.

    Args:
        clients: Of the region to look in.
        scope: What to look for.
    """
    inventory = Inventory()
    jobs: list[Job] = []
    others: list[Job] = []

    def take(found: Iterable[Leftover]) -> None:
        try:
            for one in found:
                if not any(
                    (one.kind, one.id) == (other.kind, other.id) for other in inventory.found
                ):
                    inventory.found.append(one)
        except CloudError as error:
            inventory.problems.append(str(error))

    take(_stacks(clients, scope))
    take(_runtimes(clients, scope))
    take(_functions(clients, scope))
    agents = {one.id for one in (*inventory.of("runtime"), *inventory.of("function"))}
    try:
        for job, is_ours in _jobs(clients, scope, agents):
            (jobs if is_ours else others).append(job)
    except CloudError as error:
        inventory.problems.append(str(error))
        inventory.jobs_unseen = "which jobs run is not known, and one of them may need it"
    take(_running(jobs))
    take(_sessions(clients, scope))
    take(_mlflow_apps(clients, scope, jobs))
    take(_packages(clients, scope, jobs))
    take(_log_groups(clients, scope, inventory))
    take(_outputs(clients, scope, jobs))
    take(_datasets(clients, scope, jobs))
    inventory.found = block_what_runs(inventory.found, others)
    return inventory


def _stacks(clients: Clients, scope: Scope) -> Iterator[Leftover]:
    with told("CloudFormation stacks cannot be listed"):
        for one in _pages(clients("cloudformation").describe_stacks, "Stacks", "NextToken"):
            name = one["StackName"]
            if scope.is_named(name, f"AgentCore-{scope.project}-") and scope.has_tag(
                _tags, one.get("Tags")
            ):
                yield Leftover("stack", one.get("StackId") or name, name, one["StackStatus"])


def _runtimes(clients: Clients, scope: Scope) -> Iterator[Leftover]:
    control = clients("bedrock-agentcore-control")
    with told("AgentCore runtimes cannot be listed"):
        for one in _pages(control.list_agent_runtimes, "agentRuntimes", "nextToken"):
            arn, key = one["agentRuntimeArn"], one["agentRuntimeId"]
            if not scope.is_named(one["agentRuntimeName"], f"{scope.project}_"):
                continue
            if not scope.has_tag(_runtime_tags, control, arn):
                continue
            detail = f"{one['status']}, version {one['agentRuntimeVersion']}, billed while it plays"
            yield Leftover("runtime", key, key, detail, is_billed=True)
            endpoints = _pages(
                control.list_agent_runtime_endpoints,
                "runtimeEndpoints",
                "nextToken",
                agentRuntimeId=key,
            )
            for endpoint in endpoints:
                # DEFAULT comes and goes with its runtime.
                if endpoint["name"] != "DEFAULT":
                    name = f"{key}/{endpoint['name']}"
                    yield Leftover("endpoint", name, name, endpoint["status"])


def _functions(clients: Clients, scope: Scope) -> Iterator[Leftover]:
    client = clients("lambda")
    with told("Lambda functions cannot be listed"):
        for one in _pages(client.list_functions, "Functions", "NextMarker", "Marker"):
            name, arn = one["FunctionName"], one["FunctionArn"]
            if scope.is_named(name, f"{scope.project}-") and scope.has_tag(
                _function_tags, client, arn
            ):
                yield Leftover("function", name, name, one.get("Description", ""))


def _jobs(clients: Clients, scope: Scope, agents: set[str]) -> Iterator[tuple[Job, bool]]:
    """Yield jobs with their documents: those in scope, and whatever else runs.

    In scope is what is named so, or played by an agent in scope, which may be gone by now.

    Yields:
        A job, and whether it is in scope.
    """
    client = clients("sagemaker")
    for category in CATEGORIES:
        newest = list_jobs(client, category, limit=_MOST_JOBS)
        running = [one for status in _RUNNING for one in list_jobs(client, category, status=status)]
        for listed in {one.name: one for one in (*newest, *running)}.values():
            is_named = scope.is_named(listed.name, f"{scope.project}-")
            if listed.has_ended and not (is_named or agents or scope.has_names):
                continue
            try:
                job = describe_job(client, listed.name, category)
            except CloudError as error:
                if error.is_missing:
                    continue
                raise
            agent = job.agent.name if job.agent else ""
            is_played = agent in agents or scope.is_named(agent, f"{scope.project}_")
            is_ours = (is_named or is_played) and scope.has_tag(_job_tags, job)
            if is_ours or not job.has_ended:
                yield job, is_ours


def _running(jobs: Iterable[Job]) -> Iterator[Leftover]:
    for job in jobs:
        if not job.has_ended:
            detail = f"{job.category}, {job.status}, {job.phase}"
            yield Leftover("job", job.name, job.name, detail, is_billed=True, category=job.category)


def _sessions(clients: Clients, scope: Scope) -> Iterator[Leftover]:
    client = clients("sagemaker")
    with told("training sessions cannot be listed"):
        listed = _pages(client.list_training_sessions, "TrainingSessionSummaries", "NextToken")
        for one in listed:
            name = one["TrainingSessionArn"].rpartition("/")[2]
            status = one["TrainingSessionStatus"]
            if status not in _ACTIVE_SESSIONS or not scope.is_named(name, f"{scope.project}-"):
                continue
            if scope.has_tag(_session_tags, client, name):
                yield Leftover("session", name, name, status, is_billed=True)


def _mlflow_apps(clients: Clients, scope: Scope, jobs: Iterable[Job]) -> Iterator[Leftover]:
    client = clients("sagemaker")
    used = {job.mlflow_app: job.name for job in jobs if job.mlflow_app}
    with told("MLflow apps cannot be listed"):
        for one in _pages(client.list_mlflow_apps, "Summaries", "NextToken"):
            arn, name, status = one["Arn"], one.get("Name", ""), one.get("Status", "")
            if status in ("Deleting", "Deleted"):
                continue
            app = Leftover("mlflow-app", arn, name or arn, status, is_billed=True)
            if scope.is_named(name, f"{scope.project}-") and scope.has_tag(
                _sagemaker_tags, client, arn
            ):
                yield app
            elif arn in used:
                yield _used(app, used[arn], scope)


def _packages(clients: Clients, scope: Scope, jobs: Iterable[Job]) -> Iterator[Leftover]:
    client = clients("sagemaker")
    used = {arn: job.name for job in jobs for arn in job.package_groups}
    with told("model package groups cannot be listed"):
        listed = _pages(
            client.list_model_package_groups, "ModelPackageGroupSummaryList", "NextToken"
        )
        for one in listed:
            arn, name = one["ModelPackageGroupArn"], one["ModelPackageGroupName"]
            group = Leftover("package-group", name, name, one["ModelPackageGroupStatus"])
            if not (
                scope.is_named(name, f"{scope.project}-")
                and scope.has_tag(_sagemaker_tags, client, arn)
            ):
                if arn not in used:
                    continue
                group = _used(group, used[arn], scope)
            yield group
            packages = _pages(
                client.list_model_packages,
                "ModelPackageSummaryList",
                "NextToken",
                ModelPackageGroupName=name,
            )
            for package in packages:
                yield Leftover(
                    "package",
                    package["ModelPackageArn"],
                    f"{name}/{package.get('ModelPackageVersion', '')}",
                    package["ModelPackageStatus"],
                    kept=group.kept,
                )


def _log_groups(clients: Clients, scope: Scope, inventory: Inventory) -> Iterator[Leftover]:
    """Yield the logs of runtimes and functions, also of those that are gone; that of all jobs is shared."""
    client = clients("logs")
    starts = [f"{_RUNTIME_LOGS}{one.id}-" for one in inventory.of("runtime")]
    starts += [f"/aws/lambda/{one.id}" for one in inventory.of("function")]
    if scope.tag is None:
        starts += [f"{_RUNTIME_LOGS}{scope.project}_"] if scope.project else []
        if scope.prefix:
            starts += [f"{_RUNTIME_LOGS}{scope.prefix}", f"/aws/lambda/{scope.prefix}"]
    with told("log groups cannot be listed"):
        for start in starts:
            for one in _pages(
                client.describe_log_groups, "logGroups", "nextToken", logGroupNamePrefix=start
            ):
                name, stored = one["logGroupName"], one.get("storedBytes", 0)
                kept = one.get("retentionInDays")
                detail = f"{size(stored)}, " + (f"kept {kept} days" if kept else "kept for ever")
                yield Leftover("log-group", name, name, detail, is_billed=stored > 0)


def _outputs(clients: Clients, scope: Scope, jobs: Iterable[Job]) -> Iterator[Leftover]:
    jobs = list(jobs)
    wanted = dict.fromkeys(scope.s3, "")
    for job in jobs:
        if job.output_uri and job.output_uri not in wanted:
            wanted[job.output_uri] = job.name
    datasets = [uri for job in jobs for uri in job.dataset_uris]
    for uri, job_name in wanted.items():
        bucket, key = split_uri(uri)
        if not bucket:
            continue
        if not key:
            yield Leftover(
                "s3",
                uri,
                uri,
                "a whole bucket",
                kept=f"job {job_name} wrote to a whole bucket: name folders in it with --s3",
            )
            continue
        found = _objects(clients, bucket, key, besides=datasets)
        if found is None:
            continue
        leftover = replace(found, kind="s3", id=uri, name=uri)
        yield _used(leftover, job_name, scope) if job_name else leftover


def _datasets(clients: Clients, scope: Scope, jobs: Iterable[Job]) -> Iterator[Leftover]:
    for uri in dict.fromkeys(uri for job in jobs for uri in job.dataset_uris):
        bucket, key = split_uri(uri)
        found = _objects(clients, bucket, key) if bucket and key else None
        if found is not None:
            kept = "" if scope.include_datasets else "datasets are kept unless --datasets"
            yield replace(found, kind="dataset", id=uri, name=uri, kept=kept)


def _objects(
    clients: Clients, bucket: str, key: str, *, besides: Iterable[str] = ()
) -> Leftover | None:
    """Return the objects at a key or in the folder of that name; `None` where there are none."""
    spared = [other for uri in besides for where, other in [split_uri(uri)] if where == bucket]
    keys, total = [], 0
    with told(f"s3://{bucket}/{key} cannot be listed"):
        for one in _pages(
            clients("s3").list_objects_v2,
            "Contents",
            "NextContinuationToken",
            "ContinuationToken",
            Bucket=bucket,
            Prefix=key,
        ):
            name = one["Key"]
            if is_within(name, key) and not any(is_within(name, other) for other in spared):
                keys.append(name)
                total += one["Size"]
    if not keys:
        return None
    detail = f"{len(keys)} objects, {size(total)}"
    return Leftover("s3", bucket, bucket, detail, is_billed=total > 0, keys=tuple(keys))


def _used(one: Leftover, job_name: str, scope: Scope) -> Leftover:
    """Return something that a job has used, and that others may use too."""
    if scope.include_used:
        return replace(one, detail=f"{one.detail}, used by job {job_name}".removeprefix(", "))
    return replace(
        one, kept=f"used by job {job_name}, perhaps by others too: kept unless --include-used"
    )


def _pages(
    call: Callable[..., Any], key: str, token: str, ask_by: str | None = None, **asked: Any
) -> Iterator[JSON]:
    """Yield the entries of a list, page by page.

    Args:
        call: Operation of a client.
        key: The answer's list.
        token: The answer's token.
        ask_by: What the next page is asked by, where that has another name.
        asked: Parameters.
    """
    while True:
        page = call(**asked)
        yield from page.get(key) or ()
        if not page.get(token):
            return
        asked[ask_by or token] = page[token]


def _tags(listed: Any) -> dict[str, str]:
    return {one["Key"]: one["Value"] for one in listed or ()}


def _sagemaker_tags(client: Any, arn: str) -> dict[str, str]:
    return _tags(list(_pages(client.list_tags, "Tags", "NextToken", ResourceArn=arn)))


def _runtime_tags(control: Any, arn: str) -> Mapping[str, str]:
    found: Mapping[str, str] = control.list_tags_for_resource(resourceArn=arn)["tags"]
    return found


def _function_tags(client: Any, arn: str) -> Mapping[str, str]:
    found: Mapping[str, str] = client.list_tags(Resource=arn)["Tags"]
    return found


def _session_tags(client: Any, name: str) -> Mapping[str, str]:
    session = client.describe_training_session(TrainingSessionName=name)
    return _tags(session["TrainingSessionDetail"].get("Tags"))


def _job_tags(job: Job) -> Mapping[str, str]:
    return job.tags
