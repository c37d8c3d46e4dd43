import importlib
import json
import sys
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.dataset import (
    Epochs,
    Row,
    read_records,
    read_rows,
    scan_rows,
    shared_prompts,
    write_rows,
)
from rft_agent_sdk.training.dataset_files import Problem

pa = importlib.import_module("pyarrow")
pq = importlib.import_module("pyarrow.parquet")
KINDS = [".jsonl", ".ndjson", ".json", ".csv", ".parquet"]
INNER = '{"prompt": "Guess the 5-letter word", "answer": "riser",  "id":"w1"}'
BOM = b"\xef\xbb\xbf"
HARD = BOM + '{"prompt":"a\u2028b"}\r\n\r\n{"prompt":"c\u0085d"}\n'.encode()


def payloads(rows):
    return [row.payload for row in rows]


def prompts(*texts):
    return [Row({"prompt": text}) for text in texts]


@pytest.fixture
def write(tmp_path):
    def write(data, name="rows.jsonl"):
        path = tmp_path / name
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def test_only_a_newline_ends_a_line(write):
    rows = read_rows(write(HARD + b'{"prompt":"e"}'))
    assert payloads(rows) == [{"prompt": "a\u2028b"}, {"prompt": "c\u0085d"}, {"prompt": "e"}]
    assert [row.source.rpartition("rows.jsonl")[2] for row in rows] == [
        " line 1",
        " line 3",
        " line 4",
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_hard_strings_come_back_unchanged(tmp_path, kind):
    rows = prompts(
        "a\u2028b",
        "c\u0085d",
        INNER,
        "",
        "lone\rcr",
        "cr\rlf\r\nnl\n",
        ' "q", \\ ',
        "é😀\x00",
        "x" * 200_000,
    )
    write_rows(tmp_path / f"rows{kind}", rows)
    assert payloads(read_rows(tmp_path / f"rows{kind}")) == payloads(rows)


@pytest.mark.parametrize("kind", KINDS)
def test_payloads_come_back_unchanged_each_with_its_own_keys(tmp_path, kind):
    rows = [Row({"prompt": "x", "answer": "4", "n": [1, 2.5, None]}), Row({"prompt": "y"})]
    write_rows(tmp_path / f"rows{kind}", rows)
    assert payloads(read_rows(tmp_path / f"rows{kind}")) == payloads(rows)


def test_a_written_file_has_the_lines_it_has_rows_for_any_reader(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows(path, prompts("a\u2028b\u0085", "half \ud800"))
    text = path.read_text("utf-8")
    assert len(text.splitlines()) == 2
    assert payloads(read_rows(path)) == [{"prompt": "a\u2028b\u0085"}, {"prompt": "half \ud800"}]


@pytest.mark.parametrize("kind", [".csv", ".parquet"])
def test_half_a_surrogate_pair_is_refused_where_it_cannot_be_kept(tmp_path, kind):
    with pytest.raises(UsageError, match="half a surrogate pair"):
        write_rows(tmp_path / f"rows{kind}", prompts("fine", "half \ud800"))
    assert list(tmp_path.iterdir()) == []


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5))
def test_any_strings_come_back_from_lines_and_csv(tmp_path_factory, texts):
    folder = tmp_path_factory.mktemp("any")
    for name in ("rows.jsonl", "rows.csv"):
        write_rows(folder / name, prompts(*texts))
        assert payloads(read_rows(folder / name)) == [{"prompt": text} for text in texts]


def test_a_prompt_is_opaque_and_a_payload_is_an_object_or_its_text(write):
    lines = [{"id": "w1", "prompt": INNER}, {"payload": {"a": 1}}, {"payload": '{"a": 2}'}]
    rows = read_rows(write("\n".join(map(json.dumps, lines))))
    assert payloads(rows) == [{"prompt": INNER}, {"a": 1}, {"a": 2}]
    assert [row.is_prompt for row in rows] == [True, False, False]


def test_a_task_is_what_an_agent_would_read():
    assert Row({"prompt": INNER}).task == INNER
    assert json.loads(Row({"prompt": "x", "answer": "4"}).task) == {"prompt": "x", "answer": "4"}


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"prompt": oops}', "line 4: not JSON: Expecting value at column 12"),
        ('{"prompt": NaN}', "line 4: not JSON: NaN is no JSON number"),
        ('["prompt"]', "line 4: a row must be an object, got a value of type list"),
        ('{"text": "x"}', r"line 4: a row needs a column 'payload' or 'prompt', got \['text'\]"),
        ('{"prompt": {"answer": "riser"}}', "line 4: 'prompt' must be a string, got a dict"),
        ('{"prompt": null}', "line 4: 'prompt' must be a string, got nothing"),
        ('{"payload": [1]}', "line 4: 'payload' must be an object, got a list"),
        ('{"payload": "riser"}', "line 4: 'payload' is a string that is not JSON"),
        ('{"payload": "{\\"a\\": NaN}"}', "line 4: 'payload' cannot be sent"),
        ('{"payload": {}}', "line 4: 'payload' is empty"),
        ('{"payload": {"_config": {}}}', "line 4: 'payload' must leave '_config' to the trainer"),
        ("[" * 100_000, "line 4: not JSON"),
        (b'{"prompt": "\xff"}', "line 4: not UTF-8: invalid start byte at byte 13"),
    ],
)
def test_a_bad_row_is_named_by_its_physical_line_and_never_quoted(write, line, told):
    data = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(UsageError, match=told) as caught:
        read_rows(write(HARD + data))
    assert "rows.jsonl" in str(caught.value)
    assert "riser" not in str(caught.value)


def test_a_scan_tells_every_bad_row_and_goes_on(write):
    found = list(scan_rows(write('{"prompt": "a"}\nx\n{"prompt": 1}\n{"prompt": "b"}\n')))
    assert [type(row) for row in found] == [Row, Problem, Problem, Row]
    assert found[1].source.endswith("line 2")


def test_the_first_rows_are_enough_where_so_many_are_asked_for(write):
    assert payloads(read_rows(write('{"prompt": "a"}\nbroken'), max_rows=1)) == [{"prompt": "a"}]


def test_records_of_any_columns_are_read(write):
    path = write('{"question": "q", "answer": "#### 1"}\n')
    assert read_records(path) == [(f"{path} line 1", {"question": "q", "answer": "#### 1"})]


def test_a_csv_row_is_named_by_the_line_it_starts_at(write):
    text = '\ufeffid,prompt\r\n1,"two\nlines"\r\n\r\n2,b,c\r\n'
    found: list[Any] = list(scan_rows(write(text, "rows.csv")))
    assert found[0].payload == {"prompt": "two\nlines"}
    assert str(found[1]).endswith("rows.csv line 5: wanted 2 columns, got 3")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("prompt,prompt\na,b\n", "distinct column names"),
        ('prompt\n"a', "line 2: not CSV"),
        ("", "distinct column names"),
        ("prompt\n", "holds no rows"),
        (b"prompt\n\xff\n", "not UTF-8"),
    ],
)
def test_a_broken_csv_is_refused(write, text, told):
    with pytest.raises(UsageError, match=told):
        read_rows(write(text, "rows.csv"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"prompt": "a"}\n{"prompt": "b"}',
            "line 2, column 1; a file with one row a line is named",
        ),
        ('{"prompt": "a"}', "must hold one array"),
        ('[{"prompt": "a"}, 3]', "rows.json row 2: a row must be an object"),
        ("[]", "holds no rows"),
    ],
)
def test_a_file_that_is_no_array_is_refused(write, text, told):
    with pytest.raises(UsageError, match=told):
        read_rows(write(text, "rows.json"))


def test_a_parquet_file_with_an_object_column_is_read(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"payload": [{"prompt": "a", "n": 1}, {"prompt": "b", "n": 2}]}), path)
    rows = read_rows(path)
    assert payloads(rows) == [{"prompt": "a", "n": 1}, {"prompt": "b", "n": 2}]
    assert rows[1].source == f"{path} row 2"


def test_a_parquet_value_that_is_no_json_is_refused(tmp_path):
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"payload": [{"prompt": b"a"}]}), path)
    with pytest.raises(UsageError, match="row 1: 'payload' cannot be sent"):
        read_rows(path)


def test_a_file_that_is_no_parquet_is_refused(write):
    with pytest.raises(UsageError, match="is no Parquet file"):
        read_rows(write("PAR", "rows.parquet"))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pip install 'rft-agent-sdk"):
        write_rows(tmp_path / "rows.parquet", prompts("a"))


@pytest.mark.parametrize("name", ["rows.txt", "rows"])
def test_a_name_of_no_kind_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"must be named \.csv, \.json, \.jsonl"):
        read_rows(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"none\.jsonl' cannot be read"):
        read_rows(tmp_path / "none.jsonl")


def test_shared_rows_are_found_in_any_case():
    rows, others = prompts("riser", "crane", "RISER"), prompts("Riser", "slate")
    assert shared_prompts(rows, others) == [(rows[0], others[0]), (rows[2], others[0])]
    assert shared_prompts(rows, others, key=lambda row: row.payload["prompt"]) == []
    assert len(shared_prompts(rows, others, key=lambda row: row.payload["prompt"][0].lower())) == 2


ROWS = prompts(*map(str, range(10)))


def numbers(batches):
    return [[int(row.payload["prompt"]) for row in batch] for batch in batches]


def flat(batches):
    return list(chain.from_iterable(batches))


def test_each_row_comes_once_an_epoch_in_an_order_of_its_own():
    batches = numbers(Epochs(ROWS, 4, 2, seed=1))
    assert [len(batch) for batch in batches] == [4, 4, 2, 4, 4, 2]
    first, second = flat(batches[:3]), flat(batches[3:])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert batches == numbers(Epochs(ROWS, 4, 2, seed=1))
    assert batches != numbers(Epochs(ROWS, 4, 2, seed=2))


def test_the_order_is_the_same_on_every_machine_and_release():
    assert numbers([Epochs(ROWS, 10, 1, seed=42).take(10)]) == [[0, 3, 4, 8, 5, 9, 2, 6, 1, 7]]


@given(st.integers(0, 40), st.integers(1, 12))
def test_a_run_that_stopped_at_any_row_goes_on_exactly(stop, batch_size):
    whole = Epochs(ROWS, 3, 3, seed=5)
    given_out = 0
    while given_out < stop and (taken := whole.take(min(3, stop - given_out))):
        given_out += len(taken)
    state = json.loads(json.dumps(whole.state()))
    again = Epochs.from_state(state, ROWS, batch_size, 3)
    assert flat(numbers(again)) == flat(numbers(whole))


def test_more_epochs_can_follow_a_run_that_ended():
    ended = Epochs(ROWS, 4, 1, seed=3)
    assert len(list(ended)) == 3
    assert ended.take(1) == []
    longer = Epochs.from_state(ended.state(), ROWS, 4, 2)
    assert numbers(longer) == numbers(Epochs(ROWS, 4, 2, seed=3))[3:]


def test_a_state_is_refused_with_other_rows():
    state = Epochs(ROWS, 4, 1, seed=3).state()
    with pytest.raises(UsageError, match="its rows, or their order, have changed"):
        Epochs.from_state(state, ROWS[::-1], 4, 1)


@pytest.mark.parametrize(
    "change", [{"position": 10}, {"position": -1}, {"epoch": "1"}, {"seed": None}, {"epoch": True}]
)
def test_a_state_that_is_none_is_refused(change):
    state = {**Epochs(ROWS, 4, 1, seed=3).state(), **change}
    with pytest.raises(UsageError, match="not the state of a dataset of 10 rows"):
        Epochs.from_state(state, ROWS, 4, 1)


@pytest.mark.parametrize(("rows", "size", "epochs"), [([], 1, 1), (ROWS, 0, 1), (ROWS, 1, 0)])
def test_an_iterator_over_nothing_is_refused(rows, size, epochs):
    with pytest.raises(UsageError, match="at least one row"):
        Epochs(rows, size, epochs, seed=0)
