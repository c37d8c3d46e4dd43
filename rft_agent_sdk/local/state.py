"""A trainer's state as a folder: weights, moments, random numbers. Written whole, or not at all."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rft_agent_sdk.errors import EngineError
from rft_agent_sdk.local.trainer import Trainer

_FORMAT = 1
_WEIGHTS, _OPTIMIZER, _META = "weights.safetensors", "optimizer.pt", "state.json"
_UNWRITTEN = (OSError, RuntimeError, SafetensorError)
"""What a full disk is told by: torch and safetensors have errors of their own for it."""
_UNREAD = (
    OSError,
    ValueError,
    RuntimeError,
    EOFError,
    SafetensorError,
    pickle.UnpicklingError,
    struct.error,
)
"""What a file that is missing or damaged is told by."""


def save_state(trainer: Trainer, folder: Path, about: Mapping[str, Any] | None = None) -> None:
    """Write a trainer's state; what is accumulated for the next step is left out.

    Args:
        trainer: Whose weights, in float32, moments and steps; torch's random numbers go with them.
        folder: It must not be there yet.
        about: What a caller wants to find again, as JSON.

    Raises:
        EngineError: It cannot be written; nothing is left of it then.
    """
    if folder.exists():
        raise EngineError(
            f"a state is never overwritten, and {str(folder)!r} is there", usable=True
        )
    # A rename makes the whole folder appear at once.
    part = _part(folder)
    try:
        part.mkdir(parents=True)
        save_file(_contiguous(trainer.optimizer.weights()), part / _WEIGHTS)
        torch.save({**trainer.optimizer.state(), "rng": _random()}, part / _OPTIMIZER)
        meta = {"format": _FORMAT, "steps": trainer.optimizer.steps, "about": dict(about or {})}
        (part / _META).write_text(json.dumps(meta, indent=2), "utf-8")
        _flush(part.iterdir())
        part.replace(folder)
        _flush([folder.parent])
    except _UNWRITTEN as error:
        shutil.rmtree(part, ignore_errors=True)
        raise EngineError(
            f"the state {str(folder)!r} cannot be written: {error}", usable=True
        ) from error


def load_state(trainer: Trainer, folder: Path, *, with_optimizer: bool = True) -> dict[str, Any]:
    """Take up what `save_state` wrote; without the optimizer, that one starts afresh.

    Returns:
        What the saver said about it.

    Raises:
        EngineError: There is no such state, it is damaged, or it is another model's; nothing has changed then.
    """
    try:
        meta = json.loads((folder / _META).read_text("utf-8"))
        weights = load_file(folder / _WEIGHTS)
        moments = torch.load(folder / _OPTIMIZER, weights_only=True) if with_optimizer else None
    except _UNREAD as error:
        raise EngineError(
            f"wanted a saved state in {str(folder)!r}: {error}", usable=True
        ) from error
    if meta.get("format") != _FORMAT:
        raise EngineError(
            f"the state {str(folder)!r} has format {meta.get('format')!r}, wanted {_FORMAT}",
            usable=True,
        )
    trainer.optimizer.load_weights(weights)
    if moments is not None:
        trainer.optimizer.load_state(moments)
        _restore_random(moments["rng"])
    about: dict[str, Any] = meta["about"]
    return about


def save_pretrained(trainer: Trainer, folder: Path, *, merge: bool = True) -> None:
    """Write the weights as transformers and inference servers load them, the tokenizer beside them.

    Args:
        trainer: Whose weights.
        folder: It must not be there yet.
        merge: Whether an adapter is added into the weights; else it is written alone, as peft does.

    Raises:
        EngineError: It cannot be written.
    """
    model = trainer.model
    if folder.exists():
        raise EngineError(
            f"a model is never overwritten, and {str(folder)!r} is there", usable=True
        )
    part = _part(folder)
    try:
        if model.adapted is None or not merge:
            (model.adapted or model.core).save_pretrained(part)
        else:
            merged = model.merged()
            merged.save_pretrained(part)
        if model.tokenizer is not None:
            model.tokenizer.save_pretrained(part)
        _flush(one for one in part.rglob("*") if one.is_file())
        part.replace(folder)
    except _UNWRITTEN as error:
        shutil.rmtree(part, ignore_errors=True)
        raise EngineError(
            f"the model {str(folder)!r} cannot be written: {error}", usable=True
        ) from error


def _part(folder: Path) -> Path:
    """Return where a folder is written until it is whole; what a killed process left there is removed."""
    part = folder.with_name(f".{folder.name}.{os.getpid()}.part")  # apart from other writers
    shutil.rmtree(part, ignore_errors=True)
    return part


def _contiguous(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: one.contiguous().cpu() for name, one in tensors.items()}


def _random() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _restore_random(saved: Mapping[str, Any]) -> None:
    torch.set_rng_state(saved["cpu"])
    if torch.cuda.is_available() and len(saved["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(saved["cuda"])


def _flush(paths: Iterable[Path]) -> None:
    for path in paths:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
