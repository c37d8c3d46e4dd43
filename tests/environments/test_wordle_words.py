import hashlib
import json
import random
import re

import pytest

from environments.wordle.data.build_openers import main as build_openers
from environments.wordle.data.build_words import Lexicon, build_allowed, build_answers
from environments.wordle.words import (
    DATA,
    answer_index,
    answers,
    as_word,
    dictionary,
    is_in_dictionary,
    opening_information,
)

MANIFEST = json.loads((DATA / "manifest.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(MANIFEST["files"]))
def test_each_file_is_the_one_the_manifest_records(name):
    content = (DATA / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == MANIFEST["files"][name]["sha256"]
    words = MANIFEST["files"][name].get("words")
    assert words is None or content.count(b"\n") == words


@pytest.mark.parametrize("words", [answers(), dictionary()], ids=["answers", "dictionary"])
def test_a_list_is_sorted_distinct_five_letter_words(words):
    assert list(words) == sorted(set(words))
    assert all(re.fullmatch("[a-z]{5}", word) for word in words)


def test_the_dictionary_holds_every_answer():
    assert all(map(is_in_dictionary, answers()))
    assert not is_in_dictionary("xyzzy")


def test_the_opener_table_is_made_again_byte_for_byte(tmp_path):
    build_openers([str(tmp_path)])
    assert (tmp_path / "openers.txt").read_bytes() == (DATA / "openers.txt").read_bytes()


def test_slate_is_the_best_opener():
    best = max(dictionary(), key=opening_information)
    assert (best, opening_information(best)) == ("slate", 5.8733)


def test_a_word_outside_the_dictionary_has_opening_information_too():
    index = answer_index()
    assert opening_information("xyzzy") == round(index.information(index.everything, "xyzzy"), 4)
    assert opening_information("xyzzy") > 0


@pytest.mark.parametrize("text", [" Crane ", "CRANE", "crane\n"])
def test_case_and_outer_space_do_not_matter(text):
    assert as_word(text) == "crane"


@pytest.mark.parametrize("text", ["hi", "cranes", "cr ne", "crân", "crâne", "\u212arane", "12345", "", None, 5, ["crane"]])  # fmt: skip
def test_what_is_not_five_letters_is_no_word(text):
    assert as_word(text) is None


def scowl(**words: str) -> dict[str, bytes]:
    """Return lists as SCOWL names them: size 10 for common words, 80 for rare ones."""
    return {
        f"english-words.{size[1:]}": "\n".join(found.split()).encode("latin-1")
        for size, found in words.items()
    }


def test_the_recipe_keeps_base_forms_and_leaves_out_inflected_rare_and_unfit_words():
    lists = scowl(
        s10="cat cat's cats glass glass's cried cry bake baked tidy tiding large lager lager's gruff darns",
        s40="fungi fungus fungus's drank",
        s80="zoeae",
    )
    assert build_answers(lists, {"gruff"}) == ["darns", "glass", "lager", "large"]
    assert "fungi" in build_allowed(lists)
    assert {"zoeae", "gruff", "cried", "drank"} <= set(build_allowed(lists))


def test_a_comparative_counts_as_inflected_only_where_its_superlative_exists():
    lexicon = Lexicon(scowl(s10="wide wider widest cove cover"), ("english",))
    assert lexicon.is_inflected("wider")
    assert not lexicon.is_inflected("cover")


def test_index_members_come_back_in_order():
    index = answer_index()
    chosen = sorted(random.Random(1).sample(range(len(answers())), 40))
    bits = sum(1 << number for number in chosen)
    assert index.members(bits) == tuple(answers()[number] for number in chosen)
