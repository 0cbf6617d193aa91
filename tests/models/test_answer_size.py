import pytest

from interlock.errors import ModelInterrupted
from interlock.messages import AssistantMessage, ToolCall
from interlock.models import answer_size
from interlock.models.answer_size import AnswerSize, check_size


@pytest.fixture(autouse=True)
def _limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_size, "MAX_ANSWER_BYTES", 1024)


def test_an_answer_at_the_limit_is_accepted_and_one_more_byte_is_not() -> None:
    size = AnswerSize("a:b")
    size.add("x" * 1000)
    size.add("ü" * 12)

    with pytest.raises(ModelInterrupted, match=r"the answer of a:b is too long \(limit"):
        size.add("x")


def test_empty_calls_count_towards_the_answer_limit() -> None:
    size = AnswerSize("a:b")

    for _ in range(4):
        size.add_call()

    with pytest.raises(ModelInterrupted):
        size.add_call()


def test_lone_surrogate_counts_towards_the_size_like_other_text() -> None:
    check_size(AssistantMessage("a\ud800b", (ToolCall("1", "t", {"\udfff": 1}),)), "a:b")

    with pytest.raises(ModelInterrupted):
        check_size(AssistantMessage("\ud800" * 1024), "a:b")


def test_check_size_counts_text_calls_and_provider_data_together() -> None:
    call = ToolCall("1", "t", {"text": "x" * 300})
    check_size(AssistantMessage("x" * 200, (call,), {"content": "x" * 300}), "a:b")

    with pytest.raises(ModelInterrupted):
        check_size(AssistantMessage("x" * 400, (call,), {"content": "x" * 300}), "a:b")
