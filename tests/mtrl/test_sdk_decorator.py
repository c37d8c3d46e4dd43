"""The service's own decorator and adapter against our Job Runtime, and our agent beside them.

Both play the same tasks with the same tool and prompts; what the Job Runtime has on record must be the same.
"""

import json
import os
from contextlib import contextmanager
from typing import Any

import pytest

from environments.wordle import Wordle
from rft_agent_sdk import Outcome, Rollout, play, rft_handler
from rft_agent_sdk.gateway import Gateway, GatewayServer
from rft_agent_sdk.gateway.rollout import RolloutState
from rft_agent_sdk.serving import asgi_app
from rft_agent_sdk.training.agents import HttpAgent
from tests.servers import serving

pytestmark = [pytest.mark.sagemaker, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "AWS_REGION": "us-west-2",
}
ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/beside"
WORDLE = Wordle()
TASKS = WORDLE.tasks("train", 5, seed=11)
SAMPLING = {"temperature": 0.7, "topP": 0.9, "maxTokens": 900}


@rft_handler
def ours(rollout: Rollout) -> Any:
    """The agent as this package writes it."""
    return play(WORDLE, rollout)


def theirs() -> Any:
    """The agent as the service's documentation writes it, on AgentCore's application."""
    from bedrock_agentcore import BedrockAgentCoreApp
    from sagemaker.core.token_generator import generate_token  # type: ignore[import-not-found]
    from sagemaker.train.rft import sagemaker_rft_handler  # type: ignore[import-not-found]
    from sagemaker.train.rft.adapters.strands import wrap_model  # type: ignore[import-not-found]
    from strands import Agent
    from strands.models.openai import OpenAIModel
    from strands.tools.tools import PythonAgentTool

    app = BedrockAgentCoreApp()

    @app.entrypoint
    @sagemaker_rft_handler  # type: ignore[untyped-decorator]
    def invoke(payload: Any) -> Any:
        episode = WORDLE.start(payload["prompt"])
        (spec,) = episode.tools

        def run(use: Any, request_state: Any, **_: Any) -> Any:
            result = episode.call(spec.name, use["input"])
            request_state["stop_event_loop"] = episode.done
            status = "error" if result.is_error else "success"
            content = [{"text": result.text}]
            return {"toolUseId": use["toolUseId"], "status": status, "content": content}

        schema = {"json": dict(spec.parameters)}
        told = {"name": spec.name, "description": spec.description, "inputSchema": schema}
        endpoint = payload["metadata"]["endpoint"]
        client_args = {
            "api_key": generate_token(region=os.environ["AWS_REGION"]),
            "base_url": f"{endpoint}/v1",
        }
        agent = Agent(
            model=wrap_model(OpenAIModel(client_args=client_args, model_id="default")),
            tools=[PythonAgentTool(spec.name, told, run)],  # type: ignore[arg-type]
            system_prompt=episode.system_prompt,
            callback_handler=None,
        )
        agent(episode.prompt)
        return {"reward": episode.reward(Outcome.COMPLETED).total}

    return app


@contextmanager
def agents(url: str):
    """Both agents, served; each with the endpoint that its rollouts are to call."""
    with serving(asgi_app(ours)) as our_url, serving(theirs()) as their_url:
        yield {"ours": our_url, "theirs": their_url}


def payload(task: str, rollout_id: str, endpoint: str) -> dict[str, Any]:
    metadata = {"jobArn": ARN, "rolloutId": rollout_id, "endpoint": endpoint}
    return {"prompt": task, "metadata": metadata, "inferenceParams": SAMPLING}


def conversation(trajectory: Any) -> list[Any]:
    """What was said, turn by turn, but for the ids that clients make up."""

    def told(message: Any) -> Any:
        calls = [(call.name, json.loads(call.arguments)) for call in message.tool_calls]
        return (message.role, message.text, calls)

    return [(*map(told, turn.messages), told(turn.reply)) for turn in trajectory.turns]


def sampling(trajectory: Any) -> list[tuple[Any, ...]]:
    """The sampling parameters of each call of the policy."""
    bodies = [call.body for call in trajectory.calls if call.operation == "ChatCompletions"]
    return [(body["temperature"], body["top_p"], body["max_tokens"]) for body in bodies]


async def test_the_same_tasks_give_the_same_trajectories_and_rewards(monkeypatch):
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    gateway = Gateway(
        account="123456789012",
        secrets={KEYS["AWS_ACCESS_KEY_ID"]: KEYS["AWS_SECRET_ACCESS_KEY"]},
    )
    solver: Any = WORDLE.policies()["solver"]
    job = gateway.register_job(ARN, policy=solver)
    with GatewayServer(gateway) as server, agents(server.url) as urls:
        monkeypatch.setenv("RFT_ALLOW_ENDPOINT_HOSTS", "127.0.0.1")
        for whose, url in urls.items():
            agent = HttpAgent(f"{url}/invocations")
            for number, task in enumerate(TASKS):
                sent = payload(task, f"{whose}-{number}", server.url)
                answer = await agent.invoke(sent, f"{whose}-{number}".ljust(33, "x"), 60.0)
                assert answer.body is not None, answer
            await agent.aclose()
    found = job.trajectories
    assert len(found) == 2 * len(TASKS)
    for number in range(len(TASKS)):
        mine, other = found[f"ours-{number}"], found[f"theirs-{number}"]
        assert mine.state is other.state is RolloutState.REWARD_RECEIVED
        assert conversation(mine) == conversation(other)
        assert len(mine.turns) > 1
        assert mine.rewards == other.rewards
        assert mine.rewards[0] > 1
        assert mine.failure_reason is None
        assert sampling(mine) == sampling(other) == [(0.7, 0.9, 900)] * len(mine.turns)
