"""What a bearer token costs a request: taken from the cache, against minted each time."""

import json
import os
import subprocess
import time
from collections.abc import Callable

from botocore.credentials import Credentials

from rft_agent_sdk.auth import BearerTokenSession
from rft_agent_sdk.credentials import sign_token
from tests.bench.sides import PEER
from tests.bench.table import Row, progress

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
}
REGION = "us-west-2"
PEER_PROGRAM = f"""
import time
from sagemaker.core.token_generator import generate_token
generate_token(region={REGION!r})
began = time.perf_counter()
for _ in range(50):
    generate_token(region={REGION!r})
print((time.perf_counter() - began) / 50 * 1e6)
"""


def per_call_us(call: Callable[[], object], calls: int) -> float:
    """Mean time of a call, in microseconds, after one that does not count."""
    call()
    began = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began) / calls * 1e6


def measure() -> list[Row]:
    """Compare with the SageMaker SDK, which mints a token for every report."""
    progress("bearer tokens")
    PEER.install()
    environment = {"PATH": os.environ["PATH"], "AWS_EC2_METADATA_DISABLED": "true", **KEYS}
    done = subprocess.run(
        [str(PEER.python), "-c", PEER_PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    theirs = float(json.loads(done.stdout.splitlines()[-1]))
    credentials = Credentials(*KEYS.values())
    session = BearerTokenSession(REGION, credentials=lambda: credentials)
    frozen = credentials.get_frozen_credentials()
    minted = per_call_us(lambda: sign_token(frozen, REGION, at=time.time()), 2000)
    return [
        Row("bearer token for a request", per_call_us(session.token, 200_000), theirs, "µs"),
        Row("bearer token, minted", minted, theirs, "µs"),
    ]
