"""Small random models, and sequences to train them on."""

import random
from dataclasses import dataclass

import torch
from transformers import (
    GraniteConfig,
    GraniteForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rft_agent_sdk.local.model import LocalModel, ModelSettings

VOCAB = 61


def qwen3(*, seed=0, kv_heads=2, positions=512, **settings) -> LocalModel:
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=kv_heads,
        head_dim=8,
        max_position_embeddings=positions,
        tie_word_embeddings=True,
        initializer_range=0.3,  # far from uniform, so that a wrong mask shows
    )
    torch.manual_seed(seed)
    return LocalModel(Qwen3ForCausalLM(config), None, ModelSettings("qwen3", **settings))


def llama(*, seed=0, **settings) -> LocalModel:
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=1,
        max_position_embeddings=512,
        tie_word_embeddings=False,
        initializer_range=0.3,
    )
    torch.manual_seed(seed)
    return LocalModel(LlamaForCausalLM(config), None, ModelSettings("llama", **settings))


def windowed(*, seed=0, **settings) -> LocalModel:
    """A Qwen 3 of which the second layer sees eight tokens back."""
    config = Qwen3Config(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        head_dim=8,
        max_position_embeddings=512,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=1,
        initializer_range=0.3,
    )
    assert config.layer_types == ["full_attention", "sliding_attention"]
    torch.manual_seed(seed)
    return LocalModel(Qwen3ForCausalLM(config), None, ModelSettings("windowed", **settings))


def mistral(*, seed=0, **settings) -> LocalModel:
    """Every layer sees eight tokens back, and the config names no kinds of layers."""
    config = MistralConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        sliding_window=8,
        initializer_range=0.3,
    )
    torch.manual_seed(seed)
    return LocalModel(MistralForCausalLM(config), None, ModelSettings("mistral", **settings))


def granite(*, seed=0, **settings) -> LocalModel:
    """Scales its logits after the head."""
    config = GraniteConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        logits_scaling=3.0,
        initializer_range=0.3,
    )
    torch.manual_seed(seed)
    return LocalModel(GraniteForCausalLM(config), None, ModelSettings("granite", **settings))


@dataclass(frozen=True)
class Example:
    tokens: tuple[int, ...]
    targets: tuple[int, ...]
    weights: tuple[float, ...]
    logprobs: tuple[float, ...]
    advantages: tuple[float, ...]


def examples(count, *, seed=0, longest=40) -> list[Example]:
    """Sequences of many lengths, some of their targets without a weight."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        length = rng.randint(2, longest)
        ids = [rng.randrange(VOCAB) for _ in range(length + 1)]
        weights = tuple(float(rng.random() < 0.6) for _ in range(length))
        found.append(
            Example(
                tuple(ids[:-1]),
                tuple(ids[1:]),
                weights,
                tuple(-rng.uniform(2, 6) * w for w in weights),
                tuple(rng.gauss(0, 1) * w for w in weights),
            )
        )
    return found


def plain_logits(model: LocalModel, ids) -> torch.Tensor:
    """What transformers says without any cache, shape `(T, V)`."""
    with torch.no_grad():
        found: torch.Tensor = model.core(torch.tensor([list(ids)]), use_cache=False).logits[0]
    return found.float()


def plain_logprobs(model: LocalModel, prompt, tokens) -> list[float]:
    logits = plain_logits(model, [*prompt, *tokens])[len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits, dim=-1)
    found: list[float] = logprobs.gather(1, torch.tensor(tokens)[:, None])[:, 0].tolist()
    return found
