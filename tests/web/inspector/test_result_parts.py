"""Parts of large results."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.web.inspector.result_parts import MEMBERS, MORE_TEXT, MOST, TEXT, ResultPart
from tests.support.rows import each_row


def test_small_result_is_whole():
    result = {"content": [{"type": "text", "text": "x" * 100}], "structuredContent": {"a/b": [1]}}
    part = ResultPart(result)

    assert (part.value, part.cuts) == (result, {})


def test_parts_of_a_text_and_a_list_add_up_to_the_whole():
    result: dict[str, Any] = {"t": "é" * (TEXT + 2 * MORE_TEXT + 5), "a/b~": [*range(1_000)]}
    first = ResultPart(result)
    assert first.cuts == {"/t": (TEXT, len(result["t"])), "/a~1b~0": (MEMBERS, 1_000)}

    for pointer, member in (("/t", "t"), ("/a~1b~0", "a/b~")):
        value, cuts = first.value[member], first.cuts
        while pointer in cuts:
            part = ResultPart(result, pointer, cuts[pointer][0])
            value, cuts = value + part.value, part.cuts
        assert value == result[member]


def test_part_is_small_for_every_kind_of_result():
    wide = {f"k{n}": {f"k{m}": "x" * 50 for m in range(300)} for n in range(300)}
    deep: Any = "x" * 1_000_000
    for _ in range(60):
        deep = [deep, "y" * 20_000]
    for result in (wide, deep, [["z" * 300] * 300] * 300, {"t": ["u" * 10_000_000] * 50}):
        part = ResultPart({"structuredContent": result})
        assert len(msgspec.json.encode(part.value)) < 6 * MOST
        assert part.cuts


def test_picture_stays_whole_as_a_part_of_it_cannot_be_shown():
    result = {"content": [{"type": "image", "data": "A" * 5_000_000}]}

    assert ResultPart(result).cuts == {}


@each_row("pointer", ["/b", "/a/2", "/a/x", "/a/0/x", "x/y"])
def test_pointer_to_nothing_is_refused(pointer: str):
    with pytest.raises(LookupError):
        ResultPart({"a": ["text"]}, pointer)
