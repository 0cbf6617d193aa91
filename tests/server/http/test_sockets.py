from __future__ import annotations

import asyncio
import socket
from typing import Any

import uvicorn
from websockets.asyncio.client import connect
from websockets.frames import Frame, Opcode

from interlock.server.http.sockets import SocketConnection, frame_of
from tests.support.rows import each_row


@each_row("size", [0, 125, 126, 65_535, 65_536])
def test_frame_of_a_text_is_that_of_the_library(size: int):
    text = "é" * (size // 2) + "e" * (size % 2)

    assert frame_of(text) == Frame(Opcode.TEXT, text.encode()).serialize(mask=False)


async def test_text_of_all_sizes_arrives_and_other_messages_pass():
    texts = ["", "short", "é" * 200, "x" * 70_000]

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        for text in texts:
            await send({"type": "websocket.send", "text": text})
        await send({"type": "websocket.send", "bytes": b"raw"})
        await send({"type": "websocket.close", "code": 1000, "reason": "enough"})

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        config = uvicorn.Config(app, ws=SocketConnection, lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        for compression in (None, "deflate"):
            async with connect(f"ws://127.0.0.1:{port}/", compression=compression) as client:
                received = [message async for message in client]
            assert received == [*texts, b"raw"]
            assert (client.close_code, client.close_reason) == (1000, "enough")
        server.should_exit = True
        await serving
