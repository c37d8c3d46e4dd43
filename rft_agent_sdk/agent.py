"""Play any episode with a Strands agent, as one honest conversation inside its deadline.

What Strands does on its own and would spoil a rollout is switched off: its long retries on throttling
(the policy client waits inside the deadline instead) and any rewriting of the history (the trainer
must see the very conversation the model saw).
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rft_agent_sdk.environment import Environment, Episode
from rft_agent_sdk.faults import broke_off, environment_code
from rft_agent_sdk.reward import Reward, as_reward
from rft_agent_sdk.rollout import Rollout
from rft_agent_sdk.tracing import Value, annotate, span
from rft_agent_sdk.types import Outcome, ToolCall, ToolSpec

if TYPE_CHECKING:
    from strands import Agent
    from strands.hooks import BeforeToolCallEvent

logger = logging.getLogger(__name__)

BROKEN_REPLIES = 5
"""Replies in a row that may break off before the rollout is given up."""
MAX_TURNS = 64
"""Model calls one conversation may make, against an episode that never ends."""


def play(environment: Environment, rollout: Rollout, *, max_turns: int = MAX_TURNS) -> Reward:
    """Play the rollout's task to its end and return its reward.

    Call it from a synchronous handler. A model that answered but never acted gets one more
    conversation with a terser instruction. Tool calls written as plain text are recovered and played.
    Sets `rollout.outcome` to `TRUNCATED` when the model ran into its token limit or context window;
    what was played until then counts.

    Args:
        environment: What to play.
        rollout: The rollout that the handler was given.
        max_turns: Model calls that one conversation may make.

    Raises:
        TaskError: The task string is not one of this environment's.
        EnvironmentFault: The environment's code raised.
        RolloutOver: The deadline passed.
        openai.APIError: The policy endpoint refused or failed, after the client's retries.
    """
    annotate({"environment": environment.name})
    with environment_code(environment.name):
        episode = environment.start(rollout.task)
        rollout.attach(episode)
        prompt = episode.prompt
    _Conversation(environment, episode, rollout, max_turns).hold(prompt)
    with environment_code(environment.name):
        again = None if episode.acted or episode.done else episode.retry_prompt
    if again is not None and rollout.calls.succeeded:
        logger.info("rollout=<%s> | never acted; one more conversation", rollout.request.rollout_id)
        rollout.outcome = Outcome.COMPLETED
        _Conversation(environment, episode, rollout, max_turns).hold(again)
    with environment_code(environment.name):
        return rollout.by_turn(as_reward(episode.reward(rollout.outcome)))


class _Conversation:
    """One fresh conversation of the policy with an episode."""

    def __init__(
        self, environment: Environment, episode: Episode, rollout: Rollout, max_turns: int
    ) -> None:
        self._environment = environment
        self._episode = episode
        self._rollout = rollout
        self._turns_left = max_turns
        self._fault: BaseException | None = None
        self._agent = self._make_agent()

    def hold(self, prompt: str) -> None:
        """Talk until the episode is over, the policy stops acting, or its tokens run out."""
        from strands.types.exceptions import (
            ContextWindowOverflowException,
            MaxTokensReachedException,
        )

        message: str | None = prompt
        while message is not None and self._turns_left > 0 and not self._is_done():
            before = self._rollout.calls.succeeded
            try:
                self._talk(message)
            except (MaxTokensReachedException, ContextWindowOverflowException):
                self._rollout.outcome = Outcome.TRUNCATED
                message = None
            else:
                message = self._recovered(_text(self._agent))
            finally:
                self._turns_left -= max(1, self._rollout.calls.succeeded - before)
            if self._fault is not None:
                raise self._fault

    def _talk(self, message: str) -> None:
        """Run the agent until it stops; a reply that broke off is asked for again.

        The client repeats a call until a reply begins, and cannot once it has; here the history still ends
        where it was asked, so the same turn is asked for.
        """
        asked: str | None = message
        for _ in range(BROKEN_REPLIES):
            try:
                self._agent(asked, limits={"turns": self._turns_left})
            except Exception as error:
                if not broke_off(error):
                    raise
                self._rollout.check_open()
                logger.warning("rollout=<%s> | a reply broke off", self._rollout.request.rollout_id)
                asked = None
            else:
                return
        self._agent(asked, limits={"turns": self._turns_left})

    def _recovered(self, text: str) -> str | None:
        """Play the calls written in `text`; return what the tools answered, `None` if there were none."""
        if self._fault is not None or self._is_done():
            return None
        with environment_code(self._environment.name):
            calls = self._episode.recover(text)
            results = [self._play_recovered(call) for call in calls]
        return "\n\n".join(results) or None

    def _play_recovered(self, call: ToolCall) -> str:
        known = {spec.name for spec in self._episode.tools}
        # Strands traces the calls that it makes; this one it knows nothing of.
        attributes: dict[str, Value] = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name if call.name in known else "unknown",
            "recovered": True,
        }
        with span("execute_tool", attributes) as traced:
            self._rollout.acts.append(self._rollout.calls.succeeded)
            result = self._episode.call(call.name, json.loads(call.arguments), recovered=True)
            traced.set({"gen_ai.tool.status": "error" if result.is_error else "success"})
        return result.text

    def _is_done(self) -> bool:
        with environment_code(self._environment.name):
            return self._episode.done

    def _make_agent(self) -> Agent:
        from strands import Agent
        from strands.agent.conversation_manager import NullConversationManager
        from strands.hooks import BeforeToolCallEvent
        from strands.tools.executors import SequentialToolExecutor

        agent = Agent(
            model=self._rollout.model(),
            tools=[self._tool(spec) for spec in self._episode.tools],
            system_prompt=_system_prompt(self._episode.system_prompt),
            callback_handler=None,
            conversation_manager=NullConversationManager(),
            tool_executor=SequentialToolExecutor(),
            retry_strategy=None,
            load_tools_from_directory=False,
        )
        agent.hooks.add_callback(BeforeToolCallEvent, self._to_the_episode)
        return agent

    def _to_the_episode(self, event: BeforeToolCallEvent[Any]) -> None:
        """Let the episode answer a call of an unknown tool, which Strands would answer on its own.

        It could not count it, and so could not end a play that is nothing but such calls.
        """
        if event.selected_tool is None:
            event.selected_tool = self._tool(ToolSpec(event.tool_use["name"], "", {}))

    def _tool(self, spec: ToolSpec) -> Any:
        from strands.tools.tools import PythonAgentTool

        def run(tool_use: Mapping[str, Any], **_: Any) -> Any:
            arguments = tool_use["input"] if isinstance(tool_use["input"], dict) else {}
            try:
                self._rollout.check_open()
                self._rollout.acts.append(self._rollout.calls.succeeded)
                with environment_code(self._environment.name):
                    result = self._episode.call(spec.name, arguments)
                is_done = self._is_done()
            except Exception as fault:  # noqa: BLE001 - Strands would tell the model; raised by hold()
                self._fault = fault
                self._agent.cancel()
                return _tool_result(tool_use, "The tool failed.", is_error=True)
            if is_done:
                self._agent.cancel(after_current_tools=True)
            return _tool_result(tool_use, result.text, is_error=result.is_error)

        schema = {"json": dict(spec.parameters)}
        tool_spec: Any = {
            "name": spec.name,
            "description": spec.description,
            "inputSchema": schema,
        }
        return PythonAgentTool(spec.name, tool_spec, run)


def _tool_result(tool_use: Mapping[str, Any], text: str, *, is_error: bool) -> dict[str, Any]:
    status = "error" if is_error else "success"
    return {"toolUseId": tool_use["toolUseId"], "status": status, "content": [{"text": text}]}


def _text(agent: Agent) -> str:
    """Return the text of the last assistant message."""
    last = agent.messages[-1] if agent.messages else None
    if last is None or last["role"] != "assistant":
        return ""
    return "\n".join(block["text"] for block in last["content"] if "text" in block)


def _system_prompt(text: str) -> str | None:
    """Add gpt-oss's way of naming its reasoning level, where that is switched on."""
    effort = os.environ.get("REASONING_EFFORT", "").strip().lower()
    hint = os.environ.get("REASONING_PROMPT_HINT", "").strip().lower() in ("1", "true", "yes")
    if hint and effort in ("low", "medium", "high"):
        text = f"{text}\n\nReasoning: {effort}".strip()
    return text or None
