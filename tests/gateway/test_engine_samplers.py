"""Samplers of real engines' wire: exactly the ids that were sampled, streamed or whole; errors typed."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from starlette.responses import JSONResponse, Response

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.samplers.backend import TransientRefusal
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampledPiece,
    SampleFault,
    SampleRequest,
)
from rft_agent_sdk.gateway.samplers.vllm import VLLMSampler
from rft_agent_sdk.types import SamplingParams
from tests.gateway.engines import EOS, words
from tests.gateway.sampling import (
    IDS,
    LOGPROBS,
    REQUEST,
    SGLANG,
    STOP,
    VLLM,
    ask,
    collect,
    every_engine,
    refused,
    streamed_or_not,
)
from tests.servers import Answer, ScriptedServer


@every_engine
@streamed_or_not
async def test_the_engine_s_own_ids_come_back_with_the_stop_token(kind, stream):
    with kind.served(sampler={"version": 4}) as (_, sampler):
        found = await ask(sampler, stream=stream)
        assert found == Sampled(IDS, LOGPROBS, "stop", 4)
        assert sampler.missing_logprobs == 0


@every_engine
@streamed_or_not
async def test_the_model_s_own_end_is_kept_too(kind, stream):
    with kind.served(words(11, EOS, 12)) as (_, sampler):
        found = await ask(sampler, stream=stream)
    assert (found.ids, found.finish_reason) == ([11, EOS], "stop")


@every_engine
@streamed_or_not
async def test_a_turn_at_its_limit_has_no_stop_token(kind, stream):
    request = SampleRequest([1], SamplingParams(max_tokens=3), stop_ids=frozenset({STOP}))
    with kind.served() as (_, sampler):
        found = await ask(sampler, request, stream=stream)
    assert (found.ids, found.finish_reason) == ([11, 12, 13], "length")


@every_engine
@pytest.mark.parametrize("per_event", [1, 2, 3, 4])
async def test_pieces_of_any_size_make_up_the_turn(kind, per_event):
    with kind.served(per_event=per_event) as (_, sampler):
        *parts, whole = await collect(sampler)
        await sampler.aclose()
    assert [len(part.ids) for part in parts] == [
        min(per_event, 4 - start) for start in range(0, 4, per_event)
    ]
    assert (whole.ids, whole.logprobs) == (IDS, LOGPROBS)


@every_engine
async def test_a_piece_is_passed_on_while_the_engine_still_samples(kind):
    with kind.served(pause_after=1) as (engine, sampler):
        async with aclosing(sampler), aclosing(sampler.stream(REQUEST)) as pieces:
            first = await anext(pieces)
            assert not engine.go.is_set()
            engine.go.set()
            rest = [piece async for piece in pieces]
    assert first == SampledPiece([11, 12], [-0.5, -1.0])
    assert rest[-1].ids == IDS


@every_engine
@streamed_or_not
async def test_tokens_without_a_usable_logprob_are_counted_once(kind, stream):
    script = [(11, -0.5), (12, None), (13, -9999.0), (STOP, -0.1)]
    with kind.served(script, per_event=1) as (_, sampler):
        found = await ask(sampler, stream=stream)
    assert found.logprobs == [-0.5, None, None, -0.1]
    assert sampler.missing_logprobs == 2


@every_engine
async def test_calls_side_by_side_do_not_mix(kind):
    with kind.served() as (engine, sampler):
        async with aclosing(sampler):
            found = await asyncio.gather(
                *(
                    sampler.sample(SampleRequest([n], REQUEST.sampling, REQUEST.stop_ids))
                    for n in range(9)
                )
            )
    assert all(one.ids == IDS for one in found)
    assert sorted(body.get("prompt") or body.get("input_ids") for body in engine.seen) == [
        [n] for n in range(9)
    ]


async def test_vllm_is_asked_for_ids_and_given_neutral_sampling():
    with VLLM.served(sampler={"model": "adapter"}) as (engine, sampler):
        await ask(sampler, SampleRequest((1, 5), stop_ids=frozenset({77, STOP}), seed=3))
    assert engine.seen == [
        {
            "model": "adapter",
            "prompt": [1, 5],
            "max_tokens": 4094,  # the sampler's 4096, in a context of 4096
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "stop_token_ids": [STOP, 77],
            "seed": 3,
            "n": 1,
            "logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "stream": False,
        }
    ]


async def test_sglang_is_asked_for_ids_and_given_neutral_sampling():
    with SGLANG.served(sampler={"lora_path": "adapter"}) as (engine, sampler):
        await ask(sampler, SampleRequest((1, 5), stop_ids=frozenset({77, STOP}), seed=3))
    assert engine.seen == [
        {
            "lora_path": "adapter",
            "input_ids": [1, 5],
            "sampling_params": {
                "max_new_tokens": 4094,
                "temperature": 1.0,
                "top_p": 1.0,
                "top_k": -1,
                "min_p": 0.0,
                "repetition_penalty": 1.0,
                "stop_token_ids": [STOP, 77],
                "sampling_seed": 3,
                "n": 1,
                "no_stop_trim": True,
                "skip_special_tokens": False,
            },
            "return_logprob": True,
            "logprob_start_len": -1,
            "return_text_in_logprobs": False,
            "stream": False,
        }
    ]


@pytest.mark.parametrize("kind", [VLLM, SGLANG], ids=["vllm", "sglang"])
async def test_what_the_request_sets_goes_before_what_is_neutral(kind):
    request = SampleRequest(
        [1],
        SamplingParams(temperature=0.0, top_p=0.9, max_tokens=5),
        extras={"top_k": 20, "temperature": 7, "n": 4},
    )
    with kind.served() as (engine, sampler):
        await ask(sampler, request)
    (body,) = engine.seen
    params = body.get("sampling_params", body)
    assert (params["temperature"], params["top_p"], params["top_k"], params["n"]) == (
        0.0,
        0.9,
        20,
        1,
    )


@every_engine
@streamed_or_not
async def test_a_prompt_without_room_to_answer_is_refused_before_sampling(kind, stream):
    with kind.served(context=3) as (engine, sampler):
        refusal = await refused(sampler, stream=stream)
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")
    assert "3 tokens" in refusal.message
    assert engine.seen == []


@every_engine
async def test_an_answer_is_cut_to_the_room_its_context_has(kind):
    with kind.served(context=5) as (engine, sampler):
        async with aclosing(sampler):
            found = [await sampler.sample(REQUEST) for _ in range(2)]
    assert [(one.ids, one.finish_reason) for one in found] == [([11, 12], "length")] * 2
    assert engine.paths.count("/v1/models") == 1


@every_engine
async def test_a_context_that_is_given_is_not_asked_for(kind):
    with kind.served(sampler={"max_context_tokens": 4}) as (engine, sampler):
        found = await ask(sampler)
    assert (found.ids, found.finish_reason) == ([11], "length")
    assert "/v1/models" not in engine.paths


@every_engine
async def test_an_engine_that_hides_its_context_is_asked_for_all(kind):
    with kind.served(context=None) as (_, sampler):
        assert (await ask(sampler)).ids == IDS


@streamed_or_not
async def test_vllm_s_own_refusal_of_a_long_prompt_is_understood(stream):
    with VLLM.served(context=6, sampler={"max_context_tokens": 100}) as (_, sampler):
        refusal = await refused(sampler, stream=stream)
    assert (refusal.status, refusal.code) == (400, "context_length_exceeded")
    assert not isinstance(refusal, TransientRefusal)


def vllm_error(status: int, **fields: Any) -> Response:
    error = {"message": "so it is", "type": "X", "code": status}
    return JSONResponse({"error": error}, status, **fields)


@every_engine
@streamed_or_not
@pytest.mark.parametrize(
    ("answer", "status", "is_transient"),
    [
        (vllm_error(400), 400, False),
        (vllm_error(404), 502, False),
        (vllm_error(401), 502, False),
        (vllm_error(429, headers={"retry-after": "7"}), 429, True),
        (vllm_error(500), 502, True),
        (Response("<html>", 503), 502, True),
    ],
    ids=["400", "404", "401", "429", "500", "503"],
)
async def test_refusals_of_the_engine_say_whether_they_may_pass(
    kind, stream, answer, status, is_transient
):
    with kind.served(answer=answer) as (_, sampler):
        refusal = await refused(sampler, stream=stream)
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (status, is_transient)
    assert refusal.retry_after_s == (7.0 if status == 429 else None)


@every_engine
@pytest.mark.parametrize("body", ["nonsense", "[]", '{"choices": 3, "meta_info": 3}'])
async def test_an_answer_of_another_kind_is_refused_for_good(kind, body):
    with kind.served(answer=Response(body)) as (_, sampler):
        refusal = await refused(sampler)
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (502, False)


@pytest.mark.parametrize(
    ("kind", "error", "status", "is_transient"),
    [
        (VLLM, {"message": "m", "code": 500}, 502, True),
        (VLLM, {"message": "m", "code": 400}, 400, False),
        (SGLANG, {"message": "m"}, 400, False),
    ],
    ids=["vllm-500", "vllm-400", "sglang"],
)
async def test_an_error_inside_a_stream_is_raised(kind, error, status, is_transient):
    with kind.served(spoil=lambda body: {"error": error}) as (_, sampler):
        refusal = await refused(sampler, stream=True)
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (status, is_transient)


@every_engine
async def test_a_stream_that_ends_too_early_is_no_turn(kind):
    def unfinished(body: dict[str, Any]) -> dict[str, Any]:
        for part in body.get("choices") or [body["meta_info"]]:
            part["finish_reason"] = None
        return body

    with kind.served(spoil=unfinished) as (_, sampler):
        refusal = await refused(sampler, stream=True)
    assert "ended before the turn did" in refusal.message


@streamed_or_not
@pytest.mark.parametrize(
    ("kind", "end", "status", "is_transient"),
    [
        (VLLM, "abort", 502, True),
        (VLLM, "surprise", 502, False),
        (SGLANG, {"type": "abort", "message": "paused"}, 502, True),
        (SGLANG, {"type": "abort", "message": "m", "status_code": 503}, 502, True),
        (SGLANG, {"type": "abort", "message": "m", "status_code": 400}, 400, False),
        (SGLANG, {"type": "surprise"}, 502, False),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, str | dict) else "",
)
async def test_a_turn_that_the_engine_gave_up_is_no_turn(kind, stream, end, status, is_transient):
    def given_up(body: dict[str, Any]) -> dict[str, Any]:
        (body["choices"][0] if "choices" in body else body["meta_info"])["finish_reason"] = end
        return body

    with kind.served(spoil=given_up) as (_, sampler):
        refusal = await refused(sampler, stream=stream)
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (status, is_transient)


async def test_a_loop_that_vllm_stopped_was_not_ended_by_the_policy():
    def looped(body: dict[str, Any]) -> dict[str, Any]:
        body["choices"][0]["finish_reason"] = "repetition"
        return body

    with VLLM.served(spoil=looped) as (_, sampler):
        assert (await ask(sampler)).finish_reason == "length"


def spoil_vllm(
    change: Callable[[dict[str, Any]], Any],
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def spoil(body: dict[str, Any]) -> dict[str, Any]:
        change(body["choices"][0])
        return body

    return spoil


@streamed_or_not
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda choice: choice.update(prompt_token_ids=[1, 5]), "another prompt, of 2 tokens"),
        (lambda choice: choice.pop("token_ids"), "0.10.2 or newer"),
        (lambda choice: choice["logprobs"]["token_logprobs"].pop(), "one logprob for each"),
        (lambda choice: choice.pop("logprobs") and choice.update(logprobs=[]), "cannot be read"),
        (lambda choice: choice.update(token_ids=["a"]), "wanted sampled token ids"),
    ],
    ids=["prompt", "no-ids", "logprob-lost", "logprobs-odd", "ids-odd"],
)
async def test_what_vllm_cannot_have_sampled_is_a_fault(stream, change, message):
    with VLLM.served(spoil=spoil_vllm(change)) as (_, sampler):
        refusal = await refused(sampler, stream=stream)
    assert isinstance(refusal, SampleFault)
    assert message in refusal.message


def shorter(body: dict[str, Any]) -> None:
    body["output_ids"].pop()


@streamed_or_not
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda body: body["meta_info"].update(prompt_tokens=2),
            "after 2 prompt tokens instead of 3",
        ),
        (
            lambda body: body["meta_info"]["output_token_logprobs"][0].__setitem__(1, 99),
            "other tokens",
        ),
        (lambda body: body["meta_info"]["output_token_logprobs"].pop(), "lists"),
        (shorter, "lists"),
        (lambda body: body["meta_info"].pop("completion_tokens"), "completion_tokens"),
        (lambda body: body.pop("meta_info"), "cannot be read"),
        (
            lambda body: body.pop("output_ids") and body["meta_info"].pop("output_token_logprobs"),
            "neither output_ids",
        ),
    ],
    ids=["prompt", "pairs", "logprob-lost", "id-lost", "no-count", "no-meta", "no-ids"],
)
async def test_what_sglang_cannot_have_sampled_is_a_fault(stream, change, message):
    def spoil(body: dict[str, Any]) -> dict[str, Any]:
        change(body)
        return body

    with SGLANG.served(spoil=spoil) as (_, sampler):
        refusal = await refused(sampler, stream=stream)
    assert isinstance(refusal, SampleFault)
    assert message in refusal.message


@streamed_or_not
async def test_an_sglang_without_output_ids_tells_them_with_the_logprobs(stream):
    def older(body: dict[str, Any]) -> dict[str, Any]:
        del body["output_ids"]
        return body

    with SGLANG.served(spoil=older) as (_, sampler):
        found = await ask(sampler, stream=stream)
    assert (found.ids, found.logprobs) == (IDS, LOGPROBS)


async def test_an_sglang_that_takes_tokens_back_is_a_fault():
    def forgets(body: dict[str, Any]) -> dict[str, Any]:
        if body["meta_info"]["finish_reason"] is not None:
            body["meta_info"].update(
                completion_tokens=1,
                output_token_logprobs=body["meta_info"]["output_token_logprobs"][:1],
            )
            body["output_ids"] = body["output_ids"][:1]
        return body

    with SGLANG.served(spoil=forgets) as (_, sampler):
        refusal = await refused(sampler, stream=True)
    assert isinstance(refusal, SampleFault)
    assert "tells of 1 sampled tokens and lists 1, after 2 seen" in refusal.message


async def test_a_list_that_runs_ahead_of_its_event_is_read_up_to_the_event():
    def ahead(body: dict[str, Any]) -> dict[str, Any]:
        if body["meta_info"]["finish_reason"] is None:
            body["output_ids"] = list(IDS)
        return body

    with SGLANG.served(spoil=ahead, per_event=1) as (_, sampler):
        found = await ask(sampler, stream=True)
    assert (found.ids, found.logprobs) == (IDS, LOGPROBS)


@streamed_or_not
async def test_sglang_tells_the_version_unless_one_is_given(stream):
    with SGLANG.served() as (_, sampler):
        assert sampler.version == 0
        assert (await ask(sampler, stream=stream)).version == "default"
        assert sampler.version == "default"
    with SGLANG.served(sampler={"version": 5}) as (_, sampler):
        assert (await ask(sampler, stream=stream)).version == 5


@every_engine
async def test_a_cancelled_stream_hangs_up_on_the_engine(kind):
    with kind.served(pause_after=1) as (engine, sampler):
        async with aclosing(sampler):
            pieces = sampler.stream(REQUEST)
            await anext(pieces)
            await pieces.aclose()
            assert await asyncio.to_thread(engine.gone.wait, 5)


@every_engine
async def test_a_cancelled_call_hangs_up_on_the_engine(kind):
    with kind.served(pause_after=0) as (engine, sampler):
        async with aclosing(sampler):
            call = asyncio.create_task(sampler.sample(REQUEST))
            assert await asyncio.to_thread(engine.asked.wait, 5)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await asyncio.to_thread(engine.gone.wait, 5)


@pytest.mark.parametrize(
    ("kind", "variable"),
    [(VLLM, "VLLM_API_KEY"), (SGLANG, "SGLANG_API_KEY")],
    ids=["vllm", "sglang"],
)
async def test_the_key_goes_to_the_engine_and_nowhere_else(monkeypatch, kind, variable):
    monkeypatch.setenv(variable, "a-secret-key")
    with kind.served(answer=vllm_error(401)) as (engine, sampler):
        refusal = await refused(sampler)
    assert engine.keys == ["Bearer a-secret-key"]
    assert "a-secret-key" not in repr(sampler) + refusal.message


@every_engine
async def test_an_engine_that_is_not_there_may_come_back(kind):
    sampler = kind.sampler("http://127.0.0.1:1/v1")
    refusal = await refused(sampler)
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (502, True)


async def test_an_engine_that_hangs_up_may_do_better():
    with ScriptedServer(lambda seen, count: Answer(drop=True)) as server:
        refusal = await refused(VLLMSampler(server.url, max_context_tokens=9))
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (502, True)


async def test_silence_of_the_engine_is_final():
    with VLLM.served(pause_after=0, sampler={"timeout_s": 0.2, "max_context_tokens": 9}) as (
        engine,
        sampler,
    ):
        refusal = await refused(sampler)
        engine.go.set()
    assert (refusal.status, isinstance(refusal, TransientRefusal)) == (504, False)


@every_engine
def test_a_url_that_is_none_is_refused(kind):
    with pytest.raises(UsageError, match="http"):
        kind.sampler("localhost:8000")
