import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.config import section
from interlock.config.section import Section
from interlock.errors import ConfigError
from tests.support.rows import each_row

Read = Callable[[Section], object]
FILE = Path("f.json")


def one_member(value: Any) -> Section:
    return section.parse(json.dumps({"a": value}).encode(), FILE)


def refusal(read: Callable[[], object]) -> str:
    with pytest.raises(ConfigError) as caught:
        read()
    return str(caught.value)


# A file


@each_row(
    ("text", "message"),
    [
        (b"", "f.json, line 1: the file is empty: write a JSON object, such as {}"),
        (b" // later\n", "f.json, line 1: the file is empty: write a JSON object, such as {}"),
        (b'{"a": {\n}', "f.json, line 2 column 2: Expecting ',' delimiter"),
        (b'{\n"a": NaN}', "f.json, line 2: NaN is not JSON"),
        (b"\xff\xfe", "f.json, line 1: not UTF-8 text: save the file as UTF-8"),
        (b"[" * 5_000 + b"]" * 5_000, "f.json: nested too deeply"),
        (b"[]", "f.json, line 1: the file must be an object, not a list"),
        (b"null", "f.json, line 1: the file must be an object, not null"),
        (b'{"a": 1,\n"a": 2}', "f.json, line 2: a occurs twice"),
    ],
)
def test_parse_refuses_text_that_is_not_an_object(text: bytes, message: str) -> None:
    assert refusal(lambda: section.parse(text, FILE)) == message


def test_an_error_without_a_path_names_the_configuration() -> None:
    assert refusal(lambda: section.parse(b"[]", None)) == (
        "configuration, line 1: the file must be an object, not a list"
    )


# Members


@each_row(
    ("value", "read", "expected"),
    [
        ("x", lambda s: s.text("a"), "x"),
        ("", lambda s: s.text("a"), ""),
        (" x ", lambda s: s.filled("a"), " x "),
        (["x", "y"], lambda s: s.texts("a"), ("x", "y")),
        (5, lambda s: s.seconds("a", 1.0), 5.0),
        ("24h", lambda s: s.seconds("a", 1.0), 86_400.0),
        (0.5, lambda s: s.duration("a", 1.0, 10), 0.5),
        ("30s", lambda s: s.duration("a", 1.0, 100), 30.0),
        ("10m", lambda s: s.duration("a", 1.0, 600), 600.0),
        ("2h", lambda s: s.duration("a", 1.0, 10_000), 7200.0),
        ("90d", lambda s: s.duration("a", 1.0, 10_000_000), 7_776_000.0),
        (0, lambda s: s.count("a", 5, 9, least=0), 0),
        (1, lambda s: s.count("a", 5, 9), 1),
        (9, lambda s: s.count("a", 5, 9), 9),
        (False, lambda s: s.flag("a", True), False),
        ("y", lambda s: s.choice("a", ("x", "y")), "y"),
        ({"b": "x"}, lambda s: s.within("a").text("b"), "x"),
    ],
)
def test_a_member_is_returned_by_its_kind(value: Any, read: Read, expected: Any) -> None:
    assert read(one_member(value)) == expected


@each_row(
    ("read", "expected"),
    [
        (lambda s: s.texts("b"), ()),
        (lambda s: s.seconds("b", 1.5), 1.5),
        (lambda s: s.count("b", 5, 9), 5),
        (lambda s: s.flag("b", True), True),
        (lambda s: s.choice("b", ("x", "y")), "x"),
        (lambda s: s.within("b").members, {}),
    ],
)
def test_a_missing_member_has_its_default(read: Read, expected: Any) -> None:
    assert read(one_member(None)) == expected


@each_row(
    ("value", "read", "problem"),
    [
        (5, lambda s: s.text("a"), 'a must be a string, not a number: put it in quotes ("…")'),
        (True, lambda s: s.text("a"), 'a must be a string, not a boolean: put it in quotes ("…")'),
        (None, lambda s: s.text("a"), "a must be a string, not null"),
        (
            "\0",
            lambda s: s.text("a"),
            "a has a character that no program accepts",
        ),
        (
            "\ud800",
            lambda s: s.text("a"),
            "a has a character that no program accepts",
        ),
        (" ", lambda s: s.filled("a"), "a must not be empty"),
        ("x", lambda s: s.texts("a"), "a must be a list of strings, not a string"),
        (None, lambda s: s.texts("a"), "a must be a list of strings, not null"),
        (["x", {}], lambda s: s.texts("a"), "a[1] must be a string, not an object"),
        (
            "5",
            lambda s: s.seconds("a", 1.0),
            'a must be a number of seconds, or text such as "30s" or "1500ms", not a string',
        ),
        (
            1_000,
            lambda s: s.seconds("a", 1.0),
            'a needs a unit, as some programs count ms: write "1000s" or "1000ms"',
        ),
        (0, lambda s: s.seconds("a", 1.0), "a must be more than 0 and at most 86,400 seconds"),
        ("25h", lambda s: s.seconds("a", 1.0), "a must be more than 0 and at most 86,400 seconds"),
        *(
            (
                wrong,
                lambda s: s.duration("a", 1.0, 10),
                'a must be a number of seconds, or text such as "30s", "10m" or "24h"',
            )
            for wrong in ("5", "5 m", "1w", "-1s", "1.5h", "٣m", "1m ", True, None)
        ),
        ("11s", lambda s: s.duration("a", 1.0, 10), "a must be more than 0 and at most 10 seconds"),
        (1.5, lambda s: s.count("a", 5, 9), "a must be a whole number"),
        (True, lambda s: s.count("a", 5, 9), "a must be a whole number"),
        (0, lambda s: s.count("a", 5, 9_000), "a must be between 1 and 9,000"),
        (9_001, lambda s: s.count("a", 5, 9_000), "a must be between 1 and 9,000"),
        (1, lambda s: s.flag("a", True), "a must be true or false, not a number"),
        ("z", lambda s: s.choice("a", ("x", "y")), "a must be one of x, y"),
        ([], lambda s: s.choice("a", ("x", "y")), "a must be one of x, y"),
        (
            "alow",
            lambda s: s.choice("a", ("allow", "deny")),
            "a must be one of allow, deny (did you mean 'allow'?)",
        ),
        ([], lambda s: s.within("a"), "a must be an object, not a list"),
        ({"b": 1}, lambda s: s.within("a").refuse("is odd", "b"), "a.b is odd"),
        ({"b": 1}, lambda s: s.within("a").refuse("is odd"), "a is odd"),
    ],
)
def test_a_wrong_member_is_refused_with_its_place(value: Any, read: Read, problem: str) -> None:
    assert refusal(lambda: read(one_member(value))) == f"f.json, line 1: {problem}"


# Warnings


def test_sections_of_a_file_share_its_warnings() -> None:
    root = section.parse(b'{"a": {\n"tiemout": 1, "known": 2}}', FILE)
    root.within("a").warn_unknown(("known", "timeout"))
    root.warn("is odd", "a")

    assert root.warnings == [
        "f.json, line 2: a.tiemout is unknown and ignored (did you mean 'timeout'?)",
        "f.json, line 1: a is odd",
    ]


def test_warnings_of_unknown_members_are_limited() -> None:
    root = section.parse(json.dumps({f"key{i}": 1 for i in range(5_000)}).encode(), FILE)
    root.warn_unknown(())

    assert len(root.warnings) == 20
