"""A renderer for any Hugging Face chat template, which extends by verified healing.

The next prompt is the served ids, the end of the turn where sampling left it out, and the rest of the
template's render. A kind of extension is allowed only once `verify` found it sound for this template.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import groupby

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.gateway.parse import Family
from rft_agent_sdk.gateway.render.base import ExtensionMode, Parsed
from rft_agent_sdk.gateway.render.chat_template import ChatTemplate
from rft_agent_sdk.gateway.render.frame import MARK, Frame, Framer, Shape
from rft_agent_sdk.gateway.render.turns import Turns
from rft_agent_sdk.gateway.render.verify import Situation, Verdict, verify
from rft_agent_sdk.gateway.render.vocabulary import Vocabulary
from rft_agent_sdk.gateway.render.wire import Wire
from rft_agent_sdk.types import FinishReason, Message, ToolCall, ToolSpec

logger = logging.getLogger(__name__)

_MAX_ROLES = 4
"""How many changes of role among new messages are extended over; each combination is verified once."""


class TemplateRenderer:
    """Renders with a template; see `Renderer`."""

    mode: ExtensionMode = "heal"

    def __init__(
        self,
        vocabulary: Vocabulary,
        template: ChatTemplate,
        family: Family,
        *,
        eos_token: str | None = None,
        keep_reasoning: bool = True,
    ) -> None:
        """Make a renderer.

        Args:
            vocabulary: The tokenizer's.
            template: The template with its constant arguments.
            family: How turns are read.
            eos_token: The tokenizer's end-of-sequence token, if it has one.
            keep_reasoning: Whether to extend where a whole render would drop earlier reasoning.
        """
        self.name = f"template {template.hash[:12]} ({family.name})"
        self._vocabulary = vocabulary
        self._template = template
        self._wire = Wire(template.source, vocabulary, family)
        self.turns = Turns(vocabulary, family)
        self._keep_reasoning = keep_reasoning
        self._omits_tools = False
        self._probe_omissions()
        self._text_closer = self._probe_closer()
        self.stop_ids = self._stops(eos_token)
        closers = {*family.closers, *([self._text_closer] if self._text_closer else [])}
        known = [closer for closer in closers if vocabulary.id_of(closer) is not None]
        self._framer = Framer(lambda messages: self._text(messages, ()), vocabulary.guard, known)
        self._eos = vocabulary.id_of(eos_token) if eos_token else None
        self._frame: Callable[[Shape], Frame | None] = lru_cache(512)(self._framer.frame)
        self._verdicts: dict[Situation, Verdict] = {}

    @property
    def control_tokens(self) -> Mapping[str, int]:
        """The control tokens and their ids."""
        return self._vocabulary.control_tokens

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[int]:
        """Return the whole prompt of the next turn."""
        if tools and self._omits_tools:
            self._omits_tools = False  # once is enough
            logger.warning(
                "template=<%s> | it has no place for tools: the model is told of none",
                self._template.hash[:12],
            )
        return self._vocabulary.encode(self._text(messages, tools))

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
        """Return what must follow `prefix`, `None` where healing is not known to be sound."""
        turn = history[-1]
        if not new or turn.role != "assistant" or any(m.role == "assistant" for m in new):
            return None
        verdict = self.verdict(history, new, tools)
        if not verdict.is_sound:
            return None
        if verdict.drops_reasoning and not self._keep_reasoning and turn.reasoning:
            return None
        found = self._rest(turn, new)
        if found is None:
            return None
        closer, rest = found
        ids = self._vocabulary.encode(rest)
        last = sampled[-1] if sampled else None
        if last is not None and last in self._endings(closer):
            return ids[1:]
        if last in self.stop_ids:
            return None  # it ended in a way that the template has no place for
        mend = self.turns.mend(sampled, prefix[: len(prefix) - len(sampled)])
        if mend is None:
            return None
        return self._vocabulary.encode(mend) + ids if mend else ids

    def parse(
        self,
        sampled: Sequence[int],
        *,
        prompt: Sequence[int],
        tools: Sequence[ToolSpec],
        finish_reason: FinishReason,
    ) -> Parsed:
        """Read a sampled turn."""
        return self.turns.parse(sampled, prompt=prompt, tools=tools, finish_reason=finish_reason)

    def write(self, message: Message, *, prompt: Sequence[int]) -> list[int]:
        """Return the ids that a policy samples after `prompt` to say `message`."""
        return self.turns.write(message, prompt, self._text_closer)

    def verdict(
        self, history: Sequence[Message], new: Sequence[Message], tools: Sequence[ToolSpec]
    ) -> Verdict:
        """Return what the check of such an extension found; it is made when first asked for."""
        situation = Situation(
            history[0].role == "system",
            bool(tools),
            min(len(history[-1].tool_calls), 2),
            tuple(role for role, _ in groupby(message.role for message in new)),
        )
        verdict = self._verdicts.get(situation)
        if verdict is None:
            verdict = self._verdicts[situation] = self._verify(situation)
            logger.info(
                "template=<%s> situation=<%s> sound=<%s> | %s",
                self._template.hash[:12],
                situation,
                verdict.is_sound,
                verdict.detail,
            )
        return verdict

    def _verify(self, situation: Situation) -> Verdict:
        if len(situation.roles) > _MAX_ROLES:
            return Verdict(False, False, "roles change too often")
        return verify(
            situation,
            render=self._text,
            encode=self._vocabulary.encode,
            prefill_of=self.turns.prefill,
            framer=self._framer,
            family=self.turns.family,
        )

    def _rest(self, turn: Message, new: Sequence[Message]) -> tuple[str, str] | None:
        """Return the closer and the rest of the render after an assistant's turn."""
        shape = Shape.of(turn, new)
        if shape is None:
            return None
        texts = [message.text for message in new]
        ids = [call.id for call in turn.tool_calls]
        try:
            frame = self._frame(shape)
            if frame is None:
                return None
            if frame.transform is None:
                return self._framer.rest(shape.stub(texts, ids))
        except UsageError:
            return None
        guarded = [self._vocabulary.guard(text) for text in texts]
        return frame.closer, frame.fill(guarded, [self._wire.call_id(call_id) for call_id in ids])

    def _text(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        return self._template.render(
            self._wire.messages(messages),
            self._wire.tools(tools),
            add_generation_prompt=add_generation_prompt,
        )

    def _probe_omissions(self) -> None:
        """Find out whether the template leaves out tools, calls, or reasoning that its models do write."""
        with contextlib.suppress(UsageError):
            question, tool = Message("user", "."), ToolSpec(MARK, ".", {"type": "object"})
            self._omits_tools = MARK not in self._text([question], [tool])
        call = ToolCall("probe", f'{{"x": "{MARK}"}}', "rft0id000")
        for probe in (
            Message("assistant", "", None, (call,)),
            Message("assistant", "", MARK, (call,)),
        ):
            result = Message("tool", ".", tool_call_id=call.id)
            try:
                text = self._text([Message("user", "."), probe, result], ())
            except UsageError:
                continue
            shown = text.count(MARK)
            if probe.reasoning is None:
                self._wire.inlines_calls = not shown
            elif shown == 1 and self.turns.family.is_thinking(self._template.source):
                self._wire.inlines_reasoning = True

    def _probe_closer(self) -> str | None:
        """Return the control string that the template writes after an assistant's text."""
        probe = [Message("user", "."), Message("assistant", MARK), Message("user", ".")]
        try:
            text = self._text(probe, ())
        except UsageError:
            return None
        return self._vocabulary.first_control(text, text.find(MARK) + len(MARK))

    def _stops(self, eos_token: str | None) -> frozenset[int]:
        tokens = {*self.turns.family.stops, *([eos_token] if eos_token else [])}
        if self._text_closer and self._text_closer not in self.turns.family.closers:
            tokens.add(self._text_closer)
        found = (self._vocabulary.id_of(token) for token in tokens)
        return frozenset(number for number in found if number is not None)

    def _endings(self, closer: str) -> set[int | None]:
        """Return the ids with which a policy may have written `closer`."""
        others = self.turns.family.closers.get(closer, frozenset())
        ids = {self._vocabulary.id_of(token) for token in (closer, *others)}
        if closer == self._text_closer:
            ids.add(self._eos)
        return ids - {None}
