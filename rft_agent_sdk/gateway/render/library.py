"""A renderer over the `renderers` library, which has hand-written code for the models it knows.

Its render and its bridge are used as they are. Turns are parsed here where we know the family, since the
library lets an unclosed parameter through as a call without arguments; elsewhere its parse is checked.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.parse import FAMILIES, Reading
from rft_agent_sdk.gateway.parse.arguments import to_json
from rft_agent_sdk.gateway.render.base import ExtensionMode, Parsed
from rft_agent_sdk.gateway.render.harmony import harmony_vocabulary, load_encoding
from rft_agent_sdk.gateway.render.healing import TemplateRenderer
from rft_agent_sdk.gateway.render.turns import Turns, as_parsed
from rft_agent_sdk.gateway.render.vocabulary import Vocabulary
from rft_agent_sdk.gateway.render.wire import Wire
from rft_agent_sdk.types import FinishReason, Message, ToolCall, ToolSpec

logger = logging.getLogger(__name__)

_FAMILIES = {
    "qwen3": "hermes",
    "qwen3-vl": "hermes",
    "prime-qwen3": "xml",
    "qwen3.5": "xml",
    "qwen3.6": "xml",
    "qwen3.8": "xml",
    "nemotron-3": "xml",
    "nemotron-3-ultra": "xml",
    "nemotron-3.5": "xml",
    "gpt-oss": "harmony",
    "gemma4": "gemma",
    "llama-3": "llama",
}
"""The library's names of models, and the family in which we read their turns."""
_HEAD_LIMIT = 64
"""How many ids before a turn the library is shown: enough for the head that a prompt gives it."""
_FAILURES = (ValueError, TypeError, LookupError, AttributeError, AssertionError, RecursionError)
"""What the library's code raises for conversations and ids that it did not expect."""


class LibraryRenderer:
    """Renders with the library; see `Renderer`."""

    mode: ExtensionMode = "bridge"

    def __init__(
        self,
        library: str,
        inner: Any,
        vocabulary: Vocabulary,
        fallback: TemplateRenderer | None = None,
    ) -> None:
        """Make a renderer.

        Args:
            library: The library's name for the model's kind.
            inner: The library's renderer.
            vocabulary: The tokenizer's.
            fallback: Extends where the library cannot.
        """
        self.name = f"renderers {library}"
        self.stop_ids = frozenset(int(number) for number in inner.get_stop_token_ids())
        self._inner = inner
        self._vocabulary = vocabulary
        self._fallback = fallback
        family = FAMILIES.get(_FAMILIES.get(library, ""))
        self.turns = Turns(vocabulary, family) if family else None
        # The harmony encoder takes content as plain text by itself.
        self._wire = Wire("", None if library == "gpt-oss" else vocabulary, family)

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """The control tokens and their ids."""
        return self._vocabulary.control_tokens

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the whole prompt of the next turn."""
        try:
            ids: list[int] = self._inner.render_ids(
                self._wire.messages(messages),
                tools=self._wire.tools(tools) or None,
                add_generation_prompt=True,
            )
        except _FAILURES as error:
            raise UsageError(f"{self.name} refuses this conversation: {error}") from error
        return ids

    def extend(
        self,
        prefix: Sequence[int],
        history: Sequence[Message],
        new: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        sampled: Sequence[int],
        finish_reason: FinishReason,
    ) -> list[int] | None:
        """Return what must follow `prefix`, `None` where neither the library nor the template can tell."""
        start = len(prefix) - len(sampled)
        head = [*prefix[max(0, start - _HEAD_LIMIT) : start]]
        served = [*head, *sampled]
        messages = self._wire.messages([history[-1], *new])[1:]
        try:
            bridged = self._inner.bridge_to_next_turn(
                head, [*sampled], messages, tools=self._wire.tools(tools) or None
            )
        except _FAILURES as error:
            logger.warning("renderer=<%s> | cannot bridge: %s", self.name, error)
            bridged = None
        if bridged is not None:
            ids: list[int] = bridged.token_ids
            if ids[: len(served)] == served:
                return ids[len(served) :]
        if self._fallback is None:
            return None
        return self._fallback.extend(
            prefix, history, new, tools, sampled=sampled, finish_reason=finish_reason
        )

    def parse(
        self,
        sampled: Sequence[int],
        *,
        prompt: Sequence[int],
        tools: Sequence[ToolSpec],
        finish_reason: FinishReason,
    ) -> Parsed:
        """Read a sampled turn."""
        if self.turns:
            return self.turns.parse(
                sampled, prompt=prompt, tools=tools, finish_reason=finish_reason
            )
        raw = self._vocabulary.decode(sampled)
        try:
            found = self._inner.parse_response(
                [*sampled],
                tools=[tool.as_openai() for tool in tools] or None,
                prompt_ids=[*prompt[-_HEAD_LIMIT:]],
            )
            reading = _reading(found, tools)
        except _FAILURES as error:
            logger.warning("renderer=<%s> | cannot parse: %s", self.name, error)
            reading = Reading(raw, is_ill_formed=True)
        return as_parsed(reading, raw, finish_reason)

    def write(self, message: Message, *, prompt: Sequence[int]) -> list[int]:
        """Return the ids that a policy samples after `prompt` to say `message`."""
        if self.turns is None:
            raise UsageError(f"{self.name} cannot write turns, only read them")
        closer = next(
            (
                token
                for token in self.turns.family.closers
                if self._vocabulary.id_of(token) in self.stop_ids
            ),
            None,
        )
        return self.turns.write(message, prompt, closer)


class _Adapter:
    """Our vocabulary as the library wants a tokenizer: no offsets, which it needs for masks alone."""

    unk_token_id = None

    def __init__(self, name: str, vocabulary: Vocabulary, tokenizer: Any, template: str) -> None:
        self.name_or_path = name
        self.chat_template = template
        self.eos_token_id = None
        self._vocabulary = vocabulary
        self._tokenizer = tokenizer

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return self._vocabulary.encode(text)

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return self._vocabulary.decode(token_ids)

    def convert_tokens_to_ids(self, token: str) -> int | None:
        found = self._vocabulary.id_of(token)
        if found is None and hasattr(self._tokenizer, "token_to_id"):
            found = self._tokenizer.token_to_id(token)
        return found


def library_renderer(
    library: str,
    model: str,
    tokenizer: Any,
    kwargs: Mapping[str, Any],
    *,
    template: str = "",
    keep_reasoning: bool,
    fallback: TemplateRenderer | None,
) -> LibraryRenderer:
    """Return the library's renderer for a kind of model.

    Raises:
        UsageError: The library is not installed, knows no such kind or argument, or the tokenizer lacks a
            token that the kind needs.
    """
    try:
        from renderers import create_renderer
        from renderers.configs import config_from_name
    except ImportError as error:
        raise UsageError(f"wanted the renderers library for {model!r}, got: {error}") from error
    if library == "gpt-oss":
        tokenizer = load_encoding()
        vocabulary = harmony_vocabulary(tokenizer)
    else:
        vocabulary = Vocabulary.of(tokenizer, template)
    try:
        config = config_from_name(library)
        fields = {"name": library, **kwargs}
        config_class = type(config)
        if keep_reasoning:
            try:
                config = config_class(**fields, thinking_retention="all")
            except ValueError:  # the arguments ask for less, explicitly
                config = config_class(**fields)
        else:
            config = config_class(**fields)
        inner = create_renderer(_Adapter(model, vocabulary, tokenizer, template), config)
    except _FAILURES as error:
        raise UsageError(
            f"the renderers library cannot serve {model!r} as {library!r}: {error}"
        ) from error
    return LibraryRenderer(library, inner, vocabulary, fallback)


def _reading(found: Any, tools: Sequence[ToolSpec]) -> Reading:
    """Return the library's parse as a reading; a call that misses a required argument is none."""
    required = {tool.name: tool.parameters.get("required") or () for tool in tools}
    text = [found.content] if found.content else []
    calls: list[ToolCall] = []
    for call in found.tool_calls:
        arguments = call.arguments
        is_call = call.status == "ok" and call.name and isinstance(arguments, dict)
        if is_call and all(name in arguments for name in required.get(call.name, ())):
            calls.append(ToolCall(call.name, to_json(arguments), call.id or ""))
        else:
            text.append(call.raw)
    return Reading(
        "\n".join(text),
        found.reasoning_content,
        tuple(calls),
        is_ill_formed=len(calls) < len(found.tool_calls),
        is_open=found.reasoning_complete is False,
    )
