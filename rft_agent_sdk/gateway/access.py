"""Who is calling, and for which job or session."""

from __future__ import annotations

from rft_agent_sdk.gateway.exchange import Exchange
from rft_agent_sdk.gateway.job_runtime import ID_LIMIT, JOB_ARN, Job
from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.sessions import SessionRollout
from rft_agent_sdk.gateway.tokens import PREFIX, SIGV4, Caller, TokenError
from rft_agent_sdk.gateway.visit import AUTH_FAILED, Visit

ARN_HEADER = b"x-amzn-sagemaker-job-arn"
TRAJECTORY_HEADER = b"x-amzn-sagemaker-trajectory-id"
_KEY_HEADER = b"x-api-key"
_NOBODYS = (
    "this call belongs to no rollout: wanted a session's secret as bearer or x-api-key, or a Job "
    "Runtime token with the headers X-Amzn-SageMaker-Job-Arn and X-Amzn-SageMaker-Trajectory-Id"
)


def identify(visit: Visit, body: bytes, body_arn: object = None) -> Job | SessionRollout:
    """Return the job or session that a request may speak for.

    Args:
        visit: The request; how it was authenticated is noted in it.
        body: Its body, which a SigV4 signature covers.
        body_arn: `JobArn` of a JSON body, where some clients put it instead of the header.

    Raises:
        Refusal: 401, no rollout can be told; 403, a bad token or another account's job; 400, the
            job ARN is missing, malformed, contradictory, or of no job.
    """
    exchange = visit.exchange
    scheme, value = _credential(exchange)
    arn = exchange.header(ARN_HEADER)
    if scheme.lower() == "bearer" and not value.startswith(PREFIX):
        session = visit.gateway.find_session(value)
        if session is not None:
            visit.auth = "session"
            return session
        if arn is None and body_arn is None:
            raise Refusal(401, "no session has this secret: it was never opened, or was dropped")
    try:
        caller = _caller(visit, scheme, value, body)
    except TokenError as error:
        raise Refusal(403, f"{AUTH_FAILED} ({error})") from None
    if caller is None:
        if arn is None and body_arn is None:
            raise Refusal(401, _NOBODYS)
        raise Refusal(403, "Missing Authentication Token")
    visit.signed_at = caller.signed_at
    return _job(visit, caller, _agreed(visit, arn, body_arn))


def _credential(exchange: Exchange) -> tuple[str, str]:
    """Return the scheme and value of `Authorization`; a bare API key counts as a bearer's."""
    given = exchange.header(b"authorization")
    if given is None:
        key = exchange.header(_KEY_HEADER)
        return ("", "") if key is None else ("bearer", key)
    scheme, _, value = given.partition(" ")
    return scheme, value


def _caller(visit: Visit, scheme: str, value: str, body: bytes) -> Caller | None:
    tokens = visit.gateway.tokens
    if scheme.lower() == "bearer":
        visit.auth = "bearer"
        return tokens.bearer(value)
    if scheme != SIGV4:
        return None
    visit.auth = "sigv4"
    scope = visit.exchange.scope
    return tokens.sigv4(
        method=visit.exchange.method,
        path=scope.get("raw_path", b"").decode("latin-1") or visit.exchange.path,
        query=scope["query_string"].decode("latin-1"),
        headers={
            name.decode("latin-1"): text.decode("latin-1")
            for name, text in visit.exchange.headers.items()
        },
        body=body,
    )


def _agreed(visit: Visit, arn: str | None, body_arn: object) -> str:
    if arn is None and body_arn is None:
        if visit.shape != "aws" and visit.exchange.header(TRAJECTORY_HEADER) is None:
            raise Refusal(401, _NOBODYS)
        raise Refusal(400, "the job ARN is missing: X-Amzn-SageMaker-Job-Arn", param="JobArn")
    if body_arn is not None and not isinstance(body_arn, str):
        raise Refusal(400, f"JobArn: wanted a string, got {body_arn!r:.60}", param="JobArn")
    if arn is not None and body_arn is not None and arn != body_arn:
        raise Refusal(
            400,
            f"the job ARN differs between header ({arn!r}) and body ({body_arn!r})",
            param="JobArn",
        )
    found = arn or body_arn or ""
    assert isinstance(found, str)
    return found


def _job(visit: Visit, caller: Caller, arn: str) -> Job:
    parts = JOB_ARN.fullmatch(arn)
    if parts is None or len(arn) > ID_LIMIT:
        raise Refusal(400, f"JobArn: wanted the ARN of a job, got {arn!r:.100}", param="JobArn")
    if parts["region"] != caller.region:
        raise Refusal(403, f"{AUTH_FAILED} (it is for {caller.region}, not {parts['region']})")
    if visit.gateway.account not in (None, parts["account"]):
        raise Refusal(403, "User is not authorized to access this resource")
    job = visit.gateway.find_job(arn)
    if job is None:
        raise Refusal(400, "Could not find job")
    return job
