"""Where a project goes, and whether its smoke test asks the same account: aws-targets.json and payload.json."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rft_agent_sdk.mtrl.findings import Finding, Place
from rft_agent_sdk.mtrl.models import AS_OF, MODELS
from rft_agent_sdk.mtrl.project_shape import TARGET, get, unfit
from rft_agent_sdk.types import JSON

REGIONS = frozenset({
    "ap-northeast-1", "ap-northeast-2", "ap-south-1", "ap-south-2", "ap-southeast-1", "ap-southeast-2",
    "ap-southeast-5", "ap-southeast-7", "ca-central-1", "eu-central-1", "eu-north-1", "eu-south-1",
    "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3", "sa-east-1", "us-east-1", "us-east-2",
    "us-gov-west-1", "us-west-1", "us-west-2",
})  # fmt: skip
"""Where the CLI's release 0.30.0 deploys."""
PLACEHOLDERS = frozenset({"111122223333", "123456789012", "444455556666", "000000000000"})
"""Accounts of the documentation."""

_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{0,63}", re.ASCII)
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
_JOB = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):job/[^/]+/[^/]+",
    re.ASCII,
)


def check_targets(place: Place, targets: list[object]) -> Iterator[Finding]:
    """Yield what is wrong with the list of targets."""
    if not targets:
        yield place.error(
            "no-target",
            "it names no target, so there is nowhere to deploy to",
            "Add your account and Region.",
        )
        return
    names: list[str] = []
    for index, target in enumerate(targets):
        at = place.at(f"[{index}]")
        if not isinstance(target, dict):
            yield at.error(
                "wrong-type", "wanted an object with name, account and region", "Write it so."
            )
            continue
        yield from unfit(at, target, TARGET)
        yield from _target(at, target)
        names.append(get(target, "name", ""))
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield place.error(
            "target-name", f"{twice[0]!r} stands there twice", "Rename one of the two."
        )
    if "default" not in names:
        yield place.note(
            "no-default-target",
            "none is called default, the target that `agentcore deploy` takes by itself",
            f"Deploy with --target {names[0] if names else 'NAME'}.",
        )


def _target(place: Place, target: JSON) -> Iterator[Finding]:
    name, account, region = (get(target, key, "") for key in ("name", "account", "region"))
    if not _NAME.fullmatch(name):
        yield place.at("name").error(
            "target-name",
            f"wanted a letter, then letters, digits or hyphens, got {name[:60]!r}",
            "Rename it.",
        )
    if not _ACCOUNT.fullmatch(account):
        yield place.at("account").error(
            "account",
            f"wanted the 12 digits of an account as a text, got {account[:40]!r}",
            "Write your account's id.",
        )
    elif account in PLACEHOLDERS:
        yield place.at("account").error(
            "placeholder-account",
            f"{account} is the documentation's account, and not one you have credentials of",
            "Write your own: aws sts get-caller-identity --query Account.",
        )
    trained = sorted({one for model in MODELS for one in model.regions})
    if region not in REGIONS:
        yield place.at("region").error(
            "region",
            f"wanted a Region that AgentCore is in, such as us-west-2, got {region[:40]!r}",
            "Write one.",
        )
    elif region not in trained:
        yield place.at("region").warning(
            "region-without-jobs",
            f"managed multi-turn RL trains in {', '.join(trained)} ({AS_OF}), and a job calls runtimes of its own "
            "Region only",
            "Deploy there, unless your own training loop drives the agent.",
        )


def check_payload(place: Place, payload: object, targets: list[object]) -> Iterator[Finding]:
    """Yield what would make the smoke test fail for another reason than the one it is to fail for."""
    arn = get(get(payload, "metadata", {}), "jobArn", "")
    job = _JOB.fullmatch(arn)
    where = place.at("metadata.jobArn")
    if job is None:
        yield where.warning(
            "payload-job",
            f"wanted a job's ARN, got {arn[:120]!r}",
            "Write arn:aws:sagemaker:REGION:ACCOUNT:job/AgentRFT/smoke-test.",
        )
        return
    fix = "Write the account and Region of the target that you try."
    accounts = {get(target, "account", "") for target in targets}
    if accounts and job["account"] not in accounts:
        yield where.warning(
            "payload-account",
            f"the job is of account {job['account']}, the targets are of {', '.join(sorted(accounts))}: for a foreign "
            "account the service answers 403 before it looks for the job",
            fix,
        )
    regions = {get(target, "region", "") for target in targets}
    if regions and job["region"] not in regions:
        yield where.warning(
            "payload-region",
            f"the job is in {job['region']}, the targets are in {', '.join(sorted(regions))}",
            fix,
        )
