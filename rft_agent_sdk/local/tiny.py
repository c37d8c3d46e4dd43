"""A policy small enough to learn on two CPU cores: a transformer with random weights and a tokenizer of its own.

The tokenizer knows what one environment says again and again: each constant part of a conversation is one
token, and so is each piece of text the environment names. Everything else is written byte by byte, so that
any text can be encoded, and is decoded to exactly what it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import ToolSpec

PAD, START, END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
MARKS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"),
    *("<think>", "</think>"),
)
"""Control strings that Qwen 3 does not call special."""
_SPREAD = 0.06
"""Standard deviation of first weights. Models this narrow learn markedly faster than from the usual 0.02."""
_USER, _WORD, _RESULT = "rft0user", "rft0word", "rft0result"


@dataclass(frozen=True, slots=True)
class Script:
    """What is said again and again in the conversations of an environment."""

    system_prompt: str
    tools: Sequence[ToolSpec]
    """The tools; of the first, calls with one string argument are short."""
    prompts: Sequence[str] = ()
    """First messages of the user, whole."""
    pieces: Sequence[str] = ()
    """Parts of what the environment says."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of the transformer."""

    hidden: int = 160
    """Width; a multiple of twice the heads."""
    layers: int = 4
    heads: int = 4
    inner: int = 480
    """Width inside the feed-forward blocks."""


def init_tiny(
    folder: Path, template: str, script: Script, shape: Shape | None = None, seed: int = 0
) -> int:
    """Make a tiny policy and save it as a Hugging Face folder.

    Args:
        folder: Where; made if it is not there.
        template: A chat template that writes turns as Qwen 3 does.
        script: What its tokenizer is to be good at.
        shape: Its size; the default one when `None`.
        seed: Of its weights; the same one gives the same weights.

    Returns:
        The number of its parameters.

    Raises:
        UsageError: A width that the heads do not divide.
    """
    tokenizer = tiny_tokenizer(template, script)
    model = tiny_model(tokenizer, shape or Shape(), seed)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return int(sum(weight.numel() for weight in model.parameters()))


def tiny_tokenizer(template: str, script: Script) -> Any:
    """Return a tokenizer of bytes, control tokens, and a token for each text in `script`."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE({letter: n for n, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([_added(token) for token in (PAD, START, END)])
    core.add_tokens([_added(token) for token in MARKS])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=PAD)
    tokenizer.chat_template = template
    texts = [*_frame(tokenizer, script), *script.prompts, *script.pieces]
    # Single characters are bytes already, and equal texts are one token. What the template spells is left
    # out: an added token of that kind is held to be a control token.
    wanted = [text for text in dict.fromkeys(texts) if len(text) > 1 and text not in template]
    tokenizer.add_tokens([_added(text) for text in wanted])
    return tokenizer


def tiny_model(tokenizer: Any, shape: Shape, seed: int) -> Any:
    """Return a Qwen 3 transformer with random weights.

    Raises:
        UsageError: A width that the heads do not divide.
    """
    if shape.hidden % (2 * shape.heads):
        raise UsageError(
            f"hidden must be a multiple of twice the heads, got {shape.hidden} and {shape.heads} heads"
        )
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.hidden // shape.heads,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        initializer_range=_SPREAD,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def _frame(tokenizer: Any, script: Script) -> Iterator[str]:
    """Yield what the template writes around the messages of a conversation, control tokens left out.

    A part that no sampled turn holds stays whole, control tokens and all: in a rendered conversation it is
    one token, and content never matches it, since control strings in content are broken.
    """
    rendered = tokenizer.apply_chat_template(
        _probe(script),
        tools=[tool.as_openai() for tool in script.tools],
        tokenize=False,
        add_generation_prompt=True,
    )
    head, rest = rendered.split(_USER)
    asked, rest = rest.split(_WORD)
    called, answered = rest.split(_RESULT)
    yield head
    yield from _between_control(asked)
    ended, _, opened = called.partition(END)
    yield from _between_control(ended)
    yield opened
    closed, _, begun = answered.rpartition(START)
    yield from (closed, begun)


def _probe(script: Script) -> list[dict[str, Any]]:
    tool = script.tools[0]
    arguments = {next(iter(tool.parameters["properties"])): _WORD}
    call = {"type": "function", "function": {"name": tool.name, "arguments": arguments}}
    return [
        {"role": "system", "content": script.system_prompt},
        {"role": "user", "content": _USER},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": _RESULT},
    ]


def _between_control(text: str) -> Iterable[str]:
    for token in (START, END, *MARKS):
        text = text.replace(token, "\0")
    return text.split("\0")


def _added(token: str) -> AddedToken:
    return AddedToken(token, normalized=False, special=token in (PAD, START, END))
