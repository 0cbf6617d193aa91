"""The calls of conversations, for the cards of the chat page."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from sqlalchemy import Row, and_, insert, select

from interlock.errors import UnknownConversation
from interlock.store.database import tables
from interlock.store.database.connection import AsyncConnection
from interlock.store.database.database import Database
from interlock.store.database.rows import storable
from interlock.types import JsonObject

MAX_KEPT = 16 * 1024 * 1024  # bytes of a stored result


class ChatCall(Struct, frozen=True):
    """A call that has ended.

    Attributes:
        id: The call's id in the audit trail.
        conversation_id: The conversation of the call.
        tool_call_id: The model's id of the call.
        tool: The address of the tool.
        arguments: The arguments as they were sent.
        outcome: One of the words of `calls.endings`.
        reason: The code of the layer that refused it; "" if none did.
        seconds: The duration of the call.
        at: The time of its end, in microseconds since 1970.
        approval: The decision, its author and its time; None if it needed no approval.
        result: The server's result, encoded; None for none.
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
    """The calls of one owner's conversations."""

    def __init__(self, database: Database, owner: str) -> None:
        self._database = database
        self._owner = storable(owner)

    async def add(self, call: ChatCall) -> None:
        """Store a call. A result over `MAX_KEPT` bytes is omitted."""
        result = call.result
        if result is not None and len(result) > MAX_KEPT:
            result = None
        values = {
            **{name: getattr(call, name) for name in call.__struct_fields__},
            "tool": storable(call.tool),
            "tool_call_id": storable(call.tool_call_id),
            "arguments": msgspec.json.encode(call.arguments).decode(),
            "approval": None if call.approval is None else _text(call.approval),
            "result": None if result is None else zlib.compress(result, 1),
        }
        await self._database.write(
            lambda connection: connection.execute(insert(tables.chat_calls).values(values))
        )

    async def of(self, conversation: str, tool_call_ids: Collection[str]) -> list[ChatCall]:
        """Return calls of a conversation in the order of their end, without their results."""
        columns = tables.chat_calls.c
        shown = [each for each in columns if each is not columns.result]
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
        """Return a call with its result.

        Raises:
            UnknownConversation: No conversation of the owner has such a call.
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
    values["arguments"] = msgspec.json.decode(values["arguments"])
    if values["approval"] is not None:
        values["approval"] = msgspec.json.decode(values["approval"])
    if values.get("result") is not None:
        values["result"] = zlib.decompress(values["result"])
    return ChatCall(**values)
