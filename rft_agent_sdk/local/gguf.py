"""A model in a GGUF file, as llama.cpp has it, made into a folder that transformers loads at once."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.local.model import Dtype

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_UNREAD = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    NotImplementedError,
    RuntimeError,
    struct.error,
)
"""What transformers and its reader of GGUF raise for a file that they cannot take."""


def import_gguf(
    file: Path, out: Path, *, dtype: Dtype = "bfloat16", chat_template: str | None = None
) -> int:
    """Write a GGUF file's model and tokenizer as a Hugging Face folder; return the count of parameters.

    What was quantised is written as the numbers that it stands for: reading the file takes many seconds, and
    transformers neither trains nor saves a model as it comes out of one.

    Args:
        file: Of a kind that transformers reads.
        out: Folder to write, whole or not at all; it must not be there yet.
        dtype: What the weights are written in.
        chat_template: In place of the file's own.

    Raises:
        UsageError: The package `gguf` is missing, the file cannot be read, or the folder cannot be written.
    """
    if importlib.util.find_spec("gguf") is None:
        raise UsageError(
            "a GGUF file is read by the package gguf: pip install 'rft-agent-sdk[local]'"
        )
    if not file.is_file():
        raise UsageError(f"wanted a GGUF file, got {str(file)!r}, which is no file")
    if out.exists():
        raise UsageError(f"wanted a folder that is not there yet, got {str(out)!r}; name another")
    try:
        model, tokenizer = _read(file, dtype)
    except _UNREAD as error:
        raise UsageError(
            f"wanted a GGUF file of a kind that transformers reads, got {str(file)!r}: "
            f"{type(error).__name__}: {error}"
        ) from error
    if chat_template is not None:
        tokenizer.chat_template = chat_template
    part = out.with_name(
        f".{out.name}.{os.getpid()}.part"
    )  # a rename makes the folder appear whole
    try:
        part.mkdir(parents=True)
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
        part.replace(out)
    except OSError as error:
        raise UsageError(f"the folder {str(out)!r} cannot be written: {error}") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sum(one.numel() for one in model.parameters())


def _read(file: Path, dtype: Dtype) -> tuple[Any, Any]:
    place = {"gguf_file": file.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(file.parent, **place)
    plain = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, dtype=_DTYPES[dtype], quantization_config=plain, **place
    )
    # The weights are plain by now; what is left of the quantisation only keeps them from being saved.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    return model, tokenizer
