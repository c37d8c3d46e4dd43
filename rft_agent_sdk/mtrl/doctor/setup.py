"""What is examined: a project, a machine, an account, and the launch that is meant. Looked up once each."""

from __future__ import annotations

import email.utils
import importlib.metadata
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError

from rft_agent_sdk.environment import Environment, load_environment
from rft_agent_sdk.errors import CloudError, EnvironmentFault, RftError, UsageError
from rft_agent_sdk.mtrl.agent_arn import Agent, is_runtime_id, parse_agent
from rft_agent_sdk.mtrl.aws import Clients, told
from rft_agent_sdk.mtrl.doctor.check import DoesNotApply, Skipped
from rft_agent_sdk.mtrl.findings import Finding
from rft_agent_sdk.mtrl.launch_settings import Settings, settle
from rft_agent_sdk.mtrl.launch_spec import LaunchSpec, placed
from rft_agent_sdk.types import JSON

T = TypeVar("T")

DENIED = frozenset(
    {"AccessDenied", "AccessDeniedException", "UnauthorizedException", "UnauthorizedOperation"}
)
"""Codes that say that the caller may not ask; nothing is known then of what was asked for."""
PROJECT_FILE = "agentcore/agentcore.json"
TARGETS_FILE = "agentcore/aws-targets.json"
CREDENTIALS_HOW = "Export AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as somebody else has read it; this room reads no files of rows."""

    name: str
    """Where it is, for messages."""
    prompts: Sequence[tuple[str, str]]
    """Place and prompt of each row that a managed job can take."""
    findings: Sequence[Finding] = ()
    """What is wrong with the file, and with its rows."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    account: str
    arn: str
    skew_s: float | None
    """Seconds that this machine's clock is ahead of the service's; `None` where its answer had no date."""


@dataclass
class Setup:
    """What is examined. Lookups are made once; one that failed fails again without another call."""

    root: Path = field(default_factory=Path)
    """The project's root, which holds `agentcore/` and `payload.json`."""
    launch: LaunchSpec = field(default_factory=LaunchSpec)
    """The launch that is meant, as far as it was told."""
    is_whole: bool = False
    """Whether the launch was told in full, so that what is missing in it is missing."""
    dataset: Dataset | None = None
    validation: Dataset | None = None
    environment: str | None = None
    """Name of the environment; `None` takes the project's `RFT_ENVIRONMENT`, else `wordle`."""
    payload: Path | None = None
    """A payload file; `None` takes `payload.json` of the root."""
    url: str | None = None
    """Where the agent is served on this machine, for the checks that ask it."""
    endpoints: frozenset[str] = frozenset()
    """URLs that AWS_ENDPOINT_URL* may name though they are not AWS's own: a VPC endpoint's, a stand-in's."""
    invoke: bool = False
    """Whether the deployed agent may be invoked: it costs an invocation or two."""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    clock: Callable[[], float] = field(default=time.time, repr=False)
    python: tuple[int, ...] = sys.version_info[:3]
    packages: Sequence[str] | None = None
    """Where installed packages are looked for; `None` is where this program's are."""
    start_s: float = 30.0
    """Seconds that a runtime gives an agent to answer its first ping."""
    _known: dict[str, tuple[Any, RftError | None]] = field(default_factory=dict, repr=False)

    def once(self, name: str, work: Callable[[], T]) -> T:
        """Return what `work` returned, or raise what it raised, the first time."""
        if name not in self._known:
            try:
                self._known[name] = (work(), None)
            except RftError as error:
                self._known[name] = (None, error)
        value, raised = self._known[name]
        if raised is not None:
            raise raised
        found: T = value
        return found

    def version(self, name: str) -> str | None:
        """Return the version of an installed package, or `None`."""
        if self.packages is None:
            found = importlib.metadata.distributions(name=name)
        else:
            found = importlib.metadata.distributions(name=name, path=list(self.packages))
        return next((one.version for one in found), None)

    def credentials(self) -> None:
        """See that there are credentials; nobody is asked yet.

        Raises:
            Skipped: There are none.
        """
        self.once("credentials", _look_for_credentials)

    def caller(self) -> Caller:
        """Return who asks.

        Raises:
            CloudError: STS refused.
        """
        return self.once("caller", lambda: _caller(self))

    def measured_skew_s(self) -> float | None:
        """Return how many seconds this machine's clock is ahead, also where the credentials are refused.

        Raises:
            CloudError: AWS could not be reached.
        """
        try:
            return self.caller().skew_s
        except CloudError as error:
            if not isinstance(error.__cause__, ClientError):
                raise
            return skew_s(error.__cause__.response, self.clock())

    @property
    def agent(self) -> str:
        """ARN or id of the runtime that the job will call, or ARN of a Lambda function; empty if not told."""
        return self.launch.agent

    @property
    def settings(self) -> Settings:
        """The hyperparameters of the launch."""
        return self.once("settings", lambda: settle(self.launch))

    @property
    def clients(self) -> Clients:
        """The AWS clients, in the job's region."""
        return self.once("clients", lambda: Clients(self.job_region()))

    def ask(self, what: str, service: str, operation: str, **parameters: Any) -> JSON:
        """Call an operation of AWS, by the client's name of it; `what` begins the message of a refusal.

        Raises:
            CloudError: The service refused, or could not be reached.
        """
        with told(what):
            answer: JSON = getattr(self.clients(service), operation)(**parameters)
            return answer

    def job_region(self) -> str | None:
        """Return the job's region, where anything tells it."""
        named = placed(self.launch, self.environ).region  # as a launch takes it
        return named or self.once("profile's region", _profile_region)

    def named_agent(self) -> Agent | None:
        """Return the agent, where an ARN of one was told; nothing is looked up."""
        if not self.agent or is_runtime_id(self.agent):
            return None
        try:
            return parse_agent(self.agent, qualifier=self.launch.qualifier)
        except UsageError:
            return None  # told by its own check

    def parsed_agent(self) -> Agent:
        """Return the agent, a bare id looked up.

        Raises:
            Skipped: None was given, or it is no ARN.
            CloudError: AgentCore knows no such id.
        """
        return self.once("agent", lambda: _agent(self))

    def runtime(self) -> JSON:
        """Return the runtime as AgentCore describes it.

        Raises:
            DoesNotApply: The agent is a Lambda function.
            CloudError: There is none, or AgentCore refused.
        """
        return self.once("runtime", lambda: _runtime(self))

    def spec(self) -> JSON:
        """Return `agentcore.json`.

        Raises:
            Skipped: There is no readable one.
        """
        return self.once("spec", lambda: _json_object(self.root / PROJECT_FILE))

    def runtimes(self) -> list[JSON]:
        """Return the runtimes that `agentcore.json` declares.

        Raises:
            Skipped: There is no readable one, or it declares none.
        """
        given = self.spec().get("runtimes")
        found = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        if not found:
            raise Skipped(f"{PROJECT_FILE} declares no runtime", "See the check agentcore-project.")
        return found

    def variables(self, runtime: JSON) -> dict[str, str]:
        """Return the environment variables that a runtime of `agentcore.json` is given."""
        given = runtime.get("envVars")
        pairs = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        return {str(one.get("name")): str(one.get("value")) for one in pairs}

    def payload_path(self) -> Path:
        """Return the file that the smoke test sends."""
        return self.payload or self.root / "payload.json"

    def environment_name(self) -> str:
        """Return the name of the environment that the agent plays."""
        if self.environment:
            return self.environment
        try:
            named = [self.variables(one).get("RFT_ENVIRONMENT") for one in self.runtimes()]
        except Skipped:
            named = []
        return next((name for name in named if name), "wordle")

    def loaded_environment(self) -> Environment:
        """Return the environment.

        Raises:
            RftError: It cannot be loaded, or refuses its own numbers.
        """
        return self.once("environment", lambda: _environment(self.environment_name()))


def _environment(name: str) -> Environment:
    try:
        return load_environment(name)
    except RftError:
        raise
    except Exception as error:  # somebody's module
        raise EnvironmentFault(
            f"environment {name!r} cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def _profile_region() -> str | None:
    try:
        found: str | None = botocore.session.Session().get_config_variable("region")
    except BotoCoreError:  # a profile that is not there, of which the credentials tell
        return None
    return found


def _look_for_credentials() -> None:
    try:
        found = botocore.session.Session().get_credentials()
    except CredentialRetrievalError as error:  # its text can hold what a credential process printed
        raise Skipped(
            f"AWS credentials cannot be loaded: {type(error).__name__}",
            "Run your credential process, or aws sso login, yourself.",
        ) from error
    except BotoCoreError as error:  # a profile that is not there, a file that cannot be read
        raise Skipped(f"AWS credentials cannot be loaded: {error}", CREDENTIALS_HOW) from error
    if found is None:
        raise Skipped("there are no AWS credentials", CREDENTIALS_HOW)


def _caller(setup: Setup) -> Caller:
    answer = setup.ask("asking who calls", "sts", "get_caller_identity")
    return Caller(answer["Account"], answer["Arn"], skew_s(answer, setup.clock()))


def skew_s(answer: Mapping[str, Any], now: float) -> float | None:
    """Return how many seconds `now` is ahead of the date of an answer of AWS."""
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return now - email.utils.parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, TypeError):
        return None


def _agent(setup: Setup) -> Agent:
    if not setup.agent:
        raise Skipped("--agent was not given", "Give --agent ARN.")
    if is_runtime_id(setup.agent):
        found = setup.ask(
            f"looking up the runtime {setup.agent}",
            "bedrock-agentcore-control",
            "get_agent_runtime",
            agentRuntimeId=setup.agent,
        )
        return parse_agent(found["agentRuntimeArn"], qualifier=setup.launch.qualifier)
    named = setup.named_agent()
    if named is None:
        raise Skipped("--agent is no ARN of an agent", "See the check agent-arn.")
    return named


def _runtime(setup: Setup) -> JSON:
    agent = setup.parsed_agent()
    if agent.is_lambda:
        raise DoesNotApply("the agent is a Lambda function")
    return setup.ask(
        f"looking up the runtime {agent.name}",
        "bedrock-agentcore-control",
        "get_agent_runtime",
        agentRuntimeId=agent.name,
    )


def _json_object(path: Path) -> JSON:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Skipped(
            f"there is no {PROJECT_FILE} here",
            "Run it from the project's root, or name that with --project DIR.",
        ) from None
    except (OSError, ValueError) as error:
        raise Skipped(
            f"{path} cannot be read: {error}", "See the check agentcore-project."
        ) from None
    if not isinstance(found, dict):
        raise Skipped(f"{path} holds no JSON object", "See the check agentcore-project.")
    return found
