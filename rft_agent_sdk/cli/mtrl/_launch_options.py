"""The options of `rft mtrl launch`: one for every key of a launch, with the key's own words as its help."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from rft_agent_sdk.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_ONE_OF_MANY = {
    "hyperparameters": "hyperparameter",
    "notify_events": "notify_event",
    "overrides": "override",
    "security_groups": "security_group",
    "subnets": "subnet",
    "tags": "tag",
}
"""Keys that take several values are given one value an option."""


def spec_options(command: F) -> F:
    """Add an option for every key of `LaunchSpec`; one that is not given passes None or nothing."""
    from rft_agent_sdk.mtrl.launch_spec import LaunchSpec

    for name, field in reversed(LaunchSpec.model_fields.items()):
        command = _option(name, field)(command)
    return command


def read_launch(config: Path | None, given: Mapping[str, Any]) -> Any:
    """Return the launch that a file and options describe; options win.

    Args:
        config: A YAML file of keys, or `None`.
        given: Options by key, as click passes them.

    Raises:
        UsageError: A file cannot be read, or a key or value is wrong.
    """
    from rft_agent_sdk.mtrl.launch_spec import read_spec
    from rft_agent_sdk.training.config_yaml import read_mapping

    values = read_mapping(config) if config else {}
    if isinstance(recipe := values.get("recipe"), str):
        values["recipe"] = read_mapping(recipe)
    for name, value in given.items():
        if value is None or value == ():
            continue
        if name == "recipe":
            values[name] = read_mapping(value)
        elif name in ("hyperparameters", "overrides", "tags"):
            values[name] = {**values.get(name, {}), **_pairs(name, value)}
        else:
            values[name] = value
    return read_spec(values, f"config {str(config)!r} with the options" if config else "the launch")


def _option(name: str, field: FieldInfo) -> Callable[[F], F]:
    option = f"--{_ONE_OF_MANY.get(name, name).replace('_', '-')}"
    about = " ".join(str(field.description).split())
    kind = _kind(field.annotation)
    if kind is bool:
        return click.option(option, name, is_flag=True, default=None, help=about)
    if name == "recipe":
        path = click.Path(dir_okay=False, path_type=Path)
        return click.option(option, name, type=path, metavar="FILE", help=about)
    if name in _ONE_OF_MANY:
        metavar = "NAME=VALUE" if kind is dict else "TEXT"
        return click.option(option, name, multiple=True, metavar=metavar, help=about)
    shown = field.default if field.default not in ("", None) else None
    if shown is not None:
        about = f"{about} [default: {shown}]"
    return click.option(option, name, type=kind, help=about)


def _kind(annotation: Any) -> type:
    """Return the type of an option: the first one of a union."""
    if get_origin(annotation) in (types.UnionType, dict, tuple):
        origin = get_origin(annotation)
        return _kind(get_args(annotation)[0]) if origin is types.UnionType else origin
    found = get_args(annotation)
    kind: type = _kind(found[0]) if found else annotation
    return kind


def _pairs(name: str, texts: tuple[str, ...]) -> dict[str, Any]:
    from rft_agent_sdk.training.config_yaml import parse

    pairs: dict[str, Any] = {}
    for text in texts:
        key, sign, value = text.partition("=")
        if not sign or not key:
            option = _ONE_OF_MANY[name]
            raise UsageError(f"--{option}: wanted NAME=VALUE, got {text!r}")
        pairs[key] = value if name == "tags" else parse(value, f"the value of {key!r}")
    return pairs
