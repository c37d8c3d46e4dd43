"""Token-level samplers: what any may return, those that are functions, and SageMaker's."""

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from rft_agent_sdk.gateway.samplers.base import Reply
from rft_agent_sdk.gateway.samplers.sagemaker import SageMakerSampler
from rft_agent_sdk.gateway.samplers.scripted_tokens import ScriptedSampler
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampledPiece,
    SampleFault,
    Sampler,
    SampleRequest,
    cut,
)
from rft_agent_sdk.types import Message, SamplingParams
from tests.gateway.sampling import REQUEST, STOP, ask, collect, refused, streamed_or_not


class Backend(Sampler):
    """A sampler that says what it is given."""

    version = 3

    def __init__(self, ids: Any, logprobs: Any) -> None:
        self.said = (ids, logprobs)

    async def sample(self, request: SampleRequest) -> Sampled:
        piece = self._checked(*self.said)
        return Sampled(piece.ids, piece.logprobs, "stop", self.version)


@pytest.mark.parametrize(
    "value", [None, math.nan, -math.inf, math.inf, 0.001, -9999.0, -1e30, 1], ids=repr
)
async def test_what_is_no_logprob_becomes_none_and_is_counted(value):
    sampler = Backend([4, 5, 6], [-0.1, value, 0.0])
    assert (await sampler.sample(REQUEST)).logprobs == [-0.1, None, 0.0]
    assert sampler.missing_logprobs == 1


async def test_logprobs_that_are_whole_numbers_or_very_low_are_logprobs():
    sampler = Backend([4, 5, 6], [0, -1, -9998.5])
    found = (await sampler.sample(REQUEST)).logprobs
    assert (found, sampler.missing_logprobs) == ([0.0, -1.0, -9998.5], 0)
    assert all(type(value) is float for value in found)


async def test_a_backend_without_logprobs_gives_none_for_each_token():
    sampler = Backend([4, 5], None)
    assert (await sampler.sample(REQUEST)).logprobs == [None, None]
    assert sampler.missing_logprobs == 2


async def test_a_length_that_differs_is_a_fault_that_names_both():
    with pytest.raises(
        SampleFault, match=r"got 3 for 2 ids: ids \[4, 5\], logprobs \[-0.1, "
    ) as found:
        await Backend([4, 5], [-0.1, -0.2, -0.3]).sample(REQUEST)
    assert found.value.status == 502
    assert isinstance(found.value, ValueError)


@pytest.mark.parametrize(
    "ids", ["text", [1, "2"], [1, -1], [1, 2**32], [True, 1], [1.0, 2], None], ids=repr
)
async def test_ids_that_are_none_are_a_fault(ids):
    with pytest.raises(SampleFault, match="wanted sampled token ids, got"):
        await Backend(ids, [-0.1, -0.1]).sample(REQUEST)


@pytest.mark.parametrize("value", ["-0.1", True, [-0.1]], ids=repr)
async def test_a_logprob_that_is_no_number_is_a_fault(value):
    with pytest.raises(SampleFault, match="wanted a number or null"):
        await Backend([4], [value]).sample(REQUEST)


async def test_a_sampler_that_cannot_stream_gives_one_piece_and_the_whole():
    whole = Sampled([4, 5], [-0.1, None], "stop", 3)
    assert await collect(Backend([4, 5], [-0.1, None])) == [
        SampledPiece([4, 5], [-0.1, None]),
        whole,
    ]


def test_cutting_a_turn_ends_it_by_length():
    whole = Sampled([4, 5, 6], [-0.1, -0.2, None], "stop", 3)
    assert cut(whole, 2) == Sampled([4, 5], [-0.1, -0.2], "length", 3)
    assert cut(whole, 3) is whole
    assert cut(whole, None) is whole


# Functions


class Spelled:
    """A renderer that writes one id for each letter, and 0 to close the turn."""

    def write(self, message: Message, *, prompt) -> list[int]:
        return [ord(letter) for letter in message.text] + ([] if message.text == "-" else [0])


SPOKEN = SampleRequest(
    [1, 2], stop_ids=frozenset({0}), messages=(Message("user", "ab"),), sampling=SamplingParams()
)


def echo(messages, tools) -> Message:
    return Message("assistant", messages[-1].text)


async def aecho(messages, tools) -> Message:
    return echo(messages, tools)


@pytest.mark.parametrize("function", [echo, aecho], ids=["sync", "async"])
@streamed_or_not
async def test_a_function_samples_what_it_says_with_certainty(function, stream):
    found = await ask(ScriptedSampler(function, Spelled(), version="solver"), SPOKEN, stream=stream)
    assert found == Sampled([97, 98, 0], [0.0, 0.0, 0.0], "stop", "solver")


@pytest.mark.parametrize(("limit", "ids"), [(2, [97, 98]), (1, [97])])
async def test_a_function_that_says_too_much_is_cut_off(limit, ids):
    request = SampleRequest(
        [1], SamplingParams(max_tokens=limit), stop_ids=frozenset({0}), messages=SPOKEN.messages
    )
    found = await ask(ScriptedSampler(echo, Spelled()), request)
    assert found == Sampled(ids, [0.0] * limit, "length", 0)


async def test_a_function_that_says_it_was_cut_off_never_closed_its_turn():
    def breaks_off(messages, tools):
        return Reply(Message("assistant", "ab"), "length")

    found = await ask(ScriptedSampler(breaks_off, Spelled()), SPOKEN)
    assert found == Sampled([97, 98], [0.0, 0.0], "length", 0)


async def test_a_reply_that_is_no_assistant_s_is_not_written():
    sampler = ScriptedSampler(lambda messages, tools: Message("user", "x"), Spelled())
    with pytest.raises(TypeError, match="must return an assistant Message"):
        await ask(sampler, SPOKEN)


# SageMaker


class FakeFuture:
    """Done after `delay_s` seconds, or failed."""

    def __init__(self, result: Any, delay_s: float) -> None:
        self.outcome, self.delay_s = result, delay_s

    async def result_async(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        async with asyncio.timeout(timeout):
            await asyncio.sleep(self.delay_s)
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


class FakeClient:
    """A `SamplingClient`, as far as its documentation goes: refuses less than 512 tokens."""

    model_package_arn = "arn:aws:sagemaker:us-west-2:123456789012:model-package/p/3"

    def __init__(self, *outcomes: Any, delay_s: float = 0.0) -> None:
        self.outcomes = list(outcomes)
        self.delay_s = delay_s
        self.seen: list[tuple[Any, int, dict[str, Any]]] = []

    def sample(self, prompt, num_samples=1, sampling_params=None) -> FakeFuture:
        assert sampling_params["max_tokens"] >= 512
        self.seen.append((prompt, num_samples, sampling_params))
        return FakeFuture(self.outcomes.pop(0), self.delay_s)


def sequence(tokens, logprobs, stop_reason="stop") -> Any:
    return SimpleNamespace(
        sequences=[SimpleNamespace(tokens=tokens, logprobs=logprobs, stop_reason=stop_reason)]
    )


async def test_the_service_s_tokens_come_back_with_its_model_package_as_version():
    client = FakeClient(sequence([11, 12, STOP], [-0.1, math.nan, -0.3]))
    sampler = SageMakerSampler(client)
    request = SampleRequest(
        (1, 5), SamplingParams(0.7, 0.9, 600), frozenset({STOP}), 3, {"top_k": 5}
    )
    found = await ask(sampler, request)
    assert found == Sampled([11, 12, STOP], [-0.1, None, -0.3], "stop", client.model_package_arn)
    assert (sampler.min_new_tokens, sampler.missing_logprobs) == (512, 1)
    assert client.seen == [
        ([1, 5], 1, {"top_k": 5, "max_tokens": 600, "temperature": 0.7, "top_p": 0.9, "seed": 3})
    ]


async def test_a_limit_under_the_service_s_minimum_is_kept_here():
    client = FakeClient(sequence(list(range(20, 60)), [-0.1] * 40))
    found = await ask(SageMakerSampler(client, version=1), REQUEST)
    assert client.seen[0][2] == {"top_k": -1, "max_tokens": 512, "temperature": 1.0, "top_p": 1.0}
    assert found == Sampled(list(range(20, 28)), [-0.1] * 8, "length", 1)


async def test_what_the_service_samples_beyond_a_stop_id_is_dropped():
    client = FakeClient(sequence([11, 77, 12, STOP], [-0.1, -0.2, -0.3, -0.4], "length"))
    found = await ask(SageMakerSampler(client, version=1), REQUEST)
    assert found == Sampled([11, 77], [-0.1, -0.2], "stop", 1)


@pytest.mark.parametrize(("room", "asked"), [(511, None), (512, 512), (700, 700), (9000, 4096)])
async def test_the_service_is_asked_for_no_more_than_the_context_holds(room, asked):
    client = FakeClient(sequence([11, STOP], None))
    sampler = SageMakerSampler(client, max_context_tokens=3 + room)
    request = SampleRequest([1, 5, 6])
    if asked is None:
        assert (await refused(sampler, request)).code == "context_length_exceeded"
        assert client.seen == []
    else:
        assert (await ask(sampler, request)).logprobs == [None, None]
        assert client.seen[0][2]["max_tokens"] == asked


def client_error(status: int) -> ClientError:
    answer: Any = {
        "Error": {"Code": "SomeException", "Message": "so it is"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return ClientError(answer, "ExecuteSamplingOperation")


@pytest.mark.parametrize(("status", "ours"), [(400, 400), (429, 429), (409, 502), (500, 502)])
async def test_a_refusal_of_the_service_keeps_its_reason(status, ours):
    refusal = await refused(SageMakerSampler(FakeClient(client_error(status))))
    assert (refusal.status, refusal.message) == (ours, "the service says SomeException: so it is")


async def test_a_service_that_does_not_answer_in_time_is_a_504():
    client = FakeClient(sequence([11], [-0.1]), delay_s=30)
    refusal = await refused(SageMakerSampler(client, timeout_s=0.02))
    assert (refusal.status, refusal.message) == (504, "the service did not sample within 0.02 s")


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (SimpleNamespace(sequences=[]), "one sampled sequence, got 0"),
        (sequence([], []), "no token"),
        (sequence([11, 12], [-0.1]), "one logprob for each"),
        (sequence([11], [-0.1], "eos"), "'eos'"),
    ],
    ids=["none", "empty", "lengths", "reason"],
)
async def test_what_the_service_cannot_have_sampled_is_a_fault(response, message):
    refusal = await refused(SageMakerSampler(FakeClient(response)))
    assert isinstance(refusal, SampleFault)
    assert message in refusal.message
