"""A request on the wire → `RolloutRequest`. The only file that knows wire spellings.

Two kinds of request arrive. A *managed* rollout, from a SageMaker job:
`{"prompt": str, "metadata": {"jobArn", "rolloutId", ...}, "inferenceParams": {...}}`. And a *gateway*
rollout, from a trainer that hosts its own gateway: the task's fields beside
`"_config": {"base_url", "model_id", "api_key", ...}`. A request that carries both is a gateway
rollout: a trainer may forward a recorded managed payload verbatim. One more is no rollout at all:
`{"rft_doctor": true}` asks the agent about itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rft_agent_sdk.errors import PayloadError
from rft_agent_sdk.types import JSON, SamplingParams

_JOB_ARN = ("jobArn", "job_arn", "JobArn")
_ROLLOUT_ID = ("rolloutId", "rollout_id", "trajectoryId", "trajectory_id", "TrajectoryId")
_PARAMS = ("inference_params", "inferenceParams")
_TEMPERATURE = ("temperature",)
_TOP_P = ("top_p", "topP")
_MAX_TOKENS = ("max_tokens", "maxTokens")
_ENVELOPE = frozenset(
    {
        "_config",
        "_agentcore_runtime",  # how agentcore-rl-toolkit's client asks for background work
        "metadata",
        *_PARAMS,
        "model_name",
        "model_endpoint",
        "modelName",
        "modelEndpoint",
    }
)
_WANTED = (
    'wanted {"prompt": str, "metadata": {"jobArn": str, "rolloutId": str}} or '
    '{"prompt": str, "_config": {"base_url": str, "api_key": str}}'
)


@dataclass(frozen=True, slots=True)
class JobAddress:
    """Where a managed rollout belongs."""

    job_arn: str
    rollout_id: str
    """Equal to the trajectory id of the Job Runtime."""
    endpoint: str | None = None
    """Job Runtime endpoint named by the payload; `None` leaves it to the environment or the region."""
    region: str | None = None


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where a gateway rollout's policy is, and how its result is wanted."""

    base_url: str
    """OpenAI base URL, with or without `/v1`."""
    api_key: str = field(repr=False)
    """The session's secret; sent to `base_url` and to nothing else."""
    model_id: str = "default"
    deadline_s: float | None = None
    """Seconds the trainer gives the rollout, from its start; `None` means the agent's own budget."""
    report: bool = False
    """Whether the trainer takes the result by CompleteRollout and UpdateReward as well."""


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """One parsed request for one rollout."""

    prompt: str
    """The prompt, byte for byte as it came."""
    task: str
    """What `Environment.start` reads: the prompt itself, or, when a gateway rollout carries more task
    fields than the prompt, all of them as one JSON object."""
    job: JobAddress | None = None
    gateway: GatewayAddress | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The payload as it came; repr leaves it out, since it can hold a secret."""

    @property
    def rollout_id(self) -> str:
        """The rollout's id in a managed job, or empty: at a gateway the secret is the session."""
        return self.job.rollout_id if self.job else ""


def parse_request(payload: object) -> RolloutRequest:
    """Read a payload into a frozen `RolloutRequest`.

    Raises:
        PayloadError: The payload is not understood. Its `job` holds the rollout's address if that
            much could be read, so that the caller can still complete the rollout.
    """
    body = _unwrap(payload)
    gateway = _gateway(body)
    job = None if gateway else _job(body)
    try:
        if gateway is None and job is None:
            raise PayloadError(
                f"the payload names no job and no gateway: {_WANTED}; got keys {sorted(map(str, body))}"
            )
        prompt, task = _task(body)
        sampling = _sampling(body)
    except PayloadError as error:
        raise PayloadError(str(error), job=job) from None
    return RolloutRequest(prompt, task, job, gateway, sampling, body)


def is_self_check(payload: object) -> bool:
    """Whether a request asks the agent about itself, and for nothing else: `{"rft_doctor": true}`."""
    return isinstance(payload, Mapping) and len(payload) == 1 and payload.get("rft_doctor") is True


def _unwrap(payload: object) -> JSON:
    """Return the payload object itself, out of an API-Gateway-like wrapper if there is one."""
    if (
        isinstance(payload, Mapping)
        and "prompt" not in payload
        and isinstance(payload.get("body"), str)
    ):
        try:
            payload = json.loads(payload["body"])
        except (ValueError, RecursionError) as error:
            raise PayloadError(f"the payload's body is not JSON ({error}): {_WANTED}") from None
    if not isinstance(payload, Mapping):
        raise PayloadError(
            f"the payload is a {type(payload).__name__}, not a JSON object: {_WANTED}"
        )
    return dict(payload)


def _section(body: JSON, *names: str) -> Mapping[str, Any]:
    for name in names:
        section = body.get(name)
        if section is None:
            continue
        if not isinstance(section, Mapping):
            raise PayloadError(f"{name} must be an object, got {type(section).__name__}")
        return section
    return {}


def _first(section: Mapping[str, Any], names: tuple[str, ...]) -> object:
    return next((section[name] for name in names if section.get(name) is not None), None)


def _text(
    section: Mapping[str, Any], where: str, names: tuple[str, ...], *, limit: int = 2048
) -> str | None:
    value = _first(section, names)
    if value is None:
        return None
    if not isinstance(value, str):
        raise PayloadError(f"{where}.{names[0]} must be a string, got {type(value).__name__}")
    if len(value) > limit or any(ord(char) < 32 or ord(char) == 127 for char in value):
        got = f"{len(value)} characters" if where == "_config" else repr(value[:60])  # a secret
        raise PayloadError(
            f"{where}.{names[0]} must be at most {limit} printable characters, got {got}"
        )
    if not value.strip():
        return None
    return value


def _job(body: JSON) -> JobAddress | None:
    metadata = _section(body, "metadata")
    job_arn = _text(metadata, "metadata", _JOB_ARN, limit=256)
    rollout_id = _text(metadata, "metadata", _ROLLOUT_ID, limit=256)
    if job_arn is None and rollout_id is None:
        return None
    if job_arn is None or rollout_id is None:
        missing = "jobArn" if job_arn is None else "rolloutId"
        raise PayloadError(
            f"metadata.{missing} is missing, so the rollout's reward could reach nobody: {_WANTED}"
        )
    for header in (job_arn, rollout_id):
        if not header.isascii() or header != header.strip():
            raise PayloadError(
                "metadata ids travel in HTTP headers and must be ASCII without white space around "
                f"them, got {header!r}"
            )
    try:
        region = _text(metadata, "metadata", ("region",))
        endpoint = _text(metadata, "metadata", ("endpoint",)) or _text(
            body, "payload", ("modelEndpoint", "model_endpoint")
        )
    except PayloadError as error:  # the reward can still be sent to the usual endpoint
        raise PayloadError(str(error), job=JobAddress(job_arn, rollout_id)) from None
    return JobAddress(job_arn, rollout_id, endpoint, region)


def _gateway(body: JSON) -> GatewayAddress | None:
    if body.get("_config") is None:
        return None
    config = _section(body, "_config")
    base_url = _text(config, "_config", ("base_url",))
    if base_url is None:
        raise PayloadError("_config.base_url is missing: wanted the gateway's OpenAI base URL")
    deadline_s = _number(config, "_config", ("deadline_s",), low=0)
    report = config.get("report", False)
    if not isinstance(report, bool):
        raise PayloadError(f"_config.report must be true or false, got {report!r}")
    return GatewayAddress(
        base_url=base_url,
        api_key=_text(config, "_config", ("api_key",)) or "EMPTY",
        model_id=_text(config, "_config", ("model_id",)) or "default",
        deadline_s=deadline_s,
        report=report,
    )


def _task(body: JSON) -> tuple[str, str]:
    """Return the prompt and the task string."""
    fields = {name: value for name, value in body.items() if name not in _ENVELOPE}
    instance = fields.get("instance")
    if "prompt" not in fields and isinstance(instance, Mapping):
        fields = dict(instance)
    elif body.get("_config") is None and "prompt" in fields:
        # A job sends the prompt column and nothing else of a row. Whatever it may add to the payload
        # one day is no part of the task, which must stay the stored string.
        fields = {"prompt": fields["prompt"]}
    prompt = fields.get("prompt")
    if prompt is None and fields and body.get("_config") is not None:
        prompt = _dump(fields)
        return prompt, prompt
    if not isinstance(prompt, str):
        kind = "nothing" if prompt is None else f"a {type(prompt).__name__}"
        raise PayloadError(
            f"prompt must be a string, got {kind}: serialise structured tasks to one JSON string; "
            "objects and content blocks are refused, since an agent framework could act on them "
            "without asking the model"
        )
    if len(fields) == 1:
        return prompt, prompt
    return prompt, _dump(fields)


def _dump(fields: JSON) -> str:
    try:
        return json.dumps(fields, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise PayloadError(f"the payload's task fields are not JSON: {error}") from None


def _number(
    section: Mapping[str, Any],
    where: str,
    names: tuple[str, ...],
    *,
    low: float,
    high: float = 1e15,
) -> float | None:
    value = _first(section, names)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise PayloadError(
            f"{where}.{names[0]} must be a number from {low:g} to {high:g}, got {value!r}"
        )
    return float(value)


def _sampling(body: JSON) -> SamplingParams:
    """Read the sampling parameters; where both spellings of a key came, snake case wins."""
    merged: JSON = {}
    for name in reversed(_PARAMS):
        merged.update(_section(body, name))
    max_tokens = _number(merged, "inferenceParams", _MAX_TOKENS, low=1)
    if max_tokens is not None and max_tokens != int(max_tokens):
        raise PayloadError(f"inferenceParams.max_tokens must be a whole number, got {max_tokens!r}")
    return SamplingParams(
        temperature=_number(merged, "inferenceParams", _TEMPERATURE, low=0),
        top_p=_number(merged, "inferenceParams", _TOP_P, low=0, high=1),
        max_tokens=None if max_tokens is None else int(max_tokens),
    )
