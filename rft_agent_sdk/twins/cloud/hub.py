"""The public hub: the models that multi-turn RL trains, and their recipes' overrides in S3."""

from __future__ import annotations

import json
from dataclasses import dataclass

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.hyperparameters import EVALUATION, overrides, training_table
from rft_agent_sdk.twins.cloud.paging import page_of
from rft_agent_sdk.twins.cloud.s3 import S3
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

PUBLIC_HUB = "SageMakerPublicHub"


@dataclass(frozen=True, slots=True)
class HubModel:
    """A model of the hub."""

    name: str
    huggingface_id: str | None
    regions: tuple[str, ...]
    """Where multi-turn RL trains it."""
    sequence_length: str = "64K"
    is_gated: bool = False
    version: str = "1.0.0"


MODELS = (
    HubModel("openai-reasoning-gpt-oss-20b", "openai/gpt-oss-20b", ("us-east-1", "us-west-2")),
    HubModel("huggingface-vlm-gemma-4-31b-it", "google/gemma-4-31B-it", ("us-west-2",)),
    HubModel("huggingface-vlm-qwen3-6-27b", "Qwen/Qwen3.6-27B", ("us-west-2",)),
    HubModel("nova-textgeneration-lite-v2", None, ("us-east-1", "us-west-2"), "32K"),
)


class Hub:
    """The operations on hub contents."""

    def __init__(self, account: Account, s3: S3) -> None:
        self._account = account
        self._created = now()
        self.models = {model.name: model for model in MODELS if account.region in model.regions}
        """By name; another may be added."""
        self._bucket_name = f"jumpstart-cache-prod-{account.region}"
        self._s3 = s3
        bucket = s3.make_bucket(self._bucket_name, owner="aws", is_public=True)
        for model in self.models.values():
            bucket[_key(model, "training")] = _json_bytes(overrides(training_table(model.name)))
            bucket[_key(model, "evaluation")] = _json_bytes(overrides(EVALUATION))
        self.operations: dict[str, Handler] = {
            "DescribeHubContent": self._describe,
            "ListHubContents": self._list,
        }

    def arn_of(self, name: str) -> str:
        """Return the ARN of a model, for a job's `BaseModelArn`."""
        model = self.models[name]
        return f"{self._arn('hub-content')}/{PUBLIC_HUB}/Model/{name}/{model.version}"

    def model_of(self, arn: str) -> HubModel | None:
        """Return the model of an ARN."""
        return next((m for m in self.models.values() if self.arn_of(m.name) == arn), None)

    def _describe(self, body: JSON) -> JSON:
        self._check_hub(body)
        name = body["HubContentName"]
        model = self.models.get(name)
        version = body.get("HubContentVersion")
        if (
            model is None
            or body["HubContentType"] != "Model"
            or version not in (None, model.version)
        ):
            raise Refusal(400, "ResourceNotFound", f"Hub content {name} does not exist")
        return {
            **self._summary(model),
            "HubName": PUBLIC_HUB,
            "HubArn": f"{self._arn('hub')}/{PUBLIC_HUB}",
            "HubContentDocument": json.dumps(self._document(model)),
        }

    def _list(self, body: JSON) -> JSON:
        self._check_hub(body)
        is_model = body["HubContentType"] == "Model"
        found = [
            self._summary(model)
            for name, model in sorted(self.models.items())
            if is_model and body.get("NameContains", "") in name
        ]
        return page_of(found, "HubContentSummaries", body)

    def _check_hub(self, body: JSON) -> None:
        name = body["HubName"].rpartition("/")[2]
        if name != PUBLIC_HUB:
            raise Refusal(400, "ResourceNotFound", f"Hub {name} does not exist")

    def _summary(self, model: HubModel) -> JSON:
        return {
            "HubContentName": model.name,
            "HubContentArn": self.arn_of(model.name),
            "HubContentVersion": model.version,
            "HubContentType": "Model",
            "DocumentSchemaVersion": "2.4.0",
            "HubContentStatus": "Available",
            "CreationTime": self._created,
            "HubContentSearchKeywords": [
                "@recipe:finetuning_mtrl_lora",
                "@recipe:evaluation_mtrlevaluation",
            ],
        }

    def _document(self, model: HubModel) -> JSON:
        base = f"s3://{self._bucket_name}/"
        document: JSON = {
            "GatedBucket": model.is_gated,
            "RecipeCollection": [
                {
                    "Name": f"{model.name}-mtrl",
                    "Type": "FineTuning",
                    "CustomizationTechnique": "MTRL",
                    "Peft": "LoRA",
                    "SequenceLength": model.sequence_length,
                    "SmtjRecipeTemplateS3Uri": base + _key(model, "template"),
                    "SmtjOverrideParamsS3Uri": base + _key(model, "training"),
                },
                {
                    "Name": f"{model.name}-mtrl-evaluation",
                    "Type": "Evaluation",
                    "EvaluationType": "MTRLEvaluation",
                    "SmtjOverrideParamsS3Uri": base + _key(model, "evaluation"),
                },
            ],
        }
        if model.huggingface_id is not None:
            document["HuggingfaceId"] = model.huggingface_id
        return document

    def _arn(self, kind: str) -> str:
        return f"arn:aws:sagemaker:{self._account.region}:aws:{kind}"


def _key(model: HubModel, what: str) -> str:
    return f"recipes/{model.name}/{model.version}/{what}.json"


def _json_bytes(content: JSON) -> bytes:
    return json.dumps(content, indent=1).encode()
