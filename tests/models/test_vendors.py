from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.models.vendors import call_id, call_name, tool_call


@given(st.text())
def test_call_ids_and_names_are_converted_to_stable_valid_ones(text: str) -> None:
    assert 0 < len(call_id(text)) <= 40
    assert call_id(call_id(text)) == call_id(text) == call_id(text)
    assert 0 < len(call_name(text)) <= 64
    assert (call_id(text) + call_name(text)).replace("_", "").replace("-", "").isascii()


@given(st.text())
def test_any_text_of_arguments_becomes_a_call(written: str) -> None:
    call = tool_call("1", "t", written)

    assert call.malformed in (None, written)
    assert not call.input or call.malformed is None
