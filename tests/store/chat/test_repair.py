from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from interlock.store.chat.repair import answer_every_call, interrupted, unanswered_calls

A, B, C = (ToolCall(letter, f"tool_{letter}", {"of": letter}) for letter in "abc")
ASKED = UserMessage("please")
CALLED = AssistantMessage("", (A, B, C))


def answer(call: ToolCall) -> ToolMessage:
    return ToolMessage(call.id, f"result of {call.id}", call.name)


def test_interrupted_returns_an_error_for_the_model():
    result = interrupted(A)

    assert (result.tool_call_id, result.name, result.is_error) == ("a", "tool_a", True)
    assert result.content.startswith("interrupted: ")


def test_a_conversation_without_unanswered_calls_is_not_changed():
    for messages in (
        [],
        [ASKED],
        [ASKED, AssistantMessage("done")],
        [ASKED, CALLED, answer(A), answer(B), answer(C)],
        [ASKED, CALLED, answer(A), answer(B), answer(C), AssistantMessage("done")],
    ):
        assert unanswered_calls(messages) == []
        assert answer_every_call(messages) == messages


def test_turn_interrupted_at_any_step_gets_its_missing_answers():
    steps = [ASKED, CALLED, answer(A), answer(B), answer(C)]

    assert unanswered_calls(steps[:2]) == [A, B, C]
    assert unanswered_calls(steps[:3]) == [B, C]
    assert unanswered_calls(steps[:4]) == [C]
    assert answer_every_call(steps[:3]) == [*steps[:3], interrupted(B), interrupted(C)]


def test_answers_are_sorted_in_the_order_of_their_calls():
    messages = [ASKED, CALLED, answer(C), answer(A)]

    assert unanswered_calls(messages) == [B]
    assert answer_every_call(messages) == [ASKED, CALLED, answer(A), interrupted(B), answer(C)]


def test_unanswered_calls_in_the_middle_are_answered_in_place():
    messages = [ASKED, CALLED, answer(A), UserMessage("and now?")]

    assert unanswered_calls(messages) == []
    assert answer_every_call(messages) == [
        ASKED,
        CALLED,
        answer(A),
        interrupted(B),
        interrupted(C),
        UserMessage("and now?"),
    ]


def test_answers_without_a_call_are_left_out():
    late = [ASKED, AssistantMessage("", (A,)), interrupted(A), answer(A), ToolMessage("x", "?")]

    assert answer_every_call(late) == late[:3]
    assert answer_every_call([answer(A), ASKED, answer(B)]) == [ASKED]


def test_calls_with_the_same_id_get_one_answer_each():
    twice = AssistantMessage("", (A, A))
    first, second = ToolMessage("a", "first"), ToolMessage("a", "second")

    assert answer_every_call([twice, first, second]) == [twice, first, second]
    assert unanswered_calls([twice, first]) == [A]


CALLS = st.sampled_from([A, B, C])
MESSAGES = st.lists(
    st.just(ASKED)
    | CALLS.map(answer)
    | st.builds(AssistantMessage, st.just(""), st.lists(CALLS, max_size=3).map(tuple)),
    max_size=8,
)


@given(MESSAGES)
def test_answer_every_call_returns_a_valid_conversation(messages: list[Message]):
    rest = iter(answer_every_call(messages))
    for message in rest:
        assert not isinstance(message, ToolMessage)
        for call in getattr(message, "tool_calls", ()):
            assert next(rest).tool_call_id == call.id


@given(MESSAGES)
def test_answering_the_unanswered_calls_completes_the_conversation(messages: list[Message]):
    answered = [*messages, *map(interrupted, unanswered_calls(messages))]

    assert unanswered_calls(answered) == []
    assert answer_every_call(answered) == answer_every_call(messages)
