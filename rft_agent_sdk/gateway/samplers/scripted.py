"""A policy that is a plain function of the conversation: a solver, a rule, a test's script."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.base import (
    Policy,
    PolicyRequest,
    Reply,
    estimated_tokens,
)
from rft_agent_sdk.types import Message, ToolSpec, Usage

ScriptFunction = Callable[
    [Sequence[Message], Sequence[ToolSpec]],
    Message | Reply | Awaitable[Message] | Awaitable[Reply],
]
"""An `environment.PolicyFunction`, or one like it that is async or returns a whole `Reply`."""

_HINTS = frozenset(
    {
        *("frequency_penalty", "logit_bias", "min_p", "presence_penalty", "repetition_penalty"),
        *("reasoning_effort", "seed", "stop", "top_k", "verbosity", "chat_template_kwargs"),
        *("metadata", "prompt_cache_key", "safety_identifier", "service_tier", "store", "user"),
    }
)
"""Fields that steer sampling or bookkeeping, of which a function has none: ignored without harm."""


class ScriptedPolicy(Policy):
    """Asks a function; a synchronous one runs on a thread of its own pool.

    Sampling parameters have no effect. `usage` is an estimate, there being no tokenizer, unless the
    function returns a `Reply`.
    """

    extras = _HINTS

    def __init__(self, function: ScriptFunction, *, threads: int = 32) -> None:
        self._function = function
        # An object with an async __call__ is no coroutine function itself.
        called = function if inspect.isroutine(function) else type(function).__call__
        self._is_async = inspect.iscoroutinefunction(called)
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def reply(self, request: PolicyRequest) -> Reply:
        """Return what the function says, refused if it breaks what the client asked for."""
        found = await self.said(request)
        if isinstance(found, Reply):
            return found
        usage = Usage(estimated_tokens(request.messages, request.tools), estimated_tokens([found]))
        return Reply(found, "tool_calls" if found.tool_calls else "stop", usage)

    async def said(self, request: PolicyRequest) -> Message | Reply:
        """Return the same for those who count tokens themselves: an estimate reads the whole history."""
        found = await self._call(request.messages, _offered(request))
        message = found.message if isinstance(found, Reply) else found
        if not isinstance(message, Message) or message.role != "assistant":
            raise TypeError(f"a policy function must return an assistant Message, got {found!r}")
        _check_kept(request, message)
        return found if isinstance(found, Reply) else message

    async def _call(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> object:
        found: object
        if self._is_async:
            found = self._function(messages, tools)
        else:
            # The default pool has cpu + 4 threads, which a few slow functions would fill.
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "rft-policy")
            run = contextvars.copy_context().run
            loop = asyncio.get_running_loop()
            found = await loop.run_in_executor(self._pool, run, self._function, messages, tools)
        return await found if isinstance(found, Awaitable) else found

    async def aclose(self) -> None:
        """End the threads, once their calls are done."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(pool.shutdown)


def _offered(request: PolicyRequest) -> tuple[ToolSpec, ...]:
    choice = request.tool_choice
    if choice.mode == "none":
        return ()
    return tuple(tool for tool in request.tools if choice.name in (None, tool.name))


def _check_kept(request: PolicyRequest, message: Message) -> None:
    """Refuse a reply that breaks `tool_choice` or `parallel_tool_calls`: a script cannot be made to."""
    names = [call.name for call in message.tool_calls]
    choice = request.tool_choice
    if choice.mode == "none" and names:
        raise Refusal(400, f"the scripted policy called {names} anyway", param="tool_choice")
    if choice.mode == "required" and not names:
        raise Refusal(400, "the scripted policy called no tool", param="tool_choice")
    if choice.name is not None and set(names) != {choice.name}:
        raise Refusal(
            400, f"the scripted policy called {names}, not {choice.name!r}", param="tool_choice"
        )
    if len(names) > 1 and not request.parallel_tool_calls:
        raise Refusal(400, f"the scripted policy called {names}", param="parallel_tool_calls")
