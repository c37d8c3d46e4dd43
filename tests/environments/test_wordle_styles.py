"""The two styles of Wordle's texts: one game, told at length and in few tokens."""

import json
import re
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.wordle import Wordle, WordleEpisode, compact, environment
from environments.wordle.board import read_board
from environments.wordle.solver import random_policy, solver_policy
from environments.wordle.words import answers, dictionary
from rft_agent_sdk.environment import load_environment
from rft_agent_sdk.errors import UsageError
from rft_agent_sdk.types import Message
from tests.environments.wordle_play import guess, play

WORDS = st.sampled_from(dictionary())


def both(answer: str, *prior: str) -> tuple[WordleEpisode, WordleEpisode]:
    task = json.dumps({"answer": answer, "guesses": prior})
    return environment.start(task), compact.start(task)


class Told:
    """What a text tells, read without the code that wrote it."""

    def __init__(self) -> None:
        self.placed: dict[int, str] = {}
        self.counts: dict[str, tuple[int, bool]] = {}
        self.outside: dict[str, set[int]] = defaultdict(set)
        self.absent: set[str] = set()
        self.left: int | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Told({vars(self)})"


def read_plain(text: str) -> Told:
    told = Told()
    if match := re.search(r"^Letters in place: (.*)$", text, re.MULTILINE):
        places = enumerate(match[1].split(), start=1)
        told.placed = {place: letter for place, letter in places if letter != "_"}
    if match := re.search(r"^Letters in the word: (.*)$", text, re.MULTILINE):
        for letter, how, count, rest in re.findall(
            r"([A-Z]) \((at least|exactly) (\d)(.*?)\)", match[1]
        ):
            told.counts[letter] = int(count), how == "exactly"
            if outside := re.search(r"not in places? ([\d and]+)", rest):
                told.outside[letter] = set(map(int, re.findall(r"\d", outside[1])))
    if match := re.search(r"^Letters not in the word: ([A-Z](, [A-Z])*)$", text, re.MULTILINE):
        told.absent = set(match[1].split(", "))
    if match := re.search(r"^Guesses left: (\d)$", text, re.MULTILINE):
        told.left = int(match[1])
    return told


def read_compact(text: str) -> Told:
    told = Told()
    for fact in text.split():
        if match := re.fullmatch(r"(\d)([A-Z])", fact):
            told.placed[int(match[1])] = match[2]
        elif match := re.fullmatch(r"([A-Z])(\d)(\+?)((?:!\d)*)", fact):
            told.counts[match[1]] = int(match[2]), not match[3]
            if match[4]:
                told.outside[match[1]] = set(map(int, match[4][1:].split("!")))
        elif match := re.fullmatch(r"not:([A-Z]+)", fact):
            told.absent = set(match[1])
    if match := re.search(r" (\d) left$", text):
        told.left = int(match[1])
    return told


@settings(max_examples=150, deadline=None)
@given(answer=st.sampled_from(answers()), guesses=st.lists(WORDS, min_size=1, max_size=6))
def test_both_styles_tell_the_same_of_every_guess(answer, guesses):
    plain, short = both(answer)
    for word in guesses:
        told, told_shortly = guess(plain, word).text, guess(short, word).text
        assert read_plain(told) == read_compact(told_shortly)
        boards = [read_board([Message("tool", text)]) for text in (told, told_shortly)]
        assert boards[0] == boards[1]
        assert len(boards[0].rows) == 1
        assert ("was guessed before" in told) == (" repeated" in told_shortly)
        assert ("not in the dictionary" in told) == (" not in the dictionary" in told_shortly)
        if plain.done:
            break


@settings(max_examples=50, deadline=None)
@given(words=st.lists(WORDS, min_size=2, max_size=6, unique=True))
def test_both_styles_show_the_guesses_of_a_task(words):
    answer, *prior = words
    plain, short = both(answer, *prior)
    assert read_plain(plain.prompt) == read_compact(short.prompt)
    boards = [read_board([Message("user", episode.prompt)]) for episode in (plain, short)]
    assert boards[0] == boards[1]
    assert len(boards[0].rows) == len(prior)


@pytest.mark.parametrize(
    "call",
    [
        ("guess_word", {"guess": "cranes"}),
        ("guess_word", {}),
        ("look_up", {"guess": "crane"}),
    ],
    ids=["malformed", "no argument", "another tool"],
)
def test_both_styles_tell_what_a_call_cost_that_was_no_guess(call):
    plain, short = both("riser", "slate")
    for number in range(1, 12):
        results = [episode.call(*call) for episode in (plain, short)]
        assert all(result.is_error for result in results)
        assert f"Tool calls left: {12 - number} of 12" in results[0].text
        assert f" {12 - number} calls 5 left" in results[1].text
    assert [e.call(*call).text.endswith("The game is over.") for e in (plain, short)] == [True] * 2


def test_a_word_found_in_plain_text_that_was_played_uses_no_guess():
    plain, short = both("riser", "slate")
    results = [guess(episode, "slate", recovered=True).text for episode in (plain, short)]
    assert read_plain(results[0]).left == read_compact(results[1]).left == 5


@pytest.mark.parametrize("policy", [solver_policy, random_policy])
def test_policies_play_either_style(policy):
    plain, short = both("elegy", "slate")
    for episode in (plain, short):
        board = read_board(play(policy, episode))
        assert board.is_over
        assert [(word.upper(), marks) for word, marks in board.rows] == episode.board
    if policy is solver_policy:
        assert plain.board == short.board, "it sees the same"


def test_the_compact_style_is_named_like_any_environment():
    found = load_environment("environments.wordle:compact")
    assert isinstance(found, Wordle)
    assert found.style == "compact"
    task = found.tasks("validation", 1)[0]
    assert found.task_key(task) == environment.task_key(task)


def test_a_compact_answer_is_short_and_reads_as_documented():
    episode = both("start")[1]
    assert guess(episode, "crane").text == "C-R+A=N-E- 3A A1+ R1+!2 not:CEN 5 left"
    assert guess(episode, "start").text == "S=T=A=R=T= Solved in 2 guesses. The game is over."
    assert len(episode.system_prompt) < len(environment.start('{"answer": "start"}').system_prompt)


def test_what_a_guess_gets_in_the_compact_style_is_made_of_its_pieces():
    pieces = "|".join(re.escape(piece) for piece in sorted(compact.pieces(), key=len, reverse=True))
    told = re.compile(f"(?:{pieces}|[A-Z])+")
    for answer in ["riser", "elegy", "vivid"]:
        for policy in (solver_policy, random_policy):
            episode = both(answer)[1]
            texts = [m.text for m in play(policy, episode) if m.role == "tool"]
            assert all(told.fullmatch(text) for text in texts[:-1])


def test_a_style_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="style must be one of plain, compact"):
        Wordle(style="verbose")  # type: ignore[arg-type]
