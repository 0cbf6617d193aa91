import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.config.jsonc import JsoncDocument, JsoncError, write_place
from tests.support.rows import each_row

COMMENTED = b"""{
  // first
  "a": {"b": [1, "// no comment", "/* nor this */", ",]"]}, /* over
  two lines */ "c": "\\"//",
  "d": [true, null,],
}
"""


def test_comments_and_trailing_commas_are_accepted() -> None:
    assert JsoncDocument(COMMENTED).value == {
        "a": {"b": [1, "// no comment", "/* nor this */", ",]"]},
        "c": '"//',
        "d": [True, None],
    }


def test_line_returns_the_line_of_a_member_or_of_its_nearest_parent() -> None:
    document = JsoncDocument(COMMENTED)

    assert [document.line(p) for p in ((), ("a",), ("a", "b", 1), ("c",), ("d", 1))] == [
        1,
        3,
        3,
        4,
        5,
    ]
    assert document.line(("a", "absent", "deeper")) == 3


def test_a_byte_order_mark_is_accepted() -> None:
    assert JsoncDocument(b'\xef\xbb\xbf{"a": 1}').value == {"a": 1}


@each_row(
    ("text", "line", "problem"),
    [
        (b"", 1, "the file is empty: write a JSON object, such as {}"),
        (b"\na: 1", 2, "not JSON: write a JSON object, such as {}"),  # YAML
        (b'{\n"a": }', 2, "Expecting value"),
        (b'{"a": 1\n "b": 2}', 2, "Expecting ',' delimiter"),
        (b"{,}", 1, "Expecting property name enclosed in double quotes"),
        (b"[1,,]", 1, "Expecting value"),
        (b'{"a":,}', 1, "Expecting value"),
        (b'{"a": 1}\n}', 2, "Extra data"),
        (b'{"a": "x\n"}', 1, "Invalid control character at"),
        (b'{"a": 1} /* open', 0, None),
        (b'{\n"a": NaN}', 2, "NaN is not JSON"),
        (b'{\n"a": -Infinity}', 2, "-Infinity is not JSON"),
        (b"[" + b"1" * 5_000 + b"]", 1, "a number has more than 20 digits"),
        (b'{"a": {"b": 1,\n"b": 2}}', 2, "a.b occurs twice"),
        (b'{\n"a": "\xff"}', 2, "not UTF-8 text: save the file as UTF-8"),
        (b"[" * 100_000, 0, "nested too deeply"),
        (b"[" * 900 + b"]" * 900, 0, None),
    ],
)
def test_invalid_json_is_refused_with_its_line(text: bytes, line: int, problem: str | None) -> None:
    if problem is None:
        JsoncDocument(text)
        return
    with pytest.raises(JsoncError) as caught:
        JsoncDocument(text)

    assert (str(caught.value), caught.value.line) == (problem, line)


@pytest.mark.slow("works through much data")
@each_row("text", [b"/*" * 200_000, b'"\\' * 200_000, b", " * 200_000, b"//" * 9**5])
def test_invalid_text_is_refused_in_linear_time(text: bytes) -> None:
    with pytest.raises(JsoncError):
        JsoncDocument(text)


def test_write_place_returns_the_notation_of_programs() -> None:
    assert write_place(("mcpServers", "time", "args", 1)) == "mcpServers.time.args[1]"
    assert write_place(("a b", "c\n")) == "['a b']['c\\n']"


# Editing


@each_row(
    ("before", "after"),
    [
        ("{}\n", '{\n  "n": 1\n}\n'),
        ("{ }", '{\n  "n": 1\n}'),
        ("{ // note\n}", '{\n  "n": 1 // note\n}'),
        ('{"a": 1}', '{"a": 1,\n  "n": 1}'),
        ('{\n\t"a": 1\n}', '{\n\t"a": 1,\n\t"n": 1\n}'),
        ('{\r\n    "a": 1\r\n}', '{\r\n    "a": 1,\r\n    "n": 1\r\n}'),
        ('{\n  "a": 1, // one\n}', '{\n  "a": 1,\n  "n": 1, // one\n}'),
    ],
)
def test_with_member_adds_at_the_end_with_the_same_indentation(before: str, after: str) -> None:
    assert JsoncDocument(before.encode()).with_member((), "n", 1) == after


@each_row(
    ("before", "after"),
    [
        ('{"n": 1}', "{}"),
        ('{\n  "n": 1,\n}', "{}"),
        ('{"n": 1, "b": 2}', '{ "b": 2}'),
        ('{\n  // the first\n  "n": 1, "b": 2}', '{ "b": 2}'),
        ('{\n  "a": 1,\n  // about n\n  "n": {"x": [1]},\n  // about b\n  "b": 2\n}', None),
        ('{"a": 1, "n": 1}', '{"a": 1}'),
        ('{"a": 1, "n": 1,}', '{"a": 1,}'),
    ],
)
def test_without_member_removes_its_comma_and_comments(before: str, after: str | None) -> None:
    if after is None:
        after = '{\n  "a": 1,\n  // about b\n  "b": 2\n}'

    assert JsoncDocument(before.encode()).without_member(("n",)) == after


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.slow("made-up input, and much of it")
@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    st.dictionaries(st.text(), VALUES, min_size=1),
    st.text(),
    VALUES,
    st.sampled_from([None, 2, "\t"]),
    st.booleans(),
)
def test_adding_and_removing_a_member_leaves_the_rest_unchanged(
    members: dict[str, Any], name: str, value: Any, indent: int | str | None, inside: bool
) -> None:
    members.pop(name, None)
    place = ("in",) if inside else ()
    whole = {"in": members, "z": 1} if inside else members
    text = json.dumps(whole, indent=indent, ensure_ascii=False)

    added = JsoncDocument(text.encode()).with_member(place, name, value)
    grown = JsoncDocument(added.encode())
    removed = JsoncDocument(grown.without_member((*place, name)).encode())

    assert (grown.value["in"] if inside else grown.value) == {**members, name: value}
    assert removed.value == whole


def test_an_error_does_not_contain_the_text() -> None:
    with pytest.raises(JsoncError) as refused:
        JsoncDocument(b'{"token": "hunter2", oops}')

    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__
