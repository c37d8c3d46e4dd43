"""Numbers as people write them, kept exact."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from fractions import Fraction

_NUMBER = re.compile(r"([-+]?)\$?((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)\.?", re.ASCII)
_LONGEST = 40
_SHOWN_DIGITS = 12


def as_number(value: object) -> Fraction | None:
    """Return the number that a value is, or `None`: `42`, `"1,234"`, `"$5.00"`, `"-3."`.

    A unit, a word or a calculation beside the number makes it none: which number was meant would be a guess.
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return Fraction(str(value)) if abs(value) < 1e30 else None  # nor NaN
    if not isinstance(value, str) or len(value) > _LONGEST:
        return None
    found = _NUMBER.fullmatch(value.strip())
    return Fraction(found[1] + found[2].replace(",", "")) if found else None


def shown(number: Fraction) -> str:
    """Return a number for reading: whole where it is whole, else to 12 significant digits."""
    if number.denominator == 1:
        return str(number.numerator)
    context = Context(prec=_SHOWN_DIGITS)
    quotient = context.divide(Decimal(number.numerator), Decimal(number.denominator))
    return f"{quotient:f}"
