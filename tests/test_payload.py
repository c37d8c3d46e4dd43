"""Every spelling of a request is read; what cannot be read is refused without losing the address."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import PayloadError
from rft_agent_sdk.payload import GatewayAddress, JobAddress, parse_request
from rft_agent_sdk.types import SamplingParams

ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/my-job"
PROMPT = '{"prompt": "Guess the 5-letter word", "answer": "riser", "id": "wordle_train_0000"}'
METADATA = {"jobArn": ARN, "rolloutId": "r-1"}
CONFIG = {"base_url": "http://127.0.0.1:9000/v1", "model_id": "policy", "api_key": "sk-session"}


def managed(**changes: Any) -> dict[str, Any]:
    return {"prompt": PROMPT, "metadata": dict(METADATA), **changes}


def test_the_documented_payload_of_a_job_is_read_in_full():
    endpoint = "https://job-runtime.sagemaker.us-west-2.api.aws"
    request = parse_request(
        {
            "prompt": PROMPT,
            "metadata": {**METADATA, "endpoint": endpoint, "region": "us-west-2"},
            "inferenceParams": {"temperature": 1.0, "topP": 1.0, "maxTokens": 4096},
        }
    )
    assert request.prompt == request.task == PROMPT
    assert request.job == JobAddress(ARN, "r-1", endpoint, "us-west-2")
    assert request.gateway is None
    assert request.sampling == SamplingParams(1.0, 1.0, 4096)
    assert request.rollout_id == "r-1"


@pytest.mark.parametrize("job", ["jobArn", "job_arn", "JobArn"])
@pytest.mark.parametrize(
    "rollout", ["rolloutId", "rollout_id", "trajectoryId", "trajectory_id", "TrajectoryId"]
)
def test_every_spelling_of_the_address_is_read(job, rollout):
    request = parse_request({"prompt": "p", "metadata": {job: ARN, rollout: "r-1"}})
    assert request.job == JobAddress(ARN, "r-1")


@pytest.mark.parametrize("params", ["inferenceParams", "inference_params"])
@pytest.mark.parametrize("top_p", ["topP", "top_p"])
@pytest.mark.parametrize("max_tokens", ["maxTokens", "max_tokens"])
def test_every_spelling_of_the_parameters_is_read(params, top_p, max_tokens):
    sampling = {"temperature": 0, top_p: 0.9, max_tokens: 16}
    assert parse_request(managed(**{params: sampling})).sampling == SamplingParams(0.0, 0.9, 16)


def test_snake_case_wins_where_both_spellings_came():
    both = {"topP": 0.1, "top_p": 0.2, "maxTokens": 1, "max_tokens": 2}
    assert parse_request(managed(inferenceParams=both)).sampling == SamplingParams(None, 0.2, 2)
    request = parse_request(
        managed(
            inferenceParams={"temperature": 0.1, "topP": 0.3}, inference_params={"temperature": 0.2}
        )
    )
    assert request.sampling == SamplingParams(0.2, 0.3)


def test_parameters_that_are_absent_or_null_are_left_to_the_endpoint():
    assert parse_request(managed()).sampling == SamplingParams()
    assert parse_request(managed(inferenceParams=None)).sampling == SamplingParams()
    nulls = {"temperature": None, "topP": None, "maxTokens": None, "topK": 5}
    assert parse_request(managed(inferenceParams=nulls)).sampling == SamplingParams()


def test_a_temperature_of_zero_is_kept():
    assert parse_request(managed(inferenceParams={"temperature": 0})).sampling.temperature == 0.0


@pytest.mark.parametrize("name", ["modelEndpoint", "model_endpoint"])
def test_an_endpoint_beside_the_prompt_is_used_when_metadata_names_none(name):
    assert parse_request(managed(**{name: "https://a"})).job == JobAddress(ARN, "r-1", "https://a")
    other = managed(**{name: "https://a"}, metadata={**METADATA, "endpoint": "https://b"})
    assert parse_request(other).job == JobAddress(ARN, "r-1", "https://b")


def test_a_structured_task_of_the_older_contract_becomes_one_json_string():
    request = parse_request(
        {
            "instance": {"prompt": "Guess", "answer": "riser"},
            "metadata": {"job_arn": ARN, "trajectory_id": "r-1"},
            "model_name": "m",
        }
    )
    assert request.prompt == "Guess"
    assert json.loads(request.task) == {"prompt": "Guess", "answer": "riser"}


def test_a_payload_wrapped_as_a_string_body_is_unwrapped():
    assert parse_request({"body": json.dumps(managed()), "headers": {}}) == parse_request(managed())


@given(st.text())
def test_the_prompt_of_a_job_arrives_byte_for_byte(prompt):
    request = parse_request(managed(prompt=prompt))
    assert request.prompt == request.task == prompt


def test_what_a_job_may_add_to_its_payload_does_not_change_the_task():
    request = parse_request(managed(id="row-1", trainingStep=3))
    assert request.task == PROMPT
    assert request.raw["trainingStep"] == 3


def test_a_gateway_rollout_is_read_in_full():
    request = parse_request(
        {"prompt": "p", "_config": {**CONFIG, "deadline_s": 30, "report": True, "more": [1]}}
    )
    assert request.job is None
    assert request.gateway == GatewayAddress(
        "http://127.0.0.1:9000/v1", "sk-session", "policy", 30.0, True
    )
    assert request.task == "p"
    assert request.rollout_id == ""


def test_a_gateway_rollout_needs_only_a_base_url():
    request = parse_request({"prompt": "p", "_config": {"base_url": "http://127.0.0.1:1"}})
    assert request.gateway == GatewayAddress("http://127.0.0.1:1", "EMPTY")


def test_a_gateway_rollouts_task_fields_become_one_json_string():
    with_prompt = parse_request({"prompt": "Gü", "answer": "riser", "_config": CONFIG})
    assert with_prompt.prompt == "Gü"
    assert with_prompt.task == '{"prompt": "Gü", "answer": "riser"}'
    without = parse_request({"question": "1+1?", "answer": 2, "_config": CONFIG})
    assert without.prompt == without.task == '{"question": "1+1?", "answer": 2}'


def test_what_a_trainers_client_adds_is_no_part_of_the_task():
    envelope = {"version": 1, "operation": "start", "invocation_id": "a1", "background": True}
    request = parse_request({"prompt": "p", "_config": CONFIG, "_agentcore_runtime": envelope})
    assert request.task == request.prompt == "p"


def test_a_request_with_both_addresses_is_the_gateways():
    request = parse_request(managed(_config=CONFIG))
    assert request.job is None
    assert request.gateway is not None
    assert request.task == PROMPT


def test_a_null_config_is_none():
    assert parse_request(managed(_config=None)).job == JobAddress(ARN, "r-1")


def test_the_secret_is_in_no_repr():
    request = parse_request({"prompt": "p", "_config": CONFIG})
    assert "sk-session" not in repr(request)
    assert request.raw["_config"]["api_key"] == "sk-session"


@pytest.mark.parametrize(
    "secret", ["sk-session\nX-Evil: 1", "sk-session" * 500, {"k": "sk-session"}]
)
def test_a_refused_secret_is_in_no_message(secret):
    with pytest.raises(PayloadError, match="api_key") as refused:
        parse_request({"prompt": "p", "_config": {**CONFIG, "api_key": secret}})
    assert "sk-session" not in str(refused.value)


@pytest.mark.parametrize(
    "payload",
    [
        None,
        "text",
        b"{}",
        3,
        [],
        [managed()],
        {},
        {"prompt": "p"},
        {"prompt": "p", "metadata": None},
        {"prompt": "p", "metadata": {}},
        {"prompt": "p", "metadata": "x"},
        {"prompt": "p", "metadata": [1]},
        {"prompt": "p", "metadata": {"jobArn": ARN}},
        {"prompt": "p", "metadata": {"rolloutId": "r"}},
        {"prompt": "p", "metadata": {"jobArn": "", "rolloutId": "r"}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": "   "}},
        {"prompt": "p", "metadata": {"jobArn": 5, "rolloutId": "r"}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": 7}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": "r\r\nX-Evil: 1"}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": " r1"}},
        {"prompt": "p", "metadata": {"jobArn": ARN + " ", "rolloutId": "r1"}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": "r\x7f"}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": "ü"}},
        {"prompt": "p", "metadata": {"jobArn": ARN, "rolloutId": "r" * 257}},
        {"body": "not json"},
        {"body": "[" * 100_000},
        {"body": "[1]"},
        {"body": '"text"'},
        {1: "a", "b": 2, None: 3},
        {"prompt": "p", "_config": {}},
        {"prompt": "p", "_config": "http://127.0.0.1"},
        {"prompt": "p", "_config": {"base_url": 5}},
        {"prompt": "p", "_config": {**CONFIG, "report": "yes"}},
        {"prompt": "p", "_config": {**CONFIG, "deadline_s": -1}},
        {"prompt": "p", "_config": {**CONFIG, "deadline_s": True}},
        {"_config": CONFIG},
        {"prompt": ["p"], "_config": CONFIG},
        {"question": {1, 2}, "_config": CONFIG},
        {"prompt": "p", "answer": object(), "_config": CONFIG},
    ],
    ids=lambda payload: re.sub(r" at 0x\w+", "", str(payload))[:60],
)
def test_what_cannot_be_read_and_names_no_address_is_refused(payload):
    with pytest.raises(PayloadError) as refused:
        parse_request(payload)
    assert refused.value.job is None
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt": None},
        {"prompt": {"text": "x"}},
        {"prompt": [{"toolUse": {"name": "t", "input": {}}}]},
        {"prompt": 5},
        {"inferenceParams": [1]},
        {"inferenceParams": {"temperature": "hot"}},
        {"inferenceParams": {"temperature": True}},
        {"inferenceParams": {"temperature": -1}},
        {"inferenceParams": {"temperature": float("nan")}},
        {"inferenceParams": {"temperature": float("inf")}},
        {"inferenceParams": {"topP": 1.5}},
        {"inferenceParams": {"maxTokens": 0}},
        {"inferenceParams": {"maxTokens": 1.5}},
        {"inferenceParams": {"maxTokens": 10**400}},
        {"metadata": {**METADATA, "endpoint": 5}},
        {"metadata": {**METADATA, "endpoint": "https://a\n"}},
        {"metadata": {**METADATA, "region": ["us-west-2"]}},
        {"modelEndpoint": {"url": "https://a"}},
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_a_fault_beside_a_readable_address_keeps_the_address(changes):
    with pytest.raises(PayloadError) as refused:
        parse_request(managed(**changes))
    assert refused.value.job == JobAddress(ARN, "r-1")


def test_a_missing_half_of_the_address_is_named():
    with pytest.raises(PayloadError, match=r"metadata\.rolloutId is missing"):
        parse_request({"prompt": "p", "metadata": {"jobArn": ARN}})


def test_a_whole_number_of_tokens_may_come_as_a_float():
    sampling = parse_request(managed(inferenceParams={"maxTokens": 4096.0})).sampling
    assert sampling.max_tokens == 4096
    assert type(sampling.max_tokens) is int


def test_later_changes_to_the_payload_do_not_reach_the_request():
    payload = managed()
    request = parse_request(payload)
    payload["prompt"] = "changed"
    assert request.raw["prompt"] == PROMPT


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
keys = st.sampled_from(
    [
        "prompt",
        "metadata",
        "_config",
        "inferenceParams",
        "inference_params",
        "body",
        "instance",
        "x",
    ]
)
sections = st.dictionaries(
    st.sampled_from(
        [
            *("jobArn", "rolloutId", "endpoint", "region", "base_url", "api_key", "deadline_s"),
            *("report", "temperature", "topP", "max_tokens"),
        ]
    ),
    json_values,
    max_size=4,
)


@given(st.dictionaries(keys, json_values | sections, max_size=5) | json_values)
def test_any_json_is_read_or_refused_as_a_payload_error(payload):
    try:
        request = parse_request(payload)
    except PayloadError:
        return
    assert (request.job is None) != (request.gateway is None)
    assert isinstance(request.task, str)
