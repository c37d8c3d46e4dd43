"""A Hugging Face chat template: compiled once, rendered with the semantics it was written for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from rft_agent_sdk.errors import ChatTemplateError, UsageError


class _Generation(Extension):
    """The tag around what an assistant says. It marks, and changes nothing of the render."""

    tags = {"generation"}  # noqa: RUF012 - jinja's own shape

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """One template with its constant arguments."""

    def __init__(
        self,
        source: str,
        arguments: Mapping[str, Any],
        *,
        now: Callable[[], datetime] | None = None,
    ) -> None:
        """Compile a template.

        Args:
            source: The text of the template.
            arguments: What every render gets besides the conversation, such as `bos_token`.
            now: The clock behind `strftime_now`; local time when `None`.

        Raises:
            ChatTemplateError: It is no template.
        """
        self.source = source
        self.hash = hashlib.sha256(source.encode()).hexdigest()
        clock = now or datetime.now
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: clock().strftime(form)
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ChatTemplateError(
                f"wanted a chat template, got one that does not compile: {error}"
            ) from error
        self._arguments = dict(arguments)

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return a conversation as text.

        Raises:
            UsageError: The template refuses it.
        """
        try:
            return self._template.render(
                self._arguments,
                messages=messages,
                tools=tools or None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
            )
        except (TemplateError, TypeError, ValueError, LookupError, AttributeError) as error:
            # The template's own code failed on these messages, which whoever sent them can change.
            raise UsageError(f"the chat template refuses this conversation: {error}") from error


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as models were trained on it; jinja's own filter escapes HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise(message: str) -> NoReturn:
    raise TemplateError(message)
