"""How many functions a call to an operation of an API passes through in a toolbox."""

from __future__ import annotations

from typing import Any

from interlock import Toolbox
from interlock.openapi import OpenApiServer
from tests.support.path_of_a_call import passed
from tests.support.rows import each_row

ORDER = {"type": "object", "properties": {"id": {"type": "integer"}}}


def document(media_type: dict[str, Any]) -> dict[str, Any]:
    number = {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}}
    answer = {"description": "OK", "content": {"application/json": media_type}}
    operation = {"operationId": "getOrder", "parameters": [number], "responses": {"200": answer}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Shop", "version": "1"},
        "paths": {"/orders/{id}": {"get": operation}},
    }


async def shop(scope: Any, _: Any, send: Any) -> None:
    if scope["type"] == "http":
        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b'{"id":7}'})


@each_row(("media_type", "limit"), [({}, 86), ({"schema": ORDER}, 90)])
async def test_a_call_to_an_operation_passes_through_few_functions(
    media_type: dict[str, Any], limit: int
):
    api = OpenApiServer(document=document(media_type), app=shop, tools={"get": "getOrder"})
    async with Toolbox({"shop": api}) as toolbox:
        functions = await passed(lambda: toolbox.call("shop:get", {"id": 7}), '{"id":7}')

    assert len(functions) <= limit, functions
