"""`rft traces show`: spans in every shape they come in, as trees."""

import gzip
import io
import json
import re
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from rft_agent_sdk.cli.spans import read_spans
from rft_agent_sdk.cli.traces import command
from rft_agent_sdk.errors import UsageError
from tests.test_cli import rft

TRACE = "6ac52cb76b73ffffffffffffffffbeef"
START = 1_790_000_000_000_000_000
ARN = "arn:aws:sagemaker:us-west-2:123456789012:job/AgentRFT/j1"


def span(number, parent, name, *, at_ms, ms, scope="rft_agent_sdk", status="UNSET", **attributes):
    """One span as CloudWatch keeps it in aws/spans."""
    start = START + int(1e6 * at_ms)
    return {
        "resource": {"attributes": {"service.name": "Wordle.DEFAULT", "cloud.provider": "aws"}},
        "scope": {"name": scope, "version": ""},
        "traceId": TRACE,
        "spanId": f"{number:016x}",
        "parentSpanId": f"{parent:016x}" if parent else "",
        "flags": 256,
        "name": name,
        "kind": "INTERNAL",
        "startTimeUnixNano": start,
        "endTimeUnixNano": start + int(1e6 * ms),
        "durationNano": int(1e6 * ms),
        "attributes": {key.replace("__", "."): value for key, value in attributes.items()},
        "status": {"code": status},
    }


STRANDS = {"scope": "strands.telemetry.tracer", "status": "OK"}
SPANS = [
    span(1, 0, "POST /invocations", at_ms=0, ms=2600, scope="web", session__id="s1"),
    span(
        2,
        1,
        "rollout",
        at_ms=1,
        ms=2550,
        rft__trajectory_id="r1",
        rft__job_arn=ARN,
        rft__outcome="completed",
        rft__reported=True,
        rft__reward__total=1.45,
        rft__reward__component__solved=1,
    ),
    span(3, 2, "invoke_agent Strands Agents", at_ms=2, ms=2400, **STRANDS),
    span(4, 3, "chat", at_ms=3, ms=900, gen_ai__operation__name="chat", **STRANDS),
    span(
        5,
        4,
        "turn",
        at_ms=4,
        ms=300,
        status="ERROR",
        rft__turn=1,
        rft__attempt=1,
        http__response__status_code=429,
        error__type="HTTP 429",
    ),
    span(
        6,
        4,
        "turn",
        at_ms=500,
        ms=400,
        rft__turn=1,
        rft__attempt=2,
        http__response__status_code=200,
        rft__finish_reason="tool_calls",
        rft__prompt_tokens=200,
        rft__completion_tokens=11,
    ),
    span(
        7,
        3,
        "execute_tool guess_word",
        at_ms=910,
        ms=0.5,
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="guess_word",
        gen_ai__tool__status="success",
        **STRANDS,
    ),
    span(8, 2, "UpdateReward", at_ms=2500, ms=20, http__response__status_code=200, rft__attempts=2),
]
TREE = """\
rollout r1  2.55 s  completed  reward +1.450  (solved 1)
├ +3 ms  turn 1  300 ms  429  ✗ HTTP 429
├ +499 ms  turn 1, attempt 2  400 ms  200  tool_calls  200 → 11 tokens
├ +909 ms  guess_word  500 µs  success
└ +2.50 s  UpdateReward  20 ms  200  2 attempts

1 rollout: 1 completed; mean reward +1.450; median 2.55 s, longest 2.55 s; 2 model calls, 1 of them failed, \
median 350 ms, longest 400 ms
"""


def otlp(span):
    """The same span as a collector writes it."""
    kinds: dict[type, str] = {str: "stringValue", bool: "boolValue", float: "doubleValue"}
    values = [
        {
            "key": key,
            "value": {"intValue": str(value)}
            if type(value) is int
            else {kinds[type(value)]: value},
        }
        for key, value in span["attributes"].items()
    ]
    codes = {"UNSET": 0, "OK": 1, "ERROR": 2}
    body = {
        **{name: span[name] for name in ("traceId", "spanId", "parentSpanId", "name")},
        "kind": 1,
        "startTimeUnixNano": str(span["startTimeUnixNano"]),
        "endTimeUnixNano": str(span["endTimeUnixNano"]),
        "attributes": values,
        "status": {"code": codes[span["status"]["code"]]},
    }
    scoped = {"scope": span["scope"], "spans": [body]}
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [scoped]}]}


def lines(values):
    return "\n".join(json.dumps(value) for value in values) + "\n"


SHAPES = {
    "one a line": lines(SPANS),
    "OTLP, one a line": lines(map(otlp, SPANS)),
    "OTLP, one request": json.dumps(
        {"resourceSpans": [otlp(one)["resourceSpans"][0] for one in SPANS]}, indent=2
    ),
    "a list": json.dumps(SPANS, indent=2),
    "filter-log-events": json.dumps(
        {"events": [{"logStreamName": "default", "message": json.dumps(one)} for one in SPANS]}
    ),
    "get-query-results": json.dumps(
        {
            "results": [
                [{"field": "@message", "value": json.dumps(one)}, {"field": "@ptr", "value": "x"}]
                for one in SPANS
            ],
            "status": "Complete",
        }
    ),
    "log events": lines({"timestamp": 1, "message": json.dumps(one)} for one in SPANS),
    "an export to S3": "".join(f"2026-11-29T21:00:00.000Z {json.dumps(one)}\n" for one in SPANS),
    "a log's tail": "".join(f"2026-11-29T21:00:00+00:00 default {json.dumps(o)}\n" for o in SPANS),
    "in no order": lines(reversed(SPANS)),
    "twice": lines(SPANS + SPANS),
    "without ends": lines({k: v for k, v in o.items() if k != "endTimeUnixNano"} for o in SPANS),
}


def show(*arguments, **options):
    return CliRunner().invoke(command, ["show", *map(str, arguments)], **options)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "traces.jsonl"
    path.write_text(lines(SPANS))
    return path


@pytest.mark.parametrize("shape", SHAPES)
def test_spans_are_the_same_tree_in_whatever_shape_they_come(tmp_path, shape):
    path = tmp_path / "file"
    path.write_text(SHAPES[shape])
    done = show(path)
    assert done.exit_code == 0, done.output
    assert done.stdout == TREE


def test_a_packed_file_and_standard_input_are_read(tmp_path, monkeypatch):
    (tmp_path / "file.gz").write_bytes(gzip.compress(lines(SPANS).encode()))
    assert show(tmp_path / "file.gz").stdout == TREE
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(lines(SPANS).encode())))
    assert len(read_spans("-").spans) == len(SPANS)


def test_every_span_is_shown_when_asked_for(file):
    text = show(file, "--all").stdout
    assert text.startswith("POST /invocations  2.60 s\n└ +1 ms  rollout r1  2.55 s  completed")
    assert "│ " in text
    for one in ("POST /invocations", "invoke_agent Strands Agents", "chat", "turn 1, attempt 2"):
        assert one in text
    assert (
        len([line for line in text.splitlines() if re.search(r" ms| s|µs", line)]) == len(SPANS) + 1
    )


def test_several_files_are_one_run_and_a_rollout_is_picked_by_its_id(tmp_path, file):
    other = tmp_path / "other"
    moved = [
        one | {"traceId": "7" * 32, "spanId": "9" * 15 + one["spanId"][-1]} for one in SPANS[1:2]
    ]
    moved[0]["attributes"] = moved[0]["attributes"] | {
        "rft.trajectory_id": "q7",
        "rft.outcome": "timeout",
        "rft.reward.total": -0.5,
        "rft.reported": False,
    }
    other.write_text(lines(moved))
    both = show(file, other).stdout
    assert "2 rollouts: 1 completed, 1 timeout; mean reward +0.475" in both
    picked = show(file, other, "--rollout", "q").stdout
    assert picked.startswith("rollout q7  2.55 s  timeout  reward -0.500  (solved 1)  not reported")
    assert "r1" not in picked


def test_a_rollout_that_is_not_there_is_said_to_be_missing(file):
    done = show(file, "--rollout", "q7")
    assert isinstance(done.exception, UsageError)
    assert "no rollout's id begins with 'q7': there are r1" in str(done.exception)


def test_a_file_without_rollouts_is_shown_as_it_is(tmp_path):
    (tmp_path / "file").write_text(
        lines([SPANS[0], SPANS[3] | {"parentSpanId": SPANS[0]["spanId"]}])
    )
    text = show(tmp_path / "file").stdout
    assert "POST /invocations" in text
    assert "rollouts" not in text


def test_records_that_are_no_spans_are_left_out_and_counted(tmp_path):
    event = {"traceId": TRACE, "spanId": "1", "timeUnixNano": 1, "body": {"input": {}}}
    logged = {"events": [{"message": "START RequestId: 1"}, {"message": json.dumps(SPANS[1])}]}
    (tmp_path / "file").write_text(lines([*SPANS, event, logged]))
    done = show(tmp_path / "file")
    assert done.stdout == TREE
    assert "2 records that are no spans were left out" in done.stderr


def test_spans_that_belong_to_each_other_end(tmp_path):
    one = span(1, 2, "rollout", at_ms=0, ms=1)
    two = span(2, 1, "turn", at_ms=0, ms=1)
    (tmp_path / "file").write_text(lines([one, two]))
    assert show(tmp_path / "file").exit_code == 0
    assert show(tmp_path / "file", "--all").exit_code == 0


def without(name, value=None):
    one = {key: item for key, item in SPANS[0].items() if key != name}
    return json.dumps(one if value is None else one | {name: value})


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("{", "line 3: is not JSON"),
        ('{"resourceSpans": [{"resou', "line 3: is not JSON"),
        ("plain text", "line 3: is not JSON: 'plain text'"),
        ("{}", "line 3: wanted OTLP JSON"),
        ('{"a": 1}', r"got an object of \['a'\]"),
        ("[7]", "line 3, item 1: wanted OTLP JSON.*got int"),
        ('{"resourceSpans": 7}', "line 3: resourceSpans must be a list of objects, got 7"),
        ('{"resourceSpans": [{"scopeSpans": [7]}]}', "line 3: scopeSpans must be a list"),
        ('{"resourceSpans": [{"scopeSpans": [{"spans": [{}]}]}]}', "startTimeUnixNano"),
        (without("traceId"), "line 3: a span's traceId must be text, got None"),
        (without("name", 7), "line 3: a span's name must be text, got 7"),
        (without("startTimeUnixNano", "soon"), "startTimeUnixNano must be nanoseconds, got 'soon'"),
        (without("endTimeUnixNano", [1]), "endTimeUnixNano must be nanoseconds"),
        (without("attributes", 7), "line 3: attributes must be"),
        (json.dumps({"events": [{"message": without("traceId")}]}), "line 3, event 1: a span's"),
        ("[" * 100_000, "line 3: is not JSON: RecursionError"),
    ],
)
def test_what_cannot_be_read_is_said_with_file_and_line(tmp_path, bad, says):
    path = tmp_path / "file"
    path.write_text(f"{json.dumps(SPANS[0])}\n\n{bad}\n")
    with pytest.raises(
        UsageError, match=rf"file, {says}" if says.startswith("line") else says
    ) as told:
        read_spans(str(path))
    assert str(told.value).startswith(f"{path}, line 3")


@pytest.mark.parametrize(("content", "says"), [(b"", "no span"), (b"\xff", "cannot be read")])
def test_a_file_without_anything_in_it_is_said_to_be(tmp_path, content, says):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_spans(str(tmp_path / "file"))
    with pytest.raises(UsageError, match="cannot be read"):
        read_spans(str(tmp_path / "absent"))


@pytest.mark.slow
def test_the_demo_s_spans_are_written_by_its_agent_and_shown(tmp_path):
    path = tmp_path / "traces.jsonl"
    done = rft("demo", "--traces", str(path), "--runs", str(tmp_path))
    assert done.returncode == 0, done.stderr
    shown = rft("traces", "show", str(path))
    assert shown.returncode == 0, shown.stderr
    first, *rest = shown.stdout.splitlines()
    assert re.fullmatch(r"rollout smoke-test-0001  .* s  completed  reward \+1\..*", first)
    assert sum("guess_word" in line for line in rest) > 0
    assert any("UpdateReward" in line for line in rest)
    assert "word" not in path.read_text().replace("guess_word", "").replace("wordle", "")


@pytest.mark.parametrize("where", [["--traces"], ["demo", "--traces"]])
def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path, where):
    (tmp_path / "file").touch()
    done = rft(
        *where, str(tmp_path / "file" / "traces.jsonl"), *(["play"] if len(where) == 1 else [])
    )
    assert done.returncode == 2
    assert "traces cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
