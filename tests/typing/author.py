"""Servers as their authors type them: checked by strict mypy and by pyright, never run.

The code has no cast and, to show what it is for, no annotation that a type checker could infer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, assert_type

from fastapi import FastAPI
from starlette.applications import Starlette

from interlock import Context, Depends, Server
from interlock.auth import JwtVerifier
from interlock.context import Accepted, Refused
from interlock.messages import AssistantMessage, UserMessage
from interlock.types import ElicitResult


class Database:
    async def find(self, email: str) -> str:
        return email


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[Database]:
    yield Database()


server = Server("orders", lifespan=opened)


async def customer(email: str, context: Context[Database]) -> str:
    assert_type(context.lifespan, Database)
    return await context.lifespan.find(email)


def session() -> Iterator[Database]:
    yield Database()


Customer = Annotated[str, Depends(customer)]


@server.tool
async def orders(email: str, customer: Customer, database: Database = Depends(session)) -> str:
    assert_type(customer, str)
    return await database.find(customer)


@server.resource("orders://{email}{?page}")
async def page(email: str, customer: Customer, page: int = 1) -> str:
    return customer


@server.prompt
def review(tags: list[str]) -> list[UserMessage | AssistantMessage | str]:
    return [UserMessage(tags[0]), AssistantMessage("Yes?"), "text"]


class Color(Enum):
    RED = "red"


@dataclass
class Size:
    width: int


@server.tool
async def ask(context: Context) -> str:
    assert_type(context.lifespan, Any)
    assert_type(context.state, dict[str, Any])
    tenant = context.headers.get("x-tenant", "")
    answer = await context.elicit("Your size?", Size)
    assert_type(answer, Accepted[Size] | Refused)
    if answer.action == "accept":
        return f"{answer.data.width}{tenant}"
    assert_type(answer, Refused)
    number = await context.elicit("How many?", int)
    if number.action != "accept":
        return number.action
    assert_type(number.data, int)
    color = await context.elicit("Which color?", Color)
    colors = await context.elicit("Which colors?", list[Color])
    if color.action == "accept" and colors.action == "accept":
        assert_type(color.data, Color)
        assert_type(colors.data, list[Color])
    raw = await context.elicit("Name?", {"type": "object", "properties": {}})
    assert_type(raw, ElicitResult)
    return raw.action


def test_orders() -> None:
    with server.override({customer: lambda: "fake"}):
        pass


tools = server.asgi(health="/healthz", stateless=True)
api = FastAPI(lifespan=tools.lifespan)
site = Starlette(lifespan=tools.lifespan)
verify = JwtVerifier("https://issuer.example", "https://orders.example/mcp")
