"""What a project leaves in an account: the words for it, and what to look for.

Only what is asked for by name, project or tag is found. What a found job has used besides (its MLflow app, its model
package groups, its output) may belong to others too: it is listed, and kept unless somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON

KINDS = {
    "job": "running jobs",
    "session": "training sessions",
    "stack": "CloudFormation stacks",
    "endpoint": "endpoints of runtimes",
    "runtime": "AgentCore runtimes",
    "function": "Lambda functions",
    "mlflow-app": "MLflow apps",
    "package": "model packages",
    "package-group": "model package groups",
    "log-group": "log groups",
    "s3": "outputs in S3",
    "dataset": "datasets in S3",
}
"""In the order in which they can be removed: who writes or calls goes before what is written or called."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """One thing that is still there."""

    kind: str
    """One of `KINDS`."""
    id: str
    """What the service is told to remove: a name, an id or an ARN."""
    name: str
    """What people call it."""
    detail: str = ""
    """Its state, size or the like."""
    is_billed: bool = False
    """Whether it costs money as long as it is there."""
    kept: str = ""
    """Why it is not removed; empty where it may be."""
    blocked: str = ""
    """Why it must stay for now: a job that runs needs it, and is not among what was found."""
    keys: tuple[str, ...] = ()
    """Of S3, which objects: those that were there when it was listed."""
    category: str = ""
    """Of a job."""

    def to_json(self) -> JSON:
        """Return it as one JSON object."""
        return {
            "kind": self.kind,
            "id": self.id,
            "name": self.name,
            "detail": self.detail,
            "is_billed": self.is_billed,
            "kept": self.kept or None,
            "blocked": self.blocked or None,
        }


@dataclass(frozen=True, slots=True)
class Scope:
    """What to look for; whatever matches a name, if names are given, and has the tag, if one is given."""

    project: str = ""
    """Name of an AgentCore project: its stacks and runtimes, and the jobs that those play."""
    prefix: str = ""
    """What names begin with."""
    tag: tuple[str, str] | None = None
    """Key and value."""
    s3: tuple[str, ...] = ()
    """S3 URIs of folders with outputs."""
    include_used: bool = False
    """Whether what found jobs have used may be removed too."""
    include_datasets: bool = False
    """Whether datasets may be removed too."""

    def __post_init__(self) -> None:
        """Refuse a scope that would be the whole account.

        Raises:
            UsageError: It names nothing, or a whole bucket.
        """
        if not (self.project or self.prefix or self.tag or self.s3):
            raise UsageError(
                "wanted what to look for: a project, the beginning of names, a tag or an S3 folder; "
                "nothing is ever looked for in the whole account"
            )
        for uri in self.s3:
            if not all(split_uri(uri)):
                raise UsageError(f"wanted an S3 folder such as s3://bucket/folder, got {uri!r}")

    @property
    def has_names(self) -> bool:
        """Whether names are looked at."""
        return bool(self.project or self.prefix)

    def is_named(self, name: str, *of_project: str) -> bool:
        """Whether a name is in scope.

        Args:
            name: Of the thing.
            of_project: What the name begins with where it belongs to the project.
        """
        starts = [self.prefix] if self.prefix else []
        starts += of_project if self.project else ()
        return name.startswith(tuple(starts)) if starts else not self.has_names and bool(self.tag)

    def has_tag(self, read: Callable[..., Mapping[str, str]], *of: Any) -> bool:
        """Whether something has the tag; its tags are read only if one is wanted."""
        return self.tag is None or read(*of).get(self.tag[0]) == self.tag[1]


@dataclass(slots=True)
class Inventory:
    """What was found, and what could not be looked for."""

    found: list[Leftover] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """What the service refused to list, one sentence each."""
    jobs_unseen: str = ""
    """Why it is not known which jobs run; empty where it is. What a job may need is then nobody's to remove."""

    def of(self, kind: str) -> list[Leftover]:
        """Return what was found of a kind."""
        return [one for one in self.found if one.kind == kind]

    @property
    def removable(self) -> list[Leftover]:
        """What may be removed, in the order of `KINDS`."""
        return [one for kind in KINDS for one in self.of(kind) if not one.kept]


def split_uri(uri: str) -> tuple[str, str]:
    """Return bucket and key of an S3 URI, the key without a slash at its end; empty texts where it has none."""
    bucket, _, key = (
        uri.removeprefix("s3://").partition("/") if uri.startswith("s3://") else ("",) * 3
    )
    return bucket, key.rstrip("/")


def is_within(name: str, key: str) -> bool:
    """Whether an object is the key itself or in the folder of that name; `out2` is not in `out`."""
    return name == key or name.startswith(f"{key}/")


def size(count: int) -> str:
    """Return a number of bytes for people."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"
