"""A launch on its way: what is known of it, first without AWS and then with it."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from rft_agent_sdk.cli.mtrl import _launch_data
from rft_agent_sdk.environment import Environment
from rft_agent_sdk.errors import CloudError, RftError, UsageError
from rft_agent_sdk.types import JSON

if TYPE_CHECKING:
    from rft_agent_sdk.mtrl.agent_arn import Agent
    from rft_agent_sdk.mtrl.aws import Clients
    from rft_agent_sdk.mtrl.findings import Finding
    from rft_agent_sdk.mtrl.launch import Launched
    from rft_agent_sdk.mtrl.launch_data import LaunchData
    from rft_agent_sdk.mtrl.launch_document import Resolved
    from rft_agent_sdk.mtrl.launch_lookups import Seen
    from rft_agent_sdk.mtrl.launch_spec import LaunchSpec
    from rft_agent_sdk.mtrl.plan import JobPlan
    from rft_agent_sdk.mtrl.prices import Estimate, Prices
    from rft_agent_sdk.training.dataset import Row

logger = logging.getLogger(__name__)


@dataclass
class Work:
    """A launch, with its datasets read as far as they are files here."""

    spec: LaunchSpec
    environment: Environment | None
    """The one that the agent plays; `None` where nobody said."""
    prices: Prices
    wrong: list[Finding] = field(default_factory=list)
    """What is wrong with keys and values that `spec` was made without."""
    data: LaunchData | None = None
    validation: LaunchData | None = None
    seen: Seen | None = None
    """What AWS said; `None` before it was asked."""
    _rows: list[Row] = field(default_factory=list)
    _held_out: list[Row] = field(default_factory=list)

    def read_files(self) -> None:
        """Read the datasets that are files here."""
        prefix, environment = self.spec.data_prefix, self.environment
        self.data, self._rows = _launch_data.read_data(
            "dataset", self.spec.dataset, prefix, environment
        )
        self.validation, self._held_out = _launch_data.read_data(
            "validation_dataset", self.spec.validation_dataset, prefix, environment
        )

    def names(self) -> list[Finding]:
        """Return what is wrong with the launch's names and places."""
        from rft_agent_sdk.mtrl.launch_checks import check_spec

        return [*self.wrong, *check_spec(self.spec)]

    def run(self) -> tuple[list[Finding], JobPlan | None, Estimate | None]:
        """Return what is wrong with the run, its plan and its estimate, by what is known so far."""
        from rft_agent_sdk.mtrl.agent_arn import is_lambda_arn
        from rft_agent_sdk.mtrl.launch_settings import (
            check_run,
            default_budget,
            plan_of,
            settle,
            worst_solve_of,
        )
        from rft_agent_sdk.mtrl.prices import estimate, unused_prices

        spec, seen = self.spec, self.seen
        recipe = seen.recipe if seen else None
        name = (seen.model_name if seen else "") or spec.model_name or ""
        settings = settle(spec, name, recipe.rules if recipe else None)
        worst_solve = spec.worst_solve
        if worst_solve is None and self.environment is not None:
            worst_solve = worst_solve_of(self.environment)
        findings = check_run(
            spec,
            settings,
            budget=default_budget(spec, seen.budget if seen else None),
            worst_solve=worst_solve,
            is_lambda=is_lambda_arn(spec.agent),
        )
        plan, more = plan_of(spec, settings, self.data, self.validation)
        overlap = _launch_data.compare(self._rows, self._held_out, self.environment)
        cost = (
            estimate(plan, name, spec.region, turns=spec.max_turns, prices=self.prices)
            if plan
            else None
        )
        return [*findings, *more, *overlap, *unused_prices(self.prices, name)], plan, cost

    def look_up(self, clients: Clients) -> list[Finding]:
        """Ask AWS, by reading calls, and return what is wrong.

        Raises:
            CloudError: AWS cannot be reached.
        """
        from rft_agent_sdk.mtrl.launch_lookups import look_up

        self.seen = look_up(self.spec, clients)
        if not self.seen.has_errors and self.data is not None:
            s3, environment = clients("s3"), self.environment
            if self.data.path is None:
                self.data, self._rows = _launch_data.look_into(
                    "dataset", self.data, s3, environment
                )
            if self.validation is not None and self.validation.path is None:
                self.validation, self._held_out = _launch_data.look_into(
                    "validation_dataset", self.validation, s3, environment
                )
        return self.seen.findings

    def resolved(self) -> Resolved:
        """Return the launch with every name looked up."""
        from rft_agent_sdk.mtrl.launch import resolve

        if self.seen is None or self.data is None:
            raise UsageError("the launch was not looked up")
        return resolve(self.spec, self.seen, self.data, self.validation)

    def document(self, clients: Clients) -> list[Finding]:
        """Return what the service's schema has against the job's document; nothing where nobody may read it.

        Raises:
            CloudError: AWS cannot be reached.
        """
        from rft_agent_sdk.mtrl.launch_document import document
        from rft_agent_sdk.mtrl.launch_schema import check_document, read_schema

        try:
            schema = read_schema(clients)
        except CloudError as refused:
            if refused.is_transient or refused.code is None:
                raise
            return []
        return list(check_document(document(self.spec, self.resolved()), schema))

    def made(self, clients: Clients) -> list[str]:
        """Return what the launch makes besides the job.

        Raises:
            CloudError: AWS refused to say what is there.
        """
        from rft_agent_sdk.mtrl.launch import changes

        if self.seen is None:
            raise UsageError("the launch was not looked up")
        return changes(self.spec, self.seen, clients, self.data, self.validation)

    def launch(self, clients: Clients, folder: Path) -> Launched:
        """Make what is missing, upload what is new, create the job, and return it.

        The agent is noted under the job's name before there is a job: what is left in the folder is then the name
        to look for, whatever becomes of this process.

        Args:
            clients: Of the launch's region.
            folder: Of all jobs' files.

        Raises:
            UsageError: The client refuses the launch.
            CloudError: AWS refused.
        """
        from rft_agent_sdk.mtrl.launch import build_trainer, create_groups, train
        from rft_agent_sdk.mtrl.launch_data import upload

        found = self.resolved()
        if self.seen is not None:
            create_groups(self.spec, self.seen, clients)
        for data in (self.data, self.validation):
            if data is not None:
                upload(clients("s3"), data, self.spec.account)
        noted: list[Path] = []

        def note(name: str) -> None:
            noted.append(_note_agent(clients, found.agent, name, folder))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the client's parts warn of each other
            try:
                return train(build_trainer(self.spec, found=found), note)
            except RftError:
                for path in noted:
                    _forget(path)
                raise


def _note_agent(clients: Clients, agent: Agent, name: str, folder: Path) -> Path:
    """Note what agent a job begins with, so that a later deployment shows; the job is created in any case.

    Returns:
        The file, in the job's folder.
    """
    from rft_agent_sdk.mtrl.lock import lock_path, take_lock, write_lock

    path = lock_path(folder, name)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_lock(path, take_lock(clients, agent, datetime.now(UTC)))
    except (CloudError, OSError) as error:
        logger.warning("job=<%s> | its agent could not be noted: %s", name, error)
    return path


def _forget(path: Path) -> None:
    """Remove what was noted of a job that there is not."""
    try:
        path.unlink(missing_ok=True)
        path.parent.rmdir()
    except OSError as error:
        logger.debug("path=<%s>, error=<%s> | left as it is", path, error)


def request_of(work: Work) -> JSON:
    """Return the CreateJob request of a launch that was looked up, named by the time now."""
    from rft_agent_sdk.mtrl.launch_document import job_request

    now = datetime.now()  # noqa: DTZ005 - the client names jobs by local time
    return job_request(work.spec, work.resolved(), now)
