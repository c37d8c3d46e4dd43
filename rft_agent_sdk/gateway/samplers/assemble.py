"""Chat-completion chunks put together: the pieces to pass on, and the whole reply at the end."""

from __future__ import annotations

from typing import Any

from rft_agent_sdk.gateway.refusal import Refusal
from rft_agent_sdk.gateway.samplers.base import Delta, Reply, new_call_id, settled
from rft_agent_sdk.types import JSON, FinishReason, Message, ToolCall, Usage


def finish_reason_of(value: object) -> FinishReason:
    """Return a server's finish reason as ours; what we have no word for is a stop."""
    if value == "length":
        return "length"
    return "tool_calls" if value == "tool_calls" else "stop"


def usage_of(body: JSON) -> Usage:
    """Return the usage a reply or chunk carries; zeros where it carries none."""
    usage = body.get("usage") or {}
    return Usage(int(usage.get("prompt_tokens") or 0), int(usage.get("completion_tokens") or 0))


class _Call:
    def __init__(self, call_id: str) -> None:
        self.id = call_id
        self.name = ""
        self.arguments: list[str] = []


class Assembler:
    """Takes a stream's chunks in order."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, _Call] = {}
        self._finish: object = None
        self._usage = Usage()

    def take(self, chunk: JSON) -> list[Delta]:
        """Take one chunk and return what of it is to be passed on.

        Raises:
            Refusal: 502, it is no chunk of a chat completion.
        """
        try:
            return self._take(chunk)
        except (TypeError, ValueError, AttributeError, LookupError) as error:
            raise Refusal(502, f"the policy server's chunk cannot be read: {error}") from error

    def reply(self) -> Reply:
        """Return the whole reply.

        Raises:
            Refusal: 502, the stream ended without a finish reason, so part of it is missing.
        """
        if self._finish is None:
            raise Refusal(502, "the policy server's stream ended before the reply did")
        message = Message(
            "assistant",
            "".join(self._text),
            "".join(self._reasoning) if self._reasoning else None,
            tuple(
                ToolCall(call.name, "".join(call.arguments), call.id)
                for _, call in sorted(self._calls.items())
            ),
        )
        return settled(Reply(message, finish_reason_of(self._finish), self._usage))

    def _take(self, chunk: JSON) -> list[Delta]:
        if chunk.get("usage"):
            self._usage = usage_of(chunk)
        found: list[Delta] = []
        for choice in chunk.get("choices") or ():
            if choice.get("finish_reason") is not None:
                self._finish = choice["finish_reason"]
            delta = choice.get("delta") or {}
            text = delta.get("content") or ""
            reasoning = delta.get("reasoning_content") or delta.get("reasoning") or ""
            if text or reasoning:
                self._text.append(text)
                if reasoning:
                    self._reasoning.append(reasoning)
                found.append(Delta(text, reasoning))
            found.extend(self._take_call(entry) for entry in delta.get("tool_calls") or ())
        return found

    def _take_call(self, entry: JSON) -> Delta:
        index = int(entry.get("index") or 0)
        call = self._calls.get(index)
        is_new = call is None
        if call is None:
            # The id is settled with the first piece: the stream and the stored turn must agree.
            call = self._calls[index] = _Call(self._fresh_id(entry.get("id")))
        function = entry.get("function") or {}
        name: str = function.get("name") or ""
        arguments: str = function.get("arguments") or ""
        name = name if not call.name else ""  # some servers repeat it with every piece
        call.name += name
        call.arguments.append(arguments)
        return Delta("", "", index, call.id if is_new else "", name, arguments)

    def _fresh_id(self, wanted: Any) -> str:
        taken = {call.id for call in self._calls.values()}
        return (
            wanted if isinstance(wanted, str) and wanted and wanted not in taken else new_call_id()
        )
