"""Conversations as servers take them. The address beside a row is a report of what one refuses."""

from __future__ import annotations

from typing import Any

from interlock.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models.openai.chat_answer import ChatAnswer
from interlock.models.openai.chat_request import wire_messages
from tests.models.wire_openai import chunk, fragment
from tests.support.rows import each_row

ASK = UserMessage("Go on")
SIGNED = {"google": {"thought_signature": "c2lnbmVk"}}
MODEL = "openai:m@http://127.0.0.1:1/v1"
CALL = fragment(0, '{"x": 1}', id="a", name="one")


def signed(extra: dict[str, Any], member: str = "extra_content") -> dict[str, Any]:
    made: dict[str, Any] = fragment(0, '{"x": 1}', id="a", name="one")
    made["choices"][0]["delta"]["tool_calls"][0][member] = extra
    return made


def returned(chunks: list[Any], provider: str = MODEL) -> dict[str, Any]:
    """Return an answer of `MODEL` as it is sent to a provider with the next request."""
    answer = ChatAnswer(MODEL, MODEL)
    for each in chunks:
        answer.add(each)
    answer.add(chunk("stop"))
    message = answer.reply().message
    return wire_messages([message, ASK], provider=provider)[0]


def details(*parts: dict[str, Any]) -> list[Any]:
    return [chunk(reasoning_details=[each], reasoning=each.get("text")) for each in parts]


THOUGHT = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
SEALED = {"type": "reasoning.encrypted", "data": "x", "id": "a", "index": 1}
TEXT = chunk(content="Yes.")


@each_row(
    ("name", "chunks", "path", "expected"),
    [
        # https://github.com/securo-finance/securo/issues/884
        ("signed call", [signed(SIGNED)], ["tool_calls", 0, "extra_content"], SIGNED),
        ("signed text", [chunk(content="Yes.", extra_content=SIGNED)], ["extra_content"], SIGNED),
        (
            "signed call behind LiteLLM",
            [signed({"thought_signature": "x"}, "provider_specific_fields")],
            ["tool_calls", 0, "provider_specific_fields"],
            {"thought_signature": "x"},
        ),
        # https://openrouter.ai/docs/use-cases/reasoning-tokens
        (
            "details",
            [
                *details(
                    {**THOUGHT, "text": "H"}, {**THOUGHT, "text": "m.", "signature": "s"}, SEALED
                ),
                TEXT,
            ],
            ["reasoning_details"],
            [{**THOUGHT, "text": "Hm.", "signature": "s"}, SEALED],
        ),
        ("DeepSeek", [chunk(reasoning_content="Hm."), TEXT], ["reasoning_content"], "Hm."),
        ("vLLM", [chunk(reasoning="Hm."), TEXT], ["reasoning"], "Hm."),
        # At most one thinking part: https://github.com/earendil-works/pi/issues/9674
        (
            "Mistral",
            [
                chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": each}]}])
                for each in ("H", "m.")
            ]
            + [TEXT],
            ["content"],
            [
                {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
                {"type": "text", "text": "Yes."},
            ],
        ),
    ],
)
def test_only_the_model_that_needs_data_back_gets_it(
    name: str, chunks: list[Any], path: list[Any], expected: Any
) -> None:
    sent: Any = returned(chunks)
    for step in path:
        sent = sent[step]
    others = [returned(chunks, each) for each in ("openai:n@http://127.0.0.1:1/v1", "openai:m")]

    assert sent == expected
    for other in others:
        assert other.keys() <= {"role", "content", "tool_calls"}
        assert not isinstance(other["content"], list)
        assert all(
            each.keys() == {"id", "type", "function"} for each in other.get("tool_calls", [])
        )


def test_details_replace_the_reasoning_as_text() -> None:
    assert "reasoning" not in returned([*details({**THOUGHT, "text": "Hm."}), TEXT])


@each_row(
    ("provider", "marked"),
    [
        ("gemini:gemini-3-pro", True),
        ("openai:m@https://generativelanguage.googleapis.com/v1beta/openai", True),
        (MODEL, False),
    ],
)
def test_google_gets_a_mark_for_calls_that_it_did_not_sign(provider: str, marked: bool) -> None:
    calls = (ToolCall("a", "one"), ToolCall("b", "two"))
    sent = wire_messages([AssistantMessage("", calls)], provider=provider)[0]["tool_calls"]

    # https://github.com/pydantic/pydantic-ai/issues/3881
    mark = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert [each.get("extra_content") for each in sent] == [mark if marked else None, None]


EMPTY, FAILED = "the tool ran without output", "Error: the tool failed without a message"
IMAGE = Attachment("image/png", b"png")
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}


@each_row(
    ("name", "message", "sent"),
    [
        # https://github.com/earendil-works/pi/pull/3309
        ("empty result", ToolMessage("a", ""), "the tool ran without output"),
        ("blank result", ToolMessage("a", " \n"), "the tool ran without output"),
        (
            "empty failure",
            ToolMessage("a", "", is_error=True),
            "Error: the tool failed without a message",
        ),
        ("empty message", UserMessage(" "), "(empty message)"),
        ("image without text", UserMessage("", (IMAGE,)), [IMAGE_PART]),
        ("blank answer", AssistantMessage(" \n"), None),
        ("blank instructions", SystemMessage(""), None),
    ],
)
def test_no_message_is_empty(name: str, message: Message, sent: Any) -> None:
    found = wire_messages([message], provider=MODEL)

    assert [each["content"] for each in found] == ([] if sent is None else [sent])


@each_row(
    ("provider", "roles"),
    [
        (MODEL, ["assistant", "tool", "user", "user"]),
        # https://github.com/NousResearch/hermes-agent/issues/20154
        ("mistral:mistral-small", ["assistant", "tool", "assistant", "user"]),
        ("openai:mistralai/Devstral@http://h/v1", ["assistant", "tool", "assistant", "user"]),
    ],
)
def test_images_of_results_follow_in_a_message_of_the_user(provider: str, roles: list[str]) -> None:
    result = ToolMessage("a", "", attachments=(IMAGE,))
    sent = wire_messages(
        [AssistantMessage("", (ToolCall("a", "one"),)), result, ASK], provider=provider
    )

    assert [each["role"] for each in sent] == roles
    files = next(each for each in sent if each["role"] == "user")
    assert files["content"][1] == IMAGE_PART


PDF, SOUND = Attachment("application/pdf", b"pdf", "a.pdf"), Attachment("audio/mpeg", b"mp3")
PDF_URL, MP3 = "data:application/pdf;base64,cGRm", "bXAz"


@each_row(
    ("provider", "parts"),
    [
        (
            MODEL,
            [
                {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF_URL}},
                {"type": "input_audio", "input_audio": {"data": MP3, "format": "mp3"}},
            ],
        ),
        (
            "mistral:mistral-small",
            [
                {"type": "document_url", "document_url": PDF_URL},
                {"type": "input_audio", "input_audio": MP3},
            ],
        ),
    ],
)
def test_files_have_the_form_of_the_provider(provider: str, parts: list[Any]) -> None:
    sent = wire_messages([UserMessage("", (PDF, SOUND))], provider=provider)

    assert sent[0]["content"] == parts
