"""Remarks on definitions and messages."""

from __future__ import annotations

from typing import Any

from interlock.revisions import NEWEST
from interlock.web.inspector.remarks import WireRemarks, of_items
from interlock.web.inspector.wire import InspectedWire
from tests.support.rows import each_row

GOOD = {
    "name": "find",
    "description": "Find notes.",
    "inputSchema": {
        "type": "object",
        "properties": {"text": {"type": "string", "description": "What to find."}},
        "required": ["text"],
    },
}


def texts(kind: str, item: dict[str, Any], revision: str = NEWEST) -> str:
    return "\n".join(f"{each.level}: {each.text}" for each in of_items(kind, [item], revision))


def test_good_tool_has_no_remark():
    assert of_items("tool", [GOOD], NEWEST) == []


@each_row(
    ("change", "revision", "expected"),
    [
        ({"name": "find notes!"}, NEWEST, "advice: a name should have"),
        ({"description": ""}, NEWEST, "advice: no description"),
        ({"description": "x" * 1001}, NEWEST, "advice: a description over 1,000"),
        ({"inputSchema": {"type": "array"}}, NEWEST, "error: inputSchema: "),
        ({"inputSchema": {"type": "object", "properties": {"a": {"type": 5}}}}, NEWEST, "error: "),
        (
            {"inputSchema": {"type": "object", "properties": {"a": {"type": "string"}}}},
            NEWEST,
            "advice: a property without a description: a",
        ),
        (
            {"inputSchema": GOOD["inputSchema"] | {"required": ["text", "z"]}},
            NEWEST,
            "advice: required names 'z'",
        ),
        (
            {"inputSchema": {"type": "object", "properties": {"a": {"enum": [1], "default": 2}}}},
            NEWEST,
            "advice: the default of a is not valid for its schema",
        ),
        ({"outputSchema": {"type": "array"}}, "2025-11-25", "error: outputSchema must say"),
        ({"outputSchema": {"type": "object"}}, "2025-03-26", "advice: outputSchema exists since"),
        ({"annotations": {"readOnlyHint": "yes"}}, NEWEST, "error: annotations.readOnlyHint"),
        (
            {"annotations": {"readOnlyHint": True, "destructiveHint": True}},
            NEWEST,
            "advice: readOnlyHint and destructiveHint",
        ),
        ({"colour": "red"}, NEWEST, "advice: unknown member 'colour'"),
        ({"execution": {}}, NEWEST, "advice: execution exists in 2025-11-25 only"),
    ],
)
def test_invalid_tool_gets_a_remark(change, revision: str, expected: str):
    assert expected in texts("tool", GOOD | change, revision)


@each_row(
    ("kind", "item", "expected"),
    [
        ("resource", {"uri": "notes", "name": "n", "description": "d"}, "error: the uri has no"),
        ("template", {"uriTemplate": "a://{b", "name": "n", "description": "d"}, "error: the uriT"),
        (
            "prompt",
            {"name": "p", "description": "d", "arguments": [{"name": "a"}, {"name": "a"}]},
            "error: two arguments",
        ),
    ],
)
def test_invalid_resource_or_prompt_gets_a_remark(kind: str, item, expected: str):
    assert expected in texts(kind, item)


@each_row(
    ("frame", "revision", "expected"),
    [
        (b"loading ...", NEWEST, "a line is not a message"),
        (b'{"jsonrpc":"2.0","id":9,"result":{}}', NEWEST, "an answer to no open request"),
        (b'{"jsonrpc":"2.0","id":1,"method":"roots/list"}', NEWEST, "a request, roots/list"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}', NEWEST, "tools/list has no resultType"),
        (b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}', "2025-11-25", ""),
        (b'[{"jsonrpc":"2.0","method":"x"}]', NEWEST, "a batch"),
    ],
)
def test_message_that_breaks_a_rule_gets_one_remark(frame: bytes, revision: str, expected: str):
    wire, remarks = InspectedWire(), WireRemarks()
    wire.sent(b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}')
    wire.received(frame)
    found = remarks.update(wire.entries(), revision)

    assert expected in "\n".join(each.text for each in found)
    assert bool(found) == bool(expected)
    assert remarks.update(wire.entries(), revision) == found
