from interlock.messages import AssistantMessage, SystemMessage, ToolCall, ToolMessage, UserMessage
from interlock.models.gguf.tool_format import CallReader, plain_messages
from tests.support.rows import each_row

ANSWER = (
    'I look.<tool_call>{"name": "a", "arguments": {"x": "</tool"}}</tool_call>\n'
    '<tool_call>{"name": "b", "arguments": {}}</tool_call>'
)


@each_row("size", range(1, 30))
def test_calls_and_text_are_the_same_however_the_answer_is_cut(size: int) -> None:
    reader = CallReader()
    text, calls = "", []
    for start in range(0, len(ANSWER), size):
        piece, ended = reader.add(ANSWER[start : start + size])
        text += piece
        calls += ended

    assert text == "I look."
    assert calls == [("a", '{"x": "</tool"}'), ("b", "{}")]
    assert reader.finish() == ("", [])


def test_text_that_may_begin_a_call_is_held_back_until_it_does_not() -> None:
    reader = CallReader()

    assert reader.add("1 <") == ("1 ", [])
    assert reader.add("too") == ("", [])
    assert reader.add("th") == ("<tooth", [])
    assert reader.add(" <tool") == (" ", [])
    assert reader.finish() == ("<tool", [])


def test_call_that_was_cut_off_is_malformed() -> None:
    reader = CallReader()

    assert reader.add('<tool_call>{"name": "a", "argu') == ("", [])
    assert reader.finish() == ("", [("unknown", '{"name": "a", "argu')])


def test_roles_alternate_and_results_are_messages_of_the_user() -> None:
    call = AssistantMessage("Let me see.", (ToolCall("1", "a", {"x": 1}), ToolCall("2", "b")))
    messages = [
        SystemMessage("Be brief."),
        UserMessage("Go."),
        call,
        ToolMessage("1", "one"),
        ToolMessage("2", "two"),
        UserMessage("Well?"),
    ]

    assert plain_messages(messages, (), system_role=True) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {
            "role": "assistant",
            "content": 'Let me see.\n<tool_call>{"name": "a", "arguments": {"x":1}}</tool_call>\n'
            '<tool_call>{"name": "b", "arguments": {}}</tool_call>',
        },
        {
            "role": "user",
            "content": "<tool_response>one</tool_response>\n\n"
            "<tool_response>two</tool_response>\n\nWell?",
        },
    ]
    assert plain_messages(messages, (), system_role=False)[0] == {
        "role": "user",
        "content": "Be brief.\n\nGo.",
    }
