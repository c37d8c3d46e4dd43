"""The options of `rft mtrl launch`: one for every key of a launch, with the key's own words as its help."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import click
from pydantic.fields import FieldInfo

from rft_agent_sdk.errors import UsageError

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.findings import Finding
    from rft_agent_sdk.mtrl.launch_spec import LaunchSpec

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


def read_launch(config: Path | None, given: Mapping[str, Any]) -> LaunchSpec:
    """Return the launch that a file and options describe; options win.

    Args:
        config: A YAML file of keys, or `None`.
        given: Options by key, as click passes them.

    Raises:
        UsageError: A file cannot be read, or a key or value is wrong.
    """
    from rft_agent_sdk.mtrl.launch_spec import read_spec

    source = f"config {str(config)!r} with the options" if config else "the launch"
    return read_spec(_values(config, given), source)


def read_sound_launch(
    config: Path | None, given: Mapping[str, Any]
) -> tuple[LaunchSpec, list[Finding]]:
    """Return the launch that a file and options describe, as far as they are sound; options win.

    Args:
        config: A YAML file of keys, or `None`.
        given: Options by key, as click passes them.

    Returns:
        The launch, and what is wrong with the keys and values that are not in it.

    Raises:
        UsageError: A file cannot be read.
    """
    from rft_agent_sdk.mtrl.launch_spec import read_what_is_sound

    return read_what_is_sound(_values(config, given))


def _values(config: Path | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys and values of a file and of options."""
    from rft_agent_sdk.training.config_yaml import read_mapping

    values = dict(read_mapping(config)) if config else {}
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
            values[name] = _number(name, value)
    return values


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
    # Numbers come as text: click would stop at the first one that is none, and tell nothing of the rest.
    metavar = {int: "INTEGER", float: "FLOAT"}.get(kind, "TEXT")
    return click.option(option, name, metavar=metavar, help=about)


def _number(name: str, value: Any) -> Any:
    """Return an option's value in its key's type; as it is where it is none of it."""
    from rft_agent_sdk.mtrl.launch_spec import LaunchSpec

    kind = _kind(LaunchSpec.model_fields[name].annotation)
    if kind not in (int, float) or not isinstance(value, str):
        return value
    try:
        return kind(value)
    except ValueError:
        return value


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
