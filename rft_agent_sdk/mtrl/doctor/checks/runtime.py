"""The deployed agent, as AgentCore or Lambda describes it."""

from __future__ import annotations

from rft_agent_sdk.errors import CloudError, UsageError
from rft_agent_sdk.mtrl.agent_arn import check_place, is_runtime_id, parse_agent
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.types import JSON

OLD_PYTHONS = frozenset({"PYTHON_3_10", "PYTHON_3_11"})
"""No longer updated by the service, though its schema takes them."""
_REDEPLOY = "Deploy the agent again: agentcore deploy. Not while a job runs: that fails the job."
_COMPARED = (
    "RFT_ENVIRONMENT",
    "REASONING_EFFORT",
    "REASONING_PROMPT_HINT",
    "ROLLOUT_BUDGET_SECONDS",
)
"""Variables that change how the agent plays."""


def agent_arn(setup: Setup) -> Answer:
    """See that the agent's name is one, and that it is in the job's region."""
    given = setup.agent or ""
    fix = "Copy the runtime's ARN from the output of agentcore status."
    if is_runtime_id(given):
        return f"{given}, an id; its ARN is looked up"
    try:
        agent = parse_agent(given, qualifier=setup.launch.qualifier)
    except UsageError as error:
        return problem(str(error), fix, "--agent")
    region = setup.job_region() or agent.region
    try:
        check_place(agent, region=region)
    except UsageError as error:
        return problem(str(error), "Launch the job where the agent is.", "--agent")
    return agent.arn


def runtime_ready(setup: Setup) -> Answer:
    """See that the runtime exists and is ready."""
    try:
        runtime = setup.runtime()
    except CloudError as error:
        if not error.is_missing:
            raise
        return problem(
            f"there is no such runtime: {setup.agent}",
            "Copy the runtime's ARN from the output of agentcore status; the region is part of it.",
            "--agent",
        )
    status, reason = runtime.get("status"), runtime.get("failureReason") or ""
    if status != "READY":
        more = f": {reason}" if reason else ""
        fix = "Wait until it is READY." if status in ("CREATING", "UPDATING") else _REDEPLOY
        return problem(f"its status is {status}, not READY{more}", fix, str(setup.agent))
    findings = [*_old(runtime), *_protocol(runtime)]
    return findings or f"READY, version {runtime.get('agentRuntimeVersion')}"


def runtime_endpoint(setup: Setup) -> Answer:
    """See that the endpoint that the job will call serves what was deployed."""
    runtime = setup.runtime()
    name = setup.parsed_agent().qualifier or setup.launch.qualifier
    try:
        endpoint = setup.ask(
            f"looking up the endpoint {name}",
            "bedrock-agentcore-control",
            "get_agent_runtime_endpoint",
            agentRuntimeId=setup.parsed_agent().name,
            endpointName=name,
        )
    except CloudError as error:
        if not error.is_missing:
            raise
        return problem(
            f"the runtime has no endpoint {name!r}",
            "Take DEFAULT, which every runtime has.",
            "--qualifier",
        )
    status = endpoint.get("status")
    if status != "READY":
        return problem(
            f"the endpoint {name} is {status}, not READY", "Wait until it is READY.", "--qualifier"
        )
    live, newest = endpoint.get("liveVersion"), runtime.get("agentRuntimeVersion")
    if live and newest and live != newest:
        return warning(
            f"the endpoint {name} serves version {live}, and the newest is {newest}",
            "See that it is meant: the job trains with the version that the endpoint serves.",
            "--qualifier",
        )
    return f"{name} serves version {live}"


def runtime_network(setup: Setup) -> Answer:
    """See how the agent reaches the Job Runtime."""
    network = setup.runtime().get("networkConfiguration") or {}
    mode = network.get("networkMode")
    if mode != "VPC":
        return f"{mode}"
    if setup.invoke:
        return "VPC; the agent itself, asked, tells whether it gets out: see agent-self-check"
    return warning(
        "it is in a VPC: it reaches the Job Runtime only through a NAT gateway, or what else leads out to "
        "job-runtime.sagemaker.REGION.api.aws, which rules for *.amazonaws.com do not cover",
        "Allow it out to *.api.aws on TCP 443, and ask the agent itself with --invoke whether it gets there.",
        str(setup.agent),
    )


def runtime_variables(setup: Setup) -> Answer:
    """See that what is deployed plays as the project says."""
    deployed = setup.runtime().get("environmentVariables") or {}
    name = str(setup.runtime().get("agentRuntimeName", ""))
    declared = next(
        (
            setup.variables(one)
            for one in setup.runtimes()
            if name in (str(one.get("name")), f"{setup.spec().get('name')}_{one.get('name')}")
        ),
        None,
    )
    if declared is None:
        raise Skipped(
            f"the project declares no runtime that is deployed as {name!r}",
            "Run it from the project that the agent was deployed from.",
        )
    changed = [key for key in _COMPARED if deployed.get(key) != declared.get(key)]
    if changed:
        told = "; ".join(
            f"{key} is {deployed.get(key)!r} there and {declared.get(key)!r} here"
            for key in changed
        )
        return warning(f"the deployed agent differs from the project: {told}", _REDEPLOY, "envVars")
    return "as in agentcore.json"


def lambda_ready(setup: Setup) -> Answer:
    """See that the function between the job and an agent elsewhere is active, and may be invoked."""
    agent = setup.parsed_agent()
    if not agent.is_lambda:
        return "the agent is a runtime"
    try:
        found = setup.ask(
            f"looking up the function {agent.name}",
            "lambda",
            "get_function_configuration",
            FunctionName=agent.arn,
        )
    except CloudError as error:
        if not error.is_missing:
            raise
        return problem(
            f"there is no such function: {agent.arn}", "Name the one that there is.", "--agent"
        )
    findings: list[Finding] = []
    state = found.get("State", "Active")
    if state != "Active":
        findings.append(
            problem(f"its state is {state}, not Active", "Wait, or see its StateReason.", agent.arn)
        )
    if "sagemaker" not in agent.name.lower():
        findings.append(
            warning(
                "its name does not contain SageMaker, by which the managed policies allow functions",
                "Rename it, or allow lambda:InvokeFunction on its ARN to the job's role.",
                agent.arn,
            )
        )
    return findings or f"{agent.name} is Active"


CHECKS = (
    Check("agent-arn", "The agent's ARN is one, of the job's region", agent_arn, ("agent",)),
    Check(
        "runtime-ready",
        "The runtime is READY, on a Python that is still updated",
        runtime_ready,
        ("aws", "agent"),
    ),
    Check(
        "runtime-endpoint",
        "The runtime's endpoint serves what was deployed",
        runtime_endpoint,
        ("aws", "agent"),
    ),
    Check("runtime-network", "The runtime reaches *.api.aws", runtime_network, ("aws", "agent")),
    Check(
        "runtime-variables",
        "What is deployed plays as the project says",
        runtime_variables,
        ("aws", "agent", "project"),
        matters=False,
    ),
    Check(
        "lambda",
        "The Lambda function, where there is one, is active",
        lambda_ready,
        ("aws", "agent"),
    ),
)


def _old(runtime: JSON) -> list[Finding]:
    code = (runtime.get("agentRuntimeArtifact") or {}).get("codeConfiguration") or {}
    version = code.get("runtime")
    if version not in OLD_PYTHONS:
        return []
    return [
        warning(
            f"it runs on {version}, which AgentCore no longer updates",
            "Set runtimeVersion to PYTHON_3_13 in agentcore.json, and deploy again.",
            "runtimeVersion",
        )
    ]


def _protocol(runtime: JSON) -> list[Finding]:
    protocol = (runtime.get("protocolConfiguration") or {}).get("serverProtocol", "HTTP")
    if protocol == "HTTP":
        return []
    return [
        problem(
            f"it speaks {protocol}; a job sends plain HTTP invocations",
            "Set protocol to HTTP in agentcore.json, and deploy again.",
            "protocol",
        )
    ]
