"""A causal language model on this machine: loaded, with an adapter or without, ready to train and to copy."""

from __future__ import annotations

import copy
import inspect
import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from rft_agent_sdk.errors import UsageError

logger = logging.getLogger(__name__)

Dtype = Literal["float32", "bfloat16"]
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """What to load, and what of it trains."""

    path: str
    """Folder, or name on the Hugging Face hub. Code that comes with a model is never run."""
    dtype: Dtype = "float32"
    """What it computes in. Weights that train keep a copy in float32 for the optimizer in any case."""
    device: str = "auto"
    """`cuda`, `mps`, `cpu`, or `auto`: the first of these that is there."""
    lora_rank: int = 0
    """Rank of an adapter on every linear layer but the head; 0 trains all weights."""
    lora_alpha: int = 64
    """Its effect grows with alpha / rank."""
    seed: int = 0
    """Of the adapter's first values."""
    threads: int = 0
    """Threads that torch computes with on the CPU, in the whole process; 0 leaves them as they are."""
    gradient_checkpointing: bool = False
    """Whether to compute activations twice rather than keep them."""


class LocalModel:
    """A model, and the parameters of it that train.

    `core` is the bare causal LM. With an adapter, its layers hold that too; `adapted` is then peft's view of it.
    """

    def __init__(self, core: Any, tokenizer: Any, settings: ModelSettings) -> None:
        """Take a loaded model over; `load` makes one.

        Args:
            core: Of the wanted dtype and on its device.
            tokenizer: Its tokenizer; `None` where nobody asks for one.
            settings: What it was loaded by; its adapter is added here.
        """
        self.settings = settings
        self.tokenizer = tokenizer
        self.adapted: Any = None
        _silence_dropout(core)
        if settings.lora_rank:
            self.adapted = _with_adapter(core, settings)
            core = self.adapted.get_base_model()
        if settings.gradient_checkpointing:
            _checkpoint_activations(core)
        core.train(settings.gradient_checkpointing)  # it checkpoints in no other mode
        self.core = core
        self.config = core.config.get_text_config()
        self.device: torch.device = next(core.parameters()).device
        self.dtype: torch.dtype = core.dtype
        self.cache_argument = _cache_argument(core)
        self.has_plain_head = _has_plain_head(core)

    @property
    def vocab_size(self) -> int:
        """Number of logits; ids lie below it."""
        return int(self.core.get_output_embeddings().weight.shape[0])

    @property
    def max_positions(self) -> int | None:
        """Most tokens of a sequence; `None` where the model's config names no limit."""
        found = getattr(self.config, "max_position_embeddings", None)
        return None if found is None else int(found)

    @property
    def eos_ids(self) -> frozenset[int]:
        """Ids that end a turn, as the model's own files have it."""
        sources = (
            getattr(self.core, "generation_config", None),
            self.config,
            self.tokenizer,
        )
        found: set[int] = set()
        for source in sources:
            value = getattr(source, "eos_token_id", None)
            found.update(value if isinstance(value, list) else [] if value is None else [value])
        return frozenset(found)

    def trainable(self) -> dict[str, nn.Parameter]:
        """Return the parameters that train, by name; shared ones once."""
        return {name: one for name, one in self.core.named_parameters() if one.requires_grad}

    def hidden(self, ids: Tensor, **arguments: Any) -> Tensor:
        """Return what `head` takes, shape `(B, T, D)`: the last hidden states, or logits already."""
        if self.has_plain_head:
            found: Tensor = self.core.base_model(ids, use_cache=False, **arguments)[0]
        else:
            found = self.core(ids, use_cache=False, **arguments).logits
        return found

    def head(self, hidden: Tensor) -> Tensor:
        """Return logits in float32, shape `(..., V)`."""
        if self.has_plain_head:
            hidden = self.core.get_output_embeddings()(hidden)
        return hidden.float()

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Refuse what the model cannot read.

        Raises:
            UsageError: An id outside the vocabulary, or more tokens than it has positions.
        """
        if not tokens:
            raise UsageError("wanted at least one token, got none")
        for wrong in (min(tokens), max(tokens)):
            if not 0 <= wrong < self.vocab_size:
                raise UsageError(f"token {wrong} is not one of the {self.vocab_size} of this model")
        if self.max_positions is not None and len(tokens) > self.max_positions:
            raise UsageError(
                f"{len(tokens)} tokens are more than the {self.max_positions} of this model's context"
            )

    def fresh(self, settings: ModelSettings) -> LocalModel:
        """Return another model to train, from these weights, without reading them again.

        Args:
            settings: What of it trains. With an adapter the frozen weights are shared; else they are copied.
        """
        shared = self.twin(with_copies=not settings.lora_rank)
        shared.core.requires_grad_(not settings.lora_rank)
        return LocalModel(shared.core, self.tokenizer, settings)

    def twin(self, *, with_copies: bool = False) -> LocalModel:
        """Return a model of its own modules that trains nothing.

        Args:
            with_copies: Whether what trains here is copied; else the storage of every weight is shared, to be
                pointed elsewhere.
        """
        memo: dict[int, Any] = {}
        for one in self.core.parameters():
            data = one.detach()
            is_copied = with_copies and one.requires_grad
            memo[id(one)] = nn.Parameter(data.clone() if is_copied else data, requires_grad=False)
        found = copy.copy(self)
        found.core = copy.deepcopy(self.core, memo).eval()
        found.config = found.core.config.get_text_config()
        found.adapted = None
        return found

    def merged(self) -> Any:
        """Return a copy of the causal LM with the adapter added into its weights; this one stays as it is."""
        if self.adapted is None:
            return copy.deepcopy(self.core)
        return copy.deepcopy(self.adapted).merge_and_unload()

    @contextmanager
    def without_adapter(self) -> Iterator[None]:
        """Compute as the base model does, for a while."""
        with nullcontext() if self.adapted is None else self.adapted.disable_adapter():
            yield


def load(settings: ModelSettings) -> LocalModel:
    """Load a model from a folder or the hub.

    Raises:
        UsageError: There is no such model, or no such device.
    """
    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = pick_device(settings.device)
    try:
        core = AutoModelForCausalLM.from_pretrained(
            settings.path, dtype=_DTYPES[settings.dtype], trust_remote_code=False
        )
        tokenizer = AutoTokenizer.from_pretrained(settings.path, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"wanted a causal language model and its tokenizer in a folder or on the hub, got {settings.path!r}: {error}"
        ) from error
    model = LocalModel(core.to(device), tokenizer, settings)
    logger.info(
        "path=<%s>, device=<%s>, dtype=<%s>, parameters=<%d>, trained=<%d> | model loaded",
        *(settings.path, device, settings.dtype),
        sum(one.numel() for one in model.core.parameters()),
        sum(one.numel() for one in model.trainable().values()),
    )
    return model


def pick_device(name: str) -> torch.device:
    """Return the device of that name, `auto` being the best there is.

    Raises:
        UsageError: There is none such.
    """
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(kind for kind, is_there in there.items() if is_there)
    if not there.get(name.partition(":")[0], False):
        found = [kind for kind, is_there in there.items() if is_there]
        raise UsageError(f"wanted a device out of {found}, got {name!r}")
    return torch.device(name)


def _with_adapter(core: Any, settings: ModelSettings) -> Any:
    config = LoraConfig(
        r=settings.lora_rank,
        lora_alpha=settings.lora_alpha,
        lora_dropout=0.0,
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an older name
        torch.manual_seed(settings.seed)
        return get_peft_model(core, config)


def _silence_dropout(core: nn.Module) -> None:
    """Set every dropout to 0: a trainer that drops cannot agree with the sampler."""
    for module in core.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)


def _checkpoint_activations(core: Any) -> None:
    """Compute activations twice; a later transformers renamed the switch."""
    enable = getattr(core, "activation_checkpointing_enable", None)
    (enable or core.gradient_checkpointing_enable)({"use_reentrant": False})


def _cache_argument(core: Any) -> str:
    """Return what the model calls its cache: a later transformers renamed it."""
    taken = inspect.signature(type(core).forward).parameters
    return "cache" if "cache" in taken else "past_key_values"


def _has_plain_head(core: Any) -> bool:
    """Tell whether logits are the output embedding of the last hidden states, and nothing else.

    Some families cap or scale them afterwards; asking the model itself covers those to come.
    """
    ids = torch.arange(3, device=next(core.parameters()).device)[None]
    with torch.no_grad():
        wanted = core(ids, use_cache=False).logits
        found = core.get_output_embeddings()(core.base_model(ids, use_cache=False)[0])
    return found.shape == wanted.shape and bool(torch.equal(found, wanted))
