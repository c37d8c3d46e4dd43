"""Pages of a list, as SageMaker gives them out."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from rft_agent_sdk.twins.refusal import invalid
from rft_agent_sdk.types import JSON


def page_of(found: Sequence[JSON], key: str, body: JSON, *, default: int = 100) -> JSON:
    """Return the page that a request asks for, with a `NextToken` where there are more."""
    token = body.get("NextToken") or "0"
    if not token.isdecimal():
        raise invalid("NextToken is not one of ours")
    start = int(token)
    end = start + body.get("MaxResults", default)
    more = {"NextToken": str(end)} if end < len(found) else {}
    return {key: list(found[start:end]), **more}


def is_between(moment: datetime.datetime, body: JSON, after: str, before: str) -> bool:
    """Whether a moment lies within what a request asks for, epoch seconds both."""
    seconds = moment.timestamp()
    low, high = body.get(after), body.get(before)
    return (low is None or seconds > low) and (high is None or seconds < high)
