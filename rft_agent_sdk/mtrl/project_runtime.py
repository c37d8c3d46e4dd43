"""One runtime of agentcore.json: its name, its Python, its life, its network, and what its role may do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from rft_agent_sdk.mtrl.findings import Finding, Place
from rft_agent_sdk.mtrl.project_shape import NESTED, RUNTIME, get, unfit
from rft_agent_sdk.types import JSON

ENDS: Mapping[str, date] = {
    "PYTHON_3_10": date(2026, 6, 30),
    "PYTHON_3_11": date(2026, 6, 30),
    "PYTHON_3_12": date(2028, 10, 31),
    "PYTHON_3_13": date(2029, 6, 30),
    "PYTHON_3_14": date(2030, 6, 30),
}
"""The last day AgentCore supports each Python, as published; two months later it takes no update on it."""
CLI_DEFAULT = "PYTHON_3_14"
"""What the CLI takes where a runtime names no version."""
POLICY = "AmazonSageMakerJobRuntimeAccess"
"""Lets an agent sample from the policy model and report rewards."""
LIFETIME_S = (60, 28_800)
"""Seconds that the service takes for either time of a session; the longest is its default lifetime."""

_SOON = timedelta(days=180)
_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_]{0,47}", re.ASCII)
_MANAGED = re.compile(
    r"arn:(?P<partition>aws[a-z-]*):iam::(?:aws|[0-9]{12}):policy/(?:[\w+=,.@-]+/)*(?P<name>[\w+=,.@-]+)",
    re.ASCII,
)
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+", re.ASCII)
_NETWORK = {
    "subnets": re.compile(r"subnet-(?:[0-9a-f]{8}|[0-9a-f]{17})"),
    "securityGroups": re.compile(r"sg-(?:[0-9a-f]{8}|[0-9a-f]{17})"),
}
_EXAMPLE = re.compile(r".*-(?:0123456789abcdef0|01234567|12345678|(?P<one>.)(?P=one)+)")
_CALLS = ("sagemaker:Sample", "sagemaker:CompleteRollout", "sagemaker:UpdateReward")


def check_runtime(
    place: Place,
    runtime: JSON,
    *,
    project: str,
    code: Path | None,
    regions: Iterable[str],
    today: date,
) -> Iterator[Finding]:
    """Yield what is wrong with a runtime's settings, its variables and its code aside.

    Args:
        place: Where it stands.
        runtime: The runtime.
        project: The project's name, which its own is put after.
        code: Its `codeLocation`, which policy files are relative to; `None` where there is none.
        regions: Where it may go.
        today: What a Python's last day of support is compared with.
    """
    yield from unfit(place, runtime, RUNTIME)
    for key, kinds in NESTED.items():
        yield from unfit(place.at(key), get(runtime, key, {}), kinds)
    yield from _named(place.at("name"), project, runtime)
    yield from _built(place, runtime)
    yield from _python(place.at("runtimeVersion"), runtime, today)
    yield from _reached(place, runtime)
    yield from _network(place, runtime)
    yield from _life(place.at("lifecycleConfiguration"), get(runtime, "lifecycleConfiguration", {}))
    yield from _policies(place, runtime, code, {_partition(region) for region in regions})


def python_of(runtime: JSON) -> str | None:
    """Return the Python a runtime runs, such as `3.13`; `None` for a version that is not Python's."""
    version = get(runtime, "runtimeVersion", CLI_DEFAULT)
    return (
        version.removeprefix("PYTHON_").replace("_", ".") if version.startswith("PYTHON_") else None
    )


def _named(place: Place, project: str, runtime: JSON) -> Iterator[Finding]:
    name = get(runtime, "name", "")
    deployed = f"{project}_{name}"
    if not _NAME.fullmatch(name):
        yield place.error(
            "runtime-name",
            f"wanted a letter, then up to 47 letters, digits or underscores, got {name[:60]!r}",
            "Rename the runtime.",
        )
    elif len(deployed) > 48:
        yield place.error(
            "runtime-name",
            f"the runtime will be called {deployed!r}, which has {len(deployed)} characters; AgentCore takes 48",
            "Shorten the project's name or the runtime's.",
        )


def _built(place: Place, runtime: JSON) -> Iterator[Finding]:
    build = get(runtime, "build", "")
    if build == "Container":
        yield place.at("build").note(
            "container-build",
            "a Container is built from a Dockerfile, of which nothing is checked here",
            "Build it once for linux/arm64 yourself.",
        )
    elif build != "CodeZip":
        yield place.at("build").error(
            "build", f"wanted CodeZip or Container, got {build[:40]!r}", 'Write "build": "CodeZip".'
        )


def _python(place: Place, runtime: JSON, today: date) -> Iterator[Finding]:
    version = get(runtime, "runtimeVersion", "")
    if not version:
        yield place.warning(
            "runtime-version",
            f"no version is named, so the CLI takes its own default, {CLI_DEFAULT} at present",
            'Write "runtimeVersion": "PYTHON_3_13".',
        )
    elif version not in ENDS:
        yield place.error(
            "runtime-version",
            f"wanted one of {', '.join(ENDS)}, got {version[:40]!r}",
            'Write "runtimeVersion": "PYTHON_3_13".',
        )
    elif ENDS[version] < today:
        yield place.error(
            "runtime-version",
            f"AgentCore supports {version} no longer, since {ENDS[version]}; runtimes on it cannot be updated",
            'Write "runtimeVersion": "PYTHON_3_13".',
        )
    elif ENDS[version] < today + _SOON:
        yield place.warning(
            "runtime-version",
            f"AgentCore supports {version} until {ENDS[version]} only",
            f"Move to {max(ENDS, key=lambda name: ENDS[name])}.",
        )


def _reached(place: Place, runtime: JSON) -> Iterator[Finding]:
    """Yield what would keep a job's plain HTTP invocations out."""
    if (protocol := get(runtime, "protocol", "HTTP")) != "HTTP":
        yield place.at("protocol").error(
            "protocol",
            f"a training job sends plain HTTP invocations, and the runtime would speak {protocol[:40]!r}",
            'Write "protocol": "HTTP".',
        )
    if (kind := get(runtime, "authorizerType", "AWS_IAM")) != "AWS_IAM":
        yield place.at("authorizerType").error(
            "authorizer",
            f"a training job invokes with its role's signature, which a runtime behind {kind[:40]!r} refuses",
            "Leave authorizerType out.",
        )


def _network(place: Place, runtime: JSON) -> Iterator[Finding]:
    mode = get(runtime, "networkMode", "PUBLIC")
    if mode not in ("PUBLIC", "VPC"):
        yield place.at("networkMode").error(
            "network-mode", f"wanted PUBLIC or VPC, got {mode[:40]!r}", "Write one of the two."
        )
    elif mode == "VPC":
        yield from _vpc(place.at("networkConfig"), get(runtime, "networkConfig", {}))
        yield place.at("networkMode").note(
            "vpc-egress",
            "in VPC mode the agent reaches what its subnets reach",
            "Route them to the host of your training loop; for managed jobs, to job-runtime.sagemaker.REGION.api.aws.",
        )
    elif "networkConfig" in runtime:
        yield place.at("networkConfig").error(
            "network-config",
            "a runtime that is not in VPC mode takes no networkConfig",
            'Take it out, or write "networkMode": "VPC".',
        )


def _vpc(place: Place, config: JSON) -> Iterator[Finding]:
    for key, form in _NETWORK.items():
        ids: list[Any] = get(config, key, [])
        where = place.at(key)
        if not 1 <= len(ids) <= 16:
            yield where.error(
                "network-config",
                f"wanted 1 to 16 ids, got {len(ids)}",
                f"Name the {key} to run in.",
            )
        for one in ids:
            if not isinstance(one, str) or not form.fullmatch(one):
                yield where.error(
                    "network-config",
                    f"wanted ids of the form {form.pattern}, got {str(one)[:40]!r}",
                    "Copy the id from the console.",
                )
            elif _EXAMPLE.fullmatch(one):
                yield where.error(
                    "placeholder-network",
                    f"{one} is an example",
                    "Put your own in its place: the VPC must route to the host of your training loop.",
                )
    if len(get(config, "subnets", [])) == 1:
        yield place.at("subnets").warning(
            "one-subnet",
            "with one subnet the runtime hangs on one availability zone",
            "Name a second one, in another zone.",
        )


def _life(place: Place, life: JSON) -> Iterator[Finding]:
    low, high = LIFETIME_S
    idle, longest = get(life, "idleRuntimeSessionTimeout", low), get(life, "maxLifetime", high)
    for key, seconds in (("idleRuntimeSessionTimeout", idle), ("maxLifetime", longest)):
        if not low <= seconds <= high:
            yield place.at(key).error(
                "lifecycle", f"wanted {low} to {high} seconds, got {seconds}", "Choose within them."
            )
    if low <= longest < idle <= high:
        yield place.error(
            "lifecycle",
            f"a session idle for {idle} s would have ended after {longest} s",
            "Make idleRuntimeSessionTimeout no longer than maxLifetime.",
        )


def _policies(
    place: Place, runtime: JSON, code: Path | None, partitions: set[str]
) -> Iterator[Finding]:
    entries: list[Any] = get(runtime, "additionalPolicies", [])
    where = place.at("additionalPolicies")
    may_report = False
    for entry in entries:
        managed = _MANAGED.fullmatch(entry) if isinstance(entry, str) else None
        if managed and partitions and managed["partition"] not in partitions:
            yield where.error(
                "policy-partition",
                f"{entry} does not exist where the targets are, in {', '.join(sorted(partitions))}",
                "Write the ARN with the targets' partition.",
            )
        if managed:
            may_report |= managed["name"] == POLICY
        else:
            text = _policy_file(code, entry)
            if text is None:
                yield where.error(
                    "policy",
                    f"wanted a managed policy's ARN, or a JSON policy beside the code, got {str(entry)[:80]!r}",
                    "Write it as arn:aws:iam::aws:policy/NAME, or as a file.json that exists in codeLocation.",
                )
            may_report |= all(call in (text or "") for call in _CALLS)
    if role := get(runtime, "executionRoleArn", ""):
        yield from _own_role(place.at("executionRoleArn"), role)
    elif not may_report:
        yield where.error(
            "managed-policy",
            f"without {POLICY} the agent may neither sample nor report, and every rollout fails",
            f'Add "arn:aws:iam::aws:policy/{POLICY}".',
        )


def _own_role(place: Place, role: str) -> Iterator[Finding]:
    if not _ROLE.fullmatch(role):
        yield place.error(
            "execution-role",
            f"wanted a role's ARN, got {role[:80]!r}",
            "Write arn:aws:iam::ACCOUNT:role/NAME.",
        )
        return
    yield place.note(
        "execution-role",
        "nothing is attached to a role of your own",
        f"See that it trusts bedrock-agentcore.amazonaws.com and has {POLICY}.",
    )


def _policy_file(code: Path | None, entry: object) -> str | None:
    """Return the text of a policy file; `None` where there is none with statements in it."""
    if code is None or not isinstance(entry, str) or not entry.endswith(".json"):
        return None
    try:
        text = (code / entry).read_text(encoding="utf-8")
        policy = json.loads(text)
    except (OSError, ValueError, RecursionError):
        return None
    return text if isinstance(policy, dict) and policy.get("Statement") else None


def _partition(region: str) -> str:
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"
