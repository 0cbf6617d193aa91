from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.models.vendors import ModelEndpoint, call_id, call_name, tool_call

KEY = "sk-live-7f3b9d2e5a8c"
ENDPOINT = ModelEndpoint("openai:m", "m", "api.example", KEY, "OPENAI_API_KEY")


@given(st.text(), st.integers(0, len(KEY)), st.integers(0, len(KEY)), st.text())
def test_redact_removes_every_six_characters_of_the_key(
    before: str, start: int, end: int, after: str
) -> None:
    shown = ENDPOINT.redact(before + KEY[start:end] + after)

    assert not any(KEY[i : i + 6] in shown for i in range(len(KEY) - 5))


def test_redact_keeps_text_without_a_key() -> None:
    assert ENDPOINT.redact("model m is **not** there") == "model m is **not** there"
    assert ENDPOINT._replace(key="").redact("sk-live") == "sk-live"


def test_repr_does_not_show_the_key() -> None:
    assert repr(ENDPOINT) == "ModelEndpoint('openai:m', 'api.example')"


def test_a_long_error_becomes_one_short_line() -> None:
    text = str(ENDPOINT.explain(ValueError("so\n" * 10_000), started=True))

    assert len(text) < 400
    assert "\n" not in text


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
