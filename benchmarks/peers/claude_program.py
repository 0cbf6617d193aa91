#!/usr/bin/env python3
"""A stand-in for Claude Code: a prompt names what to measure, the result has the figure.

It sends tool calls as the program does, and times the answers. Prompts: "rate WIDTH SECONDS",
"calls COUNT", "asked SECONDS" (a hook and a permission question before each call), "text SIZE".
"""

from __future__ import annotations

import json
import os
import sys
from time import perf_counter

CALL = (
    b'{"type":"control_request","request_id":"%d","request":{"subtype":"mcp_message",'
    b'"server_name":"math","message":{"method":"tools/call","params":{"name":"%b","arguments":%b,'
    b'"_meta":{"claudecode/toolUseId":"toolu_%d","progressToken":2}},"jsonrpc":"2.0","id":%d}}}\n'
)
MCP = (
    b'{"type":"control_request","request_id":"%d","request":{"subtype":"mcp_message",'
    b'"server_name":"%b","message":{"jsonrpc":"2.0","method":"%b","params":%b%b}}}\n'
)
HOOK = (
    b'{"type":"control_request","request_id":"%d","request":{"subtype":"hook_callback",'
    b'"callback_id":"%b","input":{"session_id":"s","transcript_path":"t","cwd":"/",'
    b'"hook_event_name":"PreToolUse","tool_name":"mcp__math__add","tool_input":{"a":1,"b":2},'
    b'"tool_use_id":"toolu_%d"},"tool_use_id":"toolu_%d"}}\n'
)
ASK = (
    b'{"type":"control_request","request_id":"%d","request":{"subtype":"can_use_tool",'
    b'"tool_name":"mcp__math__add","input":{"a":1,"b":2},"permission_suggestions":[],'
    b'"tool_use_id":"toolu_%d"}}\n'
)
ADD = b'{"a":1,"b":2}'


class Program:
    def __init__(self) -> None:
        self.id = 0
        self.hook = b""
        self.rest = b""
        self.is_ready = False
        self.servers = ["math"]

    def next_id(self) -> int:
        self.id += 1
        return self.id

    def lines(self) -> list[bytes]:
        """Wait for one line or several."""
        while True:
            data = os.read(0, 1 << 20)
            if not data:
                sys.exit()
            *found, self.rest = (self.rest + data).split(b"\n")
            if found:
                return found

    def ask(self, line: bytes) -> None:
        os.write(1, line)
        self.wait(1)

    def wait(self, count: int) -> None:
        while count > 0:
            count -= len(self.lines())

    def call(self, tool: bytes = b"add", arguments: bytes = ADD) -> bytes:
        id = self.next_id()
        return CALL % (id, tool, arguments, id, id)

    def shake_hands(self) -> None:
        """Do with each server what the program does before its first call."""
        client = b'"capabilities":{},"clientInfo":{"name":"claude-code","version":"2.1.330"}'
        params = b'{"protocolVersion":"2025-11-25",%b}' % client
        for server in map(str.encode, self.servers):
            self.ask(MCP % (self.next_id(), server, b"initialize", params, b',"id":0'))
            self.ask(MCP % (self.next_id(), server, b"notifications/initialized", b"{}", b""))
            self.ask(MCP % (self.next_id(), server, b"tools/list", b"{}", b',"id":1'))

    # What is measured

    def rate(self, width: int, seconds: float) -> float:
        started, done = perf_counter(), 0
        while perf_counter() < started + seconds:
            os.write(1, b"".join(self.call() for _ in range(width)))
            self.wait(width)
            done += width
        return done / (perf_counter() - started)

    def calls(self, count: int) -> float:
        started = perf_counter()
        for _ in range(0, count, 50):
            os.write(1, b"".join(self.call() for _ in range(50)))
            self.wait(50)
        return perf_counter() - started

    def asked(self, seconds: float) -> float:
        started, done = perf_counter(), 0
        while perf_counter() < started + seconds:
            id = self.next_id()
            if self.hook:
                self.ask(HOOK % (self.next_id(), self.hook, id, id))
            self.ask(ASK % (self.next_id(), id))
            self.ask(CALL % (self.next_id(), b"add", ADD, id, id))
            done += 1
        return done / (perf_counter() - started)

    def text(self, size: int) -> float:
        started = perf_counter()
        self.ask(self.call(b"text", b'{"size":%d}' % size))
        return perf_counter() - started

    # The conversation

    def run(self) -> None:
        while True:
            for line in self.lines():
                message = json.loads(line)
                if message["type"] == "user":
                    self.prompt(message["message"]["content"])
                elif message["type"] == "control_request":
                    self.answer(message)

    def answer(self, message: dict) -> None:
        request = message["request"]
        if request["subtype"] == "initialize":
            for matcher in (request.get("hooks") or {}).get("PreToolUse", []):
                self.hook = matcher["hookCallbackIds"][0].encode()
            self.servers = request.get("sdkMcpServers") or self.servers
        answer = {"claude_code_version": "2.1.330", "hook_on_failure_supported": True}
        response = {"subtype": "success", "request_id": message["request_id"], "response": answer}
        self.write({"type": "control_response", "response": response})

    def prompt(self, content: str | list) -> None:
        text = content if isinstance(content, str) else content[0]["text"]
        if not self.is_ready:
            self.is_ready = True
            self.shake_hands()
        name, *arguments = text.split()
        value = getattr(self, name)(*map(json.loads, arguments))
        result = {"type": "result", "subtype": "success", "is_error": False, "duration_ms": 1}
        more = {
            "duration_api_ms": 1,
            "num_turns": 1,
            "session_id": "s",
            "result": json.dumps(value),
        }
        self.write({**result, **more})

    def write(self, message: dict) -> None:
        os.write(1, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    if {"-v", "--version"} & {*sys.argv}:
        print("2.1.330 (Claude Code)")
    else:
        Program().run()
