"""`rft learn` without a model: its recipe, its split, its record, and how two evaluations are compared."""

import json
from dataclasses import replace

import pytest

from environments.wordle import compact
from rft_agent_sdk.cli.learning.comparison import gain
from rft_agent_sdk.cli.learning.recipe import Recipe
from rft_agent_sdk.cli.learning.record import Record
from rft_agent_sdk.cli.learning.tasks import Tasks, check_apart, split
from rft_agent_sdk.errors import UsageError

RECIPE = Recipe.of(games=300, steps=5)


def test_at_least_two_hundred_secrets_are_held_out_and_in_no_list_of_training():
    found = split(RECIPE)
    held_out = {compact.task_key(task) for task in found.held_out}
    assert len(held_out) == RECIPE.held_out >= 200
    for tasks in (found.seen, found.lessons, found.played):
        assert not held_out & {compact.task_key(task) for task in tasks}
    assert (len(found.seen), len(found.lessons), len(found.played)) == (300, 300, 160)


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


def test_another_environment_is_not_taken_to_tell_its_reward_by_turn():
    assert Recipe.of().advantage == "group_based_per_turn"
    assert Recipe.of(environment="environments.wordle:compact").advantage == "grpo"
    chosen = Recipe.of(environment="own:env", advantage="rloo")
    assert chosen.advantage == "rloo"


@pytest.mark.parametrize(("given", "told"), [({"gamez": 1}, "gamez"), ({"minutes": 0}, "above 0")])
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


def test_a_gain_is_paired_and_its_interval_holds_it():
    before, after = [0] * 60 + [1] * 40, [0] * 40 + [1] * 60
    found = gain(before, after)
    assert found.mean == pytest.approx(0.2)
    assert 0.1 < found.low < found.mean < found.high < 0.3
    assert gain(before, before) == (0, 0, 0)


def test_evaluations_of_other_tasks_are_not_compared():
    with pytest.raises(UsageError, match="the same tasks"):
        gain([1, 0], [1])
