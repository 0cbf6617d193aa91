"""Which patterns mean the same in every engine."""

from __future__ import annotations

from interlock.schema.pattern import is_common
from tests.support.rows import each_row


@each_row(
    "pattern",
    [
        r"^$",
        r"^[a-z0-9]+(?:-[a-z0-9]+)*$",
        r"^\d{4}-\d{2}-\d{2}$",
        r"^[\w.-]+@[^@]{1,64}$",
        r"^(a|b)?c$",
        r"^a\.b\$$",
        r"^名前$",
    ],
)
def test_plain_patterns_are_common(pattern: str) -> None:
    assert is_common(pattern)


@each_row(
    "pattern",
    [
        r"",
        r"^https://",  # llama.cpp demands both anchors
        r"a$",
        r"^a\$",  # no anchor at the end
        r"^(?=.*\d).+$",
        r"^(?!undefined$)$",
        r"^a(?<!x)$",
        r"^(a)\1$",
        r"^(?P<x>a)$",
        r"^(?i)a$",
        r"^\p{L}+$",
        r"^https\:\/\/$",  # escapes that change nothing
        r"^a\Z$",
        r"^a++$",
        r"^a+?$",
        r"^*$",
        r"^(|*a)$",
        r"^a{1,1000}$",
        r"^[[:alpha:]]$",
        r"^[a&&b]$",
        r"^[~[\]|]$",
        r"^(a$",
        r"^a)$",
        r"^[b-a]$",
        "^" + "a" * 500 + "$",
    ],
)
def test_other_patterns_are_not_common(pattern: str) -> None:
    assert not is_common(pattern)
