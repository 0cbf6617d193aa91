"""Parts of texts and of arrays: within their size, at whole lines or items, and complete."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.layers.excerpts import items_of, part_of_items, part_of_text

texts = st.text(st.sampled_from('aäé😀\n\n"\\\t\x01 '), max_size=200)
sizes = st.integers(20, 120)
values = st.recursive(st.none() | st.integers() | st.text(max_size=8), st.lists, max_leaves=5)


def encoded_size(text: str) -> int:
    return len(msgspec.json.encode(text)) - 2


@given(text=texts, size=sizes)
def test_parts_of_a_text_fit_and_make_up_the_whole(text: str, size: int):
    parts = [part_of_text(text, 0, size)]
    while not parts[-1].is_last:
        parts.append(part_of_text(text, parts[-1].offset, size))

    assert "".join(each.text for each in parts) == text
    assert all(encoded_size(each.text) <= size for each in parts)
    for part in parts[:-1]:
        line_that_follows = text[part.offset :].split("\n")[0]
        if part.line is None:  # it ends within a line, so that line is too long for one part
            begin = text.rfind("\n", 0, part.offset) + 1
            assert encoded_size(text[begin : part.offset] + line_that_follows) > size - 6
        else:
            assert text.split("\n")[part.line - 1] == line_that_follows


@pytest.mark.slow("tries many examples")
@given(items=st.lists(values, max_size=30), size=sizes)
def test_parts_of_an_array_fit_and_make_up_the_whole(items: list[object], size: int):
    text = msgspec.json.encode(items).decode()
    found = items_of(text)
    assert found is not None

    read: list[object] = []
    while (part := part_of_items(found, len(read), size, None)) is not None:
        assert encoded_size(part.text) <= size
        read += msgspec.json.decode(part.text)
        if part.is_last:
            break
    else:  # the next item is larger than a part
        assert encoded_size(bytes(found[len(read)]).decode()) + 3 > size
    assert read == items[: len(read)]


@given(text=texts, line=st.integers(1, 5))
def test_read_result_returns_the_requested_number_of_lines(text: str, line: int):
    part = part_of_text(text, 0, 10_000, lines=line)

    lines = text.split("\n")
    assert part.text == "\n".join(lines[:line]) + ("\n" if len(lines) > line else "")
