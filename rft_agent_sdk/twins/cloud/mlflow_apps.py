"""MLflow apps: making, listing, deleting, and the address of one's page."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.paging import is_between, page_of
from rft_agent_sdk.twins.cloud.tags import Tags
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON


@dataclass(slots=True)
class MlflowApp:
    """An app."""

    arn: str
    name: str
    artifact_store_uri: str
    role_arn: str
    version: str = "3.10.0"
    """MLflow's; a job needs at least 3.10."""
    status: str = "Created"
    account_default: str = "DISABLED"
    created: datetime.datetime = field(default_factory=now)

    def summary(self) -> JSON:
        """Return its entry of a list, which does not say whether it is a default."""
        return {
            "Arn": self.arn,
            "Name": self.name,
            "Status": self.status,
            "CreationTime": self.created,
            "LastModifiedTime": self.created,
            "MlflowVersion": self.version,
        }


class MlflowApps:
    """The operations on apps."""

    def __init__(self, account: Account, tags: Tags, url: Callable[[], str]) -> None:
        self._account = account
        self._tags = tags
        self._url = url
        self.apps: dict[str, MlflowApp] = {}
        """By ARN."""
        self.operations: dict[str, Handler] = {
            "CreateMlflowApp": self._create,
            "DescribeMlflowApp": self._describe,
            "ListMlflowApps": self._list,
            "DeleteMlflowApp": self._delete,
            "CreatePresignedMlflowAppUrl": self._presign,
        }

    def make(self, name: str, *, version: str = "3.10.0", status: str = "Created") -> MlflowApp:
        """Return a new app."""
        arn = self._account.arn("sagemaker", f"mlflow-app/app-{secrets.token_hex(6).upper()}")
        role = self._account.global_arn("iam", "role/JobRole")
        app = MlflowApp(arn, name, f"s3://{name}-artifacts", role, version, status)
        self.apps[arn] = app
        return app

    def _create(self, body: JSON) -> JSON:
        name = body["Name"]
        if any(app.name == name for app in self.apps.values()):
            raise Refusal(400, "ResourceInUse", f"MLflow app {name} exists already")
        app = self.make(name)
        app.artifact_store_uri, app.role_arn = body["ArtifactStoreUri"], body["RoleArn"]
        app.account_default = body.get("AccountDefaultStatus", "DISABLED")
        self._tags.put(app.arn, body.get("Tags", ()))
        return {"Arn": app.arn}

    def _describe(self, body: JSON) -> JSON:
        app = self._app(body)
        return {
            **app.summary(),
            "ArtifactStoreUri": app.artifact_store_uri,
            "RoleArn": app.role_arn,
            "AccountDefaultStatus": app.account_default,
        }

    def _list(self, body: JSON) -> JSON:
        found = [
            app.summary()
            for app in self.apps.values()
            if body.get("Status") in (None, app.status)
            and body.get("MlflowVersion") in (None, app.version)
            and body.get("AccountDefaultStatus") in (None, app.account_default)
            and is_between(app.created, body, "CreatedAfter", "CreatedBefore")
        ]
        key = body.get("SortBy", "CreationTime")
        found.sort(key=lambda entry: entry[key], reverse=body.get("SortOrder") != "Ascending")
        return page_of(found, "Summaries", body, default=10)

    def _delete(self, body: JSON) -> JSON:
        return {"Arn": self.apps.pop(self._app(body).arn).arn}

    def _presign(self, body: JSON) -> JSON:
        app_id = self._app(body).arn.rpartition("/")[2]
        return {"AuthorizedUrl": f"{self._url()}/mlflow/{app_id}/auth?authToken=EXAMPLE"}

    def _app(self, body: JSON) -> MlflowApp:
        app = self.apps.get(body["Arn"])
        if app is None:
            raise Refusal(400, "ResourceNotFound", f"MLflow app {body['Arn']} does not exist")
        return app
