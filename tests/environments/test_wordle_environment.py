import json
import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.wordle import Wordle, WordleRewards, environment
from environments.wordle.board import read_board
from environments.wordle.game import CALLS
from environments.wordle.words import answers
from rft_agent_sdk.environment import Environment, Episode, load_environment
from rft_agent_sdk.errors import TaskError
from rft_agent_sdk.types import Message, Outcome
from tests.environments.wordle_play import guess, start, state


def test_the_environment_is_found_by_name():
    found = load_environment("wordle")
    assert found is environment
    assert isinstance(found, Environment)
    assert isinstance(start("riser"), Episode)
    assert (found.name, found.floor) == ("wordle", -1.5)
    assert sorted(found.policies()) == ["random", "solver", "teacher"]


def test_other_constants_make_another_environment_and_floor():
    assert Wordle(WordleRewards(never_played=-2.0)).floor == -2.0


def test_a_guess_is_answered_with_marks_and_what_is_known():
    episode = start("elegy")
    guess(episode, "level")
    result = guess(episode, "ELDER ")
    assert not result.is_error
    assert result.text == (
        "Guess 2 of 6: ELDER\n"
        "Marks: E green, L green, D gray, E yellow, R gray\n"
        "Letters in place: E L _ _ _\n"
        "Letters in the word: E (at least 2, in place 1, not in place 4); L (exactly 1, in place 2, not in place 5)\n"
        "Letters not in the word: D, R, V\n"
        "Guesses left: 4"
    )


def test_a_solve_ends_the_game_and_says_so():
    episode = start("riser")
    result = guess(episode, "riser")
    assert result.text.endswith("Solved in 1 guess. The game is over.")
    assert episode.done
    assert episode.board == [("RISER", "GGGGG")]


def test_the_documented_play():
    episode = start("beach")
    guess(episode, "crane")
    repeat = guess(episode, "crane")
    assert "CRANE was guessed before; it used up a guess." in repeat.text
    malformed = guess(episode, "hi")
    assert malformed.is_error
    assert "This used no guess." in malformed.text
    assert "Guesses left: 4" in malformed.text
    unknown = guess(episode, "xyzzy")
    assert "XYZZY is not in the dictionary; it used up a guess." in unknown.text
    assert "Marks: X gray, Y gray, Z gray, Z gray, Y gray" in unknown.text
    for word in ["crane", "moist"]:
        guess(episode, word)
    assert not episode.done
    assert guess(episode, "vivid").text.endswith(
        "Not solved, and no guesses left. The game is over."
    )
    components = episode.reward(Outcome.COMPLETED).components
    counts = {
        name: components[name] for name in ["guesses", "malformed", "repeats", "not_in_dictionary"]
    }
    assert counts == {"guesses": 6, "malformed": 1, "repeats": 2, "not_in_dictionary": 1}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("guess_word", {"guess": "beach"}), ("guess_word", {}), ("nothing", {})],
)
def test_a_call_after_the_end_changes_nothing(name, arguments):
    episode = start("beach")
    guess(episode, "beach")
    before, reward = state(episode), episode.reward(Outcome.COMPLETED)
    result = episode.call(name, arguments)
    assert result.is_error
    assert "The game is over" in result.text
    assert state(episode) == before
    assert episode.reward(Outcome.COMPLETED) == reward


BAD_ARGUMENTS = [
    {},
    {"guess": None},
    {"guess": 12345},
    {"guess": ["crane"]},
    {"guess": "cranes"},
    {"guess": "\u212arane"},
    {"guess": "crane", "why": "vowels"},
    {"word": "crane"},
    {"guess": "x" * 100_000},
    ["crane"],
    "crane",
    None,
]


@pytest.mark.parametrize("arguments", BAD_ARGUMENTS, ids=range(len(BAD_ARGUMENTS)))
def test_bad_arguments_are_answered_and_count_as_malformed(arguments):
    episode = start("beach")
    result = episode.call("guess_word", arguments)
    assert result.is_error
    assert "Call guess_word with one argument, 'guess'" in result.text
    assert len(result.text) < 300
    assert (episode.game.malformed, episode.acted, episode.done) == (1, False, False)


def test_an_unknown_tool_is_answered_and_is_no_malformed_guess():
    episode = start("beach")
    result = episode.call("Guess", {"guess": "crane"})
    assert result.is_error
    assert "There is no tool 'Guess'; the only one is guess_word." in result.text
    assert (episode.game.malformed, episode.game.calls) == (0, 1)


@pytest.mark.parametrize("call", [("guess_word", {"guess": "hi"}), ("sing", {})])
def test_a_bounded_number_of_useless_calls_ends_the_game(call):
    episode = start("beach")
    for _ in range(CALLS - 1):
        episode.call(*call)
        assert not episode.done
    assert episode.call(*call).text.endswith(
        "Not solved, and no tool calls left. The game is over."
    )
    assert episode.done
    assert not episode.acted
    assert episode.reward(Outcome.COMPLETED).total == environment.floor


def test_the_last_call_may_still_be_a_guess():
    episode = start("beach")
    for _ in range(CALLS - 1):
        guess(episode, "hi")
    assert guess(episode, "crane").text.endswith("no tool calls left. The game is over.")
    assert episode.acted
    assert episode.done


def test_a_recovered_guess_plays_and_is_flagged():
    plain, recovered = start("beach"), start("beach")
    assert guess(plain, "crane").text == guess(recovered, "crane", recovered=True).text
    assert recovered.acted
    for outcome in Outcome:
        assert recovered.reward(outcome).total < plain.reward(outcome).total
    assert recovered.reward(Outcome.COMPLETED).components["recovered"] == 1


WRITTEN_AS_TEXT = [
    (
        "<tools>\n<__function=guess_word>\n<__parameter=guess>STARE</__parameter>\n</__function>\n</tools>",
        "STARE",
    ),
    ('guess_word("crane")', "CRANE"),
    ("guess_word(guess='crane')", "CRANE"),
    ('{"name": "guess_word", "arguments": {"guess": "slate"}}', "SLATE"),
    ("<function=guess_word>\n<parameter=guess>\nCRANE\n</parameter>\n</function>", "CRANE"),
]


@pytest.mark.parametrize(("written", "word"), WRITTEN_AS_TEXT, ids=range(len(WRITTEN_AS_TEXT)))
def test_a_call_written_as_text_plays_one_guess_and_earns_less_than_a_structured_one(written, word):
    episode, structured = start("beach"), start("beach")
    (call,) = episode.recover(written)
    episode.call(call.name, json.loads(call.arguments), recovered=True)
    guess(structured, word)
    assert episode.board == structured.board
    assert [played for played, _ in episode.board] == [word]
    lost, better = episode.reward(Outcome.TIMEOUT), structured.reward(Outcome.TIMEOUT)
    assert lost.total < better.total
    assert lost.components["recovered"] == 1


def test_a_recovered_word_that_was_played_is_not_played_again():
    episode = start("beach", guesses=["slate"])
    guess(episode, "crane")
    for word in ["crane", "SLATE"]:
        result = guess(episode, word, recovered=True)
        assert f"{word.upper()} was guessed before, so it was not played again" in result.text
        assert not result.is_error
    assert len(episode.board) == 2
    assert episode.game.calls == 3, "it still counts as a call, so it cannot go on for ever"


def test_prior_guesses_are_shown_and_are_not_the_policy_s_doing():
    episode = start("beach", guesses=["SLATE", "crane"], prompt="Guess the word")
    assert episode.prompt.startswith("Guess the word\n\nThese guesses have been played already.")
    assert read_board([Message("user", episode.prompt)]).rows == tuple(
        (word.lower(), marks) for word, marks in episode.board
    )
    assert "Guesses left: 4" in episode.prompt
    assert episode.prompt in episode.retry_prompt
    assert not episode.acted
    assert episode.reward(Outcome.TIMEOUT).total == environment.floor
    guess(episode, "peach")
    assert episode.acted


def test_the_prompt_of_the_task_is_shown_as_it_is():
    episode = environment.start(
        '{"prompt": "Guess the 5-letter word", "answer": "riser", "id": "wordle_train_0000"}'
    )
    assert episode.prompt == "Guess the 5-letter word"


BAD_TASKS = [
    ("Guess the word", "not JSON"),
    ("[" * 100_000, "not JSON"),
    ("", "not JSON"),
    ("[]", "must be a JSON object"),
    ('"riser"', "must be a JSON object"),
    ("{}", "must have an 'answer'"),
    ('{"prompt": "p", "answer": "RISERS"}', "five letters a-z, got a string of 6 characters"),
    ('{"answer": 12345}', "five letters a-z, got a value of type int"),
    ('{"answer": null}', "five letters a-z, got nothing"),
    ('{"answer": "qzxqz"}', "must be a word of the dictionary"),
    ('{"answer": "riser", "prompt": 5}', "'prompt' must be a non-empty string"),
    ('{"answer": "riser", "prompt": " "}', "'prompt' must be a non-empty string"),
    ('{"answer": "riser", "id": 5}', "'id' must be a string"),
    ('{"answer": "riser", "guesses": "slate"}', "'guesses' must be a list"),
    ('{"answer": "riser", "guesses": ["slate", "hi"]}', "entry 1 is not"),
    ('{"answer": "riser", "guesses": ["xyzzy"]}', "entry 0 is not"),
    ('{"answer": "riser", "guesses": ["slate", "SLATE"]}', "must differ"),
    ('{"answer": "riser", "guesses": ["slate", "Riser"]}', "must not solve"),
    (
        '{"answer": "riser", "guesses": ["crane", "slate", "moist", "pudgy", "vivid", "knoll"]}',
        "a list of fewer than 6 words, got a list of 6",
    ),
]


@pytest.mark.parametrize(("task", "wrong"), BAD_TASKS, ids=range(len(BAD_TASKS)))
def test_a_bad_task_is_refused_without_telling_its_answer(task, wrong):
    with pytest.raises(TaskError, match=wrong) as caught:
        environment.start(task)
    told = str(caught.value).lower()
    assert not any(word in told for word in ["riser", "12345", "qzxqz"])
    assert caught.value.__cause__ is None


def test_a_task_may_hold_more_than_is_known_here():
    assert start("riser", difficulty="hard").game.guesses_left == 6


calls = st.lists(
    st.tuples(
        st.sampled_from(["guess_word", "guess_word", "guess_word", "other"]),
        st.one_of(
            st.fixed_dictionaries({"guess": st.sampled_from(["crane", "slate", "moist", "hi"])}),
            st.fixed_dictionaries({"guess": st.text("abcdeh", min_size=4, max_size=5)}),
            st.dictionaries(st.sampled_from(["guess", "x"]), st.integers()),
        ),
        st.booleans(),
    ),
    max_size=15,
)


@settings(max_examples=30)
@given(calls)
def test_every_text_depends_on_marks_alone_and_not_on_the_answer(made):
    """Two games whose answers give the same marks so far are told exactly the same."""
    shown: dict[object, list[str]] = {}
    for answer in ["beach", "peach", "teach"]:
        episode = start(answer)
        texts = [episode.system_prompt, episode.prompt, episode.retry_prompt, repr(episode.tools)]
        for name, arguments, recovered in made:
            texts.append(episode.call(name, arguments, recovered=recovered).text)
            history = tuple(episode.board), len(texts), episode.game.calls
            assert shown.setdefault(history, texts[:]) == texts


def test_nothing_shown_holds_the_answer_before_it_is_guessed(caplog):
    caplog.set_level(logging.DEBUG)
    for answer in ["fjord", "knoll", "cynic"]:
        episode = start(answer)
        texts = [episode.system_prompt, episode.prompt, episode.retry_prompt, repr(episode.tools)]
        for word in ["crane", "hi", "crane", "moist", "pudgy", "vivid", "slate", "crane"]:
            texts.append(guess(episode, word).text)
        assert episode.done
        assert answer not in "\n".join([*texts, caplog.text, repr(episode)]).lower()


def test_calls_never_raise_whatever_json_they_hold():
    json_values = st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda x: st.lists(x) | st.dictionaries(st.text(), x), max_leaves=5
    )  # fmt: skip

    @settings(max_examples=100)
    @given(st.text(), json_values)
    def check(name, arguments):
        episode = start("beach")
        assert episode.call(name, arguments).text
        assert episode.call("guess_word", {"guess": arguments}).text

    check()


def test_answers_in_any_case_are_the_same_task():
    for answer in ["RISER", "Riser", " riser "]:
        assert guess(start(answer), "riser").text.startswith("Guess 1 of 6: RISER\nMarks: R green")


def test_every_answer_of_the_list_makes_a_task():
    for answer in answers():
        assert not environment.start(json.dumps({"answer": answer})).done
