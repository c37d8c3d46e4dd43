"""Word problems of our own, made from templates and a seed, in the form of GSM8K's records.

They are no part of GSM8K and much plainer: they stand in for it where no copy is at hand.
`data/sample.jsonl` holds some; `python -m environments.gsm8k.data.build_sample` writes it anew.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass

from rft_agent_sdk.errors import UsageError

SAMPLE_ROWS, SAMPLE_SEED = 40, 8
_NAMES = ("Ada", "Ben", "Chidi", "Dana", "Emil", "Farah", "Goro", "Hana", "Ines", "Jonas")
_VALIDATION_SHARE = 5
"""One problem in so many is for validation."""
_TRIES = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """One made problem."""

    question: str
    steps: tuple[str, ...]
    """How it is worked out, one sentence each."""
    answer: int

    def record(self) -> dict[str, str]:
        """Return it in GSM8K's form: the steps, then the number after `####`."""
        return {
            "question": self.question,
            "answer": "\n".join([*self.steps, f"#### {self.answer}"]),
        }


def make_problems(split: str, count: int, seed: int = 0) -> list[Problem]:
    """Return distinct problems; the same arguments give the same ones.

    Whatever the seeds, the two splits share no problem: its text decides which one it is for.

    Args:
        split: `train` or `validation`.
        count: How many.
        seed: Draws templates and numbers.

    Raises:
        UsageError: An unknown split, or more problems than the templates give.
    """
    if split not in ("train", "validation"):
        raise UsageError(f"split must be 'train' or 'validation', got {split!r}")
    draw = random.Random(f"{split} {seed}")  # noqa: S311 - must be reproducible
    found: dict[str, Problem] = {}
    for _ in range(_TRIES * count):
        if len(found) == count:
            break
        problem = draw.choice(_TEMPLATES)(draw, draw.choice(_NAMES))
        if _split_of(problem.question) == split:
            found.setdefault(problem.question, problem)
    if len(found) != count:
        raise UsageError(
            f"the templates give no {count!r} {split} problems; {len(found)} were found"
        )
    return list(found.values())


def sample() -> str:
    """Return the text of `data/sample.jsonl`."""
    problems = make_problems("train", SAMPLE_ROWS, SAMPLE_SEED)
    return "".join(f"{json.dumps(problem.record())}\n" for problem in problems)


def _split_of(question: str) -> str:
    digest = hashlib.sha256(question.encode()).digest()
    return "train" if digest[0] % _VALIDATION_SHARE else "validation"


def _shopping(draw: random.Random, name: str) -> Problem:
    books, price, pens, cost = (draw.randint(2, 12) for _ in range(4))
    first, second = books * price, pens * cost
    return Problem(
        f"{name} buys {books} notebooks at ${price} each and {pens} pens at ${cost} each. "
        f"How many dollars does {name} pay in all?",
        (
            f"The notebooks cost {books} * {price} = {first} dollars.",
            f"The pens cost {pens} * {cost} = {second} dollars.",
            f"In all that is {first} + {second} = {first + second} dollars.",
        ),
        first + second,
    )


def _baking(draw: random.Random, name: str) -> Problem:
    boxes, size, given = draw.randint(3, 12), draw.randint(4, 9), draw.randint(2, 15)
    trays = draw.randint(2, 6)
    rest = boxes * size
    each, left_over = divmod(rest + given, trays)
    given -= left_over
    if given <= 0:
        given += trays
        each += 1
    baked = trays * each
    return Problem(
        f"{name} bakes {trays} trays of {each} muffins, gives {given} of them to friends and packs the "
        f"rest into boxes of {size}. How many boxes are filled?",
        (
            f"There are {trays} * {each} = {baked} muffins.",
            f"{baked} - {given} = {rest} are packed.",
            f"They fill {rest} / {size} = {boxes} boxes.",
        ),
        boxes,
    )


def _journey(draw: random.Random, name: str) -> Problem:
    fast, slow = draw.randrange(60, 130, 5), draw.randrange(20, 60, 5)
    long, short = draw.randint(2, 6), draw.randint(1, 4)
    first, second = fast * long, slow * short
    hours = "hour" if short == 1 else "hours"
    return Problem(
        f"{name} rides a train for {long} hours at {fast} kilometres an hour and then a bus for {short} "
        f"{hours} at {slow} kilometres an hour. How many kilometres is the whole journey?",
        (
            f"The train goes {fast} * {long} = {first} kilometres.",
            f"The bus goes {slow} * {short} = {second} kilometres.",
            f"Together that is {first} + {second} = {first + second} kilometres.",
        ),
        first + second,
    )


def _saving(draw: random.Random, name: str) -> Problem:
    start, weekly, weeks = draw.randint(10, 90), draw.randint(5, 25), draw.randint(3, 12)
    saved = weekly * weeks
    spent = draw.randint(5, start + saved - 1)
    return Problem(
        f"{name} has ${start}, saves ${weekly} a week for {weeks} weeks and then spends ${spent} on a gift. "
        f"How many dollars are left?",
        (
            f"{name} saves {weekly} * {weeks} = {saved} dollars.",
            f"With the first {start} that is {start} + {saved} = {start + saved} dollars.",
            f"After the gift {start + saved} - {spent} = {start + saved - spent} dollars are left.",
        ),
        start + saved - spent,
    )


def _ages(draw: random.Random, name: str) -> Problem:
    child, times, more = draw.randint(3, 15), draw.randint(2, 4), draw.randint(2, 9)
    aunt = child * times
    total = child + aunt + aunt + more
    return Problem(
        f"{name} is {child} years old. {name}'s aunt is {times} times as old, and the uncle is {more} years "
        f"older than the aunt. How old are the three together?",
        (
            f"The aunt is {child} * {times} = {aunt} years old.",
            f"The uncle is {aunt} + {more} = {aunt + more} years old.",
            f"Together they are {child} + {aunt} + {aunt + more} = {total} years old.",
        ),
        total,
    )


def _reading(draw: random.Random, name: str) -> Problem:
    daily, days, later, rest_days = (draw.randint(3, 20) for _ in range(4))
    read, rest = daily * days, later * rest_days
    return Problem(
        f"A book has {read + rest} pages. {name} reads {daily} pages a day for {days} days and {later} pages "
        f"a day from then on. How many more days does the book take?",
        (
            f"In the first days {name} reads {daily} * {days} = {read} pages.",
            f"{read + rest} - {read} = {rest} pages remain.",
            f"They take {rest} / {later} = {rest_days} days.",
        ),
        rest_days,
    )


def _discount(draw: random.Random, name: str) -> Problem:
    price, percent, count = (
        draw.randrange(20, 200, 20),
        draw.randrange(5, 55, 5),
        draw.randint(2, 8),
    )
    reduced = price - price * percent // 100
    return Problem(
        f"A lamp costs ${price}, and today it is {percent}% cheaper. How many dollars does {name} pay for "
        f"{count} lamps today?",
        (
            f"A lamp is {price} * {percent} / 100 = {price - reduced} dollars cheaper.",
            f"It costs {price} - {price - reduced} = {reduced} dollars.",
            f"{count} lamps cost {count} * {reduced} = {count * reduced} dollars.",
        ),
        count * reduced,
    )


def _fence(draw: random.Random, name: str) -> Problem:
    width, times, price = draw.randint(4, 30), draw.randint(2, 5), draw.randint(3, 15)
    length = width * times
    around = 2 * (width + length)
    return Problem(
        f"{name}'s garden is {width} metres wide and {times} times as long. A metre of fence costs ${price}. "
        f"How many dollars does a fence all around it cost?",
        (
            f"The garden is {width} * {times} = {length} metres long.",
            f"The way around is 2 * ({width} + {length}) = {around} metres.",
            f"The fence costs {around} * {price} = {around * price} dollars.",
        ),
        around * price,
    )


_TEMPLATES: tuple[Callable[[random.Random, str], Problem], ...] = (
    *(_shopping, _baking, _journey, _saving),
    *(_ages, _reading, _discount, _fence),
)
