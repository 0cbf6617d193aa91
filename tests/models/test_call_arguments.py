from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.messages import ToolCall
from interlock.models.call_arguments import tool_calls
from tests.support.rows import each_row


@each_row(
    ("written", "inputs"),
    [
        ("", [{}]),
        (" null ", [{}]),
        ("[]", [{}]),
        ('{"a": "1\n\t2"}', [{"a": "1\n\t2"}]),
        ('{"a": 1}', [{"a": 1}]),
        # An empty object first, and the arguments twice:
        # https://github.com/router-for-me/CLIProxyAPI/issues/5058
        ('{}{"a": 1}', [{"a": 1}]),
        ('{"a": 1} {"a": 1}', [{"a": 1}]),
        # Two calls joined: https://github.com/huggingface/smolagents/pull/1958
        ('{"a": 1}{"a": 2}', [{"a": 1}, {"a": 2}]),
        ('"{\\"a\\": 1}"', [{"a": 1}]),  # encoded twice
        ('{"a": "\\ud83d\\ude00 \\ud83d"}', [{"a": "\U0001f600 \ufffd"}]),
        ('{"a": "\ud83d\ude00 \ud83d"}', [{"a": "\U0001f600 \ufffd"}]),
        # What local models and their servers leave around the arguments
        ('{"a": 1}}', [{"a": 1}]),
        ('{"a": 1}<|im_end|>\n', [{"a": 1}]),
        ('{"a": 1}\n</tool_call>', [{"a": 1}]),
        ('{"a": 1}{"a": 2}</s>\0', [{"a": 1}, {"a": 2}]),
        ('```json\n{"a": 1}\n```', [{"a": 1}]),
        ('\ufeff{"a": 1}', [{"a": 1}]),
        ('[{"a": 1}]', [{"a": 1}]),
        ('{"a": 1} or {"a": 2}', None),
        ('{"a": 1}</tool_call>{"b"', None),
        ('Sure: {"a": 1}', None),
        ("</tool_call>", None),
        ('[{"a": 1}, {"a": 2}]', None),
        ('{"a": ', None),
        ('{"a": 1}{"a"', None),
        ("[1]", None),
        ('"text"', None),
        ('{"a": NaN}', None),
        ("[" * 5000, None),
    ],
)
def test_arguments_are_read_as_the_objects_that_they_are(
    written: str, inputs: list[dict[str, Any]] | None
) -> None:
    calls = tool_calls("1", "t", written)

    if inputs is None:
        assert calls == [ToolCall("1", "t", malformed=written)]
    else:
        assert [call.input for call in calls] == inputs
        assert [call.id for call in calls] == ["1", *[""] * (len(inputs) - 1)]


@each_row("written", ["t", " t\n", "functions.t", "t<|channel|>commentary"])
def test_what_is_left_of_a_models_format_around_a_name_is_removed(written: str) -> None:
    assert tool_calls("1", written, "") == [ToolCall("1", "t")]


def test_half_of_a_character_in_an_id_or_a_name_is_replaced() -> None:
    assert tool_calls("a\ud83d", "t\ud83d", "") == [ToolCall("a\ufffd", "t\ufffd")]


@given(st.text())
def test_any_text_of_arguments_becomes_a_call(written: str) -> None:
    for call in tool_calls("1", "t", written):
        assert call.malformed in (None, written)
        assert not call.input or call.malformed is None
