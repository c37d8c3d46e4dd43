"""Every word the policy reads, in plain English; `compact_text.py` says the same in few tokens.

Nothing here takes the answer: a text is made from guesses and marks alone, so no text can tell more.
The answer is not told after a lost game either.
"""

from __future__ import annotations

import re

from environments.wordle.candidates import LENGTH
from environments.wordle.game import CALLS, GUESSES, Game, GuessRecord
from environments.wordle.knowledge import Knowledge
from rft_agent_sdk.types import ToolSpec

TOOL_NAME = "guess_word"
ARGUMENT = "guess"
SPOKEN = {"G": "green", "Y": "yellow", "X": "gray"}

SYSTEM_PROMPT = f"""You are playing Wordle. A secret English word of five letters is to be found in at most {GUESSES} guesses.

To guess, call the tool {TOOL_NAME} with one word. Each letter of the guess is then marked:
- green: the letter is in this place
- yellow: the letter is in the word, but in another place
- gray: the word has no such letter, or no further copy of it

A letter can occur more than once. Guess words of the dictionary only, never the same word twice, and keep to what the marks have told. Make one call at a time, until the game is over."""

DEFAULT_PROMPT = "Find the secret word. Start with your first guess."

TOOL = ToolSpec(
    name=TOOL_NAME,
    description="Guess the secret word. Returns a mark for each letter and a summary of what is known.",
    parameters={
        "type": "object",
        "properties": {
            ARGUMENT: {"type": "string", "description": "An English word of five letters, a-z."}
        },
        "required": [ARGUMENT],
        "additionalProperties": False,
    },
)

GAME_OVER = "The game is over."
ALREADY_OVER = f"{GAME_OVER} This call changed nothing."

_GUESS = re.compile(
    rf"^Guess \d+ of {GUESSES}: ([A-Z]{{{LENGTH}}})\n"
    rf"Marks: ((?:[A-Z] (?:green|yellow|gray)(?:, )?){{{LENGTH}}})$",
    flags=re.MULTILINE,
)
_MARKS = {spoken: mark for mark, spoken in SPOKEN.items()}
_SHOWN = 40  # characters of a bad argument that are quoted back


def opening_prompt(instruction: str, game: Game) -> str:
    """Return the first user message: the instruction, and the guesses that the task has played."""
    if not game.guesses:
        return instruction
    played = "\n\n".join(_guess_lines(n, guess) for n, guess in enumerate(game.guesses, start=1))
    return (
        f"{instruction}\n\nThese guesses have been played already.\n\n{played}\n\n"
        f"{_known_lines(game.knowledge)}\n{_status_line(game)}"
    )


def retry_prompt(prompt: str) -> str:
    """Return the user message of a second conversation, after a first one without a guess."""
    return (
        f"{prompt}\n\nAnswer with a call of the tool {TOOL_NAME} and nothing else: "
        f"one word of five letters as {ARGUMENT!r}."
    )


def guess_result(game: Game) -> str:
    """Return the answer to the guess just played."""
    guess = game.guesses[-1]
    lines = [_guess_lines(len(game.guesses), guess)]
    if guess.is_repeat:
        lines.append(f"{guess.word.upper()} was guessed before; it used up a guess.")
    if not guess.in_dictionary:
        lines.append(f"{guess.word.upper()} is not in the dictionary; it used up a guess.")
    if not guess.solves:
        lines.append(_known_lines(game.knowledge))
    return "\n".join([*lines, _status_line(game)])


def malformed_result(game: Game, given: object) -> str:
    """Return the answer to a call of the tool whose arguments are no guess."""
    return (
        f"Not a guess: {_shown(given)}. Call {TOOL_NAME} with one argument, {ARGUMENT!r}: a word of "
        f"{LENGTH} letters, a-z. {_no_guess_used(game)}"
    )


def unknown_tool_result(game: Game, name: str) -> str:
    """Return the answer to a call of another tool."""
    return f"There is no tool {_shown(name)}; the only one is {TOOL_NAME}. {_no_guess_used(game)}"


def already_played_result(game: Game, word: str) -> str:
    """Return the answer to a guess found in plain text that was played before."""
    return f"{word.upper()} was guessed before, so it was not played again. {_no_guess_used(game)}"


def board_lines(game: Game) -> list[tuple[str, str]]:
    """Return each guess in capitals with its marks of `G`, `Y` and `X`, for display."""
    return [(guess.word.upper(), guess.marks) for guess in game.guesses]


def read_rows(told: str) -> tuple[tuple[str, str], ...]:
    """Return each guess in a text, lower case, with its marks of `G`, `Y` and `X`."""
    return tuple((word.lower(), _read_marks(spoken)) for word, spoken in _GUESS.findall(told))


def ending(game: Game) -> str | None:
    """Return the sentences that end a game, `None` while it goes on."""
    if game.solved:
        count = len(game.guesses)
        return f"Solved in {count} guess{'es' if count > 1 else ''}. {GAME_OVER}"
    if game.guesses_left == 0:
        return f"Not solved, and no guesses left. {GAME_OVER}"
    if game.calls_left == 0:
        return f"Not solved, and no tool calls left. {GAME_OVER}"
    return None


def _read_marks(spoken: str) -> str:
    """Return the marks of a line such as `C gray, R yellow, A green, N gray, E gray`."""
    return "".join(_MARKS[entry.split()[1]] for entry in spoken.split(", "))


def _guess_lines(number: int, guess: GuessRecord) -> str:
    spoken = ", ".join(
        f"{letter} {SPOKEN[mark]}"
        for letter, mark in zip(guess.word.upper(), guess.marks, strict=True)
    )
    return f"Guess {number} of {GUESSES}: {guess.word.upper()}\nMarks: {spoken}"


def _known_lines(known: Knowledge) -> str:
    places = " ".join((letter or "_").upper() for letter in known.placed)
    present = "; ".join(_letter_phrase(letter, known) for letter in sorted(known.least))
    absent = ", ".join(letter.upper() for letter in sorted(known.absent))
    return (
        f"Letters in place: {places}\n"
        f"Letters in the word: {present or 'none known'}\n"
        f"Letters not in the word: {absent or 'none known'}"
    )


def _letter_phrase(letter: str, known: Knowledge) -> str:
    count = f"{'exactly' if letter in known.most else 'at least'} {known.least[letter]}"
    inside = [n for n, placed in enumerate(known.placed, start=1) if placed == letter]
    # a place whose letter is known needs no telling that other letters are not there
    outside = [n + 1 for n in sorted(known.excluded.get(letter, ())) if known.placed[n] is None]
    return f"{letter.upper()} ({', '.join([count, *_places('in', inside), *_places('not in', outside)])})"


def _places(preposition: str, places: list[int]) -> list[str]:
    if not places:
        return []
    numbers = " and ".join(map(str, places))
    return [f"{preposition} place{'s' if len(places) > 1 else ''} {numbers}"]


def _status_line(game: Game) -> str:
    return ending(game) or f"Guesses left: {game.guesses_left}"


def _no_guess_used(game: Game) -> str:
    return (
        f"This used no guess.\nTool calls left: {game.calls_left} of {CALLS}\n{_status_line(game)}"
    )


def _shown(given: object) -> str:
    text = repr(given)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
