import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.wordle.candidates import CandidateIndex
from environments.wordle.game import marks
from environments.wordle.knowledge import Knowledge
from environments.wordle.words import answer_index, answers

few_letters = st.text("abcd", min_size=5, max_size=5)
answer_words = st.sampled_from(answers())

# what was guessed, the answer, words to judge, and those of them that are still possible
HISTORIES = [
    (
        ["level", "elder"],
        "elegy",
        "elegy elemi elfin elide elite elude elate elbow",
        "elegy elemi elite elate",
    ),
    (
        ["cecum"],
        "cynic",
        "cynic civic candy colic comic cycle click chock conic circa",
        "cynic civic colic click chock conic circa",
    ),
    (
        ["alley", "falls"],
        "knoll",
        "knoll world troll droll godly slows dwell quill skill chill",
        "knoll troll droll quill chill",
    ),
    (["crane", "cacti"], "catch", "catch caput cache caulk catty", "catch"),
]


def learned(guesses: list[str], answer: str) -> Knowledge:
    known = Knowledge()
    for guess in guesses:
        known = known.after(guess, marks(guess, answer))
    return known


@pytest.mark.parametrize(("guesses", "answer", "words", "possible"), HISTORIES)
def test_a_second_copy_is_not_forgotten_once_one_is_green(guesses, answer, words, possible):
    known = learned(guesses, answer)
    assert [word for word in words.split() if known.allows(word)] == possible.split()


def test_least_most_and_places_follow_from_the_marks():
    known = learned(["level", "elder"], "elegy")
    assert known.placed == ("e", "l", None, None, None)
    assert (known.least["e"], known.most.get("e")) == (2, None)
    assert (known.least["l"], known.most["l"]) == (1, 1)
    assert known.absent == {"v", "d", "r"}
    assert known.present == {"e"}


def test_places_found_by_different_guesses_add_up_to_a_count():
    known = learned(["rotte", "gular"], "riser")
    assert known.least["r"] == 2


@given(few_letters, st.lists(few_letters, max_size=5), few_letters)
def test_a_word_is_possible_exactly_if_it_would_have_made_every_mark(answer, guesses, word):
    known = learned(guesses, answer)
    made = all(marks(guess, word) == marks(guess, answer) for guess in guesses)
    assert known.allows(word) == made


@given(answer_words, st.lists(st.one_of(answer_words, few_letters), max_size=4))
def test_remaining_candidates_are_those_a_full_rescan_finds(answer, guesses):
    known = learned(guesses, answer)
    rescan = [
        word
        for word in answers()
        if all(marks(guess, word) == marks(guess, answer) for guess in guesses)
    ]
    assert list(answer_index().members(known.candidates)) == rescan
    assert known.remaining == len(rescan)


@given(
    st.lists(st.text("abc", min_size=5, max_size=5), min_size=1, max_size=30, unique=True),
    few_letters,
)
def test_groups_and_information_agree_with_the_marks_of_every_word(words, guess):
    index = CandidateIndex(words)
    by_marks = Counter(marks(guess, word) for word in words)
    sizes = sorted(group.bit_count() for group in index.groups(index.everything, guess))
    assert sizes == sorted(by_marks.values())
    entropy = -sum(n / len(words) * math.log2(n / len(words)) for n in by_marks.values())
    assert index.information(index.everything, guess) == pytest.approx(entropy, abs=1e-9)


def test_learning_leaves_the_knowledge_before_as_it_was():
    before = Knowledge()
    before.after("crane", "GXYXX")
    assert before == Knowledge()
