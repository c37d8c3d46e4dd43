"""`rft learn` without a model: its recipe, its split, its record, and how two evaluations are compared."""

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from environments.wordle import compact
from rft_agent_sdk.cli.learn import command
from rft_agent_sdk.cli.learning.comparison import gain
from rft_agent_sdk.cli.learning.recipe import Recipe
from rft_agent_sdk.cli.learning.record import Record
from rft_agent_sdk.cli.learning.report import pooled
from rft_agent_sdk.cli.learning.stages import check
from rft_agent_sdk.cli.learning.tasks import Tasks, check_apart, split
from rft_agent_sdk.errors import UsageError

RECIPE = Recipe.of(games=300, steps=5)


def test_at_least_two_hundred_secrets_are_held_out_and_in_no_list_of_training():
    found = split(RECIPE)
    held_out = {compact.task_key(task) for task in found.held_out}
    assert len(held_out) == RECIPE.held_out >= 200
    for tasks in (found.seen, found.lessons, found.played):
        assert not held_out & {compact.task_key(task) for task in tasks}
    assert (len(found.seen), len(found.lessons), len(found.played)) == (200, 300, 80)


def test_a_split_that_shares_a_secret_is_refused():
    found = split(RECIPE)
    unsound = replace(found, played=[*found.played, found.held_out[7]])
    with pytest.raises(UsageError, match="1 are trained on"):
        check_apart(compact, unsound)


def test_a_split_is_read_as_it_was_written(tmp_path):
    found = split(RECIPE)
    found.write(tmp_path / "tasks.json")
    assert Tasks.read(tmp_path / "tasks.json") == found


def test_half_the_minutes_make_half_the_games_and_steps():
    whole, half = Recipe.of(), Recipe.of(minutes=15.0)
    assert (half.games, half.steps) == (whole.games // 2, whole.steps // 2)


def test_what_is_given_wins_over_what_the_minutes_make():
    assert Recipe.of(minutes=15.0, games=7).games == 7
    assert Recipe.of(games=None).games == Recipe.of().games


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"gamez": 1}, "gamez"),
        ({"minutes": 0}, "above 0"),
        ({"minutes": float("inf")}, "above 0"),
        ({"minutes": "abc"}, "above 0"),
        ({"group": True}, "group must be a whole number above 0"),
        ({"steps": 1.5}, "steps must be a whole number"),
        ({"rate": float("nan")}, "rate must be a number above 0"),
        ({"seed": -1}, "at least 0"),
        ({"answer_share": 2}, "from 0 to 1"),
        ({"prior_shares": (0,)}, "add up to more than 0"),
        ({"prior_shares": 0.5}, "a list of numbers"),
        ({"advantage": 3}, "a text"),
    ],
)
def test_a_recipe_that_is_none_is_refused(given, told):
    with pytest.raises(UsageError, match=told):
        Recipe.of(**given)


def test_a_record_is_read_as_it_was_left_and_never_begun_over(tmp_path):
    record = Record.begin(tmp_path, RECIPE)
    with pytest.raises(UsageError, match="has left no policy yet"):
        _ = record.policy
    record.finish("init", {"policy": "policy-0"})
    found = Record.read(tmp_path)
    assert (found.recipe, found.stages) == (RECIPE, {"init": {"policy": "policy-0"}})
    assert found.policy == tmp_path / "policy-0"
    with pytest.raises(UsageError, match="holds a run"):
        Record.begin(tmp_path, RECIPE)


def test_a_folder_without_a_run_is_refused(tmp_path):
    (tmp_path / "learn.json").write_text(json.dumps({"recipe": {}}))
    with pytest.raises(UsageError, match="wanted a run"):
        Record.read(tmp_path)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"teacher": "nobody"}, "nobody"),
        ({"environment": "gsm8k"}, "has no policy 'teacher'"),
        ({"advantage": "bogus"}, "advantage"),
        ({"held_out": 99_999}, "99999"),
        ({"rate": 5.0}, "learning_rate"),
    ],
)
def test_what_a_later_stage_would_refuse_is_refused_before_the_first(given, told):
    with pytest.raises(UsageError, match=told):
        check(Recipe.of(**given))


def test_a_recipe_of_wordle_is_taken():
    check(RECIPE)


def test_a_run_that_is_gone_on_with_takes_no_other_numbers(tmp_path):
    Record.begin(tmp_path, RECIPE)
    done = CliRunner().invoke(
        command, ["--resume", "--run-dir", str(tmp_path), "--steps", "9", "--set", "nonsense=3"]
    )
    assert "leave out nonsense, steps" in str(done.exception)


def test_a_rollout_that_failed_is_in_no_comparison():
    assert gain([0, None, 1, 0], [1, 1, None, 0]).mean == 0.5
    with pytest.raises(UsageError, match="nothing to compare"):
        gain([None], [1])


def done(folder, seed, before, after, **recipe):
    """A run that was evaluated, every cell alike."""
    record = Record.begin(folder, Recipe.of(seed=seed, **recipe))
    for stage, solved in (("before", [0, 0]), ("after_imitation", before), ("after_grpo", after)):
        cells = {
            f"{kind}/{how}": {"by_task": solved}
            for kind in KINDS
            for how in ("serving", "training")
        }
        record.finish(stage, {"cells": cells})
    return record


KINDS = ("held_out", "trained")


def test_runs_are_pooled_task_by_task(tmp_path):
    first = done(tmp_path / "0", 0, [0, 0], [1, 1])
    second = done(tmp_path / "1", 1, [1, 0], [1, 0])
    told = pooled([first, second])
    (line,) = [
        one for one in told.splitlines() if one.startswith("held-out, greedy") and "(" in one
    ]
    assert "+50.0 (+0.0 to +100.0)" in line
    assert "0.0%                 25.0%                 75.0%" in told
    assert told.endswith("seeds 0, 1: 4 held-out tasks in all")


def test_runs_that_do_not_belong_together_are_not_pooled(tmp_path):
    first = done(tmp_path / "0", 0, [0], [1])
    with pytest.raises(UsageError, match="a seed of its own"):
        pooled([first, done(tmp_path / "again", 0, [0], [1])])
    with pytest.raises(UsageError, match="differ in more"):
        pooled([first, done(tmp_path / "other", 1, [0], [1], steps=3)])
    with pytest.raises(UsageError, match="not done"):
        pooled([Record.begin(tmp_path / "begun", RECIPE)])


def test_a_gain_is_paired_and_its_interval_holds_it():
    before, after = [0] * 60 + [1] * 40, [0] * 40 + [1] * 60
    found = gain(before, after)
    assert found.mean == pytest.approx(0.2)
    assert 0.1 < found.low < found.mean < found.high < 0.3
    assert gain(before, before) == (0, 0, 0)


def test_evaluations_of_other_tasks_are_not_compared():
    with pytest.raises(UsageError, match="the same tasks"):
        gain([1, 0], [1])
