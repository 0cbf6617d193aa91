from interlock.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from interlock.models import ToolDefinition
from interlock.models.local.prompts import chat_prompt


def test_a_page_ends_where_the_answer_begins() -> None:
    said = [SystemMessage("be brief"), UserMessage("Hi"), AssistantMessage("Hello!")]

    page = chat_prompt([*said, UserMessage("What is\na cow?")], [])

    assert page.endswith("\n\nQ: Hi\nA: Hello!\n\nQ: What is a cow?\nA:")


def test_tool_results_are_left_out() -> None:
    page = chat_prompt([ToolMessage("1", "secret", "x"), UserMessage("Hi")], [])

    assert "secret" not in page


def test_pages_of_one_conversation_begin_alike() -> None:
    tools = [ToolDefinition("time__now", "Now", b"{}"), ToolDefinition("git__log", "Log", b"{}")]

    page = chat_prompt([UserMessage("Hi")], tools)
    other = chat_prompt([UserMessage("What can you do?")], tools)

    assert "time, git" in page
    assert page[:490] == other[:490]  # what is alike is computed once


def test_the_newest_part_of_a_long_conversation_is_kept() -> None:
    said = [UserMessage(f"question {number} " + "🙂" * 400) for number in range(100)]

    page = chat_prompt(said, [])

    assert "question 99" in page
    assert "question 1 " not in page
    assert len(page.encode()) < 3_800  # no more tokens than bytes: with 128 more it fits 4,096


def test_one_message_may_be_longer_than_the_context() -> None:
    page = chat_prompt([UserMessage("x" * 1_000_000)], [])

    assert len(page.encode()) < 3_800
