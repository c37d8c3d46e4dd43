"""The entrypoint on Bedrock AgentCore: one request plays one rollout and reports its reward."""

import os

from bedrock_agentcore import BedrockAgentCoreApp

from rft_agent_sdk import Reward, Rollout, load_environment, play, rft_handler

app = BedrockAgentCoreApp()
environment = load_environment(os.environ.get("RFT_ENVIRONMENT", "wordle"))


@app.entrypoint
@rft_handler(app=app, floor=environment.floor)
def invoke(rollout: Rollout) -> Reward:
    """Play the rollout's task with the policy it names."""
    return play(environment, rollout)


if __name__ == "__main__":
    app.run()
