"""Files of a chat: kept with their content, found by their owner only."""

from __future__ import annotations

import pytest

from interlock.errors import UnknownConversation
from interlock.store import ConversationStore


async def test_a_file_is_read_back_by_its_owner_only(place: str):
    async with ConversationStore.open(place, owner="anna") as store:
        file = await store.files.add("../../photo.png", "image/png", b"\x89PNG")
        assert (file.name, file.bytes) == ("../../photo.png", 4)
        assert await store.files.get(file.id) == (file, b"\x89PNG")
        assert await store.files.named([file.id, "f_unknown"]) == [file]
    async with ConversationStore.open(place, owner="bert") as other:
        assert await other.files.named([file.id]) == []
        with pytest.raises(UnknownConversation):
            await other.files.get(file.id)
