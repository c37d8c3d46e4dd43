"""The region to sign for, told from what a rollout says and from the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from rft_agent_sdk.errors import EndpointError

_REGION = r"[a-z]{2,4}(?:-[a-z]+)+-[0-9]{1,2}"
_JOB_RUNTIME_URL = re.compile(
    rf"https://job-runtime\.sagemaker(?:-fips)?\.({_REGION})\.api\.aws(?::443)?(?:/.*)?",
    re.IGNORECASE | re.ASCII,  # ASCII, or the long s of Unicode would pass for an s
)
_ARN = re.compile(r"arn:[^:]*:sagemaker:([^:]+):")


def check_region(region: str, where: str) -> str:
    """Return `region` if it has the shape of one: it becomes part of a host name.

    Raises:
        EndpointError: It has not.
    """
    if len(region) > 32 or not re.fullmatch(_REGION, region):
        raise EndpointError(
            f"{where} must name an AWS region such as us-west-2, got {region[:60]!r}"
        )
    return region


def job_runtime_region(url: str) -> str | None:
    """Return the region in the URL of a Job Runtime, or `None` for any other URL."""
    match = _JOB_RUNTIME_URL.fullmatch(url)
    return match[1].lower() if match else None


def resolve_region(
    *,
    endpoint: str | None = None,
    region: str | None = None,
    job_arn: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> str:
    """Return the region to sign for: what the rollout says, else what the environment says.

    The endpoint's host, `region` and the job's ARN must agree as far as they name one, since a
    token for one region is worthless in another. An ARN that is none is not a voice.

    Raises:
        EndpointError: They disagree, one is malformed, or nothing names a region.
    """
    arn = _ARN.match(job_arn or "")
    voices = {
        "the endpoint": job_runtime_region(endpoint or ""),
        "metadata.region": region,
        "the job ARN": arn[1] if arn else None,
    }
    named = [(where, check_region(text, where)) for where, text in voices.items() if text]
    for where, text in named[1:]:
        if text != named[0][1]:
            raise EndpointError(
                f"{named[0][0]} says region {named[0][1]!r}, but {where} says {text!r}: "
                "a bearer token is good in one region only; make them agree"
            )
    if named:
        return named[0][1]
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if text := (os.environ if environ is None else environ).get(name, "").strip():
            return check_region(text, name)
    raise EndpointError(
        "no AWS region: neither the endpoint's host, metadata.region nor the job ARN names one; "
        "set AWS_REGION or AWS_DEFAULT_REGION"
    )
