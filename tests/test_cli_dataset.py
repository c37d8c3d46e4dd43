"""`rft dataset`, run as a person runs it."""

import json
import logging
import sys

import pytest

from environments.wordle import environment as wordle
from rft_agent_sdk.cli import main
from rft_agent_sdk.environment import Environment
from rft_agent_sdk.training.dataset import Row, read_rows, write_rows


@pytest.fixture
def rft(capsys, monkeypatch):
    """Run the command line in this process; returns its exit code, and standard output and error."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    quieted = ("botocore", "httpcore", "httpx", "openai", "strands", "urllib3", "uvicorn")
    levels = {name: logging.getLogger(name).level for name in quieted}

    def rft(*args):
        with pytest.raises(SystemExit) as stopped:
            main([str(arg) for arg in args])
        printed = capsys.readouterr()
        return stopped.value.code, printed.out, printed.err

    yield rft
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def prompt(answer, **fields):
    return Row({"prompt": json.dumps({"prompt": "Guess the word", "answer": answer, **fields})})


def test_wordle_rows_are_made_and_pass_the_check(rft, tmp_path):
    out = tmp_path / "new" / "data"
    code, told, _ = rft("dataset", "wordle", "--train", 30, "--val", 10, "--out", out)
    assert code == 0
    assert told.splitlines() == [f"{out}/train.jsonl: 30 rows", f"{out}/val.jsonl: 10 rows"]
    code, told, _ = rft("dataset", "check", out / "train.jsonl", out / "val.jsonl")
    assert code == 0
    assert "30 good rows (30 with prompt)" in told
    assert "0 rows of" in told


def test_the_same_seed_makes_the_same_bytes(rft, tmp_path):
    for folder, seed in [("a", 1), ("b", 1), ("c", 2)]:
        args = ("--train", 9, "--val", 3, "--seed", seed, "--out", tmp_path / folder)
        assert rft("dataset", "wordle", *args)[0] == 0
    a, b, c = ((tmp_path / folder / "train.jsonl").read_bytes() for folder in "abc")
    assert a == b != c


def test_a_curriculum_plays_guesses_in_training_rows_only(rft, tmp_path):
    args = ("--train", 40, "--val", 9, "--curriculum", "1:3", "--out", tmp_path)
    assert rft("dataset", "wordle", *args)[0] == 0
    played = [
        json.loads(row.task).get("guesses", []) for row in read_rows(tmp_path / "train.jsonl")
    ]
    assert {len(guesses) for guesses in played} == {1, 2, 3}
    assert not any("guesses" in row.task for row in read_rows(tmp_path / "val.jsonl"))


@pytest.mark.parametrize("curriculum", ["3", "a:b", "3:1", "0:6", "-1:2"])
def test_a_curriculum_that_is_none_is_refused(rft, tmp_path, curriculum):
    code, _, error = rft("dataset", "wordle", f"--curriculum={curriculum}", "--out", tmp_path)
    assert code == 2
    assert "MIN:MAX" in error or "two numbers from 0 to 5" in error


@pytest.mark.parametrize("kind", ["json", "csv", "parquet"])
def test_other_formats_hold_the_same_rows(rft, tmp_path, kind):
    for form in ("jsonl", kind):
        rft("dataset", "wordle", "--train", 5, "--val", 0, "--format", form, "--out", tmp_path)
    rows = [read_rows(tmp_path / f"train.{form}") for form in ("jsonl", kind)]
    assert [row.payload for row in rows[0]] == [row.payload for row in rows[1]]
    assert not list(tmp_path.glob("val*"))


def test_gsm8k_files_become_rows(rft, tmp_path):
    source = tmp_path / "test.jsonl"
    record = {"question": "4 bags of 6?", "answer": "4 * 6 = <<4*6=24>>24\n#### 24"}
    source.write_text(json.dumps(record) + "\n", "utf-8")
    out = tmp_path / "out"
    assert rft("dataset", "gsm8k", "--source", source, "--out", out)[0] == 0
    (row,) = read_rows(out / "test.jsonl")
    assert json.loads(row.task) == {"prompt": "4 bags of 6?", "answer": "24", "id": "test_0000"}
    code, told, _ = rft("dataset", "check", out / "test.jsonl", "--environment", "gsm8k")
    assert (code, "1 good rows" in told) == (0, True)


def test_a_gsm8k_file_with_bad_records_is_refused_with_their_lines(rft, tmp_path):
    source = tmp_path / "train.jsonl"
    source.write_text('\n{"question": "q", "answer": "dunno"}\n{"answer": "#### 1"}\n', "utf-8")
    code, _, error = rft("dataset", "gsm8k", "--source", source, "--out", tmp_path / "out")
    assert code == 2
    assert "train.jsonl line 2: a math task's 'answer'" in error
    assert "train.jsonl line 3: a math task needs a 'prompt'" in error
    assert "dunno" not in error


def test_a_source_is_never_overwritten_and_two_never_become_one(rft, tmp_path):
    source = tmp_path / "train.jsonl"
    source.write_text('{"question": "q", "answer": "#### 1"}\n', "utf-8")
    code, _, error = rft("dataset", "gsm8k", "--source", source, "--out", tmp_path)
    assert (code, "is the source itself" in error) == (2, True)
    twice = ("--source", source, "--source", tmp_path / "other" / "train.jsonl")
    code, _, error = rft("dataset", "gsm8k", *twice, "--out", tmp_path / "out")
    assert (code, "distinct names" in error) == (2, True)


def test_the_check_names_every_bad_row_by_line_and_tells_no_answer(rft, tmp_path):
    path = tmp_path / "rows.jsonl"
    good = '{"prompt": "{\\"answer\\": \\"riser\\"}"}'
    bad = [
        '{"prompt": "{\\"answer\\": \\"RISERS\\"}"}',
        '{"prompt": "{\\"answer\\": 12345}"}',
        '{"prompt": "{}"}',
        '{"prompt": "Guess the word"}',
        '{"prompt": {"answer": "crane"}}',
        "oops",
    ]
    path.write_text("\n\n".join([good, *bad]), "utf-8")
    code, told, _ = rft("dataset", "check", path)
    assert code == 1
    assert "1 good rows" in told
    assert [f"line {number}:" in told for number in range(1, 15)] == [False, False] + [
        True,
        False,
    ] * 6
    assert not any(secret in told.lower() for secret in ["riser", "12345", "crane"])


def test_shared_tasks_are_found_in_any_case_and_fail_the_check(rft, tmp_path):
    write_rows(tmp_path / "a.jsonl", [prompt("slate"), prompt("riser", id="a")])
    write_rows(tmp_path / "b.csv", [Row({"prompt": "Other words", "answer": "RISER"})])
    code, told, _ = rft("dataset", "check", tmp_path / "a.jsonl", tmp_path / "b.csv")
    assert code == 1
    assert "1 good rows (1 with payload)" in told
    assert f"{tmp_path}/a.jsonl line 2 and {tmp_path}/b.csv line 2" in told


def test_an_environment_without_a_key_compares_whole_tasks(rft, tmp_path):
    write_rows(tmp_path / "a.jsonl", [Row({"prompt": "left"})])
    write_rows(tmp_path / "b.jsonl", [Row({"prompt": "LEFT"}), Row({"prompt": "right"})])
    files = (tmp_path / "a.jsonl", tmp_path / "b.jsonl")
    code, told, _ = rft("dataset", "check", *files, "--environment", "tests.test_cli_dataset:Coin")
    assert code == 1
    assert "1 rows of" in told


def test_repeated_tasks_are_told_and_are_no_fault(rft, tmp_path):
    write_rows(tmp_path / "a.jsonl", [prompt("riser"), prompt("Riser"), prompt("slate")])
    code, told, _ = rft("dataset", "check", tmp_path / "a.jsonl")
    assert code == 0
    assert "note: 1 rows repeat the task of an earlier one" in told


def test_a_long_list_of_problems_is_cut(rft, tmp_path):
    (tmp_path / "a.jsonl").write_text("x\n" * 25, "utf-8")
    code, told, _ = rft("dataset", "check", tmp_path / "a.jsonl")
    assert code == 1
    assert told.count("not JSON") == 20
    assert "and 5 more" in told


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("check", "none.jsonl"), "none.jsonl' cannot be read"),
        (("check", "rows.txt"), "must be named .csv"),
        (("check", "a.jsonl", "b.jsonl", "c.jsonl"), "wanted one file, or two to compare, got 3"),
        (("wordle", "--train", "5000", "--out", "x"), "train split has 1632 answers"),
    ],
)
def test_what_the_person_can_fix_is_one_sentence(rft, args, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, error = rft("dataset", *args)
    assert code == 2
    assert told in error
    assert "Traceback" not in error


def test_an_empty_file_fails_the_check(rft, tmp_path):
    (tmp_path / "a.jsonl").write_text("\n", "utf-8")
    code, told, _ = rft("dataset", "check", tmp_path / "a.jsonl")
    assert (code, "no rows" in told) == (1, True)


class Coin(Environment):
    name = "coin"
    floor = -1.0

    def start(self, task):
        return wordle.start('{"answer": "riser"}')
