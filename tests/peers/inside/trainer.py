"""agentcore-rl-toolkit's trainer side for some rollouts: its gateway, its client, its way to play one.

Run in its own environment: `python trainer.py MODE ARN WORDS PAYLOADS`, with the repository on the path.
The policy guesses the words in order. Prints one JSON object per payload.
"""

import asyncio
import json
import sys

from agentcore_rl_toolkit import AgentCoreHttpClient
from agentcore_rl_toolkit.backends.experimental.sagemaker.rollout import run_one_rollout
from agentcore_rl_toolkit.rollout_gateway import (
    HfTemplateRenderer,
    RolloutGateway,
    ThreadedGatewayServer,
    TurnRecord,
)

from tests.bench.peers_gateway.server import load_tokenizer


def call(word):
    """Return a turn that guesses a word, as a model of Qwen 3's kind writes it."""
    guess = {"name": "guess_word", "arguments": {"guess": word}}
    return f"<tool_call>\n{json.dumps(guess)}\n</tool_call><|im_end|>"


class Guesser:
    """Samples one guess a turn, each session from the first word on, and remembers the ids."""

    def __init__(self, tokenizer, words):
        self.turns = [tokenizer.encode(call(word), add_special_tokens=False) for word in words]
        self.sampled = {}

    async def generate(self, *, prompt_ids, session_id=None, **_):
        said = self.sampled.setdefault(session_id, [])
        ids = self.turns[len(said)]
        said.append(ids)
        return TurnRecord(prompt_ids, list(ids), "stop", [-0.5] * len(ids))


async def play(gateway, backend, arn, base_url, payload):
    """Play one rollout; tell what came back and what was captured of it."""
    async with AgentCoreHttpClient(arn) as client:
        records, reward, result = await run_one_rollout(
            client=client,
            gateway=gateway,
            payload=payload,
            base_url=base_url,
            model_id="policy",
            max_rollout_time=60,
            sampling_defaults={"temperature": 1.0, "top_p": 1.0, "max_new_tokens": 512},
            max_context_tokens=16384,
        )
    return {
        "reward": reward,
        "result": result,
        "sampled": backend.sampled.get(records[0].rollout_id if records else None, []),
        "records": [captured(record) for record in records],
    }


def captured(record):
    """Return the ids that a record trains, and the reward it is given."""
    response = record.token_ids[-len(record.loss_mask) :]
    trained = [token for token, on in zip(response, record.loss_mask, strict=True) if on]
    return {"trained": trained, "reward": record.reward}


def main(mode, arn, words, payloads):
    """Play every payload, one after another."""
    tokenizer = load_tokenizer()
    backend = Guesser(tokenizer, json.loads(words))
    gateway = RolloutGateway(
        backend=backend,
        renderer=HfTemplateRenderer(tokenizer),
        tokenizer=tokenizer,
        history_mode=mode,
    )
    server = ThreadedGatewayServer(gateway, host="127.0.0.1")
    server.start()
    for payload in json.loads(payloads):
        found = asyncio.run(play(gateway, backend, arn, server.base_url, payload))
        print(json.dumps(found), flush=True)
    server.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
