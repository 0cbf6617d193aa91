"""Results of tools as messages for a model."""

from __future__ import annotations

from tests.langchain.support import content, message_for
from tests.support.rows import each_row
from tests.support.scripted_server import Json

PNG = {"type": "image", "mimeType": "image/png", "data": "AAAA"}


async def test_text_blocks_become_one_text() -> None:
    message = await message_for(
        content({"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    )

    assert message.content == "a\nb"
    assert message.name == "kb__get"
    assert message.tool_call_id == "call_1"
    assert message.status == "success"
    facts = message.additional_kwargs["interlock"]
    assert facts["address"] == "kb:get"
    assert facts["outcome"] == "ran"
    assert facts["seconds"] >= 0


async def test_an_image_becomes_a_block_if_images_are_wanted() -> None:
    answer = content({"type": "text", "text": "see"}, PNG)

    assert (await message_for(answer)).content == "see\n[image/png, 3 bytes]"
    assert (await message_for(answer, images=True)).content == [
        {"type": "text", "text": "see"},
        {"type": "image", "base64": "AAAA", "mime_type": "image/png"},
    ]
    small = await message_for(answer, images=True, max_image_bytes=2)
    assert small.content == "see\n[image/png, 3 bytes]"


@each_row("wrong", [{"data": "AAAAA"}, {"mimeType": "text/html"}])
async def test_an_image_that_cannot_be_shown_is_a_line_of_text(wrong: Json) -> None:
    broken = await message_for(content({**PNG, **wrong}), images=True)
    assert str(broken.content).endswith(" bytes]")


@each_row(
    ("block", "line"),
    [
        ({"type": "audio", "mimeType": "audio/wav", "data": "AAAA"}, "[audio/wav, 3 bytes]"),
        ({"type": "resource", "resource": {"uri": "x:y", "blob": "AA=="}}, "[resource x:y]"),
        ({"type": "resource_link", "uri": "x:y", "name": "y"}, "[resource x:y]"),
        ({"type": "hologram"}, "[content of an unknown type]"),
    ],
)
async def test_content_other_than_text_becomes_a_line_of_text(block: Json, line: str) -> None:
    assert (await message_for(content(block), images=True)).content == line


@each_row("is_error", [False, True])
async def test_structured_content_becomes_the_artifact_of_the_tool_message(is_error: bool) -> None:
    message = await message_for(content(structuredContent={"n": 1}, isError=is_error))

    assert message.content == '{"n":1}'
    assert message.artifact == {"structured_content": {"n": 1}}
    assert message.status == ("error" if is_error else "success")


async def test_a_large_artifact_is_left_out() -> None:
    message = await message_for(content(structuredContent={"text": "x" * 20_000}))

    assert message.artifact == {"omitted": "structured_content has 20,011 bytes (limit 16,384)"}
