"""Results in the form that reaches the model whole."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Raw

from interlock.calls import Outcome
from interlock.claude.results import shape


def shaped(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shape(Outcome(Raw(json.dumps(value).encode()))))
    return found


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_plain_result_is_passed_on_unchanged_but_on_one_line():
    raw = b'{\n  "content": [{"type":"text",\r\n"text":"a\\nb"}],\n "x-more": 1 }'
    sent = shape(Outcome(Raw(raw)))

    assert b"\n" not in sent
    assert json.loads(sent) == json.loads(raw)


def test_structured_content_becomes_text_only_if_the_result_has_no_text():
    assert shaped({"content": [text("t")], "structuredContent": {"a": 1}})["content"] == [text("t")]
    only = shaped({"content": [], "structuredContent": {"a": 1}, "isError": True})
    assert only == {"content": [text('{"a":1}')], "isError": True}


def test_block_of_an_unknown_type_becomes_text():
    [block] = shaped({"content": [{"type": "hologram", "data": "x"}]})["content"]

    assert block["type"] == "text"
    assert "hologram" in block["text"]
