"""Jobs: creating, describing, listing, stopping, deleting, and the threads that run them."""

from __future__ import annotations

import json
import logging
import threading

from rft_agent_sdk.twins.cloud.account import Account, Handler
from rft_agent_sdk.twins.cloud.job_checks import JobChecks
from rft_agent_sdk.twins.cloud.job_record import JobRecord, JobRequest, JobRunner, StopRequested
from rft_agent_sdk.twins.cloud.job_schema import SCHEMAS, VERSION
from rft_agent_sdk.twins.cloud.logs import Logs
from rft_agent_sdk.twins.cloud.mlflow_store import MlflowStore
from rft_agent_sdk.twins.cloud.paging import is_between, page_of
from rft_agent_sdk.twins.cloud.roles import JOB_SERVICE, Directory
from rft_agent_sdk.twins.cloud.s3 import S3
from rft_agent_sdk.twins.cloud.tags import Tags
from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.types import JSON

logger = logging.getLogger(__name__)

_END_S = 30.0
"""How long a closing cloud waits for each runner."""
_SORT_KEYS = {"Name": "JobName", "CreationTime": "CreationTime", "Status": "JobStatus"}


class Jobs:
    """The operations on jobs."""

    def __init__(
        self,
        account: Account,
        checks: JobChecks,
        directory: Directory,
        tags: Tags,
        logs: Logs,
        store: MlflowStore,
        s3: S3,
        runner: JobRunner,
    ) -> None:
        self._account = account
        self._checks = checks
        self._directory = directory
        self._tags = tags
        self._logs = logs
        self._store = store
        self._s3 = s3
        self.runner = runner
        """Runs the jobs created from now on."""
        self.concurrency = 1
        """Jobs of a category that may run at a time: an account's quota."""
        self.jobs: dict[str, JobRecord] = {}
        """By name, oldest first, of every category."""
        self._threads: list[threading.Thread] = []
        self.operations: dict[str, Handler] = {
            "CreateJob": self._create,
            "DescribeJob": self._describe,
            "ListJobs": self._list,
            "StopJob": self._stop,
            "DeleteJob": self._delete,
            "ListJobSchemaVersions": self._list_schema_versions,
            "DescribeJobSchemaVersion": self._describe_schema_version,
        }

    def close(self) -> None:
        """Stop what runs and wait for it."""
        for job in list(self.jobs.values()):
            job.request_stop()
        for thread in self._threads:
            thread.join(_END_S)
            if thread.is_alive():
                logger.warning("thread=<%s> | its runner does not heed the stop", thread.name)

    def _create(self, body: JSON) -> JSON:
        name, category = body["JobName"], body["JobCategory"]
        document = self._checks.parse(body)
        if name in self.jobs:
            raise Refusal(400, "ResourceInUse", f"Job {name} exists already")
        running = sum(not job.is_terminal for job in self.jobs.values() if job.category == category)
        if running >= self.concurrency:
            raise Refusal(
                400,
                "ResourceLimitExceeded",
                f"The account-level service limit of concurrent {category} jobs is {self.concurrency}, with current utilization of {running}",
            )
        request = JobRequest(
            name=name,
            arn=self._account.arn("sagemaker", f"job/{category}/{name}"),
            role_arn=body["RoleArn"],
            category=category,
            schema_version=body["JobConfigSchemaVersion"],
            document=document,
            tags=body.get("Tags", []),
        )
        self._tags.put(request.arn, request.tags)
        job = self.jobs[name] = JobRecord(
            request, self._logs, self._checks.packages, self._store, self._s3
        )
        thread = threading.Thread(
            target=self._run, args=(job, self.runner), name=f"rft-job-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return {"JobArn": job.arn}

    def _run(self, job: JobRecord, runner: JobRunner) -> None:
        role = self._directory.role_of(job.request.role_arn)
        # Whether the role can be taken on shows only here, after CreateJob has answered.
        if role is None or not role.trusts(JOB_SERVICE, "sts:AssumeRole", "sts:TagSession"):
            job.fail(
                f"Could not assume role {job.request.role_arn}. Ensure that the role exists and allows {JOB_SERVICE} to perform sts:AssumeRole and sts:TagSession"
            )
            return
        try:
            runner(job)
        except StopRequested:
            job.stopped()
        except Exception as error:
            logger.exception("job=<%s> | its runner failed", job.name)
            job.fail(f"{type(error).__name__}: {error}")
        else:
            if job.is_stopping:
                job.stopped()
            job.fail("the runner returned without ending the job")

    def _describe(self, body: JSON) -> JSON:
        return self._job(body).describe()

    def _list(self, body: JSON) -> JSON:
        found = [
            summary
            for job in self.jobs.values()
            if job.category == body["JobCategory"]
            and body.get("NameContains", "") in job.name
            and body.get("StatusEquals") in (None, (summary := job.summary())["JobStatus"])
            and is_between(job.created, body, "CreationTimeAfter", "CreationTimeBefore")
            and is_between(
                summary["LastModifiedTime"], body, "LastModifiedTimeAfter", "LastModifiedTimeBefore"
            )
        ]
        key = _SORT_KEYS[body.get("SortBy", "CreationTime")]
        found.sort(key=lambda entry: entry[key], reverse=body.get("SortOrder") != "Ascending")
        return page_of(found, "JobSummaries", body, default=50)

    def _stop(self, body: JSON) -> JSON:
        job = self._job(body)
        if job.is_terminal:
            raise invalid(f"Job {job.name} is {job.status} and cannot be stopped")
        job.request_stop()
        return {}

    def _delete(self, body: JSON) -> JSON:
        job = self._job(body)
        if not job.is_terminal:
            raise Refusal(400, "ResourceInUse", f"Job {job.name} is {job.status}: stop it first")
        del self.jobs[job.name]
        return {}

    def _list_schema_versions(self, body: JSON) -> JSON:
        _schema(body["JobCategory"])
        return page_of([{"JobConfigSchemaVersion": VERSION}], "JobConfigSchemas", body, default=5)

    def _describe_schema_version(self, body: JSON) -> JSON:
        category, version = body["JobCategory"], body.get("JobConfigSchemaVersion", VERSION)
        schema = _schema(category)
        if version != VERSION:
            raise Refusal(400, "ResourceNotFound", f"{category} has no schema {version}")
        return {
            "JobCategory": category,
            "JobConfigSchemaVersion": VERSION,
            "JobConfigSchema": json.dumps(schema),
        }

    def _job(self, body: JSON) -> JobRecord:
        name, category = body["JobName"], body["JobCategory"]
        job = self.jobs.get(name)
        if job is None or job.category != category:
            raise Refusal(400, "ResourceNotFound", f"Job {name} of {category} does not exist")
        return job


def _schema(category: str) -> JSON:
    schema = SCHEMAS.get(category)
    if schema is None:
        raise Refusal(400, "ResourceNotFound", f"{category} has no schema here")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
