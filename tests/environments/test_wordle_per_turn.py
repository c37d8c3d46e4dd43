"""The reward told by turn: the same reward, with each guess's own worth where the guess was made."""

import json

import pytest

from environments.wordle import Wordle, compact, compact_per_turn
from rft_agent_sdk import Outcome


def episode_of(environment, *guesses, answer="crane", prior=()):
    episode = environment.start(json.dumps({"prompt": "Go.", "answer": answer, "guesses": prior}))
    for guess in guesses:
        episode.call("guess_word", guess if isinstance(guess, dict) else {"guess": guess})
    return episode


def test_a_guess_against_the_clues_earns_less_than_a_sound_one_in_the_same_turn():
    sound = episode_of(compact_per_turn, "slate", "brand").credits
    against = episode_of(compact_per_turn, "slate", "still").credits
    assert sound[0] == against[0] > 0
    assert sound[1] > 0 > against[1]


def test_credits_are_the_shaping_of_a_game_that_is_not_solved():
    guesses = ("slate", {"guess": "no"}, "brand")
    game = episode_of(compact_per_turn, *guesses)
    reward = game.reward(Outcome.COMPLETED)
    assert abs(reward.components["shaping"]) < 0.149  # not clipped
    assert sum(game.credits) == pytest.approx(reward.components["shaping"])
    assert len(game.credits) == len(guesses)


def test_a_call_after_the_end_earns_nothing():
    game = episode_of(compact_per_turn, "crane", "slate")
    assert game.credits[1] == 0


def test_the_reward_itself_is_that_of_the_same_game_without():
    guesses = ("slate", "crown", "crane")
    by_turn, whole = (episode_of(kind, *guesses) for kind in (compact_per_turn, compact))
    assert by_turn.reward(Outcome.COMPLETED) == whole.reward(Outcome.COMPLETED)
    assert whole.credits is None
    assert Wordle(per_turn=True).per_turn


def test_guesses_of_the_task_earn_nothing():
    assert len(episode_of(compact_per_turn, "brand", prior=["slate"]).credits) == 1
