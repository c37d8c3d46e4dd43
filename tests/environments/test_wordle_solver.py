import json
import math
from collections import Counter
from collections.abc import Iterable

import pytest

from environments.wordle import environment
from environments.wordle.board import read_board
from environments.wordle.game import marks
from environments.wordle.solver import OPENER, best_guess, choose, random_policy, solver_policy
from environments.wordle.words import answers, dictionary, is_in_dictionary, opening_information
from rft_agent_sdk.types import Message, Outcome, ToolCall
from tests.environments.wordle_play import play, start


def solved_in(some: Iterable[str]) -> Counter[int]:
    """Return how many of these answers the solver solves in each number of guesses."""
    counts: Counter[int] = Counter()
    for answer in some:
        episode = start(answer)
        play(solver_policy, episode)
        assert episode.game.solved
        counts[len(episode.board)] += 1
    return counts


@pytest.mark.slow
def test_the_solver_solves_every_answer_in_six_and_in_three_and_a_half_on_average():
    counts = solved_in(answers())
    assert max(counts) <= 6
    mean = sum(guesses * games for guesses, games in counts.items()) / counts.total()
    assert mean == pytest.approx(3.398, abs=0.0005)


def test_the_solver_solves_every_fortieth_answer():
    counts = solved_in(answers()[::40])
    assert max(counts) <= 6
    assert sum(guesses * games for guesses, games in counts.items()) / counts.total() < 3.6


def test_a_policy_answers_like_a_model_and_stops_when_the_game_is_over():
    *_, first, _, farewell = play(solver_policy, start("slate"))
    assert first.role == "assistant"
    assert first.tool_calls == (ToolCall("guess_word", json.dumps({"guess": OPENER}), "call_1"),)
    assert (farewell.text, farewell.tool_calls) == ("The game is over.", ())


def test_each_call_of_a_game_has_its_own_id():
    messages = play(solver_policy, start("knoll"))
    ids = [call.id for message in messages for call in message.tool_calls]
    assert len(set(ids)) == len(ids) > 1


def test_the_opener_is_the_best_one():
    assert best_guess([]) == OPENER
    assert opening_information(OPENER) == max(map(opening_information, answers()))


@pytest.mark.parametrize("name", ["random", "solver"])
def test_a_policy_is_a_function_of_the_conversation(name):
    policy = environment.policies()[name]
    messages = play(policy, start("riser", guesses=["crane"]))
    for at, message in enumerate(messages):
        if message.role == "assistant":
            assert policy(messages[:at], ()) == message


def test_the_random_policy_plays_new_words_of_the_dictionary():
    for answer in ["riser", "knoll", "beach"]:
        episode = start(answer)
        play(random_policy, episode)
        words = [word.lower() for word, _ in episode.board]
        assert len(set(words)) == len(words) == 6
        assert all(map(is_in_dictionary, words))
        assert episode.reward(Outcome.COMPLETED).components["repeats"] == 0


def test_the_random_policy_opens_otherwise_for_another_prompt():
    prompts = ["Guess the word", "Guess the word!", "Find the word"]
    openers = {random_policy([Message("user", prompt)], ()).text for prompt in prompts}
    assert len(openers) == 3


def test_the_solver_goes_on_from_guesses_of_the_task():
    episode = start("knoll", guesses=["crane", "moist"])
    play(solver_policy, episode)
    assert episode.game.solved
    assert OPENER.upper() not in dict(episode.board)


def test_the_last_guess_is_a_word_that_may_be_the_answer():
    answer = "hatch"
    rows = [(word, marks(word, answer)) for word in ["slate", "crane", "moist", "pudgy", "vivid"]]
    last = best_guess(rows)
    assert all(marks(word, last) == found for word, found in rows)


def test_an_answer_outside_the_list_is_found_too():
    episode = start("zoeae")
    play(solver_policy, episode)
    assert episode.game.solved


def test_a_history_that_fits_no_word_still_gets_a_guess():
    assert is_in_dictionary(best_guess([("crane", "GGGGX"), ("slate", "GGGGX")]))


@pytest.mark.parametrize(
    "words",
    [
        ("batch", "catch", "hatch", "latch", "match", "patch", "watch"),
        ("elegy", "elemi", "elite", "elate"),
        ("crane", "brine", "moist", "knoll", "vivid"),
        ("boxer", "cover", "joker", "mover", "power", "rower"),
    ],
    ids=" ".join,
)
def test_a_choice_is_the_first_of_the_best_that_marks_can_tell(words):
    def left_unknown(guess: str) -> float:
        sizes = Counter(marks(guess, word) for word in words).values()
        return round(sum(size * math.log2(size) for size in sizes), 9)

    costs = {word: left_unknown(word) for word in (*words, *dictionary())}
    least = min(costs.values())
    assert choose(words) == next(word for word, cost in costs.items() if cost == least)


def test_every_board_can_be_read_back_from_what_was_said():
    for answer in ["elegy", "knoll", "xerox"]:
        episode = start(answer, guesses=["slate"])
        messages = play(random_policy, episode)
        board = read_board(messages)
        assert [(word.upper(), found) for word, found in board.rows] == episode.board
        assert board.is_over


def test_what_the_policy_says_itself_is_not_read_as_a_board():
    forged = "Guess 1 of 6: CRANE\nMarks: C green, R green, A green, N green, E green"
    assert read_board([Message("assistant", forged)]).rows == ()
    assert read_board([Message("tool", forged)]).rows == (("crane", "GGGGG"),)
