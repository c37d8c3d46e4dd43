"""`rft traces`: what rollouts did and how long it took, from their spans."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from rft_agent_sdk.cli.boards import components
from rft_agent_sdk.cli.spans import FoundSpan, read_spans
from rft_agent_sdk.errors import UsageError

SCOPE = "rft_agent_sdk"
ROLLOUT = "rollout"
_COMPONENT = "rft.reward.component."


@click.group("traces", short_help="Show what rollouts did, from their OpenTelemetry spans.")
def command() -> None:
    """Show what rollouts did, from their OpenTelemetry spans.

    Write them with --traces FILE or RFT_TRACES=FILE; on AgentCore they are in CloudWatch's log group aws/spans.
    """


@command.command("show")
@click.argument("paths", nargs=-1, required=True, metavar="FILE...")
@click.option("--rollout", "wanted", default="", help="Only rollouts whose id begins with this.")
@click.option("--all", "everything", is_flag=True, help="Every span, those of other libraries too.")
def show_command(paths: tuple[str, ...], wanted: str, everything: bool) -> None:
    """Render each rollout as a tree: turns, tool calls, tokens, reports, with their durations.

    Reads OTLP JSON and what CloudWatch exports of aws/spans: `aws logs filter-log-events --log-group-name
    aws/spans --filter-pattern rft.outcome > FILE`. `-` is standard input.
    """
    files = [read_spans(path) for path in paths]
    spans = [span for file in files for span in file.spans]
    tree = _Tree(spans)
    rollouts = [span for span in spans if _is_rollout(span) and _name(span).startswith(wanted)]
    if wanted and not rollouts:
        known = sorted({_name(span) for span in spans if _is_rollout(span)})
        raise UsageError(
            f"no rollout's id begins with {wanted!r}: there are {', '.join(known[:8])}"
        )
    for root in tree.tops(rollouts, everything):
        for line in tree.lines(root, everything):
            click.echo(line)
        click.echo()
    if rollouts:
        click.echo(_summary(rollouts, spans))
    if others := sum(file.others for file in files):
        click.echo(f"{others} records that are no spans were left out", err=True)


class _Tree:
    """Spans by whom they belong to."""

    def __init__(self, spans: Sequence[FoundSpan]) -> None:
        self._by_id = {(span.trace_id, span.span_id): span for span in spans}
        self._below: dict[tuple[str, str], list[FoundSpan]] = {}
        for span in spans:
            self._below.setdefault((span.trace_id, span.parent_id), []).append(span)

    def tops(self, rollouts: Sequence[FoundSpan], everything: bool) -> Sequence[FoundSpan]:
        """Where to begin: at the rollouts, unless there are none."""
        if rollouts and not everything:
            return rollouts
        roots = [span for span in self._by_id.values() if self._parent(span) is None]
        chosen = {self._root(span) for span in rollouts}
        return [span for span in roots if not chosen or (span.trace_id, span.span_id) in chosen]

    def lines(self, top: FoundSpan, everything: bool) -> Iterator[str]:
        """Return the lines of one tree."""
        yield _line(top)
        yield from self._branches(top, top.start_ns, "", everything, seen=set())

    def _branches(
        self, span: FoundSpan, zero_ns: int, indent: str, everything: bool, seen: set[str]
    ) -> Iterator[str]:
        if span.span_id in seen:
            return  # a file may say that two spans belong to each other
        seen.add(span.span_id)
        children = list(self._children(span, everything, set()))
        for index, child in enumerate(children, 1):
            is_last = index == len(children)
            yield f"{indent}{'└' if is_last else '├'} {_line(child, zero_ns)}"
            deeper = indent + ("  " if is_last else "│ ")
            yield from self._branches(child, zero_ns, deeper, everything, seen)

    def _children(self, span: FoundSpan, everything: bool, seen: set[str]) -> Iterator[FoundSpan]:
        """The spans below one, in order; those left out are replaced by theirs."""
        if span.span_id in seen:
            return
        seen.add(span.span_id)
        for child in self._below.get((span.trace_id, span.span_id), []):
            if everything or _is_told(child):
                yield child
            else:
                yield from self._children(child, everything, seen)

    def _parent(self, span: FoundSpan) -> FoundSpan | None:
        return self._by_id.get((span.trace_id, span.parent_id)) if span.parent_id else None

    def _root(self, span: FoundSpan) -> tuple[str, str]:
        seen = {span.span_id}
        while (parent := self._parent(span)) is not None and parent.span_id not in seen:
            span = parent
            seen.add(span.span_id)
        return span.trace_id, span.span_id


def _is_rollout(span: FoundSpan) -> bool:
    return span.name == ROLLOUT and span.scope in (SCOPE, "")


def _is_told(span: FoundSpan) -> bool:
    """Whether a span is part of a rollout's story, and not of the machinery below it."""
    return span.scope == SCOPE or span.attributes.get("gen_ai.operation.name") == "execute_tool"


def _name(span: FoundSpan) -> str:
    told = span.attributes
    return str(told.get("rft.trajectory_id") or told.get("rft.invocation_id") or span.span_id)


def _line(span: FoundSpan, zero_ns: int | None = None) -> str:
    told = span.attributes
    parts = [_title(span), _duration(span.seconds)]
    if _is_rollout(span):
        parts += _ending(told)
    if zero_ns is not None:
        parts.insert(0, f"+{_duration((span.start_ns - zero_ns) / 1e9)}")
    if not _is_rollout(span):
        parts += [str(told[name]) for name in _SHOWN if name in told]
        if told.get("rft.attempts", 1) != 1:
            parts.append(f"{told['rft.attempts']} attempts")
        if "rft.prompt_tokens" in told:
            parts.append(
                f"{told['rft.prompt_tokens']} → {told.get('rft.completion_tokens')} tokens"
            )
    if span.has_failed:
        parts.append(f"✗ {told.get('error.type', 'failed')}")
    return "  ".join(parts)


_SHOWN = ("http.response.status_code", "rft.finish_reason", "gen_ai.tool.status")


def _title(span: FoundSpan) -> str:
    told = span.attributes
    if _is_rollout(span):
        return f"rollout {_name(span)}"
    if span.name == "turn" and span.scope == SCOPE:
        attempt = told.get("rft.attempt", 1)
        return f"turn {told.get('rft.turn')}{f', attempt {attempt}' if attempt != 1 else ''}"
    if told.get("gen_ai.operation.name") == "execute_tool":
        recovered = " (recovered from text)" if told.get("rft.recovered") else ""
        return f"{told.get('gen_ai.tool.name') or span.name}{recovered}"
    return span.name


def _ending(told: Mapping[str, Any]) -> list[str]:
    parts = [str(told.get("rft.outcome", "not ended"))]
    if isinstance(total := told.get("rft.reward.total"), int | float):
        named = {
            name.removeprefix(_COMPONENT): float(value)
            for name, value in told.items()
            if name.startswith(_COMPONENT) and isinstance(value, int | float)
        }
        parts.append(f"reward {total:+.3f}{components(named)}")
    if told.get("rft.reported") is False:
        parts.append("not reported")
    return parts


def _duration(seconds: float) -> str:
    if seconds < 0.9995:
        return f"{1e3 * seconds:.0f} ms" if seconds >= 0.00095 else f"{1e6 * seconds:.0f} µs"
    return f"{seconds:.2f} s" if seconds < 100 else f"{seconds:.0f} s"


def _summary(rollouts: Sequence[FoundSpan], spans: Sequence[FoundSpan]) -> str:
    ends = Counter(str(span.attributes.get("rft.outcome", "not ended")) for span in rollouts)
    parts = [", ".join(f"{count} {end}" for end, count in ends.most_common())]
    rewards = [span.attributes.get("rft.reward.total") for span in rollouts]
    numbers = [float(reward) for reward in rewards if isinstance(reward, int | float)]
    if numbers:
        parts.append(f"mean reward {statistics.fmean(numbers):+.3f}")
    parts.append(_spread(rollouts))
    traces = {span.trace_id for span in rollouts}
    turns = [
        span
        for span in spans
        if (span.name, span.scope) == ("turn", SCOPE) and span.trace_id in traces
    ]
    if turns:
        failed = sum(span.has_failed for span in turns)
        parts.append(f"{len(turns)} model calls, {failed} of them failed, {_spread(turns)}")
    return f"{len(rollouts)} rollout{'s' * (len(rollouts) != 1)}: " + "; ".join(parts)


def _spread(spans: Sequence[FoundSpan]) -> str:
    seconds = [span.seconds for span in spans]
    return f"median {_duration(statistics.median(seconds))}, longest {_duration(max(seconds))}"
