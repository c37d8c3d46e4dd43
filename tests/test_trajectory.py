"""Trajectories in files: what is read is what was written, bit by bit."""

import importlib.util
import json
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.trajectory import (
    Sample,
    Trajectory,
    TurnSpan,
    read_jsonl,
    read_parquet,
    write_jsonl,
    write_parquet,
)
from rft_agent_sdk.types import Message, Outcome, ToolCall

MESSAGES = (
    Message("system", "SYS"),
    Message("user", "a\u2028b\u0085c \ud800 é\n"),
    Message("assistant", "", "", (ToolCall("guess_word", '{"guess": "CRANE"}', "call_1"),)),
    Message("tool", "bad", tool_call_id="call_1", is_error=True),
    Message("assistant", "done", "because"),
)
SAMPLE = Sample(
    "r1",
    (1, 2, 151_643),
    (0, 1, 0),
    (0.0, -0.1, 0.0),
    (TurnSpan(0, 1, 3, "length", 7, "ill_formed", 0.5), TurnSpan(1, 3, 3)),
    2 / 3,
    0.7,
    True,
    MESSAGES,
)
FULL = Trajectory(
    "r1",
    Outcome.TRUNCATED,
    (SAMPLE, replace(SAMPLE, weight=1 / 3)),
    2,
    "the task",
    0.7,
    (0.5, 0.2),
    {"outcome": 1.0},
    {"turns": 2},
)
EMPTY = Trajectory("r2", Outcome.NO_SAMPLING)


def test_jsonl_gives_back_what_was_written(tmp_path):
    path = tmp_path / "trajectories.jsonl"
    write_jsonl(path, [FULL])
    write_jsonl(path, [EMPTY], append=True)
    assert list(read_jsonl(path)) == [FULL, EMPTY]
    assert path.read_bytes().count(b"\n") == 2


def test_parquet_gives_back_what_was_written(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "trajectories.parquet"
    write_parquet(path, [FULL, EMPTY])
    assert list(read_parquet(path)) == [FULL, EMPTY]


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TOKENS = st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 1), FLOATS), max_size=5)


@settings(max_examples=50, deadline=None)
@given(tokens=TOKENS, reward=st.none() | FLOATS, text=st.text(), weight=FLOATS)
def test_any_numbers_and_texts_survive_both_formats(tmp_path_factory, tokens, reward, text, weight):
    ids, mask, logprobs = (
        (tuple(column) for column in zip(*tokens, strict=True)) if tokens else ((), (), ())
    )
    messages = (Message("user", text),)
    sample = Sample("r", ids, mask, logprobs, (), weight, reward, False, messages)
    trajectory = Trajectory("r", Outcome.COMPLETED, (sample,), 1, text, reward)
    folder = tmp_path_factory.mktemp("any")
    write_jsonl(folder / "t.jsonl", [trajectory])
    assert list(read_jsonl(folder / "t.jsonl")) == [trajectory]
    if importlib.util.find_spec("pyarrow"):
        write_parquet(folder / "t.parquet", [trajectory])
        assert list(read_parquet(folder / "t.parquet")) == [trajectory]


def test_only_a_line_feed_ends_a_line(tmp_path):
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [replace(EMPTY, task="a|b|c|d")])
    raw = path.read_bytes().strip().replace(b"|", "\u2028".encode(), 1)
    raw = raw.replace(b"|", "\u0085".encode(), 1).replace(b"|", "\u2029".encode(), 1)
    path.write_bytes(b"\xef\xbb\xbf" + raw + b"\r\n\r\n" + raw)
    assert [row.task for row in read_jsonl(path)] == ["a\u2028b\u0085c\u2029d"] * 2


@pytest.mark.parametrize(
    "line",
    [b"{oops}", b"{}", b"[]", b"\xff", b'{"rollout_id": "r"}'],
)
def test_a_line_that_is_no_trajectory_is_named_by_its_number(tmp_path, line):
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [EMPTY])
    path.write_bytes(path.read_bytes() + b"\n" + line)
    with pytest.raises(UsageError, match=r"t\.jsonl, line 3: "):
        list(read_jsonl(path))


def test_a_sample_needs_a_mask_value_and_a_logprob_for_each_token(tmp_path):
    with pytest.raises(UsageError, match="got 2 tokens, 1 mask values, 2 logprobs"):
        Sample("r", (1, 2), (1,), (0.0, 0.0))
    path = tmp_path / "t.jsonl"
    write_jsonl(path, [FULL])
    damaged = json.loads(path.read_bytes())
    damaged["samples"][1]["loss_mask"].pop()
    path.write_text(json.dumps(damaged))
    with pytest.raises(UsageError, match=r"line 1: .*got 3 tokens, 2 mask values"):
        list(read_jsonl(path))


def test_a_value_that_is_not_json_is_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_jsonl(tmp_path / "t.jsonl", [replace(EMPTY, reward=float("nan"))])


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match=r"pip install 'rft-agent-sdk\[train\]'"):
        write_parquet(tmp_path / "t.parquet", [FULL])
    with pytest.raises(UsageError, match=r"pip install 'rft-agent-sdk\[train\]'"):
        list(read_parquet(tmp_path / "t.parquet"))


def test_a_trajectory_sums_up_its_samples():
    assert (FULL.trained_tokens, FULL.versions) == (2, (7,))


def test_a_file_that_is_no_parquet_is_refused_by_name(tmp_path):
    pytest.importorskip("pyarrow")
    path = tmp_path / "junk.parquet"
    path.write_bytes(b"junk")
    with pytest.raises(UsageError, match=r"junk\.parquet is no Parquet file"):
        list(read_parquet(path))
