"""A math agent on agentcore-rl-toolkit's app: it finds its model in `_config` and returns a reward.

Run in that toolkit's environment: `python math_agent.py PORT`. It knows nothing of this project.
"""

import re
import sys

from agentcore_rl_toolkit import AgentCoreRuntimeApp
from strands import Agent, tool
from strands.models.openai import OpenAIModel

app = AgentCoreRuntimeApp()


@tool
def multiply(a: int, b: int) -> str:
    """Multiply two whole numbers."""
    return str(a * b)


@app.entrypoint
def solve(payload: dict, context) -> dict:
    """Solve the problem; right answers, after the last ####, are worth 1."""
    config = payload["_config"]
    model = OpenAIModel(
        model_id=config["model_id"],
        client_args={"base_url": config["base_url"], "api_key": config.get("api_key")},
    )
    agent = Agent(
        model=model,
        tools=[multiply],
        system_prompt="Solve the problem. Multiply with the tool. End with #### and the number.",
        callback_handler=None,
    )
    text = str(agent(payload["prompt"]))
    found = re.search(r"####\s*(-?\d+)\s*$", text)
    return {"reward": float(found is not None and found[1] == payload["answer"])}


if __name__ == "__main__":
    app.run(port=int(sys.argv[1]), host="127.0.0.1")
