"""Who launches, in which account and region, and whether everything named is of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from botocore.exceptions import (
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    NoRegionError,
)

from rft_agent_sdk.errors import CloudError, RftError
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.iam import denied, principal_of, simulate
from rft_agent_sdk.mtrl.doctor.setup import TARGETS_FILE, Setup
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.trust import JOB_SERVICE

_ARN = re.compile(r"arn:[^:]*:[^:]*:(?P<region>[^:]*):(?P<account>[0-9]{12}):.+")
_JOB_ACTIONS = ("sagemaker:CreateJob", "sagemaker:DescribeJob", "sagemaker:StopJob")
_SKEWED = frozenset({"RequestTimeTooSkewed", "RequestExpired", "SignatureDoesNotMatch"})


@dataclass(frozen=True, slots=True)
class _Voice:
    """Something that names an account, a region, or both."""

    where: str
    account: str = ""
    region: str = ""


def identity(setup: Setup) -> Answer:
    """Ask who calls."""
    try:
        caller = setup.caller()
    except CloudError as error:
        return _unknown_caller(setup, error)
    if caller.arn.endswith(":root"):
        return warning(
            f"the caller is the root user of account {caller.account}",
            "Call with a role of your own: the root user's rights cannot be limited.",
        )
    return caller.arn


def _unknown_caller(setup: Setup, error: CloudError) -> Finding:
    cause = error.__cause__
    if isinstance(cause, NoRegionError):
        return problem("there is no AWS region", "Give --region, or export AWS_REGION.")
    if isinstance(cause, ConnectionError | HTTPClientError):
        raise Skipped(
            f"AWS cannot be reached: {error}",
            "See the checks proxies, ca-bundle and aws-region, and the network.",
        ) from error
    # What a credential process printed may be in its text, and may be a secret.
    is_theirs = isinstance(cause, CredentialRetrievalError)
    told = type(cause).__name__ if is_theirs else str(error)
    fix = "Sign in again (aws sso login), or export keys that are valid."
    if error.code in _SKEWED and abs(setup.measured_skew_s() or 0) >= 300:
        fix = "Set the clock; see the check clock-skew."
    return problem(f"the credentials are of no use: {told}", fix)


def one_place(setup: Setup) -> Answer:
    """See that all that names an account or a region names the job's."""
    voices = list(_voices(setup))
    account = next((voice for voice in voices if voice.account), None)
    region = next((voice for voice in voices if voice.region), None)
    findings = [
        *_disagreeing(setup, voices, account, "account"),
        *_disagreeing(setup, voices, region, "region"),
    ]
    if findings:
        return findings
    if account is None and region is None:
        raise Skipped(
            "nothing names an account or a region",
            "Give --agent ARN, or run it from the project's root.",
        )
    names = ", ".join(voice.where for voice in voices)
    return f"account {account.account if account else 'unknown'}, region {region.region if region else 'unknown'}: {names}"


def launch_rights(setup: Setup) -> Answer:
    """See that the caller may create, watch and stop jobs."""
    region, account = setup.job_region() or "us-east-1", setup.caller().account
    job = f"arn:aws:sagemaker:{region}:{account}:job/AgentRFT/rft-doctor"
    answer = _allowed(setup, _JOB_ACTIONS, resources=(job,))
    more = _allowed(setup, ("sagemaker:ListJobs",))
    if not isinstance(answer, str) or not isinstance(more, str):
        return more if isinstance(answer, str) else answer
    return f"the caller may do {', '.join(_JOB_ACTIONS)}, sagemaker:ListJobs"


def pass_role(setup: Setup) -> Answer:
    """See that the caller may hand the job's role to the service that runs jobs."""
    return _allowed(
        setup,
        ("iam:PassRole",),
        resources=(setup.launch.role,),
        context={"iam:PassedToService": JOB_SERVICE},
    )


CHECKS = (
    Check("identity", "The credentials are accepted", identity, ("credentials",)),
    Check("one-place", "All that names an account or a region names the job's", one_place),
    Check("launch-rights", "The caller may create, watch and stop jobs", launch_rights, ("aws",)),
    Check(
        "pass-role",
        f"The caller may pass the job's role to {JOB_SERVICE}",
        pass_role,
        ("aws", "role"),
    ),
)


def _allowed(
    setup: Setup,
    actions: tuple[str, ...],
    *,
    resources: tuple[str, ...] = (),
    context: dict[str, str] | None = None,
) -> Answer:
    caller = setup.caller()
    if caller.arn.endswith(":root"):
        return "the root user may do everything"
    try:
        source = principal_of(setup, caller.arn)
        refused = simulate(setup, source, actions, resources=resources, context=context)
    except CloudError as error:
        if not denied(error):
            raise
        return warning(
            f"it is not known whether the caller may do {', '.join(actions)}: {error}",
            "Allow iam:GetRole and iam:SimulatePrincipalPolicy to the caller, or ask whoever looks after the account.",
            caller.arn,
        )
    if not refused:
        return f"the caller may do {', '.join(actions)}"
    condition = f", with the condition iam:PassedToService = {JOB_SERVICE}" if context else ""
    return problem(
        f"the caller may not do {', '.join(refused)}",
        f"Allow {', '.join(refused)} to {source}{condition}; AmazonSageMakerFullAccess does not hold them.",
        source,
    )


def _voices(setup: Setup) -> Iterator[_Voice]:
    """Yield who names what, the ones that a job cannot do without first."""
    if agent := setup.named_agent():
        yield _Voice("--agent", agent.account, agent.region)
    for where, arn in (("--role", setup.launch.role), ("--mlflow-app", setup.launch.mlflow_app)):
        if found := _ARN.fullmatch(arn or ""):
            yield _Voice(where, found["account"], found["region"])
    if setup.launch.region:
        yield _Voice("--region", region=setup.launch.region)
    try:
        setup.credentials()
        yield _Voice("the caller", setup.caller().account)
    except (RftError, OSError):
        pass  # there are none, or their own check tells
    yield from _targets(setup)
    yield from _payload(setup)


def _targets(setup: Setup) -> Iterator[_Voice]:
    """Yield the deployment's target; of several there is no telling which is meant."""
    try:
        targets = json.loads((setup.root / TARGETS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(targets, list) and len(targets) == 1 and isinstance(targets[0], dict):
        yield _Voice(
            TARGETS_FILE, str(targets[0].get("account", "")), str(targets[0].get("region", ""))
        )


def _payload(setup: Setup) -> Iterator[_Voice]:
    try:
        payload = json.loads(setup.payload_path().read_text(encoding="utf-8"))
        arn = payload["metadata"]["jobArn"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if isinstance(arn, str) and (found := _ARN.fullmatch(arn)):
        yield _Voice(setup.payload_path().name, found["account"], found["region"])


def _disagreeing(
    setup: Setup, voices: list[_Voice], first: _Voice | None, what: str
) -> Iterator[Finding]:
    if first is None:
        return
    wanted = getattr(first, what)
    for voice in voices:
        named = getattr(voice, what)
        if not named or named == wanted:
            continue
        message = f"{voice.where} names {what} {named}, but {first.where} names {wanted}"
        if voice.where == setup.payload_path().name:
            why = "the smoke test would be answered 403 before anybody looks for the job, as with a broken role"
            fix = f"Put {what} {wanted} into the jobArn of {voice.where}."
            yield (problem if setup.invoke else warning)(f"{message}: {why}", fix, voice.where)
        elif voice.where == TARGETS_FILE:
            fix = f"Put {wanted} there, or name what is deployed there."
            yield warning(f"{message}: the next deployment would go elsewhere", fix, voice.where)
        elif voice.where == "the caller":
            fix = "Sign in to the account of the agent and the role, or name those of yours."
            yield problem(message, fix, voice.where)
        else:
            fix = f"Name one of {what} {wanted}: the agent, the job, its role and its MLflow app belong together."
            yield problem(message, fix, voice.where)
