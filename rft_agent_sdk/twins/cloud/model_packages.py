"""The model registry: groups, and the packages that jobs put into them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.paging import is_between, page_of
from rft_agent_sdk.twins.cloud.tags import Tags
from rft_agent_sdk.twins.refusal import Refusal, invalid
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class ModelPackage:
    """One version in a group."""

    arn: str
    group: str
    version: int
    s3_uri: str
    """Where its artefacts lie."""
    is_checkpoint: bool = False
    """Whether it is for resuming a job, with the optimizer's state, and not for serving."""
    base_model: str | None = None
    """Hub name of what it was trained from."""
    created: datetime.datetime = field(default_factory=now)


@dataclass(slots=True)
class ModelPackageGroup:
    """A group."""

    name: str
    arn: str
    managed: JSON | None = None
    """`ManagedConfiguration`, as Nova models need it."""
    description: str | None = None
    packages: dict[int, ModelPackage] = field(default_factory=dict)
    """By version."""
    versions: int = 0
    """Highest version given out; one is never given out again."""
    created: datetime.datetime = field(default_factory=now)


class ModelPackages:
    """The operations on groups and packages."""

    def __init__(self, account: Account, tags: Tags) -> None:
        self._account = account
        self._tags = tags
        self.groups: dict[str, ModelPackageGroup] = {}
        """By name."""
        self.operations: dict[str, Handler] = {
            "CreateModelPackageGroup": self._create_group,
            "DescribeModelPackageGroup": self._describe_group,
            "ListModelPackageGroups": self._list_groups,
            "DeleteModelPackageGroup": self._delete_group,
            "DescribeModelPackage": self._describe,
            "ListModelPackages": self._list,
            "DeleteModelPackage": self._delete,
        }

    def make_group(self, name: str) -> ModelPackageGroup:
        """Return the group of a name, made where there is none."""
        arn = self._account.arn("sagemaker", f"model-package-group/{name}")
        return self.groups.setdefault(name, ModelPackageGroup(name, arn))

    def group_of(self, name_or_arn: str) -> ModelPackageGroup | None:
        """Return a group by either; an ARN must be its own."""
        group = self.groups.get(name_or_arn.rpartition("/")[2])
        if group is None or ("/" in name_or_arn and name_or_arn != group.arn):
            return None
        return group

    def package_of(self, arn: str) -> ModelPackage | None:
        """Return a package by its ARN, or by `group/version`."""
        name, _, version = arn.partition("model-package/")[2].partition("/")
        group = self.groups.get(name)
        return group.packages.get(int(version)) if group and version.isdecimal() else None

    def publish(
        self, group_arn: str, s3_uri: str, *, is_checkpoint: bool = False, base: str | None = None
    ) -> ModelPackage:
        """Put a version into a group and return it.

        Raises:
            Refusal: There is no such group.
        """
        with self._account.lock:
            group = self.group_of(group_arn)
            if group is None:
                raise _missing("Model Package Group", group_arn)
            group.versions += 1
            arn = self._account.arn("sagemaker", f"model-package/{group.name}/{group.versions}")
            package = ModelPackage(arn, group.name, group.versions, s3_uri, is_checkpoint, base)
            group.packages[group.versions] = package
            return package

    def _create_group(self, body: JSON) -> JSON:
        name = body["ModelPackageGroupName"]
        if name in self.groups:
            raise invalid(f"Model Package Group already exists: {self.groups[name].arn}")
        group = self.make_group(name)
        group.managed = body.get("ManagedConfiguration")
        group.description = body.get("ModelPackageGroupDescription")
        self._tags.put(group.arn, body.get("Tags", ()))
        return {"ModelPackageGroupArn": group.arn}

    def _describe_group(self, body: JSON) -> JSON:
        return {**_group_summary(self._group(body)), "CreatedBy": {}}

    def _list_groups(self, body: JSON) -> JSON:
        found = [
            _group_summary(group)
            for group in self.groups.values()
            if body.get("NameContains", "") in group.name
            and is_between(group.created, body, "CreationTimeAfter", "CreationTimeBefore")
        ]
        _sort(found, body, "ModelPackageGroupName")
        return page_of(found, "ModelPackageGroupSummaryList", body, default=10)

    def _delete_group(self, body: JSON) -> JSON:
        group = self._group(body)
        if group.packages:
            raise Refusal(
                400,
                "ConflictException",
                f"Model Package Group {group.arn} still holds {len(group.packages)} model packages",
            )
        del self.groups[group.name]
        return {}

    def _describe(self, body: JSON) -> JSON:
        package = self._package(body)
        container: JSON = {
            "IsCheckpoint": package.is_checkpoint,
            "ModelDataSource": {
                "S3DataSource": {
                    "S3Uri": package.s3_uri,
                    "S3DataType": "S3Prefix",
                    "CompressionType": "None",
                }
            },
        }
        if package.base_model is not None:
            container["BaseModel"] = {"HubContentName": package.base_model}
        return {
            **_package_summary(package),
            "ModelPackageName": f"{package.group}-{package.version}"[:63],
            "ModelPackageStatusDetails": {"ValidationStatuses": []},
            "InferenceSpecification": {"Containers": [container]},
        }

    def _list(self, body: JSON) -> JSON:
        wanted = body.get("ModelPackageGroupName")
        groups = self.groups.values() if wanted is None else [self._group(body)]
        found = [
            _package_summary(package)
            for group in groups
            for package in group.packages.values()
            if body.get("NameContains", "") in package.group
            and is_between(package.created, body, "CreationTimeAfter", "CreationTimeBefore")
        ]
        _sort(found, body, "ModelPackageArn")
        return page_of(found, "ModelPackageSummaryList", body, default=10)

    def _delete(self, body: JSON) -> JSON:
        package = self._package(body)
        del self.groups[package.group].packages[package.version]
        return {}

    def _group(self, body: JSON) -> ModelPackageGroup:
        name = body["ModelPackageGroupName"]
        group = self.group_of(name)
        if group is None:
            raise _missing("Model Package Group", name)
        return group

    def _package(self, body: JSON) -> ModelPackage:
        name = body["ModelPackageName"]
        package = self.package_of(name if "model-package/" in name else f"model-package/{name}")
        if package is None:
            raise _missing("Model Package", name)
        return package


def _missing(what: str, name: str) -> Refusal:
    # The registry has no error of its own for this.
    return invalid(f"{what} {name} does not exist.")


def _sort(found: list[JSON], body: JSON, name: str) -> None:
    key = name if body.get("SortBy") == "Name" else "CreationTime"
    found.sort(key=lambda entry: entry[key], reverse=body.get("SortOrder") != "Ascending")


def _group_summary(group: ModelPackageGroup) -> JSON:
    summary: JSON = {
        "ModelPackageGroupName": group.name,
        "ModelPackageGroupArn": group.arn,
        "ModelPackageGroupStatus": "Completed",
        "CreationTime": group.created,
    }
    if group.description is not None:
        summary["ModelPackageGroupDescription"] = group.description
    if group.managed is not None:
        summary["ManagedConfiguration"] = group.managed
    return summary


def _package_summary(package: ModelPackage) -> JSON:
    return {
        "ModelPackageArn": package.arn,
        "ModelPackageGroupName": package.group,
        "ModelPackageVersion": package.version,
        "ModelPackageStatus": "Completed",
        "CreationTime": package.created,
    }
