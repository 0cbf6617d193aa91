from __future__ import annotations

import json
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import StoreCorrupt, StoreError
from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    Usage,
    UserMessage,
)
from interlock.store.database.rows import message_from_row, row_from_message, storable
from interlock.text.quoting import replace_surrogates
from tests.support.rows import each_row

TEXT = st.text() | st.text("a\0\ud800\udc00é😀�")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECT = st.dictionaries(st.text(), JSON, max_size=3)
CALL = st.builds(ToolCall, st.text(), st.text(), OBJECT, st.none() | st.text())
FILES = st.lists(st.builds(Attachment, st.text(), st.binary(), TEXT), max_size=2).map(tuple)
MESSAGE = (
    st.builds(SystemMessage, TEXT)
    | st.builds(UserMessage, TEXT, FILES)
    | st.builds(
        AssistantMessage,
        TEXT,
        st.lists(CALL, max_size=3).map(tuple),
        st.none() | OBJECT,
        st.none() | st.builds(Usage, st.integers(0, 10**9), st.integers(0, 10**9)),
    )
    | st.builds(ToolMessage, st.text(), TEXT, st.text(), st.booleans(), FILES)
)


def read_back(original: Message) -> Message:
    return message_from_row({**row_from_message(original), "conversation_id": "abc", "position": 0})


@pytest.mark.slow("tries many examples")
@given(MESSAGE)
def test_a_message_is_read_back_from_its_row_with_whole_characters(original: Message):
    whole = msgspec.structs.replace(original, content=replace_surrogates(original.content))
    if isinstance(whole, UserMessage | ToolMessage):
        files = [
            msgspec.structs.replace(each, name=replace_surrogates(each.name))
            for each in whole.attachments
        ]
        whole = msgspec.structs.replace(whole, attachments=tuple(files))

    assert read_back(original) == whole


def test_halves_of_characters_in_an_earlier_row_are_replaced():
    row = {**row_from_message(AssistantMessage("x")), "conversation_id": "a"}
    called = [{"id": "1", "name": "t", "input": {"a": "\ud83d"}}]
    row |= {"position": 0, "tool_calls": json.dumps(called)}

    assert message_from_row(row) == AssistantMessage("x", (ToolCall("1", "t", {"a": "\ufffd"}),))


@given(MESSAGE)
def test_every_column_is_text_that_any_database_accepts(original: Message):
    for text in row_from_message(original).values():
        assert text is None or "\0" not in text.encode().decode()


def test_infinities_in_a_tool_call_are_read_back():
    call = ToolCall("1", "wait", {"seconds": math.inf})

    assert read_back(AssistantMessage("", (call,))) == AssistantMessage("", (call,))


def test_storable_replaces_only_characters_that_no_column_can_hold():
    assert storable("a\0b") == "a�b"
    assert storable("a\ud800b") == "a�b"
    assert storable("\ud83d\ude00") == "😀"
    assert storable("\ufeffa\0") == "\ufeffa�"


@each_row(
    ("role", "expected"),
    [
        ("system", SystemMessage("hello")),
        ("user", UserMessage("hello")),
        ("assistant", AssistantMessage("hello")),
        ("tool", ToolMessage("", "hello")),
    ],
)
def test_message_row_without_tool_call_columns_is_read_as_a_plain_message(
    role: str, expected: Message
):
    added = dict.fromkeys(
        (
            *("tool_calls", "tool_results", "provider_data", "content_json", "attachments"),
            *("usage", "unfinished"),
        )
    )

    assert message_from_row({"role": role, "content": "hello", **added}) == expected


def nested(depth: int) -> dict[str, object]:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return {"list": value}


@pytest.mark.slow("works through much data")
def test_input_nested_over_the_limit_is_refused():
    deep = AssistantMessage("", (ToolCall("1", "dig", nested(190)),))

    assert read_back(deep) == deep
    with pytest.raises(StoreError, match="tool call is not JSON: nested over 200 deep"):
        row_from_message(AssistantMessage("", (ToolCall("1", "dig", nested(300)),)))
    with pytest.raises(StoreError, match="tool call is not JSON"):
        row_from_message(AssistantMessage("", (ToolCall("1", "dig", nested(100_000)),)))


def test_wide_input_does_not_exceed_the_depth_limit():
    wide = AssistantMessage("", (ToolCall("1", "dig", {"list": [[]] * 1000}),))

    assert read_back(wide) == wide


@each_row("value", [object(), b"bytes", 10**5000], ids=["object", "bytes", "digits"])
def test_data_that_is_not_json_is_refused_without_quoting_it(value: object):
    with pytest.raises(StoreError, match="cannot keep a message whose provider data is not JSON"):
        row_from_message(AssistantMessage("secret", provider_data={"x": value}))


def test_an_object_that_is_not_a_message_is_refused():
    with pytest.raises(TypeError, match="not a message: ToolCall"):
        row_from_message(ToolCall("1", "add", {}))  # type: ignore[arg-type]  # the point of the test


@each_row(
    "columns",
    [
        {"role": "robot"},
        {"role": "assistant", "tool_calls": "{"},
        {"role": "assistant", "tool_calls": '[{"id": "1", "nam": "add"}]'},
        {"role": "tool", "tool_results": "[]"},
        {"role": "tool", "tool_results": "[" * 100_000},
    ],
)
def test_an_invalid_row_is_an_error_that_names_its_position(columns: dict[str, str]):
    empty = dict.fromkeys(
        (
            *("tool_calls", "tool_results", "provider_data", "content_json", "attachments"),
            *("usage", "unfinished"),
        )
    )

    with pytest.raises(StoreCorrupt, match="message 3 of conversation 'abc' cannot be read"):
        message_from_row(
            {"conversation_id": "abc", "position": 3, "content": "", **empty, **columns}
        )
