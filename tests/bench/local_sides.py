"""Both sides of `local_speed`, in the environment with torch: prints rows as JSON.

The model is a Qwen 3 of random weights, 160 wide, four layers. Conversations have six turns: a prompt of 60 tokens, ten
sampled a turn, twelve added after it. Plain transformers gets the best case: all conversations of a batch are of one
length, so that nothing is padded; it returns no log-probabilities, and reads each prompt anew.
"""

import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from rft_agent_sdk.local.choose import Choosing
from rft_agent_sdk.local.generate import Decoder
from rft_agent_sdk.local.losses import LossSpec
from rft_agent_sdk.local.model import LocalModel, ModelSettings
from rft_agent_sdk.local.trainer import Trainer, TrainerSettings
from rft_agent_sdk.local.turns import Ask, Said
from rft_agent_sdk.local.weights import Weights
from rft_agent_sdk.training.engines.base import AdamParams, Datum
from tests.bench.table import Row

VOCAB, WIDTH, LAYERS, HEADS, INNER = 666, 160, 4, 4, 480
PROMPT, SAMPLED, ADDED, TURNS = 60, 10, 12, 6
SESSIONS = (16, 64, 128)
SEQUENCES = 64
ROUNDS = 3
ADAM = AdamParams(1e-5)


def made() -> LocalModel:
    """The model."""
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=WIDTH // HEADS,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=None,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    return LocalModel(Qwen3ForCausalLM(config), None, ModelSettings("bench", device="cpu"))


def ids(count: int, rng: random.Random) -> list[int]:
    """Random tokens."""
    return [rng.randrange(1, VOCAB) for _ in range(count)]


def play_ours(decoder: Decoder, weights: Weights, sessions: int) -> None:
    """Play all conversations, each going on as soon as its turn is there."""
    rng = random.Random(0)
    contexts = [ids(PROMPT, rng) for _ in range(sessions)]
    left = [TURNS] * sessions

    def ask(at: int) -> Future[Said]:
        left[at] -= 1
        return decoder.submit(
            weights, Ask(contexts[at], SAMPLED, Choosing(seed=at), session=str(at))
        )

    waiting = {ask(at): at for at in range(sessions)}
    while waiting:
        for done in wait(waiting, return_when=FIRST_COMPLETED).done:
            at = waiting.pop(done)
            contexts[at] = [*contexts[at], *done.result().tokens, *ids(ADDED, rng)]
            if left[at]:
                waiting[ask(at)] = at
    decoder.drop(weights)


def play_theirs(model: LocalModel, sessions: int) -> None:
    """Play all conversations a turn at a time, in one batch."""
    rng = random.Random(0)
    context = torch.tensor([ids(PROMPT, rng) for _ in range(sessions)])
    for _ in range(TURNS):
        said = model.core.generate(
            context,
            attention_mask=torch.ones_like(context),
            max_new_tokens=SAMPLED,
            min_new_tokens=SAMPLED,
            do_sample=True,
            top_k=0,
        )
        assert said.shape[1] == context.shape[1] + SAMPLED
        context = torch.cat([said, torch.tensor([ids(ADDED, rng) for _ in range(sessions)])], dim=1)


def sequences() -> list[Datum]:
    """Conversations as they are trained: some 150 tokens, of which 60 count."""
    rng = random.Random(1)
    found = []
    for _ in range(SEQUENCES):
        tokens, weights = ids(PROMPT, rng), [0.0] * PROMPT
        for _ in range(rng.randint(2, TURNS)):
            tokens += ids(SAMPLED + ADDED, rng)
            weights += [1.0] * SAMPLED + [0.0] * ADDED
        logprobs = [-6.5 * weight for weight in weights]
        signs = [rng.choice((-1.0, 1.0)) * weight for weight in weights]
        arrays = (tuple(weights[1:]), tuple(logprobs[1:]), tuple(signs[1:]))
        found.append(Datum(tuple(tokens[:-1]), tuple(tokens[1:]), *arrays))
    return found


def train_ours(trainer: Trainer, datums: list[Datum]) -> None:
    """One step."""
    trainer.forward_backward(datums, LossSpec("ppo"))
    trainer.step(ADAM)


def train_theirs(model: LocalModel, optimizer: torch.optim.Optimizer, datums: list[Datum]) -> None:
    """One step as a plain script takes it: batches of eight, padded, logits of every position."""
    for at in range(0, len(datums), 8):
        part = datums[at : at + 8]
        longest = max(len(one.tokens) for one in part)

        def padded(name: str, part: list[Datum] = part, longest: int = longest) -> torch.Tensor:
            rows = [list(getattr(one, name)) for one in part]
            return torch.tensor([row + [0] * (longest - len(row)) for row in rows])

        lengths = torch.tensor([[len(one.tokens)] for one in part])
        mask = (torch.arange(longest)[None] < lengths).long()
        logits = model.core(padded("tokens"), attention_mask=mask).logits.float()
        logprobs = torch.log_softmax(logits, dim=-1)
        chosen = logprobs.gather(2, padded("targets")[:, :, None])[:, :, 0]
        ratio = torch.exp(chosen - padded("logprobs"))
        advantages = padded("advantages")
        gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
        (-padded("weights") * gain).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.core.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


@dataclass
class Flops:
    """Operations that the model cannot do without."""

    body: int
    """Weights that every token passes."""

    def read(self, context: float) -> float:
        """Of one token through the layers, seeing so many others."""
        return 2 * self.body + 4 * context * WIDTH * LAYERS

    @property
    def head(self) -> float:
        """Of one token's logits."""
        return 2.0 * VOCAB * WIDTH


def peak() -> float:
    """Operations per second of a large product of matrices, the best of many."""
    one = torch.randn(1024, 1024)
    return max(2 * 1024**3 / seconds(lambda: one @ one) for _ in range(20))


def seconds(work: Callable[[], object]) -> float:
    """How long it takes, in seconds of the processor: on one thread those of a quiet machine's clock."""
    start = time.process_time()
    work()
    return time.process_time() - start


def by_turns(ours: Callable[[], object], theirs: Callable[[], object]) -> tuple[float, float]:
    """Medians of both, in seconds; the first round warms up."""
    found = [(seconds(ours), seconds(theirs)) for _ in range(ROUNDS + 1)][1:]
    one, other = zip(*found, strict=True)
    return statistics.median(one), statistics.median(other)


def sampling_rows(model: LocalModel, flops: Flops) -> list[Row]:
    """Tokens sampled per second."""
    rows = []
    decoder = Decoder(model)
    for sessions in SESSIONS:
        count = sessions * TURNS * SAMPLED
        ours, theirs = by_turns(
            lambda n=sessions: play_ours(decoder, Weights.of(model), n),  # type: ignore[misc]
            lambda n=sessions: play_theirs(model, n),  # type: ignore[misc]
        )
        what = f"local model: sampled tokens, {sessions} sessions"
        rows.append(Row(what, count / ours, count / theirs, "1/s", more_is_better=True))
        if sessions == 64:
            read = sessions * (PROMPT + TURNS * SAMPLED + (TURNS - 1) * ADDED)
            middle = PROMPT + TURNS * (SAMPLED + ADDED) / 2
            useful = read * flops.read(middle) + count * flops.head
            what = "local model: sampling, share of the matmul peak"
            rows.append(Row(what, 100 * useful / ours / peak(), None, "%"))
    decoder.close()
    return rows


def training_rows(model: LocalModel, flops: Flops) -> list[Row]:
    """Tokens trained per second, and their share of what the processor can do."""
    datums = sequences()
    trainer = Trainer(model, TrainerSettings(micro_batch_tokens=2048))
    plain = model.twin(with_copies=True)
    plain.core.requires_grad_(True).train()
    optimizer = torch.optim.AdamW(plain.core.parameters(), lr=1e-5)
    ours, theirs = by_turns(
        lambda: train_ours(trainer, datums), lambda: train_theirs(plain, optimizer, datums)
    )
    tokens = sum(len(one.tokens) for one in datums)
    trained = sum(sum(one.weights) for one in datums)
    middle = sum(len(one.tokens) ** 2 for one in datums) / tokens / 2
    useful = 3 * (tokens * flops.read(middle) + trained * flops.head)
    return [
        Row("local model: trained tokens", tokens / ours, tokens / theirs, "1/s", True),
        Row(
            "local model: training, share of the matmul peak",
            100 * useful / ours / peak(),
            None,
            "%",
        ),
    ]


def main() -> int:
    """Measure, and print."""
    torch.set_num_threads(1)
    model = made()
    body = sum(one.numel() for one in model.core.parameters()) - VOCAB * WIDTH
    rows = [*sampling_rows(model, Flops(body)), *training_rows(model, Flops(body))]
    json.dump([asdict(row) for row in rows], sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
