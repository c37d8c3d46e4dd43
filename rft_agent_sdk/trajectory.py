"""What a rollout leaves behind: token-exact samples, as frozen records, and the files that keep them.

Torch-free and below every room, since a gateway writes these records and a training loop reads them.
How samples are made from a conversation is not told here.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import JSON, FinishReason, Message, Outcome, ToolCall


@dataclass(frozen=True, slots=True)
class TurnSpan:
    """Where the sampled tokens of one turn stand in a sample."""

    turn: int
    """Number of the turn in its rollout, from 0; the place of its reward in `per_turn`."""
    start: int
    """Index of its first sampled token."""
    end: int
    """Index after its last sampled token."""
    finish_reason: FinishReason = "stop"
    """`length` where the token limit cut the turn off."""
    version: int | str | None = None
    """Policy version that sampled it; `None` where the sampler told none."""
    status: str = "ok"
    """What the parser said of the output; anything but `ok` is ill-formed."""
    reward: float | None = None
    """The turn's own reward; `None` unless the rollout was rewarded per turn."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One training sequence: a branch of a rollout's conversation, from its first token to a leaf."""

    rollout_id: str
    token_ids: tuple[int, ...]
    """Shape `(T,)`: exactly what the sampler was given and gave."""
    loss_mask: tuple[int, ...]
    """Shape `(T,)`: 1 where a sampled token trains, 0 elsewhere. A turn that several samples share
    trains in the first of them only."""
    logprobs: tuple[float, ...]
    """Shape `(T,)`, nats: the sampler's log-probability where the mask is 1, 0.0 elsewhere."""
    spans: tuple[TurnSpan, ...] = ()
    """Its turns, in order; those an earlier sample trains as well."""
    weight: float = 1.0
    """Share of the rollout's trained tokens; sums to one over the samples of a rollout. Times the
    sample's mean loss per trained token it gives the mean over the whole rollout, so that cutting a
    rollout into several samples does not change its gradient."""
    reward: float | None = None
    """Total reward of the rollout, the same in all its samples."""
    is_truncated: bool = False
    """Whether its last turn was cut off by the token limit."""
    messages: tuple[Message, ...] = ()
    """The conversation the tokens stand for, last reply included."""

    def __post_init__(self) -> None:
        lengths = len(self.token_ids), len(self.loss_mask), len(self.logprobs)
        if len(set(lengths)) != 1:
            raise UsageError(
                f"a sample of rollout {self.rollout_id!r} needs as many mask values and logprobs as "
                f"tokens, got {lengths[0]} tokens, {lengths[1]} mask values, {lengths[2]} logprobs"
            )

    @property
    def trained_tokens(self) -> int:
        """How many of its tokens train."""
        return sum(self.loss_mask)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The record of one rollout."""

    rollout_id: str
    outcome: Outcome
    samples: tuple[Sample, ...] = ()
    """Empty where nothing was sampled."""
    turns: int = 0
    """Captured turns; answers that a client's retry replaced are none."""
    task: str | None = None
    """The task string, where the caller told it."""
    reward: float | None = None
    """Total reward; `None` where the rollout ended without one."""
    per_turn: tuple[float, ...] | None = None
    """One reward per captured turn, or `None`."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Named parts of the reward."""
    counters: Mapping[str, int] = field(default_factory=dict)
    """What happened during capture: turns extended, branched and why, retries, and so on."""

    @property
    def trained_tokens(self) -> int:
        """How many sampled tokens train, over all samples."""
        return sum(sample.trained_tokens for sample in self.samples)

    @property
    def versions(self) -> tuple[int | str, ...]:
        """The policy versions that sampled it, in the order of their turns; several after a rebind."""
        spans = (span for sample in self.samples for span in sample.spans)
        ordered = sorted(spans, key=lambda span: span.turn)
        return tuple(dict.fromkeys(s.version for s in ordered if s.version is not None))


def message_to_json(message: Message) -> JSON:
    """Return a message as JSON, without the fields that are empty."""
    written: JSON = {"role": message.role, "text": message.text}
    if message.reasoning is not None:
        written["reasoning"] = message.reasoning
    if message.tool_calls:
        written["calls"] = [[call.name, call.arguments, call.id] for call in message.tool_calls]
    if message.tool_call_id is not None:
        written["answers"] = message.tool_call_id
    if message.is_error:
        written["is_error"] = True
    return written


def message_from_json(value: Mapping[str, Any]) -> Message:
    """Return the message that `message_to_json` wrote."""
    return Message(
        value["role"],
        value["text"],
        value.get("reasoning"),
        tuple(ToolCall(name, arguments, id) for name, arguments, id in value.get("calls", ())),
        value.get("answers"),
        value.get("is_error", False),
    )


def trajectory_to_json(trajectory: Trajectory) -> JSON:
    """Return a trajectory as JSON; what all samples share is written once."""
    return {
        "rollout_id": trajectory.rollout_id,
        "outcome": trajectory.outcome.value,
        "task": trajectory.task,
        "turns": trajectory.turns,
        "reward": trajectory.reward,
        "per_turn": None if trajectory.per_turn is None else list(trajectory.per_turn),
        "components": dict(trajectory.components),
        "counters": dict(trajectory.counters),
        "samples": [_sample_to_json(sample) for sample in trajectory.samples],
    }


def trajectory_from_json(value: Mapping[str, Any]) -> Trajectory:
    """Return the trajectory that `trajectory_to_json` wrote.

    Raises:
        UsageError: It is none.
    """
    try:
        per_turn = value["per_turn"]
        return Trajectory(
            value["rollout_id"],
            Outcome(value["outcome"]),
            tuple(
                _sample_from_json(sample, value["rollout_id"], value["reward"])
                for sample in value["samples"]
            ),
            value["turns"],
            value["task"],
            value["reward"],
            None if per_turn is None else tuple(per_turn),
            dict(value["components"]),
            dict(value["counters"]),
        )
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"wanted a trajectory, got one that cannot be read: {error!r}") from error


def write_jsonl(
    path: Path | str, trajectories: Iterable[Trajectory], *, append: bool = False
) -> None:
    """Write one trajectory a line."""
    with Path(path).open("ab" if append else "wb") as file:
        for trajectory in trajectories:
            # ASCII: no character of a text can be taken for the end of a line
            line = json.dumps(
                trajectory_to_json(trajectory), separators=(",", ":"), allow_nan=False
            )
            file.write(line.encode("ascii") + b"\n")


def read_jsonl(path: Path | str) -> Iterator[Trajectory]:
    r"""Yield the trajectories of a file, one a line; only "\n" ends a line, empty ones are skipped.

    Raises:
        UsageError: A line is no trajectory; the message says which line of which file.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                yield trajectory_from_json(json.loads(text))
            except ValueError as error:
                raise UsageError(f"{path}, line {number}: {error}") from error


def write_parquet(path: Path | str, trajectories: Iterable[Trajectory]) -> None:
    """Write one trajectory a row, its samples nested in it.

    Raises:
        UsageError: pyarrow is not installed.
    """
    arrow, parquet = _arrow()
    rows = [_to_row(trajectory) for trajectory in trajectories]
    parquet.write_table(arrow.Table.from_pylist(rows, schema=_schema(arrow)), str(path))


def read_parquet(path: Path | str) -> Iterator[Trajectory]:
    """Yield the trajectories of a Parquet file, reading one group of rows at a time.

    Raises:
        UsageError: pyarrow is not installed, or a row is no trajectory.
    """
    arrow, parquet = _arrow()
    try:
        opened = parquet.ParquetFile(str(path))
    except arrow.ArrowInvalid as error:
        raise UsageError(f"{path} is no Parquet file: {error}") from None
    with opened as file:
        for batch in file.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                yield _from_row(row)


def _sample_to_json(sample: Sample) -> JSON:
    return {
        "token_ids": list(sample.token_ids),
        "loss_mask": list(sample.loss_mask),
        "logprobs": list(sample.logprobs),
        "spans": [
            {
                "turn": span.turn,
                "start": span.start,
                "end": span.end,
                "finish_reason": span.finish_reason,
                "version": span.version,
                "status": span.status,
                "reward": span.reward,
            }
            for span in sample.spans
        ],
        "weight": sample.weight,
        "is_truncated": sample.is_truncated,
        "messages": [message_to_json(message) for message in sample.messages],
    }


def _sample_from_json(value: Mapping[str, Any], rollout_id: str, reward: float | None) -> Sample:
    return Sample(
        rollout_id,
        tuple(value["token_ids"]),
        tuple(value["loss_mask"]),
        tuple(value["logprobs"]),
        tuple(TurnSpan(**span) for span in value["spans"]),
        value["weight"],
        reward,
        value["is_truncated"],
        tuple(message_from_json(message) for message in value["messages"]),
    )


def _arrow() -> tuple[Any, Any]:
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UsageError(
            "Parquet files need pyarrow, which is not installed: pip install 'rft-agent-sdk[train]', "
            "or use JSONL"
        ) from error


def _to_row(trajectory: Trajectory) -> JSON:
    row = trajectory_to_json(trajectory)
    row["components"] = list(row["components"].items())
    row["counters"] = list(row["counters"].items())
    for sample in row["samples"]:
        # as text: a message is a nested record of optional parts, and may hold lone surrogates
        sample["messages"] = json.dumps(sample["messages"])
        for span in sample["spans"]:
            span["version"] = json.dumps(span["version"])  # a number or a text, in one column
    return row


def _from_row(row: JSON) -> Trajectory:
    for sample in row["samples"]:
        sample["messages"] = json.loads(sample["messages"])
        for span in sample["spans"]:
            span["version"] = json.loads(span["version"])
    return trajectory_from_json(row)


def _schema(arrow: Any) -> Any:
    text, number, integer = arrow.string(), arrow.float64(), arrow.int64()
    span = {
        "turn": integer,
        "start": integer,
        "end": integer,
        "finish_reason": text,
        "version": text,
        "status": text,
        "reward": number,
    }
    sample = {
        "token_ids": arrow.list_(integer),
        "loss_mask": arrow.list_(arrow.int8()),
        "logprobs": arrow.list_(number),
        "spans": arrow.list_(arrow.struct(list(span.items()))),
        "weight": number,
        "is_truncated": arrow.bool_(),
        "messages": text,
    }
    row = {
        "rollout_id": text,
        "outcome": text,
        "task": text,
        "turns": integer,
        "reward": number,
        "per_turn": arrow.list_(number),
        "components": arrow.map_(text, number),
        "counters": arrow.map_(text, integer),
        "samples": arrow.list_(arrow.struct(list(sample.items()))),
    }
    return arrow.schema(list(row.items()))
