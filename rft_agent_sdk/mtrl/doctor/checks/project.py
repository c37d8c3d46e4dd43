"""The AgentCore project: its files, its bundle, its smoke test's payload, its variables."""

from __future__ import annotations

import json
import re

from rft_agent_sdk.errors import PayloadError
from rft_agent_sdk.mtrl.bundle_check import check_bundle
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.project_check import check_project
from rft_agent_sdk.payload import parse_request

_JOB_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:[a-z0-9-]+:[0-9]{12}:job/AgentRFT/[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}",
    re.ASCII,
)


def agentcore_project(setup: Setup) -> Answer:
    """See that the project is one that can be deployed."""
    findings = check_project(setup.root)
    return findings or "agentcore.json, aws-targets.json and the code are as wanted"


def bundle(setup: Setup) -> Answer:
    """See that a packed agent keeps the service's limits."""
    try:
        runtimes = {str(one.get("name")): one for one in setup.runtimes()}
    except Skipped:
        runtimes = {}  # told by another check; the zip can be looked at all the same
    zips = sorted((setup.root / "agentcore").glob("*.zip"))
    findings: list[Finding] = []
    for path in zips:
        runtime = runtimes.get(path.stem, {})
        version = str(runtime.get("runtimeVersion", ""))
        python = version.removeprefix("PYTHON_").replace("_", ".") if "PYTHON_" in version else None
        entrypoint = str(runtime.get("entrypoint", "main.py")).partition(":")[0]
        findings += check_bundle(path, python=python, entrypoint=entrypoint)
    if findings:
        return findings
    return ", ".join(path.name for path in zips) or "nothing is packed here yet: agentcore package"


def payload(setup: Setup) -> Answer:
    """See that the smoke test's payload is shaped as the service's are."""
    path = setup.payload_path()
    fix = 'Write it as {"prompt": "...", "metadata": {"jobArn": "arn:aws:sagemaker:REGION:ACCOUNT:job/AgentRFT/smoke-test", "rolloutId": "smoke-test-0001"}}.'
    try:
        request = parse_request(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return warning(
            f"there is no {path.name}, so the deployed agent cannot be tried", fix, path.name
        )
    except (OSError, ValueError, PayloadError) as error:
        return problem(f"it is no payload: {error}", fix, path.name)
    if request.job is None:
        return problem("it is the payload of a gateway, not of a job", fix, path.name)
    if not _JOB_ARN.fullmatch(request.job.job_arn):
        return problem(
            f"its jobArn is {request.job.job_arn!r}, wanted arn:aws:sagemaker:REGION:ACCOUNT:job/AgentRFT/NAME",
            fix,
            path.name,
        )
    return f"a rollout of {request.job.job_arn}"


CHECKS = (
    Check(
        "agentcore-project",
        "The AgentCore project can be deployed",
        agentcore_project,
        ("agentcore",),
    ),
    Check(
        "bundle", "A packed agent keeps the service's limits", bundle, ("agentcore",), matters=False
    ),
    Check("payload", "The smoke test's payload is shaped as the service's are", payload),
)
