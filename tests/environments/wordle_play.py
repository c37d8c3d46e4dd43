"""Plays a policy against a Wordle episode, for the tests here."""

import json
from types import SimpleNamespace

from environments.wordle import WordleEpisode, environment
from rft_agent_sdk.environment import PolicyFunction
from rft_agent_sdk.types import Message, ToolResult


def start(answer: str, **task: object) -> WordleEpisode:
    return environment.start(json.dumps({"answer": answer, **task}))


def guess(episode: WordleEpisode, word: str, *, recovered: bool = False) -> ToolResult:
    return episode.call("guess_word", {"guess": word}, recovered=recovered)


def play(policy: PolicyFunction, episode: WordleEpisode, turns: int = 20) -> list[Message]:
    """Let `policy` play until it calls no tool; return the conversation."""
    messages = [Message("system", episode.system_prompt), Message("user", episode.prompt)]
    for _ in range(turns):
        reply = policy(messages, episode.tools)
        messages.append(reply)
        if not reply.tool_calls:
            break
        (call,) = reply.tool_calls
        result = episode.call(call.name, json.loads(call.arguments))
        messages.append(
            Message("tool", result.text, tool_call_id=call.id, is_error=result.is_error)
        )
    return messages


def state(episode: WordleEpisode) -> SimpleNamespace:
    """Return all that a call could change."""
    game = episode.game
    return SimpleNamespace(
        board=episode.board,
        calls=game.calls,
        malformed=game.malformed,
        done=episode.done,
        acted=episode.acted,
    )
