"""agentcore-rl-toolkit's rollout gateway with a sampler that costs nothing, in one of its history modes.

Started by the bench on a core of its own: `python server.py linear`, with the repository on the path.
"""

import asyncio
import hashlib
import sys
from pathlib import Path

from agentcore_rl_toolkit.rollout_gateway import (
    HfTemplateRenderer,
    RolloutGateway,
    ThreadedGatewayServer,
    TurnRecord,
    response_schemas,
)
from transformers import PreTrainedTokenizerFast

from tests.bench.gateway_control import ROOT, obey
from tests.bench.gateway_play import REPLY

DATA = ROOT / "rft_agent_sdk" / "gateway" / "data"


class NullBackend:
    """Samples the same turn every time."""

    def __init__(self, ids):
        self.ids = ids
        self.logprobs = [-0.5] * len(ids)

    async def generate(self, *, prompt_ids, **_):
        return TurnRecord(prompt_ids, list(self.ids), "stop", list(self.logprobs))


def load_tokenizer():
    """Load our small tokenizer, and have its template known as one of Qwen 3's kind, which it is."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(DATA / "tokenizer.json"), eos_token="<|im_end|>"
    )
    tokenizer.chat_template = Path(DATA / "chat_template.jinja").read_text(encoding="utf-8")
    key = hashlib.sha256(tokenizer.chat_template.encode()).hexdigest()
    response_schemas._TEMPLATE_HASHES[key] = "qwen3"  # the fix that its own error message names
    return tokenizer


def main(mode):
    """Serve until stdin ends."""
    tokenizer = load_tokenizer()
    gateway = RolloutGateway(
        backend=NullBackend(tokenizer.encode(REPLY, add_special_tokens=False)),
        renderer=HfTemplateRenderer(tokenizer),
        tokenizer=tokenizer,
        history_mode=mode,
    )
    server = ThreadedGatewayServer(gateway, host="127.0.0.1")
    server.start()
    opened = []

    def open_sessions(count):
        for key in opened:
            asyncio.run(gateway.drop_session(key))
        number = open_sessions.number
        open_sessions.number += count
        opened[:] = [f"session-{number + offset}" for offset in range(count)]
        for key in opened:
            gateway.create_session(
                key, sampling_defaults={"temperature": 1.0, "max_new_tokens": 512}
            )
        return opened

    open_sessions.number = 0
    obey(server.port, open_sessions)


if __name__ == "__main__":
    main(sys.argv[1])
