"""`rft invoke`: send one payload to an agent, local or deployed."""

from __future__ import annotations

import json
import re
from typing import Any

import click

from rft_agent_sdk.cli.inputs import read_payload, session_id
from rft_agent_sdk.errors import RftError, UsageError
from rft_agent_sdk.types import JSON

_ARN = re.compile(
    r"arn:aws[a-z-]*:bedrock-agentcore:(?P<region>[a-z0-9-]+):[0-9]{12}:runtime/[A-Za-z][A-Za-z0-9_-]*"
)
SESSION_HEADER = "X-Amzn-Bedrock-AgentCore-Runtime-Session-Id"


@click.command("invoke", short_help="Send one payload to an agent.")
@click.option("--payload", "path", default="payload.json", show_default=True, help="File, or -.")
@click.option("--url", help="Where the agent serves.  [default: http://127.0.0.1:8080]")
@click.option("--arn", help="ARN of a deployed AgentCore runtime, in place of --url.")
@click.option("--qualifier", default="DEFAULT", show_default=True, help="Runtime endpoint's name.")
@click.option("--session-id", "session", help="At least 33 characters; fresh if left out.")
@click.option(
    "--timeout",
    "timeout_s",
    default=900.0,
    show_default=True,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds to wait.",
)
def command(
    path: str,
    url: str | None,
    arn: str | None,
    qualifier: str,
    session: str | None,
    timeout_s: float,
) -> None:
    """Send a payload file, as it is, to an agent and print the response.

    The same session id gives the same session, locally and deployed.
    """
    if url and arn:
        raise UsageError("give --url or --arn, not both")
    payload, session = read_payload(path), session_id(session)
    if arn:
        body = invoke_runtime(arn, qualifier, payload, session, timeout_s)
    else:
        body = invoke_url(url or "http://127.0.0.1:8080", payload, session, timeout_s)
    click.echo(json.dumps(body, indent=2, ensure_ascii=False))


def invoke_url(url: str, payload: JSON, session: str, timeout_s: float) -> Any:
    """POST a payload to a served agent and return its parsed response.

    Raises:
        UsageError: Nothing answers there, or it is no URL.
        RftError: The call failed, or was answered with an error.
    """
    import requests

    target = url.rstrip("/").removesuffix("/invocations") + "/invocations"
    try:
        response = requests.post(
            target, json=payload, headers={SESSION_HEADER: session}, timeout=timeout_s
        )
    except requests.ConnectionError:
        raise UsageError(f"no agent answers at {url}: start one with `rft serve`") from None
    except (
        ValueError
    ) as error:  # requests' own: no scheme, an unknown one, a header with a line break
        raise UsageError(f"{target!r} cannot be called: {error}") from None
    except requests.RequestException as error:
        raise RftError(f"the call to {target} failed: {error}") from None
    if response.status_code != 200:
        raise RftError(f"the agent answered {response.status_code}: {response.text[:500]}")
    return _parsed(response.content)


def invoke_runtime(arn: str, qualifier: str, payload: JSON, session: str, timeout_s: float) -> Any:
    """Invoke a deployed AgentCore runtime and return its parsed response.

    Raises:
        UsageError: `arn` is no runtime's, or there are no AWS credentials.
        RftError: AWS refused or failed the call.
    """
    import botocore.config
    import botocore.exceptions
    import botocore.session

    match = _ARN.fullmatch(arn)
    if match is None:
        raise UsageError(
            "a runtime ARN is arn:aws:bedrock-agentcore:<region>:<account>:runtime/<name>-<id>, "
            f"got {arn!r}"
        )
    config = botocore.config.Config(read_timeout=timeout_s, retries={"max_attempts": 0})
    client = botocore.session.Session().create_client(
        "bedrock-agentcore", region_name=match["region"], config=config
    )
    try:
        answer = client.invoke_agent_runtime(
            agentRuntimeArn=arn,
            qualifier=qualifier,
            runtimeSessionId=session,
            contentType="application/json",
            accept="application/json",
            payload=json.dumps(payload).encode(),
        )
        return _parsed(answer["response"].read())
    except botocore.exceptions.NoCredentialsError:
        raise UsageError(
            "there are no AWS credentials: export AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        ) from None
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        raise RftError(f"invoking {arn} failed: {error}") from None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        raise RftError(f"the agent's response is not JSON: {content[:200]!r}") from None
