"""What the tests of token-level samplers share: one request, what an engine says to it, ways to ask."""

from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import pytest

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.sglang import SGLangSampler
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampledPiece,
    Sampler,
    SampleRequest,
)
from rft_agent_sdk.gateway.samplers.vllm import VLLMSampler
from rft_agent_sdk.types import SamplingParams
from tests.gateway.engines import FakeEngine, FakeSGLang, FakeVLLM, words

STOP = 9
REQUEST = SampleRequest([1, 5, 6], SamplingParams(max_tokens=8), stop_ids=frozenset({STOP, 77}))
SAID = words(11, 12, 13, STOP, 14)
IDS = [11, 12, 13, STOP]
LOGPROBS: list[float | None] = [-0.5, -1.0, -1.5, -2.0]


class Engine:
    """A kind of engine, as the tests of both see it."""

    def __init__(self, make: type[FakeEngine], sampler: Any, **options: Any) -> None:
        self.make, self.sampler, self.options = make, sampler, options

    @contextmanager
    def served(self, script=SAID, *, sampler: Any = None, **options) -> Iterator[Any]:
        """Serve an engine; yields it and a sampler."""
        engine = self.make(script, **self.options, **options)
        with engine.served() as url:
            yield engine, self.sampler(url, **(sampler or {}))


VLLM = Engine(FakeVLLM, VLLMSampler)
SGLANG = Engine(FakeSGLang, SGLangSampler)
KINDS = {
    "vllm": VLLM,
    "sglang": SGLANG,
    "sglang-incremental": Engine(FakeSGLang, SGLangSampler, incremental=True),
}
every_engine = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
streamed_or_not = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


async def collect(sampler: Sampler, request: SampleRequest = REQUEST) -> list[Any]:
    async with aclosing(sampler.stream(request)) as pieces:
        return [piece async for piece in pieces]


async def ask(
    sampler: Sampler, request: SampleRequest = REQUEST, *, stream: bool = False
) -> Sampled:
    try:
        if not stream:
            return await sampler.sample(request)
        *parts, whole = await collect(sampler, request)
    finally:
        await sampler.aclose()
    assert all(isinstance(part, SampledPiece) for part in parts)
    assert [token for part in parts for token in part.ids] == whole.ids
    assert [value for part in parts for value in part.logprobs] == whole.logprobs
    assert isinstance(whole, Sampled)
    return whole


async def refused(
    sampler: Sampler, request: SampleRequest = REQUEST, *, stream: bool = False
) -> Refusal:
    with pytest.raises(Refusal) as found:
        await ask(sampler, request, stream=stream)
    return found.value
