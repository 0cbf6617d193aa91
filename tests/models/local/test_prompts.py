from interlock.messages import AssistantMessage, SystemMessage, ToolMessage, UserMessage
from interlock.models import ToolDefinition
from interlock.models.local.prompts import chat_prompt


def test_the_prompt_ends_where_the_answer_starts() -> None:
    said = [SystemMessage("be brief"), UserMessage("Hi"), AssistantMessage("Hello!")]

    prompt = chat_prompt([*said, UserMessage("What is\na cow?")], [])

    assert prompt.endswith("\n\nQ: Hi\nA: Hello!\n\nQ: What is a cow?\nA:")


def test_the_prompt_leaves_out_tool_results() -> None:
    prompt = chat_prompt([ToolMessage("1", "secret", "x"), UserMessage("Hi")], [])

    assert "secret" not in prompt


def test_prompts_with_the_same_tools_share_their_beginning() -> None:
    tools = [ToolDefinition("time__now", "Now", b"{}"), ToolDefinition("git__log", "Log", b"{}")]

    prompt = chat_prompt([UserMessage("Hi")], tools)
    other = chat_prompt([UserMessage("What can you do?")], tools)

    assert "time, git" in prompt
    assert prompt[:490] == other[:490]  # a shared beginning is computed once


def test_a_long_conversation_is_cut_to_its_newest_part() -> None:
    said = [UserMessage(f"question {number} " + "🙂" * 400) for number in range(100)]

    prompt = chat_prompt(said, [])

    assert "question 99" in prompt
    assert "question 1 " not in prompt
    assert (
        len(prompt.encode()) < 3_800
    )  # a token has at least one byte; with 128 more tokens it fits 4,096


def test_a_message_longer_than_the_context_is_cut() -> None:
    prompt = chat_prompt([UserMessage("x" * 1_000_000)], [])

    assert len(prompt.encode()) < 3_800
