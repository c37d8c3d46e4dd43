"""The public hub as it is today: which models these jobs train, and a model's recipe. Reading calls only."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.hyperparameters import Rule, read_hub
from rft_agent_sdk.mtrl.models import RECIPE_KEYWORD, hub_name

ClientOf = Callable[[str], Any]
"""Returns the client of a service, by botocore's name of it: `Clients`, or a session's own."""
_TECHNIQUE = "MTRL"
_TEMPLATE, _OVERRIDES = "SmtjRecipeTemplateS3Uri", "SmtjOverrideParamsS3Uri"


@dataclass(frozen=True, slots=True)
class HubRecipe:
    """What the hub says about a model."""

    arn: str
    """Its hub content ARN, with the version: a job's `BaseModelArn`."""
    rules: Mapping[str, Rule]
    """Today's hyperparameters."""
    hub: str
    """Name of the hub."""


def list_models(clients: ClientOf) -> list[str]:
    """Return the names of the models that the hub has a recipe of these jobs for, sorted.

    Raises:
        CloudError: The service refused.
    """
    names = [
        one["HubContentName"]
        for one in _contents(clients)
        for keyword in one.get("HubContentSearchKeywords", [])
        if keyword.lower() == RECIPE_KEYWORD or keyword.lower().startswith(f"{RECIPE_KEYWORD}_")
    ]
    return sorted(set(names))


def read_hub_model(clients: ClientOf, name: str) -> HubRecipe:
    """Return what the hub says about a model.

    Raises:
        UsageError: The hub has no recipe of these jobs for it.
        CloudError: The service refused; `is_missing` says that there is no such model.
    """
    hub = hub_name(os.environ)
    with told(f"the model {name} cannot be looked up in the hub"):
        found = clients("sagemaker").describe_hub_content(
            HubName=hub, HubContentType="Model", HubContentName=name
        )
    uri = _overrides_uri(json.loads(found["HubContentDocument"]), name)
    specification = _object(clients, uri) if uri else {}
    return HubRecipe(found["HubContentArn"], read_hub(specification), hub)


def _contents(clients: ClientOf) -> Iterator[Mapping[str, Any]]:
    asked = {"HubName": hub_name(os.environ), "HubContentType": "Model"}
    while True:
        with told("the hub's models cannot be listed"):
            page = clients("sagemaker").list_hub_contents(**asked)
        yield from page["HubContentSummaries"]
        if not page.get("NextToken"):
            return
        asked["NextToken"] = page["NextToken"]


def _overrides_uri(document: Mapping[str, Any], name: str) -> str:
    """Return where the overrides of a model's recipe lie, by the client's own choice among its recipes."""
    recipes = [
        recipe
        for recipe in document.get("RecipeCollection", [])
        if recipe.get("CustomizationTechnique") == _TECHNIQUE
        and recipe.get(_TEMPLATE)
        and recipe.get("Peft")
    ]
    if not recipes:
        raise UsageError(f"the hub has no recipe of multi-turn RL for the model {name!r}")
    recipes.sort(key=lambda recipe: bool(recipe.get("IsSubscriptionModel")))
    return str(recipes[0].get(_OVERRIDES) or "")


def _object(clients: ClientOf, uri: str) -> dict[str, Any]:
    """Return a JSON object in S3; a bucket may be an access point's ARN."""
    if "{customer_id}" in uri:
        with told("asking who calls"):
            account = clients("sts").get_caller_identity()["Account"]
        uri = uri.replace("{customer_id}", account)
    place = uri.removeprefix("s3://")
    parts = place.split("/", 2 if place.startswith("arn:") else 1)
    with told(f"the recipe's overrides {uri} cannot be read"):
        body = clients("s3").get_object(Bucket="/".join(parts[:-1]), Key=parts[-1])["Body"].read()
    found = json.loads(body)
    return found if isinstance(found, dict) else {}
