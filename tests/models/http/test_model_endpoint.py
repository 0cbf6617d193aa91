from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.models.http import ApiRefusal, ModelEndpoint

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


def test_a_long_reason_becomes_one_short_line() -> None:
    reason = "so\n" * 10_000
    for error in (ENDPOINT.explain(ApiRefusal(400, reason)), ENDPOINT.cut_off(reason)):
        assert len(str(error)) < 400
        assert "\n" not in str(error)
