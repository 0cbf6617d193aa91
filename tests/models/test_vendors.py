from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.models.vendors import call_id, call_name


@given(st.text())
def test_call_ids_and_names_are_converted_to_stable_valid_ones(text: str) -> None:
    assert 0 < len(call_id(text)) <= 40
    assert call_id(call_id(text)) == call_id(text) == call_id(text)
    assert 0 < len(call_name(text)) <= 64
    assert (call_id(text) + call_name(text)).replace("_", "").replace("-", "").isascii()
