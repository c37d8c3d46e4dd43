"""Which base models managed multi-turn RL trains, and where: the published table, with its date.

The hub says what is offered today (`rft mtrl models` asks it); the table says what is documented, and is all
that can be known without a call.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from rft_agent_sdk.mtrl.findings import Finding, Severity

AS_OF = "2026-11"
"""When the table was read off the public documentation and recipes."""
RECIPE_KEYWORD = "@recipe:finetuning_mtrl"
"""Search keyword, or the start of one, that a hub model with a recipe for these jobs carries."""
HUB = "SageMakerPublicHub"

LONGEST = 65_536
"""Tokens of a whole conversation in the open models' recipes."""

Family = Literal["open", "nova"]


@dataclass(frozen=True, slots=True)
class Model:
    """A base model."""

    name: str
    """Name in the public hub, which jobs take."""
    regions: tuple[str, ...]
    """Where multi-turn RL trains it."""
    family: Family = "open"
    """Whose recipe it follows: that of the open models, or Nova's."""
    other_names: tuple[str, ...] = ()
    """Other names it goes by: at Hugging Face, at Bedrock."""
    max_sequence_length: int = LONGEST
    """Tokens of a whole conversation; its recipe fixes it."""


MODELS = (
    Model("openai-reasoning-gpt-oss-20b", ("us-east-1", "us-west-2"), "open", ("openai/gpt-oss-20b",)),
    Model("huggingface-vlm-gemma-4-31b-it", ("us-west-2",), "open", ("google/gemma-4-31B-it",)),
    Model("huggingface-vlm-qwen3-6-27b", ("us-west-2",), "open", ("Qwen/Qwen3.6-27B",)),
    Model(
        "nova-textgeneration-lite-v2",
        ("us-east-1", "us-west-2"),
        "nova",
        ("amazon.nova-2-lite-v1",),
        32_768,
    ),
)  # fmt: skip

_HUB_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):(?:aws|[0-9]{12}):hub-content/[^/]+/Model/"
    r"(?P<name>[a-zA-Z0-9-]+)(?:/(?P<version>[0-9.]+))?",
    re.ASCII,
)
_PACKAGE_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):(?P<account>[0-9]{12}):model-package/"
    r"(?P<group>[a-zA-Z0-9-]+)/(?P<version>[0-9]+)",
    re.ASCII,
)
_NAME = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ModelSource:
    """What `model` of a launch names."""

    name: str | None
    """The base model's name in the hub; `None` where only the package itself can tell."""
    package: str | None = None
    """ARN of the model package to go on from; `None` starts at the base model."""
    package_group: str | None = None
    """Name of that package's group."""
    region: str | None = None
    """Where an ARN places it."""
    account: str | None = None
    """Whose the package is."""
    version: str | None = None
    """Version that a hub ARN names; the client always takes the newest one."""


def read_model(model: str) -> ModelSource | None:
    """Read what a launch calls its model: a name, a hub content ARN, or a model package ARN.

    Returns:
        What it names, under the hub's name for it; `None` if it is none of them.
    """
    if found := _PACKAGE_ARN.fullmatch(model):
        return ModelSource(None, model, found["group"], found["region"], found["account"])
    if found := _HUB_ARN.fullmatch(model):
        return ModelSource(found["name"], region=found["region"], version=found["version"])
    if listed := find_model(model):
        return ModelSource(listed.name)
    return ModelSource(model) if _NAME.fullmatch(model) else None


def find_model(name: str) -> Model | None:
    """Return the table's entry for a model by any of its names; `None` if it is not listed."""
    return next((model for model in MODELS if name in (model.name, *model.other_names)), None)


def hub_name(environ: Mapping[str, str]) -> str:
    """Return the name of the hub that models come from; the client reads the same variable."""
    return environ.get("SAGEMAKER_HUB_NAME") or HUB


def check_model(name: str, region: str, *, allow_unlisted: bool = False) -> Iterator[Finding]:
    """Yield what the published table has against training a model in a region.

    Args:
        name: The model's name in the hub.
        region: Where the job runs.
        allow_unlisted: Whether to warn only: the service may have moved on since the table was read.
    """
    severity = Severity.WARNING if allow_unlisted else Severity.ERROR
    override = (
        "or add --allow-unlisted-model if the hub offers it by now (`rft mtrl models` asks it)"
    )
    model = find_model(name)
    if model is None:
        names = [listed.name for listed in MODELS]
        near = difflib.get_close_matches(name, names, 1, cutoff=0.3)
        yield Finding(
            "model-unlisted",
            severity,
            "model",
            f"wanted one of {', '.join(names)} (published, {AS_OF}), got {name!r}",
            (f"Take {near[0]}, " if near else "Take one of them, ") + override,
        )
    elif region not in model.regions:
        yield Finding(
            "model-region",
            severity,
            "model",
            f"{model.name} is trained in {', '.join(model.regions)} (published, {AS_OF}), not in {region!r}",
            f"Launch it there, with the agent in the same region, {override}",
        )
