"""Bearer tokens minted by botocore are verified; tampered, foreign and late ones are not."""

import base64
import time

import pytest

from rft_agent_sdk.gateway import Gateway
from rft_agent_sdk.gateway.tokens import PREFIX, TokenError, TokenReader, read_bearer
from rft_agent_sdk.testing import FakeClock
from tests.gateway.serve import (
    ACCESS_KEY,
    BODY,
    JOB,
    SECRET_KEY,
    decode,
    echo,
    encode,
    job_headers,
    mint,
    served,
)

KNOWN = {ACCESS_KEY: SECRET_KEY}


@pytest.mark.parametrize("session_token", [None, "with/odd+chars==" * 40])
def test_a_token_of_botocore_verifies(session_token):
    caller = read_bearer(mint(session_token=session_token), now=time.time(), secrets=KNOWN)
    assert (caller.access_key, caller.region, caller.is_proved) == (ACCESS_KEY, "us-west-2", True)
    assert caller.expires_at - time.time() == pytest.approx(43200, abs=5)


def test_without_the_secret_the_rest_is_checked_and_the_caller_unproved():
    assert not read_bearer(mint(), now=time.time(), secrets={}).is_proved


def spoil(find: str, put: str):
    return lambda: encode(decode(mint()).replace(find, put))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: "sk-something", "does not start with"),
        (lambda: f"{PREFIX}!!!", "base64"),
        (lambda: mint()[:-1] + "é", "base64"),
        (lambda: mint().replace(PREFIX, f"{PREFIX}\n"), "base64"),
        (lambda: PREFIX + base64.b64encode(b"\xff\xfe").decode(), "base64"),
        (spoil("sagemaker.amazonaws.com/?", "evil.example/?"), "not for"),
        (spoil("/?", "/path?"), "not for"),
        (spoil("CallWithBearerToken", "CreateJob"), "Action"),
        (spoil("AWS4-HMAC-SHA256", "AWS4-HMAC-SHA1"), "Algorithm"),
        (spoil("SignedHeaders=host", "SignedHeaders=date"), "SignedHeaders"),
        (spoil("%2Fsagemaker%2F", "%2Fs3%2F"), "sagemaker/aws4_request"),
        (spoil("us-west-2%2F", ""), "five parts"),
        (spoil("us-west-2", "nowhere"), "region"),
        (spoil(ACCESS_KEY, "me"), "access key"),
        (spoil("X-Amz-Date=2", "X-Amz-Date=x"), "X-Amz-Date"),
        (spoil("X-Amz-Date=20", "X-Amz-Date=19"), "day"),
        (spoil("Expires=43200", "Expires=43201"), "X-Amz-Expires"),
        (spoil("Expires=43200", "Expires=0"), "X-Amz-Expires"),
        (spoil("Expires=43200", "Expires=-1"), "X-Amz-Expires"),
        (spoil("Version=1", "Action=CallWithBearerToken"), "twice"),
        (spoil("Expires=43200", "Expires=43199"), "signature does not match"),
        (lambda: mint(secret_key="x" * 40), "signature does not match"),
    ],
)
def test_a_spoiled_token_is_refused_with_the_reason(make, reason):
    with pytest.raises(TokenError, match=reason):
        read_bearer(make(), now=time.time(), secrets=KNOWN)


def test_a_token_is_worth_nothing_after_its_time_or_long_before_it():
    token = mint(expires=60)
    read_bearer(token, now=time.time() + 50, secrets=KNOWN)
    with pytest.raises(TokenError, match="expired"):
        read_bearer(token, now=time.time() + 61, secrets=KNOWN)
    with pytest.raises(TokenError, match="future"):
        read_bearer(token, now=time.time() - 3600, secrets=KNOWN)


def test_a_token_that_was_read_before_still_expires():
    clock = FakeClock(time.time())
    reader = TokenReader(KNOWN, clock)
    token = mint(expires=60)
    assert reader.bearer(token) is reader.bearer(token)
    clock.advance(62)
    with pytest.raises(TokenError, match="expired"):
        reader.bearer(token)


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        (job_headers(f"{PREFIX}nonsense"), "make sure your API Key is valid"),
        (job_headers(mint(region="eu-west-1")), "it is for eu-west-1"),
        (job_headers("not-a-token-at-all"), "make sure your API Key is valid"),
        ({"x-amzn-sagemaker-job-arn": JOB}, "Missing Authentication Token"),
        ({"x-amzn-sagemaker-job-arn": JOB, "authorization": "Basic eDp5"}, "Missing"),
        (
            {"x-amzn-sagemaker-job-arn": JOB, "authorization": "AWS4-HMAC-SHA256 Credential=x"},
            "five parts",
        ),
    ],
)
def test_a_job_is_not_sampled_without_a_good_token(headers, text):
    gateway = Gateway()
    job = gateway.register_job(JOB, policy=echo)
    with served(gateway) as http:
        chat = http.post("/v1/chat/completions", json=BODY, headers=headers)
        sample = http.post("/sample", json=BODY, headers=headers)
    assert (chat.status_code, sample.status_code) == (403, 403)
    assert text in chat.json()["error"]["message"]
    assert text in sample.json()["Message"]
    assert sample.headers["x-amzn-errortype"] == "AccessDeniedException"
    assert not job.trajectories


def test_an_expired_token_is_told_apart_by_the_gateways_clock():
    clock = FakeClock(time.time())
    gateway = Gateway(clock=clock)
    gateway.register_job(JOB, policy=echo)
    token = mint()
    with served(gateway) as http:
        assert http.post("/sample", json=BODY, headers=job_headers(token)).status_code == 200
        clock.advance(43201)
        late = http.post("/sample", json=BODY, headers=job_headers(token))
    assert late.status_code == 403
    assert "expired" in late.json()["Message"]
