"""Tasks to learn from, and the teacher that plays them."""

import json

import pytest

from environments.wordle import compact
from environments.wordle.lessons import make_lessons
from environments.wordle.task import parse_task
from environments.wordle.words import answers
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import Message


def secrets(tasks):
    return [parse_task(task).answer for task in tasks]


def test_no_lesson_has_a_held_out_secret_even_where_every_other_word_is_one():
    held_out = compact.tasks("validation", 200)
    found = compact.lessons(3 * 2041, 0, held_out)
    assert set(secrets(found)) == set(answers()) - set(secrets(held_out))


def test_secrets_come_from_the_dictionary_as_far_as_the_share_says():
    found = secrets(make_lessons(2000, 0, answer_share=0.25))
    share = sum(word in set(answers()) for word in found) / len(found)
    assert 0.25 < share < 0.5  # answers are words of the dictionary, too


def test_games_begin_after_as_many_guesses_as_the_shares_say():
    found = [parse_task(task) for task in make_lessons(1000, 0, prior_shares=(0.5, 0.0, 0.5))]
    counts = [len(task.guesses) for task in found]
    assert set(counts) == {0, 2}
    assert 400 < counts.count(0) < 600


def test_the_same_seed_makes_the_same_lessons_and_another_one_others():
    assert make_lessons(20, 1) == make_lessons(20, 1)
    assert make_lessons(20, 1) != make_lessons(20, 2)


@pytest.mark.parametrize(
    "wrong", [{"answer_share": 1.5}, {"prior_shares": ()}, {"prior_shares": (1.0, -1.0)}]
)
def test_shares_that_are_none_are_refused(wrong):
    with pytest.raises(UsageError, match="wanted an answer_share"):
        make_lessons(1, 0, **wrong)


def test_the_teacher_plays_soundly_and_says_nothing_beside_its_guesses():
    solved = 0
    for task in compact.tasks("validation", 40):
        episode = compact.start(task)
        messages = [Message("user", episode.prompt)]
        while not episode.done:
            said = compact.policies()["teacher"](messages, episode.tools)
            assert said.text == ""
            (call,) = said.tool_calls
            word = json.loads(call.arguments)["guess"]
            assert episode.game.knowledge.allows(word)
            told = episode.call(call.name, {"guess": word})
            messages += [said, Message("tool", told.text, tool_call_id=call.id)]
        solved += episode.game.solved
    assert solved >= 34
