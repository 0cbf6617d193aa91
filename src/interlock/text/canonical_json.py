"""JSON in the canonical form of RFC 8785, in which equal values have equal bytes."""

from __future__ import annotations

import json
from typing import Any

_MAX_PLAIN = 21  # digits before the decimal point, from which JavaScript writes an exponent
_MIN_PLAIN = -6  # the smallest exponent that JavaScript writes as zeros after the decimal point


def canonical_json(value: Any) -> bytes:
    """Return a JSON value in its canonical form.

    Raises:
        ValueError: A number is not finite.
    """
    return _text(value).encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    if isinstance(value, dict):
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_text(key)}:{_text(value[key])}" for key in keys) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_text, value)) + "]"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    return json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number as JavaScript writes it; integers are read as floats."""
    try:
        value = float(value)
    except OverflowError:
        value = float("inf")
    if value == 0:
        return "0"
    json.dumps(value, allow_nan=False)  # raises an error
    sign = "-" if value < 0 else ""
    mantissa, _, exponent = f"{abs(value)!r}e0".partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits = (whole + fraction).lstrip("0")
    point = len(whole) + int(exponent.partition("e")[0])
    if whole.strip("0") == "":
        point -= len(whole) + len(fraction) - len(digits)
    digits = digits.rstrip("0")
    if 0 < point <= _MAX_PLAIN:
        padded = digits.ljust(point, "0")
        return sign + padded[:point] + (f".{padded[point:]}" if padded[point:] else "")
    if _MIN_PLAIN < point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    tail = f".{digits[1:]}" if digits[1:] else ""
    return f"{sign}{digits[0]}{tail}e{point - 1:+d}"
