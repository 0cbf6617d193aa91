"""The difference between an accepted definition and the one that is offered, for an operator."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock.store.pin import Pin
from interlock.toolbox.pin_diff import diff

TOOL: dict[str, Any] = {
    "name": "refund",
    "description": "Refund.",
    "inputSchema": {"type": "object"},
}


def pin(before: Any, after: Any, state: Any = "changed") -> Pin:
    texts = [
        None if each is None else msgspec.json.encode(each).decode() for each in (before, after)
    ]
    return Pin(
        server="crm",
        kind="tool",
        name="refund",
        state=state,
        definition=texts[0],
        seen_definition=texts[1],
    )


@pytest.mark.parametrize(
    ("hidden", "shown"),
    [
        ("\u202e", "\\u202e"),
        ("\u200b", "\\u200b"),
        ("\U000e0041", "\\U000e0041"),
        ("\x1b[2J", "\\u001b[2J"),
        ("\ufe0f", "\\ufe0f"),
    ],
    ids=["bidi", "zero width", "tag", "ANSI", "variation selector"],
)
def test_invisible_characters_are_visible_in_a_diff(hidden: str, shown: str):
    lines = diff(pin(TOOL, {**TOOL, "description": f"Refund.{hidden}"}))

    assert f'+description: "Refund.{shown}"' in lines
    assert hidden not in "".join(lines)


def test_diff_names_the_place_of_each_change_by_lines_of_its_text():
    long = "One.\nTwo.\nThree."
    before = {**TOOL, "description": long}
    schema = {"type": "object", "properties": {"to": {"enum": ["a", "b"]}}}

    lines = diff(
        pin(before, {**before, "description": long.replace("Two", "2"), "inputSchema": schema})
    )

    assert [each for each in lines if each[0] in "+-" and each[:3] not in ("+++", "---")] == [
        '-description+ "Two."',
        '+description+ "2."',
        '+inputSchema.properties.to.enum[0]: "a"',
        '+inputSchema.properties.to.enum[1]: "b"',
    ]


def test_diff_of_a_new_tool_adds_every_line_and_of_an_accepted_one_none():
    assert '+description: "Refund."' in diff(pin(None, TOOL, "new"))
    assert ' description: "Refund."' in diff(pin(TOOL, None, "accepted"))
