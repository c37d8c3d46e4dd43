"""The agent, asked: by a rollout of a job that does not exist, and about itself. Each costs an invocation."""

from __future__ import annotations

import json
import math
import re
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from rft_agent_sdk.errors import CloudError
from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.doctor.check import Answer, Check, DoesNotApply, Skipped, problem, warning
from rft_agent_sdk.mtrl.doctor.iam import denied
from rft_agent_sdk.mtrl.doctor.setup import Setup
from rft_agent_sdk.mtrl.doctor.start import post
from rft_agent_sdk.mtrl.findings import Finding, Severity
from rft_agent_sdk.types import JSON

ASK = {"rft_doctor": True}
_START_S = 25.0
"""Seconds from which a failed invocation is one that waited for the server to come up: it is given 30 s."""
_PLAY_FIX = "See the agent's log: /aws/bedrock-agentcore/runtimes/%s-%s."
# What a job runtime refuses stands in the answer as text only, so the text is what there is to go by.
_NO_JOB = re.compile(r"could not find job", re.IGNORECASE)
_REFUSED = re.compile(r"\b40[13]\b|AccessDenied|not authorized", re.IGNORECASE)
_NO_CREDENTIALS = re.compile(r"CredentialsError|no AWS credentials")
_NO_WAY = re.compile(
    r"UnreachableError|APIConnectionError|ConnectError|APITimeoutError|got no answer"
)


def smoke_test(setup: Setup) -> Answer:
    """Invoke the agent with a job that does not exist: how it fails is the proof that everything before works."""
    payload = _payload(setup)
    began = time.monotonic()
    try:
        body, text = _invoke(setup, payload)
    except CloudError as error:
        return _not_invoked(setup, error, time.monotonic() - began)
    reward = body.get("reward") if body else None
    reward = reward[0] if isinstance(reward, list) and reward else reward
    if isinstance(reward, bool) or not isinstance(reward, int | float) or not math.isfinite(reward):
        return problem(
            f"it answered without a reward: {text!r}",
            "Put @rft_handler under @app.entrypoint, so that every rollout ends with a reward; see the check decorators.",
            setup.agent,
        )
    ours = body.get("_rft") if body else None
    if not isinstance(ours, dict):
        return f"it answered reward {reward:g}; that it met 400 'Could not find job' stands in its log only"
    return _read(
        setup,
        payload,
        reward,
        " ".join([str(ours.get("error", "")), *map(str, ours.get("notes", []))]),
    )


def _read(setup: Setup, payload: JSON, reward: float, why: str) -> Answer:
    """Tell what a failed rollout of no job proves."""
    if _NO_JOB.search(why):
        return f"reward {reward:g}, and the Job Runtime told it 'Could not find job': parsing, token and reporting work"
    arn = (payload.get("metadata") or {}).get("jobArn", "")
    if _NO_CREDENTIALS.search(why):
        return problem(
            f"the agent has no AWS credentials: {why[:300]}",
            "Give the runtime an execution role; see the check runtime-role-rights.",
            setup.agent,
        )
    if _REFUSED.search(why):
        return problem(
            f"the Job Runtime refused the agent (403): {why[:300]}. It says so of a job of another account before it "
            f"looks whether there is one; the payload names {arn}",
            f"Put your own account and region into the jobArn of {setup.payload_path().name}; if they are, see the "
            "check runtime-role-rights.",
            setup.payload_path().name,
        )
    if _NO_WAY.search(why):
        return problem(
            f"the agent does not reach the Job Runtime: {why[:300]}",
            "Allow it out to job-runtime.sagemaker.REGION.api.aws on TCP 443; *.amazonaws.com does not cover it.",
            setup.agent,
        )
    return warning(
        f"it answered reward {reward:g}, but not for want of a job: {why[:300] or 'it does not say why'}",
        _PLAY_FIX % (setup.parsed_agent().name, setup.parsed_agent().qualifier),
        setup.agent,
    )


def _not_invoked(setup: Setup, error: CloudError, took_s: float) -> Answer:
    agent = setup.parsed_agent()
    log = _PLAY_FIX % (agent.name, agent.qualifier)
    if denied(error):
        raise error
    if error.code is None:
        return problem(f"no answer after {took_s:.0f} s: {error}", log, agent.arn)
    if error.code == "RuntimeClientError" and took_s >= _START_S:
        return problem(
            f"its server did not start within 30 s: {error}",
            "See the checks decorators and server-starts: a handler alone starts no server. A module that is missing "
            f"from the bundle looks the same. {log}",
            agent.arn,
        )
    return problem(f"the invocation failed: {error}", log, agent.arn)


def asks_itself(setup: Setup) -> Answer:
    """Ask the deployed agent who it is, whether it can sign, and what it reaches."""
    began = time.monotonic()
    try:
        body, text = _invoke(setup, ASK)
    except CloudError as error:
        return _not_invoked(setup, error, time.monotonic() - began)
    return _told(setup, body, text, Severity.ERROR)


def asks_local(setup: Setup) -> Answer:
    """Ask an agent that is served on this machine the same; what it lacks here it may have when deployed."""
    url = setup.url or ""
    try:
        status, body, text = post(url, ASK, timeout_s=30)
    except OSError as error:
        return problem(
            f"nothing answers at {url}: {type(error).__name__}", "Serve one: rft serve.", "--url"
        )
    if status != 200:
        return problem(f"it answered {status}: {text!r}", "See what it prints.", url)
    return _told(setup, body, text, Severity.WARNING)


def _told(setup: Setup, body: JSON | None, text: str, severity: Severity) -> Answer:
    found = (body or {}).get("rft_doctor")
    if not isinstance(found, dict):
        return warning(
            f"it does not know the question, so it is under no @rft_handler of this package, or an older one: {text!r}",
            "Deploy it with this package; then it tells about its role and its network.",
            setup.agent or str(setup.url),
        )
    findings = [
        Finding("", severity, setup.agent or str(setup.url), message, fix)
        for message, fix in _lacks(setup, found)
    ]
    if findings:
        return findings
    reached = found.get("endpoint") or {}
    packages = found.get("packages") or {}
    return (
        f"account {(found.get('identity') or {}).get('account') or 'not told'}, region "
        f"{(found.get('region') or {}).get('name')}, Python {found.get('python')} on {found.get('machine')}, "
        f"reaches {reached.get('host')} in {reached.get('ms')} ms; botocore {packages.get('botocore')}"
    )


def _lacks(setup: Setup, found: JSON) -> Iterator[tuple[str, str]]:
    """Yield what is not well inside the agent, and what to do."""
    parts = {
        name: found.get(name) or {}
        for name in ("region", "identity", "token", "endpoint", "amazonaws")
    }
    region, identity = parts["region"], parts["identity"]
    if not region.get("ok"):
        yield (
            f"it knows no region: {region.get('error')}",
            "Set AWS_REGION in envVars, and deploy again.",
        )
    elif (wanted := setup.job_region()) and region.get("name") != wanted:
        yield (
            f"its region is {region.get('name')}, the job's {wanted}",
            "Deploy the agent where the job runs.",
        )
    if not identity.get("ok"):
        yield (
            f"it has no AWS credentials: {identity.get('error')}",
            "Give the runtime an execution role; locally, export AWS_PROFILE.",
        )
    elif (named := setup.named_agent()) and identity.get("account") not in (None, named.account):
        yield (
            f"its credentials are of account {identity['account']}, the agent's is {named.account}",
            "Look for keys in its envVars: they hide the role.",
        )
    if identity.get("ok") and not parts["token"].get("ok"):
        yield f"it cannot sign a token: {parts['token'].get('error')}", "See its log."
    yield from _unreached(parts["endpoint"], parts["amazonaws"])
    budget, timeout_s = found.get("budget_s"), setup.settings.values.get("rollout_timeout")
    if (
        isinstance(budget, int | float)
        and isinstance(timeout_s, int | float)
        and budget >= timeout_s
    ):
        yield (
            f"it allows itself {budget:g} s for a rollout, and rollout_timeout is {timeout_s:g} s",
            "Lower ROLLOUT_BUDGET_SECONDS and deploy again, or raise rollout_timeout.",
        )


def _unreached(endpoint: JSON, other: JSON) -> Iterator[tuple[str, str]]:
    if endpoint.get("ok"):
        return
    told = f"it does not reach {endpoint.get('host') or 'the Job Runtime'}: {endpoint.get('error')}"
    if other.get("ok"):
        yield (
            f"{told}; it does reach {other.get('host')}, so its rules cover *.amazonaws.com and not *.api.aws",
            "Allow it out to *.api.aws on TCP 443.",
        )
    else:
        yield (
            f"{told}; nor {other.get('host') or 'anything else of AWS'}",
            "Give its subnets a NAT gateway or another way out on TCP 443, and a resolver that answers.",
        )


CHECKS = (
    Check(
        "agent-self-check",
        "Asked about itself, the deployed agent has its role, its region and a way to the Job Runtime",
        asks_itself,
        ("aws", "agent", "invoke"),
        matters=False,
    ),
    Check(
        "smoke-test",
        "A rollout of no job ends with a reward, and 'Could not find job'",
        smoke_test,
        ("aws", "agent", "invoke"),
    ),
    Check(
        "local-self-check",
        "Asked about itself, an agent served on this machine knows the answer",
        asks_local,
        ("url",),
        matters=False,
    ),
)


def _payload(setup: Setup) -> JSON:
    path = setup.payload_path()
    try:
        payload = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Skipped(
            f"{path} cannot be read: {type(error).__name__}", "See the check payload."
        ) from None
    if not isinstance(payload, dict):
        raise Skipped(f"{path} holds no object", "See the check payload.")
    return payload


def _invoke(setup: Setup, payload: JSON) -> tuple[JSON | None, str]:
    """Invoke the deployed agent once; return its answer, where that is an object, and its text.

    Raises:
        DoesNotApply: The agent is a Lambda function.
        CloudError: AWS refused, or the agent failed or did not answer.
        UsageError: The payload is none that AWS takes.
    """
    agent = setup.parsed_agent()
    if agent.is_lambda:
        raise DoesNotApply("the agent is a Lambda function; ask what it forwards to with --url")
    session: dict[str, Any] = {
        "agentRuntimeArn": agent.arn,
        "qualifier": agent.qualifier,
        "runtimeSessionId": f"rft-doctor-{uuid.uuid4()}",
    }
    client = setup.clients("bedrock-agentcore")
    try:
        with told(f"invoking {agent.arn}"):
            answer = client.invoke_agent_runtime(
                **session,
                contentType="application/json",
                accept="application/json",
                payload=json.dumps(payload).encode(),
            )
            content = answer["response"].read()
    finally:
        with (
            suppress(CloudError),
            told("ending the session"),
        ):  # it would idle for minutes, and cost
            client.stop_runtime_session(**session)
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    return (body if isinstance(body, dict) else None), content[:500].decode("utf-8", "replace")
