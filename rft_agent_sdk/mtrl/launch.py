"""Launching a managed job with the client of `sagemaker-train`, so that nothing is made that nobody asked for.

    trainer = build_trainer(spec)          # or with sagemaker_session=PipelineSession(), for a pipeline's step
    launched = train(trainer)

The client makes a bucket, model package groups and an MLflow app on its own wherever one is left out, looks up
some things with a session of its own, and by default waits until the job has ended and then says nothing of a
failure. So everything is passed here, looked up with the launch's own session, and nobody waits.
"""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rft_agent_sdk.errors import CloudError, RftError, UsageError
from rft_agent_sdk.mtrl.agent_arn import DEFAULT_QUALIFIER, check_place, is_runtime_id, parse_agent
from rft_agent_sdk.mtrl.aws import told
from rft_agent_sdk.mtrl.created import IN_USE, Sent, is_asked_for, watching
from rft_agent_sdk.mtrl.hub import ClientOf, read_hub_model
from rft_agent_sdk.mtrl.job import TRAINING, describe_job
from rft_agent_sdk.mtrl.launch_data import LaunchData, is_uploaded
from rft_agent_sdk.mtrl.launch_document import (
    Resolved,
    checkpoint_group,
    output_group,
    own_name,
)
from rft_agent_sdk.mtrl.launch_lookups import Seen, base_model_of, resolve_runtime
from rft_agent_sdk.mtrl.launch_settings import settle
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
from rft_agent_sdk.mtrl.models import find_model, read_model

VALIDATE_ROLE = "SAGEMAKER_VALIDATE_ROLE"
"""The client's switch for its own check of roles."""
_LOOKS = 4
_LOOK_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Launched:
    """A job that was launched."""

    name: str
    arn: str
    is_certain: bool = True
    """Whether the job is known to be there; otherwise nobody answered, and it may be."""


def resolve(
    spec: LaunchSpec, seen: Seen, data: LaunchData, validation: LaunchData | None
) -> Resolved:
    """Return a launch with every name looked up.

    Args:
        spec: The launch.
        seen: What AWS said about it, without an error among its findings.
        data: The training dataset.
        validation: The validation dataset; `None` for none.
    """
    if seen.agent is None or seen.recipe is None:
        raise UsageError("the launch is not looked up in full: see its findings")
    settings = settle(spec, seen.model_name, seen.recipe.rules)
    return Resolved(
        model_name=seen.model_name,
        base_model_arn=seen.recipe.arn,
        agent=seen.agent,
        dataset=data,
        validation=validation,
        chosen=settings.chosen,
        rules=settings.rules,
        hub=seen.recipe.hub,
    )


def changes(
    spec: LaunchSpec, seen: Seen, clients: ClientOf, *datasets: LaunchData | None
) -> list[str]:
    """Return what a launch makes, a line each, the job itself aside.

    Raises:
        CloudError: S3 refused to say whether a dataset is there already.
    """
    made = [f"model package group {name}" for name in seen.missing_groups]
    made += [
        f"{data.uri}, from {data.path}"
        for data in datasets
        if data is not None
        and data.path is not None
        and not is_uploaded(clients("s3"), data, spec.account)
    ]
    if seen.is_prefix_empty:
        made.append(
            f"an empty object at {spec.s3_output.rstrip('/')}/, which the client puts there"
        )
    if spec.notify_topic:
        made.append(f"an EventBridge rule for {spec.notify_topic}, unless it is there")
    return made


def create_groups(spec: LaunchSpec, seen: Seen, clients: ClientOf) -> None:
    """Make the model package groups that are not there, as the model needs them.

    Raises:
        CloudError: The service refused.
    """
    listed = find_model(seen.model_name)
    managed = (
        {"ManagedConfiguration": {"ManagedStorageType": "Restricted"}}
        if listed is not None and listed.family == "nova"
        else {}
    )
    for name in seen.missing_groups:
        with told(f"the model package group {name} cannot be made"):
            clients("sagemaker").create_model_package_group(ModelPackageGroupName=name, **managed)


def build_trainer(
    spec: LaunchSpec,
    *,
    sagemaker_session: Any = None,
    found: Resolved | None = None,
    **more: Any,
) -> Any:
    """Return the client's `MultiTurnRLTrainer` of a launch. Its constructor makes calls, and may make objects.

    Recipe and overrides become hyperparameters, see `recipe`. Datasets must be in S3 or registered: upload
    files first (`launch_data.upload`).

    Args:
        spec: The launch. The model package groups must be there, or the client refuses.
        sagemaker_session: The client's session; `None` makes one in the launch's region. Under a
            `PipelineSession`, `train()` of the trainer returns the arguments of a step.
        found: The launch looked up; `None` looks up with the session what it needs: the id of a runtime,
            the hub's hyperparameters.
        more: Arguments of the client's own that win, such as `agent_env=CustomAgentLambda(...)`.

    Raises:
        UsageError: The client is not installed, or refuses the launch.
        CloudError: AWS refused.
    """
    sdk = load_sdk()
    session = sagemaker_session or _session(spec.region)
    arguments = (
        trainer_arguments(spec, found)
        if found is not None
        else _arguments(spec, session.boto_session.client, "agent_env" in more)
    )
    if spec.subnets:
        shapes = importlib.import_module("sagemaker.core.shapes")
        arguments["networking"] = shapes.VpcConfig(
            security_group_ids=list(spec.security_groups), subnets=list(spec.subnets)
        )
    arguments |= {"sagemaker_session": session, **more}
    with told("the client cannot prepare the launch"):
        try:
            return sdk.MultiTurnRLTrainer(**arguments)
        except (AttributeError, TypeError, ValueError) as error:
            raise UsageError(f"the client refuses the launch: {error}") from error


def train(trainer: Any, note: Callable[[str], None] = lambda name: None) -> Launched:
    """Launch a trainer's job and return at once; `trainer.output_model_package_arn` tells the rest later.

    The client would refuse a role that trusts only the service which runs these jobs, as they want it; what
    that role needs is checked by `launch_lookups`, so the client's check is off meanwhile.

    A job runs and is billed from the moment that CreateJob has worked, whether its answer came or not, and
    whether the client could describe the job or not. So whatever is raised after it was sent is looked into.

    Args:
        trainer: See `build_trainer`.
        note: Takes the job's name, just before the job is created.

    Raises:
        UsageError: The client refuses the launch.
        CloudError: AWS refused, and there is no job.
    """
    with watching(_client_of(trainer), note) as sent:
        try:
            with told("the job cannot be created"), without_role_check():
                try:
                    job = trainer.train(wait=False)
                except ValueError as error:
                    raise UsageError(f"the client refuses the launch: {error}") from error
        except RftError as error:
            return _after_all(sent, _client_of(trainer), error)
    return Launched(job.job_name, job.job_arn)


def _after_all(sent: Sent, client: Any, error: RftError) -> Launched:
    """Return the job that a failed launch has created; raise the failure where there is none.

    Raises:
        RftError: `error`.
    """
    if sent.request is None or not sent.tries:
        raise error
    name = str(sent.request["JobName"])
    if sent.arn:
        return Launched(name, sent.arn)
    # One clear refusal of one call leaves nothing open.
    is_open = isinstance(error, CloudError) and (error.is_transient or error.code == IN_USE)
    if sent.tries == 1 and not is_open:
        raise error
    for look in range(_LOOKS):
        if look:
            time.sleep(_LOOK_PAUSE_S)
        try:
            job = describe_job(client, name, TRAINING)
        except CloudError as unseen:
            if unseen.is_missing:
                raise error from None
            if not unseen.is_transient:
                break
        else:
            if not is_asked_for(job, sent.request):
                raise error
            return Launched(job.name, job.arn)
    return Launched(name, "", is_certain=False)


def _client_of(trainer: Any) -> Any:
    """Return the client of `sagemaker` that the client itself creates jobs with."""
    session = trainer.sagemaker_session.boto_session
    resources = importlib.import_module("sagemaker.core.resources")
    return resources.Base.get_sagemaker_client(session=session, region_name=session.region_name)


@contextmanager
def without_role_check() -> Iterator[None]:
    """Turn the client's own check of roles off, unless the environment says something about it.

    For the whole process; needed as well around what evaluates the steps of a pipeline.
    """
    before = os.environ.get(VALIDATE_ROLE)
    if before is None:
        os.environ[VALIDATE_ROLE] = "false"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(VALIDATE_ROLE, None)


def trainer_arguments(spec: LaunchSpec, found: Resolved) -> dict[str, Any]:
    """Return the arguments of the client's trainer, but for its session and network."""
    notifications = {
        "sns_topic_arn": spec.notify_topic,
        "events": list(spec.notify_events),
        "event_bus_arn": spec.notify_bus,
        "job_name_prefix": spec.notify_prefix,
    }
    source = read_model(spec.model)
    return {
        "model": (source.package if source else None) or found.model_name,
        "agent_env": found.agent.arn,
        "bedrock_agentcore_qualifier": found.agent.qualifier or DEFAULT_QUALIFIER,
        "training_dataset": found.dataset.uri,
        "validation_dataset": found.validation.uri if found.validation else None,
        "mlflow_app_arn": spec.mlflow_app,
        "mlflow_experiment_name": spec.mlflow_experiment or None,
        "mlflow_run_name": spec.mlflow_run or None,
        "s3_output_path": spec.s3_output,
        "output_model_package_group": output_group(spec, found.model_name),
        "intermediate_checkpoint_model_package_group": checkpoint_group(spec, found.model_name),
        "kms_key_arn": spec.kms_key or None,
        "accept_eula": spec.accept_eula,
        "hyperparameters": dict(found.chosen.values),
        "notifications": (
            {key: value for key, value in notifications.items() if value}
            if spec.notify_topic
            else None
        ),
        "role": spec.role,
        "base_job_name": own_name(spec, found),
        "tags": [{"key": key, "value": value} for key, value in spec.tags.items()],
    }


def load_sdk() -> Any:
    """Return `sagemaker.train.multi_turn_rl_trainer`.

    Raises:
        UsageError: It is not installed.
    """
    try:
        return importlib.import_module("sagemaker.train.multi_turn_rl_trainer")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("sagemaker"):
            raise
        raise UsageError(
            "launching a job needs the client of SageMaker: pip install 'rft-agent-sdk[sagemaker]'; "
            "--dry-run does without"
        ) from error


def _session(region: str) -> Any:
    boto3 = importlib.import_module("boto3")
    helper = importlib.import_module("sagemaker.core.helper.session_helper")
    return helper.Session(boto_session=boto3.Session(region_name=region or None))


def _arguments(spec: LaunchSpec, client_of: ClientOf, has_agent: bool) -> dict[str, Any]:
    """Look up what a trainer's arguments need, and return them."""
    for name in ("dataset", "validation_dataset"):
        given = getattr(spec, name)
        if given and not given.startswith(("s3://", "arn:")):
            raise UsageError(
                f"{name}: wanted an S3 URI or the ARN of a dataset here, got {given!r}: upload it first"
            )
    name = spec.model_name or base_model_of(client_of, spec.model)
    recipe = read_hub_model(client_of, name)
    arn = spec.agent
    if is_runtime_id(arn):
        arn = resolve_runtime(client_of, arn)
    if has_agent:
        arn = f"arn:aws:lambda:{spec.region}:{spec.account}:function:given"
    agent = parse_agent(arn, qualifier=spec.qualifier)
    check_place(agent, region=spec.region, account=spec.account)
    validation = spec.validation_dataset
    found = Resolved(
        model_name=name,
        base_model_arn=recipe.arn,
        agent=agent,
        dataset=LaunchData(spec.dataset, spec.dataset),
        validation=LaunchData(validation, validation) if validation else None,
        chosen=settle(spec, name, recipe.rules).chosen,
        rules=recipe.rules,
        hub=recipe.hub,
    )
    return trainer_arguments(spec, found)
