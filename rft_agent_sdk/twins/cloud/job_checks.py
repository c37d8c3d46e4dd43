"""What CreateJob checks of a document beyond its schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rft_agent_sdk.twins.cloud.account import Account
from rft_agent_sdk.twins.cloud.hub import Hub
from rft_agent_sdk.twins.cloud.hyperparameters import EVALUATION, faults_of, training_table
from rft_agent_sdk.twins.cloud.job_schema import SCHEMAS, VERSION, schema_faults
from rft_agent_sdk.twins.cloud.mlflow_apps import MlflowApps
from rft_agent_sdk.twins.cloud.model_packages import ModelPackages
from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.types import JSON

CONFIGS = {"AgentRFT": "TrainingConfig", "AgentRFTEvaluation": "EvaluationConfig"}
"""The part of the document that names the model, by category."""


@dataclass(frozen=True, slots=True)
class JobChecks:
    """Checks documents against the rest of the account."""

    account: Account
    hub: Hub
    packages: ModelPackages
    apps: MlflowApps
    agent_exists: Callable[[str], bool]
    """Whether there is such a runtime or function."""
    endpoints: Callable[[str], Sequence[str]]
    """Endpoints of a runtime."""
    role_exists: Callable[[str], bool]
    bucket_exists: Callable[[str], bool]

    def parse(self, body: JSON) -> JSON:
        """Return a CreateJob request's document, checked.

        Raises:
            Refusal: The service would not take it.
        """
        category, version = body["JobCategory"], body["JobConfigSchemaVersion"]
        if category not in SCHEMAS:
            raise invalid(f"JobCategory {category} is not served here")
        if version != VERSION:
            raise invalid(f"JobConfigSchemaVersion {version} is not one of {category}: [{VERSION}]")
        try:
            document = json.loads(body["JobConfigDocument"])
        except ValueError as error:
            raise invalid(f"JobConfigDocument is not JSON: {error}") from None
        found = schema_faults(SCHEMAS[category], document)
        found = found or list(self._faults(category, document))
        if found:
            raise invalid(f"JobConfigDocument is not valid: {'; '.join(found)}")
        self._check_resources(document)
        self._check_places(str(body["RoleArn"]), document)
        return dict(document)

    def _faults(self, category: str, document: JSON) -> Iterable[str]:
        config = document[CONFIGS[category]]
        model = self.hub.model_of(config["BaseModelArn"])
        if model is None:
            yield f"BaseModelArn {config['BaseModelArn']!r} is no model of this Region's hub"
            return
        if model.is_gated and config.get("AcceptEula") is not True:
            yield f"AcceptEula must be true for {model.name}"
        table = EVALUATION if category == "AgentRFTEvaluation" else training_table(model.name)
        for fault in faults_of(table, config.get("HyperParameters", {})):
            yield f"HyperParameters: {fault}"
        if _mlflow_arn(document) is None:
            yield "MlflowConfig is required"
        names = [channel["ChannelName"] for channel in document["InputDataConfig"]]
        if len(set(names)) < len(names) or not {"train", "evaluation"} & set(names):
            yield f"InputDataConfig has the channels {names}"
        groups = document.get("ModelPackageConfig", {})
        output = groups.get("OutputModelPackageGroupArn")
        if output is not None and output == groups["IntermediateCheckpointModelPackageGroupArn"]:
            yield "the output and the intermediate checkpoint model package group must differ"
        yield from self._managed_faults(model.name, document)
        for arn in self._arns(document):
            region = arn.split(":")[3]
            if region != self.account.region:
                yield f"{arn!r} is in {region}, and the job is in {self.account.region}"

    def _arns(self, document: JSON) -> Iterable[str]:
        yield _agent_arn(document)
        yield from document.get("ModelPackageConfig", {}).values()
        app = _mlflow_arn(document)
        if app is not None:
            yield app

    def _managed_faults(self, model: str, document: JSON) -> Iterable[str]:
        if not model.startswith("nova-"):
            return
        for key, arn in document.get("ModelPackageConfig", {}).items():
            group = self.packages.group_of(arn)
            storage = (group.managed or {}).get("ManagedStorageType") if group else "Restricted"
            if key.endswith("GroupArn") and storage != "Restricted":
                yield f"{arn} must be made with ManagedStorageType Restricted for {model}"

    def _check_places(self, role: str, document: JSON) -> None:
        """Refuse what a job could not begin with.

        Nobody says whether the service looks for these at CreateJob or fails the job later. The twin looks at once:
        a launch that passes here has named things that are there.
        """
        if not self.role_exists(role):
            raise invalid(f"RoleArn {role} is no role of account {self.account.id}")
        config = document["AgentConfig"].get("BedrockAgentCoreConfig")
        if config is not None:
            qualifier = config.get("Qualifier", "DEFAULT")
            if qualifier not in self.endpoints(config["AgentRuntimeArn"]):
                raise _missing(f"endpoint {qualifier} of {config['AgentRuntimeArn']}")
        bucket = document["OutputDataConfig"]["S3OutputPath"].removeprefix("s3://").split("/")[0]
        if not self.bucket_exists(bucket):
            raise invalid(f"S3OutputPath names the bucket {bucket!r}, which does not exist")

    def _check_resources(self, document: JSON) -> None:
        agent = _agent_arn(document)
        if not self.agent_exists(agent):
            raise _missing(agent)
        groups = document.get("ModelPackageConfig", {})
        for key, arn in groups.items():
            is_package = key == "InputModelPackageArn"
            found = self.packages.package_of(arn) if is_package else self.packages.group_of(arn)
            if found is None:
                raise _missing(arn)
        app = _mlflow_arn(document)
        if app not in self.apps.apps:
            raise _missing(str(app))


def _missing(arn: str) -> Refusal:
    return Refusal(400, "ResourceNotFound", f"{arn} does not exist")


def _agent_arn(document: JSON) -> str:
    (config,) = document["AgentConfig"].values()
    return str(config.get("AgentRuntimeArn") or config.get("LambdaArn"))


def _mlflow_arn(document: JSON) -> str | None:
    for part in ("OutputDataConfig", *CONFIGS.values()):
        config = document.get(part, {}).get("MlflowConfig")
        if config is not None:
            return str(config["MlflowResourceArn"])
    return None
