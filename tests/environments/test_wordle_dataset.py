import json

import pytest

from environments.wordle import environment
from environments.wordle.dataset import (
    TRAIN_ROWS,
    VALIDATION_ROWS,
    check_rows,
    make_rows,
    shared_answers,
)
from environments.wordle.task import parse_task
from environments.wordle.words import answers
from rft_agent_sdk.errors import TaskError, UsageError


def test_rows_hold_one_string_in_one_column():
    rows = make_rows("train", 3, seed=7, prompt="Guess the 5-letter word")
    assert [list(row) for row in rows] == [["prompt"]] * 3
    inner = [json.loads(row["prompt"]) for row in rows]
    assert [list(task) for task in inner] == [["prompt", "answer", "id"]] * 3
    assert {task["prompt"] for task in inner} == {"Guess the 5-letter word"}
    assert [task["id"] for task in inner] == [f"wordle_train_000{n}" for n in range(3)]
    assert all(task["answer"] in answers() for task in inner)


def test_the_same_seed_makes_the_same_rows_and_another_one_others():
    assert make_rows("train", 20, 3, prior_guesses=(0, 4)) == make_rows(
        "train", 20, 3, prior_guesses=(0, 4)
    )
    assert make_rows("train", 20, 3) != make_rows("train", 20, 4)


def test_splits_share_no_answer_however_many_rows_they_have():
    train = make_rows("train", TRAIN_ROWS)
    validation = make_rows("validation", VALIDATION_ROWS)
    assert (len(train), len(validation)) == (640, 128)
    assert len({parse_task(row["prompt"]).answer for row in train}) == 640
    assert shared_answers(train, validation) == set()
    everything = make_rows("train", 1632), make_rows("validation", 409)
    assert shared_answers(*everything) == set()


def test_a_curriculum_row_has_prior_guesses_that_leave_the_game_open():
    rows = make_rows("train", 200, 1, prior_guesses=(0, 4))
    tasks = [parse_task(row["prompt"]) for row in rows]
    assert {len(task.guesses) for task in tasks} == {0, 1, 2, 3, 4}
    assert not any(environment.start(row["prompt"]).done for row in rows)
    assert check_rows(rows) == []


@pytest.mark.parametrize("prior_guesses", [(0, 6), (-1, 2), (3, 2)])
def test_a_range_of_guesses_that_no_game_has_is_refused(prior_guesses):
    with pytest.raises(UsageError, match="prior_guesses must be two numbers from 0 to 5"):
        make_rows("train", 1, prior_guesses=prior_guesses)


def test_more_rows_than_answers_are_refused():
    with pytest.raises(UsageError, match="validation split has 409 answers, got count 410"):
        make_rows("validation", 410)


def test_an_unknown_split_is_refused():
    with pytest.raises(UsageError, match="'train' or 'validation', got 'test'"):
        make_rows("test", 1)


def test_bad_rows_are_named_and_their_answers_are_not_told():
    rows = [
        {"prompt": '{"answer": "riser"}'},
        {"id": "w1", "prompt": '{"answer": "RISERS"}'},
        {"prompt": '{"answer": 12345}'},
        {"prompt": "{}"},
        {"prompt": "Guess the word"},
        {"prompt": {"answer": "riser"}},
        {"text": "x"},
        "riser",
    ]
    problems = check_rows(rows)
    assert [problem.split(":")[0] for problem in problems] == [
        *("row 1 ('w1')", "row 2", "row 3", "row 4", "row 5", "row 6", "row 7"),
    ]
    assert not any(secret in " ".join(problems).lower() for secret in ["riser", "12345"])


def test_shared_answers_are_found_in_any_case():
    rows = [{"prompt": '{"answer": "riser"}'}, {"prompt": '{"answer": "crane"}'}]
    others = [{"prompt": '{"answer": "RISER"}'}]
    assert shared_answers(rows, others) == {"riser"}
    with pytest.raises(TaskError):
        shared_answers(rows, [{"prompt": "riser"}])


def test_a_task_string_is_what_was_parsed():
    text = (
        '{"prompt": "Guess the 5-letter word", "answer": "riser", "id": "w", "guesses": ["slate"]}'
    )
    task = parse_task(text)
    assert task.dump() == text
    assert "riser" not in repr(task)
