"""A managed job on this machine: a local AWS takes it, the gateway is its Job Runtime, an agent of yours plays it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rft_agent_sdk.cli.mtrl._rehearsal_agent import (
    AgentProcess,
    Door,
    only_these_aws_variables,
    own_budget_s,
    without_proxy,
)
from rft_agent_sdk.cli.mtrl._rehearsal_job import RehearsalRunner, Say
from rft_agent_sdk.cli.mtrl._rehearsal_policy import rehearsal_policy
from rft_agent_sdk.cli.mtrl._rehearsal_rows import check_rows
from rft_agent_sdk.cli.mtrl._rehearsal_settings import (
    Prepared,
    Settings,
    deployed_variables,
    prepare,
)
from rft_agent_sdk.errors import RftError, UsageError
from rft_agent_sdk.rollout import DEFAULT_BUDGET_S
from rft_agent_sdk.testing import FakeCredentials
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from rft_agent_sdk.cli.mtrl._rehearsal_settings import Data
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.findings import Finding
    from rft_agent_sdk.mtrl.launch_data import LaunchData
    from rft_agent_sdk.mtrl.rehearsal import Rehearsed
    from rft_agent_sdk.mtrl.rehearsal_causes import Facts
    from rft_agent_sdk.mtrl.rehearsal_report import Report
    from rft_agent_sdk.training.tracking import Tracker
    from rft_agent_sdk.twins.cloud import LocalCloud

RUNTIME_ID = "Rehearsal-aBcDeFgHiJ"
BUCKET = "rft-rehearsal"
BUDGET = "ROLLOUT_BUDGET_SECONDS"
_ACCOUNT = "123456789012"
_GROUPS = ("rehearsal-models", "rehearsal-checkpoints")
_POLL_S = 0.2


def rehearse(settings: Settings, say: Say) -> Report:
    """Play a job and return what is told of it; everything is written into the run's folder.

    Args:
        settings: What is asked for.
        say: Told each line of progress.

    Raises:
        UsageError: Something in the settings is not there, or no job could be launched with it.
        RftError: The rehearsal itself failed.
    """
    from rft_agent_sdk.twins.cloud import LocalCloud

    prepared = prepare(settings)
    rows = check_rows(prepared)
    for finding in rows:
        say(f"{finding.severity.upper():12} {finding.id} ({finding.where}): {finding.message}")
    with (
        LocalCloud(region=settings.region, account=_ACCOUNT) as cloud,
        only_these_aws_variables({**cloud.environment(), **without_proxy(os.environ)}),
    ):
        report = _Rehearsal(prepared, cloud, say, rows).report()
    text = json.dumps(report.as_json(), indent=2, ensure_ascii=False)
    (settings.run_dir / "report.json").write_text(f"{text}\n", "utf-8")
    return report


class _Rehearsal:
    """One rehearsal at one local AWS."""

    def __init__(
        self, prepared: Prepared, cloud: LocalCloud, say: Say, rows: Sequence[Finding]
    ) -> None:
        self._prepared = prepared
        self._settings = prepared.settings
        self._cloud = cloud
        self._say = say
        self._rows = rows
        self._notes: list[str] = []

    def report(self) -> Report:
        """Play the job and return the report."""
        from rft_agent_sdk.gateway import Gateway, GatewayServer
        from rft_agent_sdk.mtrl.aws import Clients

        settings, keys = self._settings, FakeCredentials()
        answers = rehearsal_policy(
            self._prepared.policy, settings.environment, noise=settings.noise, seed=settings.seed
        )
        gateway = Gateway(account=_ACCOUNT, secrets={keys.access_key: keys.secret_key})
        with GatewayServer(gateway, port=settings.gateway_port) as server:
            self._say(f"job runtime  {server.url} (the gateway in its place)")
            self._say(f"aws          {self._cloud.url} (local; nothing leaves this machine)")
            with self._agent(server.url) as (door, process), Clients(settings.region) as clients:
                runner = RehearsalRunner(
                    gateway,
                    answers,
                    door,
                    clients("s3"),
                    self._prepared.plan,
                    self._prepared.terms,
                    self._tracker(),
                    self._say,
                    endpoint=server.url if process is None else None,
                )
                job_arn = self._run_job(clients, runner)
                rehearsed = runner.rehearsed
                assert rehearsed is not None  # else that was raised
                budget_s = self._budget_s(door, rehearsed)
                log = process.log_tail if process is not None else ""
                code = process.exit_code if process is not None else None
        return self._told(job_arn, rehearsed, self._facts(budget_s, log, code))

    @contextlib.contextmanager
    def _agent(self, endpoint: str) -> Iterator[tuple[Door, AgentProcess | None]]:
        """Yield the door before the agent, as the local AWS knows it, and the process where it is ours."""
        settings = self._settings
        with contextlib.ExitStack() as stack:
            process = None
            if settings.agent_url is not None:
                url, state = settings.agent_url, "running already"
            else:
                environment = self._agent_environment(endpoint)
                log = settings.run_dir / "agent.log"
                process = stack.enter_context(AgentProcess(settings.agent, environment, log))
                is_up = process.wait(self._prepared.terms.listen_s)
                url, state = process.url, settings.agent if is_up else "it does not listen"
                if process.exit_code is not None:
                    state = f"it ended with exit code {process.exit_code}; its log: {log}"
            self._say(f"agent        {url} ({state})")
            door = Door(url)
            stack.enter_context(self._served(door))
            yield door, process

    @contextlib.contextmanager
    def _served(self, door: Door) -> Iterator[None]:
        from rft_agent_sdk.twins.cloud import Runtime
        from rft_agent_sdk.twins.serve import LoopbackServer

        front = LoopbackServer(door)
        front.start()
        self._cloud.runtimes[RUNTIME_ID] = Runtime(name="Rehearsal", url=front.url)
        try:
            yield
        finally:
            front.stop()

    def _agent_environment(self, endpoint: str) -> dict[str, str]:
        """Return the agent's variables: as deployed, with every address on this machine."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        deployed = deployed_variables(self._settings.agent)
        return {
            **deployed,
            **kept,
            **without_proxy(kept),
            **self._cloud.environment(),
            "AWS_ENDPOINT_URL_SAGEMAKERJOBRUNTIME": endpoint,
            "RFT_RUNTIME_ENDPOINT": endpoint,
            "RFT_ENVIRONMENT": self._settings.environment,
            BUDGET: f"{self._prepared.terms.real(self._configured_budget_s()):g}",
            "PYTHONUNBUFFERED": "1",
        }

    def _configured_budget_s(self) -> float:
        text = {**deployed_variables(self._settings.agent), **os.environ}.get(BUDGET)
        try:
            return float(text or DEFAULT_BUDGET_S)
        except ValueError:
            raise UsageError(f"{BUDGET} wants seconds, got {text!r}") from None

    def _budget_s(self, door: Door, rehearsed: Rehearsed) -> float | None:
        """Return the agent's own time limit by the service's clock; `None` where it cannot be told."""
        answers = [one.last.answer for one in rehearsed.rollouts]
        if not any(answer and answer.ours for answer in answers):
            return None  # no agent of this package: it would take the question for a rollout
        if self._settings.agent_url is not None:
            return None  # nobody knows which addresses it would try to reach for an answer
        found = own_budget_s(door.url)
        if found is None:
            return None
        wanted_s = self._configured_budget_s()
        # It was given the shortened one; an agent that answers with another has it in its code.
        is_given = abs(self._prepared.terms.real(wanted_s) - found) < 1
        return wanted_s if is_given else found

    def _run_job(self, clients: Clients, runner: RehearsalRunner) -> str:
        """Create the job as a launch does, wait for its end, and return its ARN.

        Raises:
            BaseException: What ended the rehearsal rather than the job.
        """
        from rft_agent_sdk.mtrl.aws import told
        from rft_agent_sdk.mtrl.job import describe_job

        self._cloud.runner = runner
        request = self._request(clients)
        name = request["JobName"]
        with told("the job cannot be created"):
            clients("sagemaker").create_job(**request)
        record = self._cloud.jobs[name]
        self._say(f"job          {record.arn}")
        try:
            while not describe_job(clients("sagemaker"), name).has_ended:
                time.sleep(_POLL_S)
        finally:
            record.request_stop()
            record.wait()
            runner.tracker.close()
        if runner.error is not None:
            raise runner.error
        if runner.rehearsed is None:
            raise RftError(f"job {name} ended as {record.status} before it was played")
        return record.arn

    def _request(self, clients: Clients) -> JSON:
        """Upload the data, make all that a job's document names, and return the CreateJob of a launch.

        Raises:
            UsageError: The local AWS trains no such model.
        """
        from rft_agent_sdk.mtrl.agent_arn import parse_agent
        from rft_agent_sdk.mtrl.launch_document import Resolved, job_request
        from rft_agent_sdk.mtrl.launch_spec import LaunchSpec

        cloud, prepared, model = self._cloud, self._prepared, self._settings.model
        if model not in cloud.hub.models:
            known = ", ".join(cloud.hub.models)
            raise UsageError(f"{cloud.region} trains no model {model!r}: it trains {known}")
        cloud.make_bucket(BUCKET)
        for name in _GROUPS:
            cloud.make_model_package_group(name)
        spec = LaunchSpec(
            model=model,
            region=cloud.region,
            role=cloud.role_arn("JobRole"),
            s3_output=f"s3://{BUCKET}/output",
            output_group=_GROUPS[0],
            checkpoint_group=_GROUPS[1],
            mlflow_app=cloud.make_mlflow_app("rehearsal").arn,
            accept_eula=True,
            job_name="rehearsal",
        )
        train = self._uploaded(clients, "train", prepared.train)
        held_out = prepared.validation
        found = Resolved(
            model,
            cloud.hub.arn_of(model),
            parse_agent(cloud.runtime_arn(RUNTIME_ID)),
            train,
            self._uploaded(clients, "validation", held_out) if held_out else None,
            prepared.chosen,
            prepared.rules,
        )
        return job_request(spec, found, datetime.now(UTC))

    def _uploaded(self, clients: Clients, channel: str, data: Data) -> LaunchData:
        from rft_agent_sdk.mtrl.launch_data import LaunchData

        key = f"{channel}/{data.name}"
        clients("s3").put_object(Bucket=BUCKET, Key=key, Body=data.played)
        return LaunchData(channel, f"s3://{BUCKET}/{key}", len(data.prompts))

    def _tracker(self) -> Tracker:
        """Return where metrics go besides the local AWS: a JSONL file, and MLflow where it is installed."""
        from rft_agent_sdk.training.tracking import JsonlTracker, MLflowTracker, Trackers

        folder = self._settings.run_dir
        jsonl = JsonlTracker(folder / "metrics.jsonl")
        place = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        try:
            mlflow = MLflowTracker(place, experiment="rehearsal", run_name=folder.name)
        except UsageError as error:
            self._notes.append(f"metrics are in metrics.jsonl only: {error}")
            return jsonl
        self._notes.append(f"curves: mlflow ui --backend-store-uri {place}")
        return Trackers([jsonl, mlflow])

    def _facts(self, budget_s: float | None, log: str, exit_code: int | None) -> Facts:
        from rft_agent_sdk.mtrl.models import find_model
        from rft_agent_sdk.mtrl.rehearsal_causes import Facts

        settings, model = self._settings, find_model(self._settings.model)
        return Facts(
            settings.agent_url or settings.agent,
            self._prepared.terms,
            str(settings.dataset or "the dataset"),
            budget_s,
            model.max_sequence_length if model else Facts("").max_context,
            log,
            exit_code,
        )

    def _told(self, job_arn: str, rehearsed: Rehearsed, facts: Facts) -> Report:
        from rft_agent_sdk.mtrl.plan import check_plan
        from rft_agent_sdk.mtrl.rehearsal_findings import find
        from rft_agent_sdk.mtrl.rehearsal_projection import measure, project
        from rft_agent_sdk.mtrl.rehearsal_report import Report

        prepared, settings = self._prepared, self._settings
        job_plan = prepared.job_plan
        findings = find(rehearsed, facts, prepared.plan.sampling)
        findings += self._rows
        if settings.dataset is not None:
            findings += check_plan(job_plan)
        projection = None
        measured = measure(rehearsed)
        if measured and job_plan.steps:
            projection = project(
                measured,
                job_plan,
                prepared.terms,
                model=settings.model,
                region=settings.region,
                prices=settings.prices,
            )
        elif not job_plan.steps:
            self._notes.append(
                f"the whole job is not projected: {job_plan.rows} rows make no step of {job_plan.batch_size} prompts"
            )
        notes = (*_differences(prepared), *self._notes, f"everything is in {settings.run_dir}")
        return Report(
            rehearsed,
            prepared.plan,
            prepared.terms,
            findings,
            projection,
            prepared.policy_shown,
            job_arn,
            notes,
        )


def _differences(prepared: Prepared) -> Iterator[str]:
    """Yield what was done otherwise than the service does."""
    settings, terms = prepared.settings, prepared.terms
    if terms.speed != 1:
        yield (
            f"speed {terms.speed:g}: the service's waits were divided by it ({terms.timeout_s:g} s for a rollout were "
            f"{terms.real(terms.timeout_s):g} s) and its rate of starts multiplied; the agent kept its own pace"
        )
    if terms.silence_s is not None:
        yield f"an agent that had answered was given up after {terms.silence_s:g} s of silence, not at the timeout"
    if not prepared.policy.startswith("openai:"):
        yield (
            f"{prepared.policy!r} thinks in no time and its tokens are estimated from characters; a model takes more "
            "of both: measure one with --policy openai:URL"
        )
    if settings.dataset is None:
        yield "the environment made the rows; name yours with --dataset"
    if prepared.validation is None:
        yield "without a validation channel nothing was validated; what the service does then is not documented"
    yield "one process played all rollouts at once; AgentCore gives each session a machine of its own"
    yield "nothing was trained, and no step overlapped with the next, as those of the service may"


def new_run_dir(runs: Path) -> Path:
    """Return a folder's name for a run that begins now."""
    return runs / datetime.now(UTC).strftime("rehearsal-%Y%m%d-%H%M%S")
