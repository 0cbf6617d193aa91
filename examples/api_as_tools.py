"""Two operations of a FastAPI program become tools, without a socket."""

import asyncio

from fastapi import FastAPI

from interlock import Toolbox
from interlock.openapi import OpenApiServer

app = FastAPI()


@app.get("/orders/{id}", operation_id="getOrder")
def get_order(id: int) -> dict[str, object]:
    return {"id": id, "item": "tea"}


@app.delete("/orders", operation_id="deleteOrders")
def delete_orders() -> None:
    raise AssertionError("it is not listed, so it cannot be called")


async def main() -> None:
    shop = OpenApiServer(document=app.openapi(), app=app, tools={"get_order": "getOrder"})
    async with Toolbox({"shop": shop}) as toolbox:
        print([entry.address for entry in toolbox.tools])
        print((await toolbox.call("shop:get_order", {"id": 7})).structured)


asyncio.run(main())
