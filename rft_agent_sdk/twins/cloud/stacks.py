"""CloudFormation stacks, as deployments leave them: listing, describing, deleting."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rft_agent_sdk.twins.cloud.account import Account, Handler, now
from rft_agent_sdk.twins.cloud.runtimes import Runtimes
from rft_agent_sdk.twins.refusal import Refusal
from rft_agent_sdk.types import JSON

RUNTIME = "AWS::BedrockAgentCore::Runtime"


@dataclass(frozen=True, slots=True)
class StackResource:
    """A resource of a stack."""

    logical_id: str
    physical_id: str
    type: str = RUNTIME


@dataclass(slots=True)
class Stack:
    """A stack; deleting it deletes the runtimes among its resources."""

    resources: Sequence[StackResource] = ()
    outputs: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    status: str = "CREATE_COMPLETE"
    is_protected: bool = False
    """Termination protection."""
    delete_fails: str | None = None
    """Why a deletion ends in DELETE_FAILED; `None` lets it succeed."""
    reason: str | None = None
    """`StackStatusReason`."""
    created: datetime.datetime = field(default_factory=now)
    deleted: datetime.datetime | None = None


class Stacks:
    """The operations on stacks."""

    def __init__(self, account: Account, runtimes: Runtimes) -> None:
        self._account = account
        self._runtimes = runtimes
        self.stacks: dict[str, Stack] = {}
        """By name, also the deleted ones."""
        self.operations: dict[str, Handler] = {
            "DescribeStacks": self._describe,
            "ListStacks": self._list,
            "ListStackResources": self._list_resources,
            "DeleteStack": self._delete,
        }

    def _describe(self, body: JSON) -> JSON:
        asked = body.get("StackName")
        if asked is not None:
            name, stack = self._found(asked)
            return {"Stacks": [self._described(name, stack)]}
        kept = [(name, stack) for name, stack in self.stacks.items() if stack.deleted is None]
        return {"Stacks": [self._described(name, stack) for name, stack in kept]}

    def _list(self, body: JSON) -> JSON:
        wanted = body.get("StackStatusFilter")
        found = [
            self._named(name, stack)
            for name, stack in self.stacks.items()
            if not wanted or stack.status in wanted
        ]
        return {"StackSummaries": found}

    def _list_resources(self, body: JSON) -> JSON:
        _, stack = self._found(body["StackName"])
        state = "DELETE_COMPLETE" if stack.deleted else "CREATE_COMPLETE"
        found = [
            {
                "LogicalResourceId": resource.logical_id,
                "PhysicalResourceId": resource.physical_id,
                "ResourceType": resource.type,
                "LastUpdatedTimestamp": stack.deleted or stack.created,
                "ResourceStatus": state,
            }
            for resource in stack.resources
        ]
        return {"StackResourceSummaries": found}

    def _delete(self, body: JSON) -> JSON:
        name = self._name(body["StackName"])
        stack = self.stacks.get(name)
        # A stack that is not there is as deleted as it can be.
        if stack is None or stack.deleted is not None:
            return {}
        if stack.is_protected:
            raise _invalid(
                f"Stack [{name}] cannot be deleted while TerminationProtection is enabled"
            )
        if stack.delete_fails is not None:
            stack.status, stack.reason = "DELETE_FAILED", stack.delete_fails
            return {}
        for resource in stack.resources:
            if resource.type == RUNTIME:
                self._runtimes.runtimes.pop(resource.physical_id, None)
        stack.status, stack.deleted = "DELETE_COMPLETE", now()
        return {}

    def _found(self, asked: str) -> tuple[str, Stack]:
        name = self._name(asked)
        stack = self.stacks.get(name)
        # A deleted one is found by its id only.
        if stack is None or (stack.deleted is not None and asked == name):
            raise _invalid(f"Stack with id {asked} does not exist")
        return name, stack

    def _name(self, asked: str) -> str:
        return next((name for name in self.stacks if self._id(name) == asked), asked)

    def _id(self, name: str) -> str:
        stack_id = "00000000-0000-4000-8000-000000000001"
        return self._account.arn("cloudformation", f"stack/{name}/{stack_id}")

    def _named(self, name: str, stack: Stack) -> JSON:
        named: JSON = {
            "StackId": self._id(name),
            "StackName": name,
            "CreationTime": stack.created,
            "StackStatus": stack.status,
        }
        if stack.deleted is not None:
            named["DeletionTime"] = stack.deleted
        if stack.reason is not None:
            named["StackStatusReason"] = stack.reason
        return named

    def _described(self, name: str, stack: Stack) -> JSON:
        return {
            **self._named(name, stack),
            "EnableTerminationProtection": stack.is_protected,
            "Outputs": [
                {"OutputKey": key, "OutputValue": value} for key, value in stack.outputs.items()
            ],
            "Tags": [{"Key": key, "Value": value} for key, value in stack.tags.items()],
        }


def _invalid(message: str) -> Refusal:
    return Refusal(400, "ValidationError", message)
