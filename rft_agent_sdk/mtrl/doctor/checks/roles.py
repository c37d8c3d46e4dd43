"""The two roles: the job's, which the service takes on, and the runtime's, with which the agent samples and reports."""

from __future__ import annotations

from collections.abc import Sequence

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.iam import (
    attached,
    denied,
    role,
    role_name,
    services_trusted,
    simulate,
)
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.trust import JOB_SERVICE, trusted_actions
from rft_agent_sdk.types import JSON

GENERAL_SERVICE = "sagemaker.amazonaws.com"
AGENT_SERVICE = "bedrock-agentcore.amazonaws.com"
JOB_POLICY = "AmazonSageMakerJobFullAccess"
AGENT_POLICY = "AmazonSageMakerJobRuntimeAccess"
_TRUST = 'Give its trust policy a statement {"Effect": "Allow", "Principal": {"Service": "%s"}, "Action": %s}.'
_BOTH = '["sts:AssumeRole", "sts:TagSession"]'
_SDK_ACTIONS = ("ecr:GetAuthorizationToken", "cloudwatch:PutMetricData")
"""What the SDK's own validation asks for and AmazonSageMakerJobFullAccess does not hold."""
_OFF = frozenset({"false", "0", "no"})

Needed = Sequence[tuple[Sequence[str], Sequence[str]]]
"""Actions, and the resources that they are needed on."""


def job_role_trust(setup: Setup) -> Answer:
    """See that the service that runs jobs may take on the job's role, and tag its session."""
    arn = setup.launch.role
    found = _role(setup, arn)
    if isinstance(found, Finding):
        return found
    given = _trusted(found, JOB_SERVICE)
    if "sts:AssumeRole" not in given:
        classic = GENERAL_SERVICE in services_trusted(found)
        told = (
            f"it trusts {GENERAL_SERVICE} and not {JOB_SERVICE}, the classic mistake: the general documentation of "
            "SageMaker names the former, and a job fails with 'Could not assume role' after its last retry"
            if classic
            else f"it does not trust {JOB_SERVICE}, but {', '.join(services_trusted(found)) or 'no service'}"
        )
        return problem(told, _TRUST % (JOB_SERVICE, _BOTH), arn)
    if "sts:TagSession" not in given:
        return problem(
            f"it lets {JOB_SERVICE} do sts:AssumeRole but not sts:TagSession, and the service does both at once",
            _TRUST % (JOB_SERVICE, _BOTH),
            arn,
        )
    return f"{role_name(arn)} trusts {JOB_SERVICE} with sts:AssumeRole and sts:TagSession"


def job_role_rights(setup: Setup) -> Answer:
    """See that the job's role may do what a job does: read rows, call the agent, write models and metrics."""
    arn = setup.launch.role
    account = arn.split(":")[4] if arn.count(":") >= 5 else "*"
    region = setup.job_region() or "us-east-1"
    bucket = setup.launch.bucket or "rft-doctor"
    agent = setup.agent if setup.agent and setup.agent.startswith("arn:") else None
    runtime = agent or f"arn:aws:bedrock-agentcore:{region}:{account}:runtime/rft-doctor"
    calls = (
        ("lambda:InvokeFunction",)
        if ":lambda:" in runtime
        else (
            "bedrock-agentcore:InvokeAgentRuntime",
            "bedrock-agentcore:StopRuntimeSession",
            "bedrock-agentcore:GetAgentRuntime",
        )
    )
    needed = [
        (calls, (runtime,)),
        (("s3:ListBucket",), (f"arn:aws:s3:::{bucket}",)),
        (("s3:GetObject", "s3:PutObject"), (f"arn:aws:s3:::{bucket}/rft-doctor",)),
        (
            ("sagemaker:CreateModelPackage", "sagemaker:DescribeModelPackage"),
            (f"arn:aws:sagemaker:{region}:{account}:model-package/rft-doctor/1",),
        ),
        (
            ("sagemaker:DescribeMlflowApp", "sagemaker:CallMlflowAppApi"),
            (
                setup.launch.mlflow_app
                or f"arn:aws:sagemaker:{region}:{account}:mlflow-app/rft-doctor",
            ),
        ),
        (
            ("logs:CreateLogStream", "logs:PutLogEvents"),
            (
                f"arn:aws:logs:{region}:{account}:log-group:/aws/sagemaker/Job/AgentRFT:log-stream:rft-doctor",
            ),
        ),
    ]
    return _may(setup, arn, JOB_POLICY, needed, "a job")


def sdk_role_validation(setup: Setup) -> Answer:
    """See that the SDK's own validation, which asks for more than the service, would let the job's role pass."""
    if setup.environ.get("SAGEMAKER_VALIDATE_ROLE", "").strip().lower() in _OFF:
        return "off"
    if setup.version("sagemaker-train") is None:
        return "sagemaker-train is not installed here, so nothing validates roles before the service does"
    arn = setup.launch.role
    found = _role(setup, arn)
    if isinstance(found, Finding):
        raise Skipped("the job's role cannot be looked up", "See the check job-role-trust.")
    findings = []
    off = "or export SAGEMAKER_VALIDATE_ROLE=false: the service itself does not ask for it."
    if "sts:AssumeRole" not in _trusted(found, GENERAL_SERVICE):
        trust = _TRUST % (GENERAL_SERVICE, _BOTH)
        findings.append(
            warning(
                f"it does not trust {GENERAL_SERVICE}, for which sagemaker-train looks before a launch",
                f"{trust.removesuffix('.')}, {off}",
                arn,
            )
        )
    refused = simulate(setup, str(found["Arn"]), _SDK_ACTIONS)
    if refused:
        findings.append(
            warning(
                f"it may not do {', '.join(refused)}, for which sagemaker-train looks before a launch and which "
                f"{JOB_POLICY} does not hold",
                f"Allow them to it, {off}",
                arn,
            )
        )
    return findings or "it would pass"


def runtime_role_trust(setup: Setup) -> Answer:
    """See that AgentCore may take on the runtime's role."""
    arn = str(setup.runtime()["roleArn"])
    found = _role(setup, arn)
    if isinstance(found, Finding):
        return found
    if "sts:AssumeRole" not in _trusted(found, AGENT_SERVICE):
        return problem(
            f"it does not trust {AGENT_SERVICE}, but {', '.join(services_trusted(found)) or 'no service'}",
            _TRUST % (AGENT_SERVICE, '"sts:AssumeRole"'),
            arn,
        )
    return f"{role_name(arn)} trusts {AGENT_SERVICE}"


def runtime_role_rights(setup: Setup) -> Answer:
    """See that the agent may sample the policy, report, and sign with a bearer token."""
    arn = str(setup.runtime()["roleArn"])
    agent = setup.parsed_agent()
    job = f"arn:{agent.partition}:sagemaker:{agent.region}:{agent.account}:job/AgentRFT/rft-doctor"
    needed = [
        (
            (
                "sagemaker:Sample",
                "sagemaker:SampleWithResponseStream",
                "sagemaker:CompleteRollout",
                "sagemaker:UpdateReward",
            ),
            (job,),
        ),
        (("sagemaker:CallWithBearerToken",), ()),
    ]
    return _may(setup, arn, AGENT_POLICY, needed, "an agent")


CHECKS = (
    Check(
        "job-role-trust",
        f"The job's role trusts {JOB_SERVICE}, with sts:TagSession",
        job_role_trust,
        ("aws", "role"),
    ),
    Check(
        "job-role-rights",
        f"The job's role has {JOB_POLICY}, or as much",
        job_role_rights,
        ("aws", "role"),
    ),
    Check(
        "sdk-role-validation",
        "The validation of sagemaker-train, where it is on, would let the job's role pass",
        sdk_role_validation,
        ("aws", "role"),
        matters=False,
    ),
    Check(
        "runtime-role-trust",
        f"The runtime's role trusts {AGENT_SERVICE}",
        runtime_role_trust,
        ("aws", "agent"),
    ),
    Check(
        "runtime-role-rights",
        f"The runtime's role has {AGENT_POLICY}, or as much",
        runtime_role_rights,
        ("aws", "agent"),
    ),
)


def _role(setup: Setup, arn: str) -> JSON | Finding:
    """Return a role, or that there is none."""
    try:
        return role(setup, arn)
    except CloudError as error:
        if not error.is_missing and error.code != "NoSuchEntity":
            raise
        return problem(
            f"there is no such role: {arn}", "Make it, or name the one that there is.", arn
        )


def _trusted(found: JSON, service: str) -> frozenset[str]:
    return trusted_actions(found.get("AssumeRolePolicyDocument"), service)


def _may(setup: Setup, arn: str, policy: str, needed: Needed, who: str) -> Answer:
    """See that a role has a managed policy, or otherwise may do what is needed."""
    found = _role(setup, arn)
    if isinstance(found, Finding):
        return found
    try:
        if policy in attached(setup, arn):
            return f"{role_name(arn)} has {policy}"
    except CloudError as error:
        if not denied(error):
            raise
    account = arn.split(":")[4]
    context = {"aws:ResourceAccount": account, "aws:PrincipalAccount": account}
    refused: list[str] = []
    for actions, resources in needed:
        refused += simulate(setup, str(found["Arn"]), actions, resources=resources, context=context)
    if not refused:
        return f"{role_name(arn)} may do all that {who} does, without {policy}"
    return problem(
        f"it has no {policy}, and may not do {', '.join(refused)}",
        f"Attach arn:aws:iam::aws:policy/{policy} to it.",
        arn,
    )
