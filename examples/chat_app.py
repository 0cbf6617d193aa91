"""A chat for browsers and other people's clients, on a WebSocket, AG-UI and the AI SDK's stream."""

import asyncio
import json
import socket
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
from websockets.asyncio.client import connect

from interlock import StdioServer, Toolbox
from interlock.models import ScriptedModel
from interlock.store import ConversationStore
from interlock.web import AgentEngine, ChatApp

NOTES = StdioServer(command=sys.executable, args=(str(Path(__file__).with_name("demo_server.py")),))


async def talk(port: int) -> None:
    async with connect(f"ws://127.0.0.1:{port}/ws") as chat:
        await chat.send(json.dumps({"type": "hello"}))
        await chat.send(json.dumps({"type": "message", "content": "Hello?"}))
        async for frame in chat:
            event = json.loads(frame)
            print(event["type"], event.get("content", ""))
            if event["type"] in ("complete", "error"):
                return


async def main() -> None:
    model = ScriptedModel(["Good day."])
    with TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listening:
        async with (
            Toolbox({"notes": NOTES}) as toolbox,
            ConversationStore.open(f"{folder}/chat.db") as store,
        ):
            app = ChatApp(AgentEngine(model, toolbox, store))
            server = uvicorn.Server(uvicorn.Config(app, log_level="error", ws="websockets-sansio"))
            serving = asyncio.create_task(server.serve([listening]))
            await talk(listening.getsockname()[1])
            server.should_exit = True
            await serving


asyncio.run(main())
