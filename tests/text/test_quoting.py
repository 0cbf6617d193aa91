import unicodedata
from typing import Any

from interlock.text import quoting
from tests.support.rows import each_row

_HIDDEN = ("Cc", "Cf", "Zl", "Zp")  # categories: controls, formats, separators of lines


@each_row(
    ("value", "expected"),
    [
        (None, "null"),
        (True, "a boolean"),
        (1, "a number"),
        (1.5, "a number"),
        ("x", "a string"),
        ([], "a list"),
        ({}, "an object"),
    ],
)
def test_kind_names_each_json_type(value: Any, expected: str) -> None:
    assert quoting.kind(value) == expected


@each_row(
    ("value", "expected"),
    [
        ("it's", '"it\'s"'),
        ("a\nb", r"'a\nb'"),
        ("x" * 80, f"'{'x' * 80}'"),
        ("x" * 81, f"'{'x' * 80}…'"),
        (None, "null"),
        (True, "true"),
        (1.5, "1.5"),
        (10**300, "the number"),
        ([1], "the list"),
        ({"a": 1}, "the object"),
    ],
)
def test_echo_returns_one_short_line(value: Any, expected: str) -> None:
    assert quoting.echo(value) == expected


def test_clip_returns_one_short_line() -> None:
    assert quoting.clip(" a\n  b ") == "a b"
    assert quoting.clip("x" * 81) == "x" * 80 + "…"


def test_clip_replaces_control_characters() -> None:
    assert quoting.clip("a\x1b[2J\x00\u202eb\ud800\u2028c é") == "a\ufffd[2J\ufffd\ufffdb\ufffd c é"


def test_each_character_that_shows_nothing_is_escaped() -> None:
    signs = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
    hidden = [char for char in map(chr, range(0x110000)) if unicodedata.category(char) in _HIDDEN]

    assert [char for char in hidden if quoting.visible(char) == char] == [*signs]  # are drawn
    assert quoting.visible("a\u200d \U0001d173") == "a\\u200d \\ud834\\udd73"
    assert quoting.visible("é \u0301 日本 😀") == "é \u0301 日本 😀"


def test_place_formats_a_path_into_a_document() -> None:
    assert quoting.place(["filter", "items", 2, "a b", "x" * 81]) == (
        f"filter.items[2]['a b']['{'x' * 80}…']"
    )
    assert quoting.place([]) == ""


def test_lone_surrogates_become_replacement_characters_also_in_keys():
    value = {"a\udce9": ["\ud83d\ude00", ("x\ud800",), 1, None]}

    assert quoting.replace_surrogates(value) == {"a\ufffd": ["😀", ["x\ufffd"], 1, None]}
