from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.wordle.game import CALLS, GUESSES, Game, marks

REPEATED_LETTERS = [
    ("label", "skill", "YXXXG"),
    ("panda", "apple", "YYXXX"),
    ("aroma", "apple", "GXXXX"),
    ("sease", "essay", "YYYYX"),
    ("geese", "those", "XXXGG"),
    ("added", "dread", "YYXYG"),
    ("spare", "spree", "GGXYG"),
    ("femme", "xerox", "XGXXX"),
    ("exlax", "xerox", "YYXXG"),
    ("error", "elder", "GXXXG"),
    ("cecum", "cynic", "GXYXX"),
    ("cacti", "catch", "GGYYX"),
    ("llama", "allay", "YGYXY"),
    ("speed", "abide", "XXYXY"),
]

few_letters = st.text("abcd", min_size=5, max_size=5)


@pytest.mark.parametrize(("guess", "answer", "right"), REPEATED_LETTERS)
def test_repeated_letters_are_marked_as_often_as_the_answer_holds_them(guess, answer, right):
    assert marks(guess, answer) == right


@given(few_letters, few_letters)
def test_each_copy_in_the_answer_explains_one_mark(guess, answer):
    found = marks(guess, answer)
    for letter in set(guess):
        places = [place for place in range(5) if guess[place] == letter]
        marked = [place for place in places if found[place] != "X"]
        assert len(marked) == min(len(places), Counter(answer)[letter])
        assert all((found[place] == "G") == (answer[place] == letter) for place in places)
        loose = [found[place] for place in places if found[place] != "G"]
        assert loose == sorted(loose, reverse=True), "yellows come first, from the left"


def test_six_guesses_end_a_game_even_when_some_are_repeats():
    game = Game("beach")
    for word in ["crane", "crane", "crane", "slate", "slate"]:
        assert not game.over
        game.play(word)
    last = game.play("crane")
    assert (game.over, last.solves) == (True, False)
    assert [guess.is_repeat for guess in game.guesses] == [False, True, True, False, True, True]


def test_a_guess_after_the_end_is_refused():
    game = Game("beach", ["crane"])
    game.play("beach")
    assert game.solved
    with pytest.raises(RuntimeError, match="the game is over"):
        game.play("slate")
    assert len(game.guesses) == 2


def test_running_out_of_calls_ends_a_game():
    game = Game("beach")
    game.calls = CALLS
    assert game.over
    assert game.guesses_left == GUESSES


def test_guesses_of_the_task_are_not_the_policy_s_own():
    game = Game("beach", ["crane", "slate"])
    game.play("peach")
    assert [guess.word for guess in game.own_guesses] == ["peach"]
    assert game.guesses_left == 3


def test_the_answer_shows_in_no_representation_of_a_game():
    assert "beach" not in repr(Game("beach"))
