"""Tags of whatever has an ARN, as three services tell them."""

from __future__ import annotations

from collections.abc import Iterable

from rft_agent_sdk.twins.cloud.account import Handler
from rft_agent_sdk.types import JSON


class Tags:
    """The operations on tags. A resource that does not exist has none."""

    def __init__(self) -> None:
        self.by_arn: dict[str, dict[str, str]] = {}
        """Tags by ARN."""
        self.sagemaker: dict[str, Handler] = {
            "ListTags": lambda body: {"Tags": self.listed(body["ResourceArn"])},
            "AddTags": self._add,
            "DeleteTags": self._remove,
        }
        self.functions: dict[str, Handler] = {
            "ListTags": lambda body: {"Tags": self._of(body["Resource"])}
        }
        self.runtimes: dict[str, Handler] = {
            "ListTagsForResource": lambda body: {"tags": self._of(body["resourceArn"])},
            "TagResource": self._tag_runtime,
        }

    def put(self, arn: str, pairs: Iterable[JSON]) -> None:
        """Tag a resource with `Key` and `Value` pairs."""
        self.by_arn.setdefault(arn, {}).update({pair["Key"]: pair["Value"] for pair in pairs})

    def listed(self, arn: str) -> list[JSON]:
        """Return a resource's tags as `Key` and `Value` pairs."""
        return [{"Key": key, "Value": value} for key, value in self._of(arn).items()]

    def _of(self, arn: str) -> dict[str, str]:
        return self.by_arn.get(arn, {})

    def _add(self, body: JSON) -> JSON:
        self.put(body["ResourceArn"], body["Tags"])
        return {"Tags": self.listed(body["ResourceArn"])}

    def _remove(self, body: JSON) -> JSON:
        for key in body["TagKeys"]:
            self._of(body["ResourceArn"]).pop(key, None)
        return {}

    def _tag_runtime(self, body: JSON) -> JSON:
        self.by_arn.setdefault(body["resourceArn"], {}).update(body["tags"])
        return {}
