"""A sampler that is a plain function of the conversation: a solver plays, and its tokens are captured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rft_agent_sdk.gateway.samplers.base import PolicyRequest, Reply
from rft_agent_sdk.gateway.samplers.scripted import ScriptedPolicy, ScriptFunction
from rft_agent_sdk.gateway.samplers.token import (
    Sampled,
    SampleEnd,
    SampleFault,
    Sampler,
    SampleRequest,
    Version,
    cut,
)
from rft_agent_sdk.types import Message


class Writer(Protocol):
    """What of a renderer a scripted sampler needs."""

    def write(self, message: Message, *, prompt: Sequence[int]) -> list[int]:
        """Return the ids that a policy samples after `prompt` to say `message`, its stop token included."""
        ...


class ScriptedSampler(Sampler):
    """Samples what a function says, in the ids that a model would have sampled to say it.

    Each id has logprob 0: it was certain. Temperature and its like have no effect; `max_tokens` has, and
    so a turn may end by `length`. A synchronous function runs on a thread. May be used on several event
    loops.
    """

    def __init__(
        self,
        function: ScriptFunction,
        renderer: Writer,
        *,
        version: Version = 0,
        threads: int = 32,
    ) -> None:
        """Wrap a function.

        Args:
            function: From messages and tools to an assistant `Message` or a `Reply`; may be async.
            renderer: Whose model's tokens are written; the one that rendered the prompt.
            version: Policy version to record.
            threads: Most calls of a synchronous function at one time.
        """
        self._policy = ScriptedPolicy(function, threads=threads)
        self._renderer = renderer
        self._version = version

    @property
    def version(self) -> Version:
        """The policy version given."""
        return self._version

    async def sample(self, request: SampleRequest) -> Sampled:
        """Ask the function, and write its message down."""
        asked = PolicyRequest(tuple(request.messages), tuple(request.tools), request.sampling)
        said = await self._policy.said(asked)
        message = said.message if isinstance(said, Reply) else said
        ids = self._renderer.write(message, prompt=request.prompt)
        is_cut = isinstance(said, Reply) and said.finish_reason == "length"
        if is_cut and ids and ids[-1] in request.stop_ids:
            ids = ids[:-1]  # the function says that its turn was cut off, and so never closed
        if not ids:
            raise SampleFault(f"the renderer wrote no token for {message!r}")
        end: SampleEnd = "length" if is_cut else "stop"
        return cut(Sampled(ids, [0.0] * len(ids), end, self._version), request.sampling.max_tokens)

    async def aclose(self) -> None:
        """End the threads, once their calls are done."""
        await self._policy.aclose()
