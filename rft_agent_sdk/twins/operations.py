"""What each operation of a training session does: from its fields to its result and its bill."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rft_agent_sdk.twins.backend import OperationFailed, SampledTokens, TrainingBackend
from rft_agent_sdk.twins.refusal import invalid
from rft_agent_sdk.twins.session_wire import (
    adam_of,
    datums_of,
    loss_of,
    sample_of,
    text,
    tokens_of,
)
from rft_agent_sdk.types import JSON


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, by what they are billed as."""

    prefill: int = 0
    """Prompt tokens."""
    sampled: int = 0
    """New tokens."""
    training: int = 0
    """Tokens of forward passes, with or without a backward one."""

    def plus(self, other: Usage) -> Usage:
        """Return the sum."""
        return Usage(
            self.prefill + other.prefill,
            self.sampled + other.sampled,
            self.training + other.training,
        )

    def billable(self) -> dict[str, int]:
        """Return it in the service's words."""
        return {
            "PrefillTokenCount": self.prefill,
            "SampleTokenCount": self.sampled,
            "TrainingTokenCount": self.training,
        }


@dataclass(frozen=True, slots=True)
class Package:
    """A saved model package."""

    arn: str
    """Its name."""
    weights: Any
    """What is sampled; opaque."""
    state: Any = None
    """What training goes on from; `None` where only weights were saved."""
    description: str = ""
    """The saver's label."""


class Packages:
    """The model packages of all sessions; they outlive them."""

    def __init__(self, region: str, account: str) -> None:
        self._prefix = f"arn:aws:sagemaker:{region}:{account}:model-package/"
        self._numbers = itertools.count(1)
        self._known: dict[str, Package] = {}

    def save(self, group: str, weights: Any, state: Any, description: str) -> Package:
        """Register a new version in a group."""
        arn = f"{self._prefix}{group}/{next(self._numbers)}"
        package = self._known[arn] = Package(arn, weights, state, description)
        return package

    def find(self, arn: str) -> Package:
        """Return a package.

        Raises:
            OperationFailed: There is none of that name.
        """
        if arn not in self._known:
            raise OperationFailed(f"model package {arn!r} does not exist")
        return self._known[arn]


class Owner(Protocol):
    """The session an operation belongs to."""

    request: JSON
    backend: TrainingBackend
    sampled: Package | None


Work = Callable[[], tuple[JSON, Usage]]
"""Computes a result; called on a thread."""


def training_work(owner: Owner, name: str, fields: JSON, packages: Packages) -> Work:
    """Return what a checked training operation does."""
    if name in ("forward", "forwardBackward"):
        return lambda: _forward(owner, fields, backward=name == "forwardBackward")
    if name == "optimizerStep":
        return lambda: (
            {"metrics": dict(owner.backend.optimizer_step(adam_of(fields)))},
            Usage(),
        )
    if name == "loadState":
        return lambda: _load_state(owner, fields, packages)
    return lambda: _save(owner, fields, packages, with_state=name == "saveState")


def sampling_work(owner: Owner, name: str, fields: JSON, packages: Packages) -> Work:
    """Return what a sampling operation does.

    Raises:
        Refusal: It is wrong.
    """
    if name == "loadWeightsForSampling":
        arn = text(fields, "modelPackageArn")
        return lambda: _load_weights(owner, packages.find(arn))
    tokens_of(fields.get("prompt"))
    if name == "computeLogprobs":
        return lambda: _logprobs(owner, fields, packages)
    sample_of(fields)
    top_k = fields.get("topkPromptLogprobs") or 0
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 0:
        raise invalid(f"sample.topkPromptLogprobs must be a count, got {top_k!r}")
    return lambda: _sample(owner, fields, packages, top_k)


def _forward(owner: Owner, fields: JSON, *, backward: bool) -> tuple[JSON, Usage]:
    loss = loss_of(fields)
    datums = datums_of(fields, loss)
    found = owner.backend.forward_backward(datums, loss, backward=backward)
    outputs = [
        {"logprobs": _tensor(list(logprobs)), "actor/pg_loss": _tensor([value])}
        for logprobs, value in zip(found.logprobs, found.losses, strict=True)
    ]
    tokens = sum(len(datum.tokens) for datum in datums)
    result = {
        "lossFnOutputType": loss.name,
        "lossFnOutputs": outputs,
        "metrics": dict(found.metrics),
        "tokenUsage": {"trainingTokens": tokens},
    }
    return result, Usage(training=tokens)


def _save(
    owner: Owner, fields: JSON, packages: Packages, *, with_state: bool
) -> tuple[JSON, Usage]:
    state = owner.backend.state() if with_state else None
    weights = owner.backend.weights_of(state) if with_state else owner.backend.weights()
    group = str(owner.request.get("ModelPackageGroupArn") or "sagemaker-default").rpartition("/")[2]
    package = packages.save(group, weights, state, str(fields.get("description") or ""))
    owner.sampled = package
    return {"modelPackageArn": package.arn}, Usage()


def _load_state(owner: Owner, fields: JSON, packages: Packages) -> tuple[JSON, Usage]:
    package = packages.find(fields["modelPackageArn"])
    if package.state is None:
        raise OperationFailed(f"model package {package.arn!r} holds weights only, no state")
    owner.backend.load_state(package.state, with_optimizer=fields["loadOptimizer"])
    return {}, Usage()


def _load_weights(owner: Owner, package: Package) -> tuple[JSON, Usage]:
    owner.sampled = package
    return {}, Usage()


def _weights(owner: Owner, fields: JSON, packages: Packages) -> Any:
    """Return the weights asked for; without a name, the latest checkpoint's, as the service model has it."""
    arn = fields.get("modelPackageArn")
    package = packages.find(arn) if arn else owner.sampled
    return None if package is None else package.weights


def _sample(owner: Owner, fields: JSON, packages: Packages, top_k: int) -> tuple[JSON, Usage]:
    request = sample_of(fields)
    weights = _weights(owner, fields, packages)
    found = owner.backend.sample(weights, request)
    result: JSON = {"sequences": [_sequence(one, len(request.prompt)) for one in found]}
    if fields.get("includePromptLogprobs"):
        result["promptLogprobs"] = owner.backend.logprobs(weights, request.prompt)
    if top_k:
        result["topkPromptLogprobs"] = [
            [{"tokenId": token, "logprob": logprob} for token, logprob in best]
            for best in owner.backend.top_logprobs(weights, request.prompt, top_k)
        ]
    return result, Usage(
        prefill=len(request.prompt) * len(found), sampled=sum(len(one.tokens) for one in found)
    )


def _logprobs(owner: Owner, fields: JSON, packages: Packages) -> tuple[JSON, Usage]:
    prompt = tokens_of(fields["prompt"])
    found = owner.backend.logprobs(_weights(owner, fields, packages), prompt)
    return {"logprobs": found}, Usage(prefill=len(prompt))


def _sequence(found: SampledTokens, prefill: int) -> JSON:
    return {
        "stopReason": found.stop_reason,
        "tokens": list(found.tokens),
        "logprobs": list(found.logprobs),
        "tokenUsage": {"prefill": prefill, "decode": len(found.tokens)},
    }


def _tensor(values: list[float]) -> JSON:
    return {"data": values, "dtype": "float32", "shape": [len(values)]}
