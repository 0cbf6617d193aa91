"""Parameter styles, character by character, as the OpenAPI specification has them."""

from __future__ import annotations

import re
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from interlock.errors import InvalidArguments
from interlock.openapi import serialisation
from interlock.openapi.operations import Style
from tests.support.rows import each_row

LIST = ["a", "b c"]
OBJECT = {"k": "v", "l": 1}


@each_row(
    ("style", "explode", "value", "written"),
    [
        ("simple", False, "a b", "a%20b"),
        ("simple", False, ["a", "b,c"], "a,b%2Cc"),
        ("simple", False, OBJECT, "k,v,l,1"),
        ("simple", True, OBJECT, "k=v,l=1"),
        ("label", False, "a", ".a"),
        ("label", False, LIST, ".a,b%20c"),
        ("label", True, ["a", "b.c"], ".a.b%2Ec"),
        ("label", False, OBJECT, ".k,v,l,1"),
        ("label", True, OBJECT, ".k=v.l=1"),
        ("matrix", False, "a", ";p=a"),
        ("matrix", False, LIST, ";p=a,b%20c"),
        ("matrix", True, LIST, ";p=a;p=b%20c"),
        ("matrix", False, OBJECT, ";p=k,v,l,1"),
        ("matrix", True, OBJECT, ";k=v;l=1"),
        ("spaceDelimited", False, [1, 2], "1%202"),
        ("pipeDelimited", False, [1, 2], "1%7C2"),
    ],
)
def test_path_parameter_is_written_in_its_style(
    style: str, explode: bool, value: Any, written: str
):
    assert serialisation.path("p", value, Style(style, explode)) == written


@each_row(
    ("style", "explode", "value", "written"),
    [
        ("form", True, "a&b=c+d", "p=a%26b%3Dc%2Bd"),
        ("form", True, LIST, "p=a&p=b%20c"),
        ("form", True, OBJECT, "k=v&l=1"),
        ("form", False, ["a", "b,c"], "p=a,b%2Cc"),
        ("form", False, OBJECT, "p=k,v,l,1"),
        ("spaceDelimited", False, [1, 2], "p=1%202"),
        ("spaceDelimited", True, [1, 2], "p=1&p=2"),
        ("spaceDelimited", False, OBJECT, "p=k%20v%20l%201"),
        ("pipeDelimited", False, [1, 2], "p=1%7C2"),
        ("tabDelimited", False, [1, 2], "p=1%092"),
        ("deepObject", True, OBJECT, "p%5Bk%5D=v&p%5Bl%5D=1"),
        ("deepObject", True, {"k": {"m": 1}}, "p%5Bk%5D%5Bm%5D=1"),
        ("deepObject", True, {"k": ["a", "b"]}, "p%5Bk%5D=a&p%5Bk%5D=b"),
        ("deepObject", True, LIST, "p=a&p=b%20c"),
        ("form", True, {"k": {"m": [1]}}, "k=%7B%22m%22%3A%5B1%5D%7D"),
    ],
)  # fmt: skip
def test_query_parameter_is_written_in_its_style(
    style: str, explode: bool, value: Any, written: str
):
    assert "&".join(serialisation.query("p", value, Style(style, explode))) == written


def test_reserved_characters_stay_where_they_are_allowed_but_never_split_the_query():
    style = Style("form", allow_reserved=True)

    assert serialisation.query("p", ":/?@!$'()*,;#&+=[]%", style) == [
        "p=:/?@!$'()*,;%23%26%2B%3D%5B%5D%25"
    ]


@each_row(
    ("explode", "value", "written"),
    [
        (False, "a, b", "a, b"),
        (False, ["a", 2], "a,2"),
        (False, OBJECT, "k,v,l,1"),
        (True, OBJECT, "k=v,l=1"),
    ],
)
def test_header_is_written_in_simple_style(explode: bool, value: Any, written: str):
    assert serialisation.header("X", value, Style("simple", explode)) == written


@each_row("value", ["a\r\nX-Evil: 1", "é", " a", "a\x00", "\x7f", ["a,b"], [" a"]])
def test_invalid_header_value_is_refused_without_being_shown(value: Any):
    with pytest.raises(InvalidArguments) as caught:
        serialisation.header("X", value, Style("simple"))

    assert "X" in str(caught.value)
    assert "Evil" not in str(caught.value)


@each_row(
    ("explode", "value", "written"),
    [
        (True, "a b;c=d", ["p=a%20b%3Bc=d"]),
        (False, ["a", "b,c"], ["p=a,b%2Cc"]),
        (True, LIST, ["p=a", "p=b%20c"]),
        (True, {"k;": "v\r\n"}, ["k%3B=v%0D%0A"]),
        (False, OBJECT, ["p=k,v,l,1"]),
    ],
)
def test_cookie_keeps_its_octets_and_encodes_the_others(
    explode: bool, value: Any, written: list[str]
):
    assert serialisation.cookie("p", value, Style("form", explode)) == written


@each_row(
    ("value", "kind", "written"),
    [
        (True, "boolean", "true"),
        (False, "boolean", "false"),
        (0, "integer", "0"),
        (1.0, "integer", "1"),
        (1e21, "integer", "1000000000000000000000"),
        (1.0, "number", "1.0"),
        (10**20, "integer", "100000000000000000000"),
        ("", "string", ""),
        ({"a": [1, None]}, "object", '{"a":[1,null]}'),
    ],
)
def test_value_is_written_as_text_by_its_type(value: Any, kind: str, written: str):
    assert serialisation.text(value, {"type": kind}) == written


def test_json_parameter_is_encoded_for_its_place():
    style = Style(media_type="application/json")

    assert serialisation.query("p", {"é": 1}, style) == ["p=%7B%22%C3%A9%22%3A1%7D"]
    assert serialisation.header("X", {"é": 1}, style) == '{"\\u00e9":1}'
    assert serialisation.cookie("p", {"a": 1}, style) == ["p={%22a%22:1}"]


@each_row("style", ["spaceDelimited", "pipeDelimited", "tabDelimited"])
def test_item_with_the_delimiter_of_its_style_is_refused(style: str):
    delimiter = {"spaceDelimited": " ", "pipeDelimited": "|", "tabDelimited": "\t"}[style]

    for write in (serialisation.query, serialisation.path):
        with pytest.raises(InvalidArguments, match="p cannot carry an item with"):
            write("p", ["a", f"b{delimiter}c"], Style(style))


_VALUES = (
    st.text(max_size=9) | st.lists(st.text(max_size=9)) | st.dictionaries(st.text(), st.text())
)


@pytest.mark.slow("tries many examples")
@settings(max_examples=200, deadline=None)
@given(_VALUES, st.booleans())
def test_no_value_ends_a_header_or_a_cookie_and_begins_another(value: Any, explode: bool):
    pairs = serialisation.cookie("p", value, Style("form", explode))
    assert all(re.fullmatch(r"[!-:<-~]*", pair) and "=" in pair for pair in pairs)
    try:
        header = serialisation.header("X", value, Style("simple", explode))
    except InvalidArguments:
        return
    assert re.fullmatch(r"[\t -~]*", header)
