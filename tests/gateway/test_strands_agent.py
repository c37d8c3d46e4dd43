"""A Strands agent on the gateway: what it really sends is understood."""

import pytest
from strands import Agent, tool
from strands.models.openai import OpenAIModel

from rft_agent_sdk.gateway import Gateway
from tests.gateway.serve import guess, served, url_of


@tool
def guess_word(guess: str) -> str:
    """Submit a guess.

    Args:
        guess: A word.
    """
    return f"Guess 1/6: {guess}"


@pytest.mark.parametrize("streaming", [True, False])
def test_an_agent_with_one_tool_plays_two_turns(streaming):
    gateway = Gateway()
    session = gateway.open(policy=guess)
    with served(gateway) as http:
        model = OpenAIModel(
            client_args={"base_url": f"{url_of(http)}/v1", "api_key": session.secret},
            model_id="default",
            stream=streaming,
        )
        agent = Agent(model=model, tools=[guess_word], system_prompt="SYS", callback_handler=None)
        result = agent("go")
    assert str(result).strip() == "done: Guess 1/6: CRANE"
    first, second = session.turns
    assert [message.role for message in second.messages] == ["system", "user", "assistant", "tool"]
    assert [message.text for message in second.messages] == [
        "SYS",
        "go",
        "I try.",
        "Guess 1/6: CRANE",
    ]
    assert second.messages[2].tool_calls[0].id == second.messages[3].tool_call_id == "call_1"
    assert first.finish_reason == "tool_calls"
    assert result.metrics.accumulated_usage["outputTokens"] > 0
