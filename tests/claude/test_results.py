"""Results in the form that reaches the model whole."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw

from interlock.calls import Outcome
from interlock.claude import results
from interlock.claude.results import URI, Results


def shaped(value: Any, limit: int = 1_000) -> dict[str, Any]:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    shape: dict[str, Any] = json.loads(Results(limit).shape(Outcome(Raw(raw)), "s"))
    return shape


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


def test_plain_result_is_passed_on_as_it_is_but_in_one_line():
    raw = b'{\n  "content": [{"type":"text",\r\n"text":"a\\nb"}],\n "x-more": 1 }'
    sent = Results().shape(Outcome(Raw(raw)), "s")

    assert b"\n" not in sent
    assert json.loads(sent) == json.loads(raw)


def test_structured_content_becomes_text_only_where_there_is_none():
    assert shaped({"content": [text("t")], "structuredContent": {"a": 1}})["content"] == [text("t")]
    only = shaped({"content": [], "structuredContent": {"a": 1}, "isError": True})
    assert only == {"content": [text('{"a":1}')], "isError": True}


def test_block_of_an_unknown_type_becomes_text():
    [block] = shaped({"content": [{"type": "hologram", "data": "x"}]})["content"]

    assert block["type"] == "text"
    assert "hologram" in block["text"]


@settings(max_examples=20)
@given(st.text(min_size=1_001, max_size=20_000))
def test_parts_of_a_long_result_put_together_are_the_whole(whole: str):
    kept = Results(1_000)
    raw = json.dumps({"content": [text(whole)]}).encode()
    sent = json.loads(kept.shape(Outcome(Raw(raw)), "s"))["content"][0]["text"]
    head, _, note = sent.rpartition("\n[part 1 of ")
    count = int(note.split()[0])
    uri = note.partition(URI)[2].split("/")[0]
    rest = [kept.read(f"{URI}{uri}/{number}") for number in range(2, count + 1)]

    valid = whole.encode("utf-8", "replace").decode()
    assert head + "".join(map(str, rest)) == valid
    assert all(len(str(each)) <= 1_000 for each in rest)
    assert kept.read(f"{URI}{uri}/{count + 1}") is None


def test_old_parts_are_dropped_when_too_much_is_kept(monkeypatch):
    monkeypatch.setattr(results, "MAX_KEPT", 5_000)
    kept = Results(1_000)
    uris = []
    for _ in range(3):
        raw = json.dumps({"content": [text("x" * 4_000)]}).encode()
        sent = json.loads(kept.shape(Outcome(Raw(raw)), "s"))["content"][0]["text"]
        uris.append(sent.partition("resources ")[2].split()[0])

    assert kept.read(uris[0]) is None
    assert kept.read(uris[2]) is not None
    assert kept.read(f"{URI}r_0/x") is None


def test_limit_of_zero_passes_everything_on():
    whole = {"content": [text("x" * 100_000)]}

    assert shaped(whole, 0) == whole
