"""A shop as a FastAPI program: `app`, or a process that prints its URL and ends with its stdin."""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import Thread
from typing import Annotated, Any

import uvicorn
from fastapi import (
    FastAPI,
    File,
    Form,
    Header,
    HTTPException,
    Query,
    Response,
    Security,
    UploadFile,
)
from fastapi.security import APIKeyHeader
from pydantic import BaseModel

KEY = "canary-of-the-shop"


class Order(BaseModel):
    item: str
    count: int = 1
    note: str | None = None


@asynccontextmanager
async def opened(app: FastAPI) -> AsyncIterator[None]:
    app.state.orders = {1: {"id": 1, "item": "tea", "count": 2, "note": "hot"}}
    yield
    app.state.orders = None


app = FastAPI(title="Shop", lifespan=opened)
key = APIKeyHeader(name="X-Key", scheme_name="ApiKey", auto_error=False)


def checked(given: str | None) -> None:
    if given != KEY:
        raise HTTPException(401, f"the key {given} is wrong")


@app.get("/orders/{id}", operation_id="getOrder", responses={404: {"description": "No such order"}})
def get_order(id: int, given: str | None = Security(key)) -> Order:
    checked(given)
    if id not in app.state.orders:
        raise HTTPException(404, f"order {id} does not exist")
    return Order(**app.state.orders[id])


@app.get("/orders", operation_id="listOrders")
def list_orders(
    response: Response,
    limit: Annotated[int, Query(alias="page[size]", ge=1, le=100)] = 10,
    page: int = 1,
    tag: Annotated[list[str] | None, Query()] = None,
) -> dict[str, Any]:
    response.headers["Link"] = f'</orders?page%5Bsize%5D={limit}&page={page + 1}>; rel="next"'
    return {"page": page, "limit": limit, "tags": tag}


@app.post("/orders", operation_id="addOrder", status_code=201)
def add_order(order: Order, response: Response, given: str | None = Security(key)) -> Order:
    checked(given)
    id = max(app.state.orders) + 1
    app.state.orders[id] = {"id": id, **order.model_dump()}
    response.headers["Location"] = f"/orders/{id}"
    return order


@app.delete("/orders/{id}", operation_id="deleteOrder", status_code=204)
def delete_order(id: int) -> None:
    app.state.orders.pop(id, None)


@app.post("/photos", operation_id="addPhoto")
async def add_photo(
    photo: Annotated[UploadFile, File()], title: Annotated[str, Form()] = ""
) -> dict[str, Any]:
    content = await photo.read()
    return {"name": photo.filename, "bytes": len(content), "title": title}


@app.get("/echo", operation_id="echo")
def echo(x_trace: Annotated[str | None, Header()] = None, tenant: str = "") -> dict[str, Any]:
    return {"trace": x_trace, "tenant": tenant}


@app.get("/admin/users", operation_id="listUsers")
def list_users() -> list[str]:
    return ["root"]


def main() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))

    def end() -> None:
        sys.stdin.read()
        server.should_exit = True

    Thread(target=end, daemon=True).start()
    server.run(sockets=[listening])


if __name__ == "__main__":
    main()
