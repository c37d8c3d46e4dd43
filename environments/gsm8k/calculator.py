"""Exact arithmetic on an expression that a policy wrote. Nothing is ever run as Python.

Numbers, `+ - * /`, whole powers and brackets; every size is bounded, so that no expression can take long.
"""

from __future__ import annotations

import re
from fractions import Fraction

from environments.gsm8k.numbers import as_number
from rft_agent_sdk.errors import UsageError

LONGEST = 200
"""Characters of an expression."""
_DEEPEST = 30
_LARGEST_POWER = 20
_LARGEST = 10**30
"""Numerators and denominators stay below it."""
_OPERATORS = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-", "^": "↑"})
_TOKEN = re.compile(r"\s*(?:(\$?(?:\d[\d,]*(?:\.\d+)?|\.\d+))|([-+*/()↑]))", re.ASCII)


def evaluate(expression: str) -> Fraction:
    """Return what an arithmetic expression comes to.

    Raises:
        UsageError: It is none, is too large, or divides by zero; the message is fit for the policy.
    """
    if len(expression) > LONGEST:
        raise UsageError(f"the expression has {len(expression)} characters, more than {LONGEST}")
    parser = _Parser(_tokens(expression))
    value = parser.sum()
    if parser.next is not None:
        raise UsageError(
            f"nothing should follow before {str(parser.next)!r}; an operator is missing"
        )
    return value


def is_calculation(expression: str) -> bool:
    """Whether an expression joins two numbers at least; a number alone is not worked out."""
    return len(re.findall(r"[\d.,]+", expression)) > 1


def _tokens(expression: str) -> list[Fraction | str]:
    text = expression.translate(_OPERATORS).replace("**", "↑").rstrip()
    tokens: list[Fraction | str] = []
    place = 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise UsageError(
                f"{text[place:].strip()[:1]!r} is no part of arithmetic: use numbers, + - * / ** and brackets"
            )
        place = found.end()
        if found[1] is None:
            tokens.append(found[2])
            continue
        number = as_number(found[1])
        if number is None:
            raise UsageError(f"{found[1]!r} is no number")
        tokens.append(number)
    return tokens


class _Parser:
    """Reads tokens from left to right, one rule of the grammar a method."""

    def __init__(self, tokens: list[Fraction | str]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    @property
    def next(self) -> Fraction | str | None:
        return self._tokens[self._place] if self._place < len(self._tokens) else None

    def _take(self) -> Fraction | str | None:
        token = self.next
        self._place += 1
        return token

    def sum(self) -> Fraction:
        value = self._product()
        while self.next in ("+", "-"):
            sign = 1 if self._take() == "+" else -1
            value = _bounded(value + sign * self._product())
        return value

    def _product(self) -> Fraction:
        value = self._signed()
        while self.next in ("*", "/"):
            if self._take() == "*":
                value = _bounded(value * self._signed())
                continue
            divisor = self._signed()
            if divisor == 0:
                raise UsageError("division by zero")
            value = _bounded(value / divisor)
        return value

    def _signed(self) -> Fraction:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise UsageError("too many brackets or signs inside each other")
        if self.next in ("+", "-"):
            value = -self._signed() if self._take() == "-" else self._signed()
        else:
            value = self._power()
        self._depth -= 1
        return value

    def _power(self) -> Fraction:
        base = self._atom()
        if self.next != "↑":
            return base
        self._take()
        exponent = self._signed()
        if exponent.denominator != 1 or abs(exponent) > _LARGEST_POWER:
            raise UsageError(f"a power must be a whole number up to {_LARGEST_POWER}")
        if base == 0 and exponent < 0:
            raise UsageError("division by zero")
        return _bounded(base**exponent.numerator)

    def _atom(self) -> Fraction:
        part = self._take()
        if isinstance(part, Fraction):
            return part
        if part != "(":
            got = "the end" if part is None else repr(part)
            raise UsageError(f"a number was to come, got {got}")
        value = self.sum()
        if self._take() != ")":
            raise UsageError("a bracket is not closed")
        return value


def _bounded(value: Fraction) -> Fraction:
    if max(abs(value.numerator), value.denominator) >= _LARGEST:
        raise UsageError("the numbers get too large or too fine")
    return value
