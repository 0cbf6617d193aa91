"""Files in messages: what the model gets, and what the page shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.auth import Principal
from interlock.calls import Caller
from interlock.langgraph.conversion import from_langchain
from interlock.messages import Attachment, UserMessage
from interlock.store import ConversationStore
from interlock.web.chat.attachments import MAX_FILES, split_files, with_files
from interlock.web.chat.errors import TurnError
from tests.web.conftest import Serve

ANN = Caller(Principal("ann"), surface="web")
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)
PDF = b"%PDF-1.7\n"


async def test_the_page_finds_the_files_of_a_message_again(place: Path) -> None:
    async with ConversationStore.open(place) as store:
        text = await store.files.add('a "b".txt', "text/plain", "höllo".encode())
        image = await store.files.add("photo.png", "image/png", PNG)
        other = await store.files.add("data.bin", "application/octet-stream", b"\0\1")
        message = await with_files(store.files, "Look!", [text.id, image.id, other.id])

    shown, files = split_files(message.content)

    assert "höllo" in message.content
    assert shown.strip() == "Look!"
    assert [(each["name"], each["givenAs"]) for each in files] == [
        ('a "b".txt', "text"),
        ("photo.png", "file"),
        ("data.bin", "name"),
    ]
    assert message.attachments == (Attachment("image/png", PNG, "photo.png"),)


async def test_a_file_that_is_missing_and_too_many_files_are_refused(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.attachments.MAX_ALL", 10)
    async with ConversationStore.open(place) as store:
        image = (await store.files.add("photo.png", "image/png", PNG)).id
        for ids, code in (
            (["f_unknown"], "not_found"),
            (["f"] * (MAX_FILES + 1), "too_large"),
            ([image], "too_large"),
        ):
            with pytest.raises(TurnError) as refused:
                await with_files(store.files, "", ids)
            assert refused.value.code == code


async def test_pictures_and_pdfs_reach_the_model_of_each_engine(serve: Serve, place: Path) -> None:
    async with serve("A cat.", "Yes.") as chat, chat.socket() as client:
        async with ConversationStore.open(place) as store:
            files = store.owned_by(ANN.owner).files
            ids = [(await files.add("photo.png", "image/png", PNG)).id]
            ids.append((await files.add("report.pdf", "application/pdf", PDF)).id)
        started, *_, last = await client.ask("What is this?", files=ids)
        await client.ask("Sure?", conversation_id=started["conversation_id"])

        ours, theirs = chat.models
        for number in (0, 1):  # also with the next message
            sent = (
                [from_langchain(each) for each in theirs.requests[number]]
                if theirs.requests
                else ours.requests[number].messages
            )
            asked = next(each for each in sent if isinstance(each, UserMessage))
            assert [(each.media_type, each.data) for each in asked.attachments] == [
                ("image/png", PNG),
                ("application/pdf", PDF),
            ]
            assert "What is this?" in asked.content
    assert last["type"] == "complete"
