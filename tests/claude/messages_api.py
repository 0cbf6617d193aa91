"""A loopback stand-in for the Messages API: the prompt carries the script of the answers.

It keeps no state between requests. The last user message with a script says what the model does,
and the number of assistant messages after it says which turn is next.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
_PIECE = 40  # characters of one delta
_numbers = count(1)


def script(*turns: dict[str, Any], prompt: str = "Do it.") -> str:
    """Return a prompt that makes the model answer with these turns, one after another."""
    written = json.dumps(list(turns)).replace("<", "\\u003c")  # a script may hold another one
    return f"{prompt}\n<script>{written}</script>"


def say(text: str, **more: Any) -> dict[str, Any]:
    """Return a turn of text. `seconds` delays it; `status` answers with an HTTP error."""
    return {"text": text, **more}


def call(*calls: tuple[str, dict[str, Any]], text: str = "") -> dict[str, Any]:
    """Return a turn that calls tools at the same time."""
    return {"text": text, "calls": [{"name": name, "input": input} for name, input in calls]}


class MessagesApi:
    """The server.

    Attributes:
        url: Its base URL.
        requests: The body of each request that offered tools, in order.
        scripts: The turns for prompts without a script, by a part of their text.
    """

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[dict[str, Any]] = []
        self.scripts: dict[str, list[dict[str, Any]]] = {}
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def offered(self) -> list[str]:
        """The names of the tools in the latest request."""
        return [tool["name"] for tool in self.requests[-1]["tools"]]

    @property
    def results(self) -> list[dict[str, Any]]:
        """The tool results in the latest request, in order."""
        return [
            block
            for message in self.requests[-1]["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
            if block["type"] == "tool_result"
        ]

    def result_text(self, at: int = -1) -> str:
        """Return what the model was given as the text of a tool result."""
        content = self.results[at].get("content", "")
        if isinstance(content, str):
            return content
        return "\n".join(block.get("text", f"[{block['type']}]") for block in content)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while head := await _head(reader):
                await self._answer(head, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._connections.discard(task)
            writer.close()

    async def close(self) -> None:
        """End all connections."""
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _answer(
        self, head: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        method, path, _ = head[0].split(" ", 2)
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head[1:])
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if method == "POST" and path.startswith("/v1/messages/count_tokens"):
            await _json(writer, 200, {"input_tokens": len(body) // 4})
        elif method == "POST" and path.startswith("/v1/messages"):
            await self._message(json.loads(body), writer)
        elif method == "HEAD":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
        else:
            error = {"type": "error", "error": {"type": "not_found_error", "message": path}}
            await _json(writer, 404, error)

    async def _message(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        turn: dict[str, Any] = {"text": "ok"}
        if body.get("tools"):
            self.requests.append(body)
            turn = _next_turn(body["messages"], self.scripts)
        await asyncio.sleep(turn.get("seconds", 0))
        if status := turn.get("status"):
            kind = {400: "invalid_request_error", 401: "authentication_error"}.get(
                status, "overloaded_error" if status == 529 else "rate_limit_error"
            )
            error = {"type": kind, "message": turn["text"]}
            await _json(writer, status, {"type": "error", "error": error})
            return
        blocks = [{"type": "text", "text": turn["text"]}] if turn.get("text") else []
        blocks += [
            {"type": "tool_use", "id": f"toolu_{next(_numbers)}", **each}
            for each in turn.get("calls", ())
        ]
        if not body.get("stream"):
            await _json(writer, 200, _whole(body, blocks))
            return
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )
        for event in _events(body, blocks):
            await asyncio.sleep(turn.get("pause", 0))
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            writer.write(b"%x\r\n%b\r\n" % (len(data), data))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()


@asynccontextmanager
async def messages_api() -> AsyncIterator[MessagesApi]:
    """Run the server on a free port of loopback."""
    api = MessagesApi()
    server = await asyncio.start_server(api.serve, "127.0.0.1", 0, limit=2**26)
    api.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield api
    finally:
        server.close()
        await api.close()
        await server.wait_closed()


async def _head(reader: asyncio.StreamReader) -> list[str]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return []
    return head.decode("latin-1").strip().split("\r\n")


async def _json(writer: asyncio.StreamWriter, status: int, value: object) -> None:
    body = json.dumps(value).encode()
    writer.write(
        b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
        % (status, len(body), body)
    )
    await writer.drain()


def _next_turn(
    messages: list[dict[str, Any]], scripts: dict[str, list[dict[str, Any]]]
) -> dict[str, Any]:
    for at in reversed(range(len(messages))):
        if messages[at]["role"] != "user":
            continue
        text = _text(messages[at])
        found = [json.loads(each) for each in _SCRIPT.findall(text)]
        found += [turns for part, turns in scripts.items() if part in text]
        if found:
            number = sum(each["role"] == "assistant" for each in messages[at:])
            turns: list[dict[str, Any]] = found[-1]
            return turns[min(number, len(turns) - 1)]
    return {"text": "no script"}


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")


def _whole(body: dict[str, Any], blocks: list[dict[str, Any]]) -> dict[str, Any]:
    used = {"input_tokens": 10, "output_tokens": 5}
    reason = "tool_use" if blocks and blocks[-1]["type"] == "tool_use" else "end_turn"
    return {
        "id": f"msg_{next(_numbers)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "usage": used,
    }


def _events(body: dict[str, Any], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    whole = _whole(body, blocks)
    reason = whole["stop_reason"]
    empty = {**whole, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": empty}]
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            start, kind, key, text = (
                {"type": "text", "text": ""},
                "text_delta",
                "text",
                block["text"],
            )
        else:
            start, text = {**block, "input": {}}, json.dumps(block["input"])
            kind, key = "input_json_delta", "partial_json"
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        size = max(_PIECE, len(text) // 20)
        events += [
            {
                "type": "content_block_delta",
                "index": index,
                "delta": {"type": kind, key: text[at : at + size]},
            }
            for at in range(0, len(text), size)
        ]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
    events.append({"type": "message_stop"})
    return events
