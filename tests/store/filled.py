"""Databases with one conversation, for tests of what the disk does to them."""

from __future__ import annotations

from pathlib import Path

from interlock.messages import UserMessage
from interlock.store import ConversationStore

HELLO = UserMessage("hello")


async def fill(place: str | Path, count: int = 1) -> str:
    """Create a conversation of `count` messages; return its id."""
    async with ConversationStore.open(place) as store:
        made = await store.create("kept")
        await store.append(made.id, *[HELLO] * count)
        return made.id


def size(path: str) -> int:
    return Path(path).stat().st_size


async def read(place: str | Path, id: str) -> int:
    async with ConversationStore.open(place) as store:
        assert len(await store.list()) == 1
        return len(await store.resume(id))
