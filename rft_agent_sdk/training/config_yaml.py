"""YAML in and out for `config`: a strict reader, and a commented example made from a record."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rft_agent_sdk.errors import UsageError

_HEADER = """\
# Every key of a training run with its default; those marked as required have none.
# Made by `python -m rft_agent_sdk.training.config`: change the record there, not this file.
"""
_WIDTH = 100
_FLOAT = re.compile(
    r"^[-+]?(?:[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+|[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*"
    r"(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))$|^\.(?:nan|NaN|NAN)$"
)
"""Numbers as YAML 1.2 and everybody reads them; YAML 1.1 takes `1e-5` for text."""
_BOUNDS = (("gt", "above"), ("ge", "from"), ("lt", "below"), ("le", "up to"))


def read_mapping(path: str | Path) -> dict[str, Any]:
    """Return the mapping that a YAML file holds.

    Raises:
        UsageError: The file cannot be read, is no YAML, repeats a key, or holds something else.
    """
    where = f"config {str(path)!r}"
    try:
        text = Path(path).read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{where} cannot be read: {error}") from None
    values = parse(text, where)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UsageError(f"{where} must hold one mapping of keys, got {type(values).__name__}")
    if other := [key for key in values if not isinstance(key, str)]:
        raise UsageError(f"{where} must have words for keys, got {other[0]!r}")
    return values


def parse(text: str, where: str) -> Any:
    """Return what a YAML text holds: plain values only.

    Raises:
        UsageError: It is no YAML, or repeats a key; `where` says of what.
    """
    yaml = _yaml()
    try:
        return yaml.load(text, Loader=_loader(yaml))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{where} is not YAML: {error}") from None


def describe(model: type[BaseModel], sections: Mapping[str, str]) -> str:
    """Return a commented YAML file with every field of `model` and its default.

    Args:
        model: Its fields need defaults and descriptions.
        sections: Headings, by the name of the first field under each.
    """
    lines = [_HEADER.rstrip()]
    for name, field in model.model_fields.items():
        if name in sections:
            lines += ["", f"# --- {sections[name]} ---"]
        words = " ".join(str(field.description).split())
        about = " ".join(filter(None, [words, *_limits(field)]))
        lines += textwrap.wrap(
            about,
            _WIDTH,
            initial_indent="# ",
            subsequent_indent="# ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines.append(f"{name}: {_shown(field.default)}")
    return "\n".join(lines) + "\n"


def _limits(field: FieldInfo) -> Iterator[str]:
    if get_origin(field.annotation) is Literal:
        yield f"One of {' | '.join(get_args(field.annotation))}."
    told = [
        f"{word} {getattr(entry, bound):g}"
        for entry in field.metadata
        for bound, word in _BOUNDS
        if getattr(entry, bound, None) is not None
    ]
    if told:
        yield f"Limits: {', '.join(told)}."


def _shown(value: object) -> str:
    text: str = _yaml().safe_dump(value, default_flow_style=True, default_style=None)
    return '""' if value == "" else text.removesuffix("...\n").strip()


def _loader(yaml: ModuleType) -> Any:
    """Return a safe loader that reads numbers as YAML 1.2 does and refuses a key given twice."""

    class Loader(yaml.SafeLoader):  # type: ignore[misc, name-defined] # the module is loaded late
        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [key.value for key, _ in node.value]
            twice = next((key for key in keys if keys.count(key) > 1), None)
            if twice is not None:
                line = node.start_mark.line + 1
                raise yaml.YAMLError(f"the mapping at line {line} has the key {twice!r} twice")
            return super().construct_mapping(node, deep=deep)

    Loader.yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":float")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
    return Loader


def _yaml() -> ModuleType:
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise UsageError(
            "configs are YAML, which needs pyyaml: pip install 'rft-agent-sdk[train]'"
        ) from error
    return yaml
