"""A Wordle agent on the SageMaker SDK's own decorator and adapter, as its documentation writes one."""

import json
import os

from bedrock_agentcore import BedrockAgentCoreApp
from sagemaker.core.token_generator import generate_token
from sagemaker.train.rft import sagemaker_rft_handler
from sagemaker.train.rft.adapters.strands import wrap_model
from strands import Agent, tool
from strands.models.openai import OpenAIModel

app = BedrockAgentCoreApp()
SYSTEM = "You play Wordle. Call guess_word with a five-letter word until you have found the answer."


def marks_of(guess: str, answer: str) -> str:
    """Mark a guess: G in place, Y elsewhere, - absent."""
    marks = ["G" if g == a else "-" for g, a in zip(guess, answer, strict=True)]
    left = [a for g, a in zip(guess, answer, strict=True) if g != a]
    for place, letter in enumerate(guess):
        if marks[place] == "-" and letter in left:
            marks[place] = "Y"
            left.remove(letter)
    return "".join(marks)


@app.entrypoint
@sagemaker_rft_handler
def invoke(payload):
    """Play one game and return its reward."""
    task = json.loads(payload["prompt"])
    guesses: list[str] = []

    @tool
    def guess_word(guess: str) -> str:
        """Guess a five-letter word.

        Args:
            guess: The word.
        """
        guesses.append(guess)
        return marks_of(guess, task["answer"])

    region = os.environ["AWS_REGION"]
    model = OpenAIModel(
        client_args={
            "api_key": generate_token(region=region),
            "base_url": f"{os.environ['RFT_RUNTIME_ENDPOINT']}/v1",
        },
        model_id="default",
    )
    agent = Agent(
        model=wrap_model(model),
        tools=[guess_word],
        system_prompt=SYSTEM,
        callback_handler=None,
    )
    agent(task["prompt"])
    return {"reward": 1.0 if task["answer"] in guesses else 0.0}


if __name__ == "__main__":
    app.run()
