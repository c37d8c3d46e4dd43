"""Finds the tokenizer and template of a model and makes its renderer."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from rft_agent_sdk.errors import ChatTemplateError, UsageError
from rft_agent_sdk.gateway.parse import FAMILIES, Family, family_of
from rft_agent_sdk.gateway.render.base import Renderer
from rft_agent_sdk.gateway.render.chat_template import ChatTemplate
from rft_agent_sdk.gateway.render.healing import TemplateRenderer
from rft_agent_sdk.gateway.render.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_BOS_TOKENS = ("<bos>", "<s>", "<|begin_of_text|>")
"""Looked for where a tokenizer comes without its configuration and the template wants one."""


def load_renderer(
    model: str | Path | None = None,
    *,
    tokenizer: Any = None,
    template: str | Path | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    family: str | None = None,
    library: str | None = "auto",
    keep_reasoning: bool = True,
    now: Callable[[], datetime] | None = None,
) -> Renderer:
    """Return the renderer of a model.

    Args:
        model: A folder with `tokenizer.json` and a chat template, or a name on the Hugging Face hub;
            `None` for the small tokenizer of this package.
        tokenizer: In place of the model's: a `tokenizers.Tokenizer`, a fast tokenizer of transformers, a
            path to a `tokenizer.json`, or an encoding of `openai_harmony`.
        template: In place of the model's: its text, or a path to it.
        chat_template_kwargs: Arguments of the template, such as `{"enable_thinking": False}`.
        family: How turns are written, where the template does not tell.
        library: The `renderers` library's name for the model's kind; `auto` to use the library for models
            that it knows by name and no template is given for; `None` never to.
        keep_reasoning: Whether to extend where the template would drop earlier reasoning; if not, such a
            turn begins a branch.
        now: The clock for templates that write the date; local time when `None`.

    Raises:
        UsageError: Files are missing or damaged.
        ChatTemplateError: Nobody can parse what such a template's models write.
    """
    if family is not None and family not in FAMILIES:
        raise UsageError(f"wanted a family among {', '.join(FAMILIES)}, got {family!r}")
    sources = _sources(model, tokenizer, template)
    kwargs = dict(chat_template_kwargs or {})
    healing = None
    if sources.template is not None:
        try:
            healing = _template_renderer(sources, kwargs, family, keep_reasoning, now)
        except UsageError:
            if library is None or template is not None:
                raise  # the library cannot help either
    is_asked_for = library != "auto"
    if library == "auto":
        library = None if template is not None else _known_to_library(str(model or ""))
    if library is not None:
        from rft_agent_sdk.gateway.render.library import library_renderer

        try:
            return library_renderer(
                library,
                str(model or library),
                sources.tokenizer,
                kwargs,
                template=sources.template or "",
                keep_reasoning=keep_reasoning,
                fallback=healing,
            )
        except UsageError as error:
            if is_asked_for or healing is None:
                raise
            logger.warning("model=<%s> | healing its template instead: %s", model, error)
    if healing is None:
        raise ChatTemplateError(
            f"wanted a chat template that can be parsed for {str(model)!r}, got "
            f"{'one that nobody can parse' if sources.template else 'none'}; pass template= or family="
        )
    return healing


@dataclass(frozen=True, slots=True)
class _Sources:
    tokenizer: Any
    template: str | None
    named_tokens: dict[str, str]


def _template_renderer(
    sources: _Sources,
    kwargs: Mapping[str, Any],
    family: str | None,
    keep_reasoning: bool,
    now: Callable[[], datetime] | None,
) -> TemplateRenderer:
    text = sources.template or ""
    spoken: Family = FAMILIES[family] if family else family_of(text)
    vocabulary = vocabulary_of(sources.tokenizer, text)
    named = dict(sources.named_tokens)
    eos = _eos_of(named, spoken, vocabulary)
    if "bos_token" not in named:
        found = (token for token in _BOS_TOKENS if vocabulary.id_of(token) is not None)
        named["bos_token"] = next(found, "")
    named["eos_token"] = eos or ""
    return TemplateRenderer(
        vocabulary,
        ChatTemplate(text, named | dict(kwargs), now=now),
        spoken,
        eos_token=eos,
        keep_reasoning=keep_reasoning,
    )


def vocabulary_of(tokenizer: Any, template: str) -> Vocabulary:
    """Return the vocabulary of any kind of tokenizer that `load_renderer` takes."""
    if isinstance(tokenizer, Tokenizer):
        return Vocabulary.of(tokenizer, template)
    from rft_agent_sdk.gateway.render.harmony import harmony_vocabulary

    return harmony_vocabulary(tokenizer)


def _sources(model: str | Path | None, tokenizer: Any, template: str | Path | None) -> _Sources:
    files: dict[str, str] = {}
    if model is not None or tokenizer is None or template is None:
        is_needed = tokenizer is None or (template is None and model is not None)
        files = _read_files(model) if is_needed else {}
    config = json.loads(files.get("tokenizer_config.json", "{}"))
    named = {name: token for name in _NAMED_TOKENS if (token := _token(config.get(name)))}
    if tokenizer is None:
        if "tokenizer.json" not in files:
            raise UsageError(
                f"wanted a tokenizer.json for {str(model)!r}, got none; pass tokenizer="
            )
        tokenizer = _read_tokenizer(str(model), lambda: Tokenizer.from_str(files["tokenizer.json"]))
    elif isinstance(tokenizer, str | Path):
        path = str(tokenizer)
        tokenizer = _read_tokenizer(path, lambda: Tokenizer.from_file(path))
    elif hasattr(tokenizer, "backend_tokenizer"):  # transformers
        named |= {
            name: token
            for name in _NAMED_TOKENS
            if (token := _token(getattr(tokenizer, name, None)))
        }
        template = template or getattr(tokenizer, "chat_template", None)
        tokenizer = tokenizer.backend_tokenizer
    text = _template_text(template) if template else files.get("chat_template.jinja")
    return _Sources(tokenizer, text or _template_in(config), named)


def _read_tokenizer(place: str, read: Callable[[], Tokenizer]) -> Tokenizer:
    try:
        return read()
    except Exception as error:  # the library raises nothing more particular
        raise UsageError(f"wanted a tokenizer.json, got {place!r}: {error}") from error


def _read_files(model: str | Path | None) -> dict[str, str]:
    """Return the texts of a model's files by name; those it has not are left out."""
    if model is None:
        folder = resources.files("rft_agent_sdk.gateway.data")
        return {
            name: folder.joinpath(name).read_text("utf-8")
            for name in _FILES
            if folder.joinpath(name).is_file()
        }
    path = Path(model)
    if path.is_dir():
        return {
            name: (path / name).read_text("utf-8") for name in _FILES if (path / name).is_file()
        }
    if path.exists() or path.is_absolute():
        raise UsageError(f"wanted a folder with tokenizer.json, got {str(model)!r}")
    return _from_hub(str(model))


def _from_hub(name: str) -> dict[str, str]:
    import huggingface_hub
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        RemoteEntryNotFoundError,
    )

    texts: dict[str, str] = {}
    for file in _FILES:
        try:
            texts[file] = Path(huggingface_hub.hf_hub_download(name, file)).read_text("utf-8")
        except RemoteEntryNotFoundError:
            logger.debug("model=<%s> file=<%s> | the model has no such file", name, file)
        except (HfHubHTTPError, HFValidationError, OSError) as error:
            raise UsageError(
                f"wanted the tokenizer of {name!r}, got no answer from the Hugging Face hub "
                f"({type(error).__name__}); download it and pass its folder"
            ) from error
    return texts


def _known_to_library(model: str) -> str | None:
    """Return the library's name for a model's kind, `None` if it knows no such model or is not installed."""
    if "/" not in model or Path(model).exists():
        return None
    try:
        from renderers.base import MODEL_RENDERER_MAP
    except ImportError as error:
        logger.warning("model=<%s> | the renderers library cannot be used: %s", model, error)
        return None
    found: str | None = MODEL_RENDERER_MAP.get(model)
    return found


def _template_text(template: str | Path) -> str:
    if isinstance(template, Path) or (template.endswith(".jinja") and "\n" not in template):
        return template_file(Path(template))
    return template


def template_file(path: Path) -> str:
    """Return the text of a chat template's file.

    Raises:
        UsageError: It is no file, or no text.
    """
    if not path.is_file():
        raise UsageError(f"wanted a chat template, got {str(path)!r}, which is no file")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"wanted a chat template, got {str(path)!r}, no UTF-8: {error}") from None


def _template_in(config: Mapping[str, Any]) -> str | None:
    """Return the template in a tokenizer's configuration, where older models keep it."""
    found = config.get("chat_template")
    if isinstance(found, list):  # several by name
        named = {entry.get("name"): entry.get("template") for entry in found}
        found = named.get("tool_use") or named.get("default")
    return found if isinstance(found, str) else None


def _token(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _eos_of(named: Mapping[str, str], family: Family, vocabulary: Vocabulary) -> str | None:
    """Return the end-of-sequence token; without a tokenizer's configuration, what ends the family's turns."""
    known = (token for token in family.closers if vocabulary.id_of(token) is not None)
    return named.get("eos_token") or next(known, None)
