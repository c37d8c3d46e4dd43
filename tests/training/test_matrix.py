"""Evaluations side by side: the table and what is kept."""

import json

import pytest

from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.training.evaluate import report_of
from rft_agent_sdk.training.matrix import Cell, Results, table
from rft_agent_sdk.training.rollouts import Group, Played
from rft_agent_sdk.trajectory import Trajectory
from rft_agent_sdk.types import Outcome


def groups(*rewards, outcome=Outcome.COMPLETED):
    """One group of two rollouts with each pair of rewards."""
    return [
        Group({}, tuple(Played(Trajectory("r", outcome, turns=1, reward=one), "s") for one in pair))
        for pair in rewards
    ]


def cell(name, temperature, played, per_task=2):
    return Cell(name, temperature, None, report_of(played, per_task=per_task))


def test_a_table_has_a_line_for_each_combination():
    half = groups((1.0, 0.0), (1.0, 0.0), (0.0, 1.0), (0.0, 1.0))
    nothing = groups((None, None), outcome=Outcome.NO_SAMPLING)
    told = table([cell("base", 0.0, half), cell("trained-long", 0.75, nothing)])
    assert told.splitlines() == [
        "policy        temperature         solved [95 %]  pass@2  mean reward",
        "base                    0  50.0% [15.0%, 85.0%]  100.0%        0.500",
        "trained-long         0.75                     -       -            -",
    ]


def test_each_combination_is_kept_as_soon_as_it_is_there(tmp_path):
    folder = tmp_path / "run"
    results = Results(folder)
    assert not folder.exists()
    for done, name in enumerate(("base", "trained"), 1):
        played = groups((1.0, 0.0))
        results.add(cell(name, 0.5, played), played)
        found = json.loads((folder / "evaluation.json").read_text())["results"]
        assert [one["policy"] for one in found] == ["base", "trained"][:done]
        assert len((folder / "rollouts.jsonl").read_text().splitlines()) == 2 * done
    with pytest.raises(UsageError, match="holds an evaluation"):
        Results(folder)
