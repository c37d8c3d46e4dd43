"""The whole account as one server."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from rft_agent_sdk.twins.cloud.account import Account, Handler
from rft_agent_sdk.twins.cloud.calls import Call, Faults
from rft_agent_sdk.twins.cloud.dispatch import Dispatch
from rft_agent_sdk.twins.cloud.functions import Function, Functions
from rft_agent_sdk.twins.cloud.hub import Hub
from rft_agent_sdk.twins.cloud.iam import Iam
from rft_agent_sdk.twins.cloud.invocations import Invocations
from rft_agent_sdk.twins.cloud.job_checks import JobChecks
from rft_agent_sdk.twins.cloud.job_record import JobRecord, JobRunner
from rft_agent_sdk.twins.cloud.jobs import Jobs
from rft_agent_sdk.twins.cloud.logs import Logs
from rft_agent_sdk.twins.cloud.mlflow_apps import MlflowApp, MlflowApps
from rft_agent_sdk.twins.cloud.mlflow_store import MlflowStore
from rft_agent_sdk.twins.cloud.model_packages import ModelPackageGroup, ModelPackages
from rft_agent_sdk.twins.cloud.quotas import Quota, Quotas
from rft_agent_sdk.twins.cloud.roles import Directory, Role
from rft_agent_sdk.twins.cloud.runners import WalkThrough
from rft_agent_sdk.twins.cloud.runtimes import Runtime, Runtimes
from rft_agent_sdk.twins.cloud.s3 import S3, Bucket
from rft_agent_sdk.twins.cloud.session_list import SessionEntry, SessionList
from rft_agent_sdk.twins.cloud.stacks import Stack, Stacks
from rft_agent_sdk.twins.cloud.sts import Sts
from rft_agent_sdk.twins.cloud.tags import Tags
from rft_agent_sdk.twins.serve import LoopbackServer
from rft_agent_sdk.types import JSON

_CLIENT_CONFIG = """\
SchemaVersion: '1.0'
SageMaker:
  PythonSDK:
    Modules:
      TelemetryOptOut: true
"""


class LocalCloud:
    """An AWS account on loopback: `with LocalCloud() as cloud: ...`."""

    def __init__(
        self,
        *,
        region: str = "us-west-2",
        account: str = "123456789012",
        runner: JobRunner | None = None,
        port: int = 0,
    ) -> None:
        """Describe the account; nothing is bound yet.

        Args:
            region: Region of everything in it.
            account: Account id.
            runner: Runs the jobs; `None` walks them to Completed in a moment.
            port: Port to bind on 127.0.0.1; 0 takes a free one.
        """
        self._account = Account(region, account)
        self.calls: list[Call] = []
        """Every call, in order of arrival; also those that were refused."""
        self.faults = Faults()
        """Which calls are to fail."""
        self._directory = Directory(self._account)
        self._tags = Tags()
        self._s3 = S3(self._account)
        self._logs = Logs(self._account)
        self._packages = ModelPackages(self._account, self._tags)
        self._apps = MlflowApps(self._account, self._tags, lambda: self.url)
        self._runtimes = Runtimes(self._account)
        self._functions = Functions(self._account, self._directory, self._s3, self._tags)
        self._stacks = Stacks(self._account, self._runtimes)
        self._sessions = SessionList(self._account, self._tags)
        self._quotas = Quotas(self._account, lambda: self.job_concurrency)
        self.mlflow = MlflowStore()
        """The tracking server behind every app: `experiments`, `runs`, `make_run`."""
        self.invocations = Invocations(self._runtimes)
        """The data plane of runtimes: `start_s`, `sessions`."""
        self.hub = Hub(self._account, self._s3)
        """The models: `arn_of`, `models`."""
        checks = JobChecks(
            self._account,
            self.hub,
            self._packages,
            self._apps,
            self._has_agent,
            endpoints=self._endpoints_of,
            role_exists=lambda arn: self._directory.role_of(arn) is not None,
            bucket_exists=lambda name: name in self._s3.buckets,
        )
        self._jobs = Jobs(
            self._account,
            checks,
            self._directory,
            self._tags,
            self._logs,
            self.mlflow,
            self._s3,
            runner or WalkThrough(),
        )
        self._dispatch = Dispatch(
            self._services(), calls=self.calls, faults=self.faults, others=self.mlflow.answer
        )
        self._server = LoopbackServer(self._dispatch, port=port)
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def region(self) -> str:
        """Its Region."""
        return self._account.region

    @property
    def account(self) -> str:
        """Its account id."""
        return self._account.id

    @property
    def url(self) -> str:
        """Base URL of every service; there once it is started."""
        return self._server.url

    @property
    def mutations(self) -> list[Call]:
        """The calls that change something or make something run."""
        return [call for call in self.calls if call.is_mutation]

    @property
    def runner(self) -> JobRunner:
        """Runs the jobs created from now on."""
        return self._jobs.runner

    @runner.setter
    def runner(self, runner: JobRunner) -> None:
        self._jobs.runner = runner

    @property
    def job_concurrency(self) -> int:
        """Jobs of a category that may run at a time."""
        return self._jobs.concurrency

    @job_concurrency.setter
    def job_concurrency(self, count: int) -> None:
        self._jobs.concurrency = count

    @property
    def jobs(self) -> dict[str, JobRecord]:
        """Jobs by name, oldest first."""
        return self._jobs.jobs

    @property
    def buckets(self) -> dict[str, Bucket]:
        """Buckets by name; `make_bucket` makes one."""
        return self._s3.buckets

    @property
    def runtimes(self) -> dict[str, Runtime]:
        """AgentCore runtimes by id, such as `Wordle-aBcDeFgHiJ`; a test puts its own in."""
        return self._runtimes.runtimes

    @property
    def roles(self) -> dict[str, Role]:
        """Roles by name. `JobRole` and `AgentRole` are there and do what they are for."""
        return self._directory.roles

    @property
    def users(self) -> dict[str, Role]:
        """Users by name. `developer`, who may do everything, is there."""
        return self._directory.users

    @property
    def caller_arn(self) -> str:
        """Who calls, whatever key signs: a user, a role's session, the root."""
        return self._directory.caller_arn

    @caller_arn.setter
    def caller_arn(self, arn: str) -> None:
        self._directory.caller_arn = arn

    @property
    def model_package_groups(self) -> dict[str, ModelPackageGroup]:
        """Model package groups by name, each with its packages."""
        return self._packages.groups

    @property
    def mlflow_apps(self) -> dict[str, MlflowApp]:
        """MLflow apps by ARN."""
        return self._apps.apps

    @property
    def functions(self) -> dict[str, Function]:
        """Lambda functions by name."""
        return self._functions.functions

    @property
    def stacks(self) -> dict[str, Stack]:
        """CloudFormation stacks by name."""
        return self._stacks.stacks

    @property
    def training_sessions(self) -> dict[str, SessionEntry]:
        """Training sessions by name, to be listed and stopped; nothing trains in them."""
        return self._sessions.sessions

    @property
    def tags(self) -> dict[str, dict[str, str]]:
        """Tags by ARN; stacks have theirs on themselves."""
        return self._tags.by_arn

    @property
    def quotas(self) -> list[Quota]:
        """Quotas beyond the jobs' two."""
        return self._quotas.quotas

    def make_bucket(self, name: str, *, owner: str | None = None) -> Bucket:
        """Return the bucket of a name, made where there is none.

        Args:
            name: Bucket name.
            owner: Account that owns it; `None` is this one.
        """
        return self._s3.make_bucket(name, owner=owner)

    def make_model_package_group(self, name: str) -> ModelPackageGroup:
        """Return the model package group of a name, made where there is none."""
        return self._packages.make_group(name)

    def make_model_package(self, group: str, s3_uri: str) -> str:
        """Put a model package into a group, made where there is none, and return its ARN."""
        return self._packages.publish(self._packages.make_group(group).arn, s3_uri).arn

    def make_mlflow_app(self, name: str, *, version: str = "3.10.0") -> MlflowApp:
        """Return a new MLflow app."""
        return self._apps.make(name, version=version)

    def runtime_arn(self, runtime_id: str) -> str:
        """Return the ARN of a runtime id."""
        return self._runtimes.arn_of(runtime_id)

    def role_arn(self, name: str) -> str:
        """Return the ARN of a role."""
        role = self._directory.roles[name]
        return self._account.global_arn("iam", f"role{role.path}{name}")

    def log(self, group: str, stream: str, message: str, time_ms: int | None = None) -> None:
        """Write a line to CloudWatch Logs; `time_ms` is since the epoch, `None` is now."""
        self._logs.add(group, stream, message, time_ms)

    def log_lines(self, group: str, stream: str) -> list[str]:
        """Return what a stream holds."""
        return self._logs.lines(group, stream)

    def environment(self) -> dict[str, str]:
        """Return the variables that send the real clients here, with keys that are nobody's.

        What else begins with `AWS_` is better taken away: a profile, a session token or the endpoint of a
        single service would still count.
        """
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="rft-cloud-")
        config = Path(self._folder.name) / "sagemaker.yaml"
        config.write_text(_CLIENT_CONFIG)
        absent = str(Path(self._folder.name) / "absent")
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
            "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": absent,
            "AWS_SHARED_CREDENTIALS_FILE": absent,
            "SAGEMAKER_VALIDATE_ROLE": "false",
            "SAGEMAKER_USER_CONFIG_OVERRIDE": str(config),
            "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": self.url,
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
        }

    def start(self) -> LocalCloud:
        """Serve on a thread of its own; return once connections are taken."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop the jobs and the server; what runs may end first."""
        self._jobs.close()
        self.invocations.close()
        self._server.stop()
        self._dispatch.close()
        if self._folder is not None:
            self._folder.cleanup()

    def __enter__(self) -> LocalCloud:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _has_agent(self, arn: str) -> bool:
        return (self._runtimes.find(arn) or self._functions.find(arn)) is not None

    def _endpoints_of(self, arn: str) -> tuple[str, ...]:
        runtime = self._runtimes.find(arn)
        return runtime.endpoints if runtime else ()

    def _services(self) -> dict[str, Mapping[str, Handler]]:
        sagemaker = {
            **self._jobs.operations,
            **self.hub.operations,
            **self._packages.operations,
            **self._apps.operations,
            **self._sessions.operations,
            **self._tags.sagemaker,
        }
        locked = {
            "sagemaker": sagemaker,
            "s3": self._s3.operations,
            "sts": Sts(self._account, self._directory).operations,
            "iam": Iam(self._account, self._directory).operations,
            "logs": self._logs.operations,
            "service-quotas": self._quotas.operations,
            "cloudformation": self._stacks.operations,
            "bedrock-agentcore-control": {**self._runtimes.operations, **self._tags.runtimes},
        }
        services: dict[str, Mapping[str, Handler]] = {
            name: {operation: self._locked(handler) for operation, handler in handlers.items()}
            for name, handlers in locked.items()
        }
        # These two last as long as what they call does, and lock for themselves.
        services["bedrock-agentcore"] = self.invocations.operations
        services["lambda"] = {**self._functions.operations, **self._tags.functions}
        return services

    def _locked(self, handler: Handler) -> Handler:
        def answer(body: JSON) -> JSON:
            with self._account.lock:
                return handler(body)

        return answer
