"""What the gateway's tests share: keys of the public documentation, one way to call each surface."""

import asyncio
import base64
import functools
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import botocore.session
import httpx
import uvicorn
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials

from rft_agent_sdk.gateway import Gateway, create_app
from rft_agent_sdk.gateway.tokens import PREFIX
from rft_agent_sdk.types import Message, ToolCall

ACCESS_KEY = "AKIAIOSFODNN7EXAMPLE"
SECRET_KEY = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
REGION = "us-west-2"
JOB = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/j1"
BODY = {"model": "default", "messages": [{"role": "user", "content": "go"}]}


def echo(messages, tools) -> Message:
    """A policy that says what it was told last."""
    return Message("assistant", f"you said {messages[-1].text}")


def guess(messages, tools) -> Message:
    """A policy that calls a tool once, then tells its result."""
    if messages[-1].role == "tool":
        return Message("assistant", f"done: {messages[-1].text}")
    call = ToolCall("guess_word", '{"guess":"CRANE"}', "call_1")
    return Message("assistant", "I try.", "think hard", (call,))


GUESS_TOOL = {
    "type": "function",
    "function": {
        "name": "guess_word",
        "description": "Submit a guess.",
        "parameters": {"type": "object", "properties": {"guess": {"type": "string"}}},
    },
}


def mint(
    *,
    region: str = REGION,
    access_key: str = ACCESS_KEY,
    secret_key: str = SECRET_KEY,
    session_token: str | None = None,
    expires: int = 43200,
) -> str:
    """Sign a bearer token with botocore, as the service's own SDK does."""
    request = AWSRequest(
        "POST",
        "https://sagemaker.amazonaws.com/",
        headers={"host": "sagemaker.amazonaws.com"},
        params={"Action": "CallWithBearerToken"},
    )
    credentials = Credentials(access_key, secret_key, session_token)
    SigV4QueryAuth(credentials, "sagemaker", region, expires=expires).add_auth(request)
    return encode(f"{request.url.removeprefix('https://')}&Version=1")


def encode(text: str) -> str:
    return PREFIX + base64.b64encode(text.encode()).decode()


def decode(token: str) -> str:
    return base64.b64decode(token.removeprefix(PREFIX)).decode()


def job_headers(token: str, trajectory: str | None = "t1", job: str = JOB) -> dict[str, str]:
    headers = {"authorization": f"Bearer {token}", "x-amzn-sagemaker-job-arn": job}
    return (
        headers if trajectory is None else headers | {"x-amzn-sagemaker-trajectory-id": trajectory}
    )


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


class _Stage:
    """One server for all tests: starting and stopping one for each would take most of their time."""

    def __init__(self) -> None:
        self.gateway = Gateway()
        self.loop: asyncio.AbstractEventLoop | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.loop = asyncio.get_running_loop()
        await create_app(self.gateway)(scope, receive, send)


@functools.cache
def _stage() -> tuple[_Stage, str]:
    stage = _Stage()
    server = uvicorn.Server(uvicorn.Config(stage, log_config=None, ws="none"))
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=server.run, args=([listener],), daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    return stage, f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def served(gateway: Gateway) -> Iterator[httpx.Client]:
    """Serve a gateway; yields a client whose base URL it is."""
    stage, url = _stage()
    stage.gateway = gateway
    try:
        with http_client(url) as client:
            yield client
    finally:
        assert stage.loop is not None
        asyncio.run_coroutine_threadsafe(gateway.aclose(), stage.loop).result(10)


def http_client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, timeout=10, trust_env=False, verify=False)


def url_of(client: httpx.Client) -> str:
    return str(client.base_url).rstrip("/")


@functools.cache
def _botocore() -> Any:
    return botocore.session.Session()


def job_runtime(client: httpx.Client, *, attempts: int = 3, secret_key: str = SECRET_KEY) -> Any:
    """Return botocore's own client of the service, pointed at the gateway; a context manager."""
    made = _botocore().create_client(
        "sagemakerjobruntime",
        region_name=REGION,
        endpoint_url=url_of(client),
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=secret_key,
        config=Config(retries={"total_max_attempts": attempts, "mode": "standard"}),
    )
    return closing(made)


def events(text: str) -> list[Any]:
    """Return the events of a stream, parsed; comments left out, `[DONE]` as it is."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [item if item == "[DONE]" else json.loads(item) for item in data]
