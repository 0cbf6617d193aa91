"""A store of the tool calls in conversations, which the chat page shows as cards."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Row, and_, insert, select, update

from interlock.errors import UnknownConversation
from interlock.store.chat.space import ChatSpace, size_of
from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.rows import storable
from interlock.types import JsonObject

MAX_KEPT = 16 * 1024 * 1024  # bytes of a result; larger results are not stored


class ChatCall(Struct, frozen=True):
    """A tool call that has ended.

    Attributes:
        id: The call's id in the audit trail.
        conversation_id: The id of the call's conversation.
        tool_call_id: The id that the model gave the call.
        tool: The address of the tool.
        arguments: The arguments as they were sent to the server.
        outcome: How the call ended: one of the words in `calls.endings`.
        reason: The code of the layer that refused the call; "" if the call was not refused.
        seconds: How long the call took.
        at: The time at which the call ended, in microseconds since 1970.
        approval: The decision, who made it, and when; None if the call needed no approval.
        result: The server's result as JSON; None if the call has none or it is too large.
    """

    id: str
    conversation_id: str
    tool_call_id: str
    tool: str
    arguments: JsonObject
    outcome: str
    reason: str
    seconds: float
    at: int
    approval: JsonObject | None = None
    result: bytes | None = None


class ChatCallStore:
    """A store of the calls in one owner's conversations."""

    def __init__(self, database: Database, owner: str, space: ChatSpace) -> None:
        self._space = space
        self._database = database
        self._owner = storable(owner)

    async def add(self, call: ChatCall) -> None:
        """Store a call. A result larger than `MAX_KEPT` is left out.

        Raises:
            StoreFull: The owner, or all owners, have no room for the call.
            UnknownConversation: The owner has no such conversation.
        """
        result = call.result
        if result is not None and len(result) > MAX_KEPT:
            result = None
        values: dict[str, Any] = {
            **{name: getattr(call, name) for name in call.__struct_fields__},
            "tool": storable(call.tool),
            "tool_call_id": storable(call.tool_call_id),
            "arguments": msgspec.json.encode(call.arguments).decode(),
            "approval": None if call.approval is None else _text(call.approval),
            "result": None if result is None else zlib.compress(result, 1),
        }
        size = values["bytes"] = size_of(values.values())
        self._space.check_disk(self._database.reserve, size)
        columns = tables.conversations.c
        mine = and_(columns.id == storable(call.conversation_id), columns.owner == self._owner)
        counted = update(tables.conversations).where(mine).values(bytes=columns.bytes + size)

        async def work(connection: AsyncConnection) -> None:
            if not (await connection.execute(counted)).rowcount:
                raise UnknownConversation("no such conversation")
            await self._space.add(connection, self._owner, "conversations", size)
            await connection.execute(insert(tables.chat_calls).values(values))

        await self._database.write(work)

    async def of(self, conversation: str, tool_call_ids: Collection[str]) -> list[ChatCall]:
        """Return a conversation's calls without their results, in the order in which they ended."""
        columns = tables.chat_calls.c
        shown = [each for each in columns if each not in (columns.result, columns.bytes)]
        query = (
            select(*shown)
            .join(tables.conversations)
            .where(
                tables.conversations.c.owner == self._owner,
                columns.conversation_id == storable(conversation),
                columns.tool_call_id.in_([storable(each) for each in tool_call_ids]),
            )
            .order_by(columns.at)
        )

        async def work(connection: AsyncConnection) -> Sequence[Row[Any]]:
            return (await connection.execute(query)).all()

        return [_call(row) for row in await self._database.read(work)]

    async def get(self, id: str) -> ChatCall:
        """Return a call, including its result.

        Raises:
            UnknownConversation: The owner has no conversation with this call.
        """
        columns = tables.chat_calls.c
        mine = and_(columns.id == storable(id), tables.conversations.c.owner == self._owner)
        query = select(tables.chat_calls).join(tables.conversations).where(mine).limit(1)

        async def work(connection: AsyncConnection) -> Row[Any] | None:
            return (await connection.execute(query)).first()

        found = await self._database.read(work)
        if found is None:
            raise UnknownConversation("no such call")
        return _call(found)


def _text(value: JsonObject) -> str:
    return msgspec.json.encode(value).decode()


def _call(row: Row[Any]) -> ChatCall:
    values = dict(row._mapping)
    values.pop("bytes", None)
    values["arguments"] = msgspec.json.decode(values["arguments"])
    if values["approval"] is not None:
        values["approval"] = msgspec.json.decode(values["approval"])
    if values.get("result") is not None:
        values["result"] = zlib.decompress(values["result"])
    return ChatCall(**values)
