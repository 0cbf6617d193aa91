"""Files in messages: what the model gets, and what the page shows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.store import ConversationStore
from interlock.web.chat.attachments import MAX_FILES, split_files, with_files
from interlock.web.chat.errors import TurnError


async def test_the_page_finds_the_files_of_a_message_again(place: Path) -> None:
    async with ConversationStore.open(place) as store:
        text = await store.files.add('a "b".txt', "text/plain", "höllo".encode())
        image = await store.files.add("photo.png", "image/png", b"\x89PNG")
        content = await with_files(store.files, "Look!", [text.id, image.id])

    shown, files = split_files(content)

    assert "höllo" in content
    assert shown.strip() == "Look!"
    assert [(each["id"], each["givenAs"]) for each in files] == [
        (text.id, "text"),
        (image.id, "name"),
    ]


async def test_a_file_that_is_missing_and_too_many_files_are_refused(place: Path) -> None:
    async with ConversationStore.open(place) as store:
        for ids, code in ((["f_unknown"], "not_found"), (["f"] * (MAX_FILES + 1), "too_large")):
            with pytest.raises(TurnError) as refused:
                await with_files(store.files, "", ids)
            assert refused.value.code == code
