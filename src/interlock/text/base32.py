"""Numbers in base 32, for ids: short, in lower case, and without letters that look alike.

Numbers of the same length sort as their texts do, also by the collations of PostgreSQL, which
need not distinguish upper and lower case. A double-click selects the whole text.
"""

from __future__ import annotations

DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"
PAIRS = tuple(first + second for first in DIGITS for second in DIGITS)  # by the value of ten bits


def encode(number: int, length: int) -> str:
    """Return a number's lowest bits as `length` digits of five bits each."""
    return "".join(DIGITS[number >> 5 * place & 31] for place in reversed(range(length)))
