"""A stdio server that speaks exactly one revision, and writes down every line in both directions.

    python scripted_server.py --revision 2025-06-18 --record FILE

Each line of FILE is {"from": "client" or "server", "line": "..."}. Standard library only: what it
sends is checked by the same schemas as what it is sent, and by nothing of ours.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MODERN = "2026-07-28"

Json = dict[str, Any]
Asking = Generator[tuple[str, Json], Json, Json]  # yields a request for the client, gets its result


class ScriptedServer:
    """Answers one client until end of input."""

    def __init__(self, revision: str, record: Callable[[str, str], None]) -> None:
        self._revision = revision
        self._record = record
        self._last_id = 0
        self._asking: dict[str, tuple[Json, Asking]] = {}  # our request id -> whom it is for
        self._listens: dict[Any, Json] = {}  # request id -> what it wants to be told

    def since(self, revision: str) -> bool:
        """Return whether the revision in use is `revision` or a later one."""
        return REVISIONS.index(self._revision) >= REVISIONS.index(revision)

    def receive(self, line: str) -> None:
        """Handle one line from the client."""
        self._record("client", line)
        message = json.loads(line)
        if "method" not in message:
            self._continue(message)
        elif "id" not in message:
            self._notified(message)
        elif message["method"] == "tools/call":
            self._call_tool(message)
        elif message["method"] == "subscriptions/listen" and self.since(MODERN):
            self._start_listening(message)
        else:
            self._answer(message)

    # Sending

    def _send(self, **message: Any) -> None:
        line = json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False)
        self._record("server", line)
        sys.stdout.buffer.write(line.encode() + b"\n")
        sys.stdout.buffer.flush()

    def _reply(self, request: Json, result: Json) -> None:
        if self.since(MODERN):
            result = {"resultType": "complete", **result}
        self._send(id=request["id"], result=result)

    def _refuse(self, request: Json, code: int, message: str) -> None:
        self._send(id=request["id"], error={"code": code, "message": message})

    def _notify(self, method: str, **params: Any) -> None:
        self._send(method=method, **({"params": params} if params else {}))

    # Answering

    def _answer(self, request: Json) -> None:
        result = self._results(request.get("params", {})).get(request["method"])
        if result is None:
            self._refuse(request, -32601, f"no method {request['method']}")
        else:
            self._reply(request, result())

    def _results(self, params: Json) -> dict[str, Callable[[], Json]]:
        common: dict[str, Callable[[], Json]] = {
            "tools/list": lambda: self._tools(params.get("cursor")),
            "resources/list": lambda: self._listed("resources", self._resource()),
            "resources/templates/list": lambda: self._listed("resourceTemplates", self._template()),
            "resources/read": lambda: self._cached(
                contents=[
                    {"uri": params["uri"], "mimeType": "text/plain", "text": "grüß dich"},
                    {"uri": params["uri"], "mimeType": "image/png", "blob": "iVBORw0KGgo="},
                ]
            ),
            "prompts/list": lambda: self._listed("prompts", self._prompt()),
            "prompts/get": lambda: {
                "description": "Ask for a greeting.",
                "messages": [
                    {"role": "user", "content": {"type": "text", "text": "Greet me."}},
                    {"role": "assistant", "content": self._embedded()},
                ],
            },
            "completion/complete": lambda: {
                "completion": {"values": ["de", "en"], "total": 2, "hasMore": False}
            },
        }
        if self.since(MODERN):
            return common | {"server/discover": self._discover}
        return common | {
            "initialize": self._initialize,
            "ping": dict,
            "logging/setLevel": dict,
            "resources/subscribe": dict,
            "resources/unsubscribe": dict,
        }

    def _initialize(self) -> Json:
        return {
            "protocolVersion": self._revision,
            "capabilities": self._capabilities(),
            "serverInfo": self._info(),
            "instructions": "Call the tools in any order.",
        }

    def _discover(self) -> Json:
        return self._cached(
            supportedVersions=[self._revision],
            capabilities=self._capabilities(),
            instructions="Call the tools in any order.",
            _meta={"io.modelcontextprotocol/serverInfo": self._info()},
        )

    def _capabilities(self) -> Json:
        capabilities: Json = {
            "tools": {"listChanged": True},
            "resources": {"listChanged": True, "subscribe": True},
            "prompts": {"listChanged": True},
            "logging": {},
        }
        if self.since("2025-03-26"):
            capabilities["completions"] = {}
        return capabilities

    def _info(self) -> Json:
        info: Json = {"name": "scripted", "version": "1"}
        if self.since("2025-06-18"):
            info["title"] = "Scripted server"
        if self.since("2025-11-25"):
            info["websiteUrl"] = "https://example.org/"
            info["icons"] = [{"src": "https://example.org/icon.png", "sizes": ["48x48"]}]
        return info

    def _tools(self, cursor: str | None) -> Json:
        if cursor is None:
            return self._cached(tools=[self._tool("count"), self._tool("ask")], nextCursor="2")
        return self._cached(tools=[self._tool("wait"), self._tool("change"), self._tool("fail")])

    def _tool(self, name: str) -> Json:
        tool: Json = {
            "name": name,
            "description": f"The tool {name}.",
            "inputSchema": {"type": "object", "properties": {"to": {"type": "integer"}}},
        }
        if self.since("2025-03-26"):
            tool["annotations"] = {"readOnlyHint": True, "title": name.title()}
        if self.since("2025-06-18") and name == "count":
            tool["outputSchema"] = {
                "type": "object",
                "properties": {"counted": {"type": "integer"}},
                "required": ["counted"],
            }
        if self.since("2025-11-25"):
            tool["icons"] = [{"src": "data:image/png;base64,iVBORw0KGgo=", "theme": "dark"}]
        return tool

    def _listed(self, field: str, item: Json) -> Json:
        if self.since("2025-06-18"):
            item["title"] = "A title"
        return self._cached(**{field: [item]})

    def _resource(self) -> Json:
        return {
            "name": "greeting",
            "uri": "memo://greeting",
            "mimeType": "text/plain",
            "size": 11,
            "annotations": {"audience": ["user", "assistant"], "priority": 0.5},
        }

    def _template(self) -> Json:
        return {"name": "greeting", "uriTemplate": "memo://greeting/{language}"}

    def _prompt(self) -> Json:
        return {"name": "greet", "arguments": [{"name": "language", "required": True}]}

    def _embedded(self) -> Json:
        return {"type": "resource", "resource": {"uri": "memo://greeting", "text": "grüß dich"}}

    def _cached(self, **result: Any) -> Json:
        return {**result, "ttlMs": 0, "cacheScope": "private"} if self.since(MODERN) else result

    # Tools

    def _call_tool(self, request: Json) -> None:
        params = request["params"]
        match params["name"]:
            case "count":
                self._count(request)
            case "ask":
                self._ask(request)
            case "wait":
                pass  # until it is cancelled, and then there is nothing to say
            case "change":
                self._change()
                self._reply(request, {"content": []})
            case "fail":
                text = {"type": "text", "text": "there is nothing to count"}
                self._reply(request, {"content": [text], "isError": True})
            case name:
                self._refuse(request, -32602, f"no tool {name}")

    def _count(self, request: Json) -> None:
        params = request["params"]
        to = params.get("arguments", {}).get("to", 3)
        meta = params.get("_meta", {})
        for number in range(1, to + 1):
            if "progressToken" in meta:
                report: Json = {"progressToken": meta["progressToken"], "progress": number}
                if self.since("2025-03-26"):
                    report["message"] = f"at {number}"
                self._notify("notifications/progress", total=to, **report)
        if not self.since(MODERN) or "io.modelcontextprotocol/logLevel" in meta:
            self._notify("notifications/message", level="info", logger="count", data={"to": to})
        content: list[Json] = [
            {"type": "text", "text": f"counted to {to}"},
            {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"},
            self._embedded(),
        ]
        if self.since("2025-03-26"):
            content.append({"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"})
        if self.since("2025-06-18"):
            link = {"type": "resource_link", "uri": "memo://greeting", "name": "greeting"}
            content.append(link)
        result: Json = {"content": content}
        if self.since("2025-06-18"):
            result["structuredContent"] = {"counted": to}
        self._reply(request, result)

    def _change(self) -> None:
        """Send every notification of a change; in the newer revision, on a listen stream."""
        if not self.since(MODERN):
            for kind in ("tools", "prompts", "resources"):
                self._notify(f"notifications/{kind}/list_changed")
            self._notify("notifications/resources/updated", uri="memo://greeting")
        for id, wanted in self._listens.items():
            meta = {"_meta": {"io.modelcontextprotocol/subscriptionId": id}}
            for kind in ("tools", "prompts", "resources"):
                if wanted.get(f"{kind}ListChanged"):
                    self._notify(f"notifications/{kind}/list_changed", **meta)
            for uri in wanted.get("resourceSubscriptions", []):
                self._notify("notifications/resources/updated", uri=uri, **meta)

    # Asking the client

    def _questions(self) -> dict[str, tuple[str, Json]]:
        """Return every request that this revision allows a server, by a name of this file."""
        message = {"role": "user", "content": {"type": "text", "text": "How are you?"}}
        questions: dict[str, tuple[str, Json]] = {
            "roots": ("roots/list", {}),
            "sample": ("sampling/createMessage", {"messages": [message], "maxTokens": 20}),
        }
        if self.since("2025-06-18"):
            form = {"type": "object", "properties": {"name": {"type": "string"}}}
            elicit: Json = {"message": "Who are you?", "requestedSchema": form}
            if self.since("2025-11-25"):
                elicit["mode"] = "form"
            questions["elicit"] = ("elicitation/create", elicit)
        return questions

    def _ask(self, request: Json) -> None:
        if not self.since(MODERN):
            self._ask_on(request, self._conversation(), None)
            return
        params = request["params"]
        if "inputResponses" not in params:
            asked = {
                key: {"method": method, "params": question}
                for key, (method, question) in self._questions().items()
            }
            self._reply(
                request,
                {"resultType": "input_required", "inputRequests": asked, "requestState": "once"},
            )
        elif params.get("requestState") != "once":
            self._refuse(request, -32602, "the request state is not ours")
        else:
            answered = ", ".join(sorted(params["inputResponses"]))
            self._reply(request, {"content": [{"type": "text", "text": answered}]})

    def _conversation(self) -> Asking:
        answered = []
        for key, (method, params) in {"ping": ("ping", {}), **self._questions()}.items():
            yield method, params
            answered.append(key)
        return {"content": [{"type": "text", "text": ", ".join(sorted(answered))}]}

    def _ask_on(self, request: Json, conversation: Asking, answer: Json | None) -> None:
        try:
            if answer is None:
                method, params = next(conversation)
            else:
                method, params = conversation.send(answer)
        except StopIteration as end:
            self._reply(request, end.value)
            return
        self._last_id += 1
        id = f"ask-{self._last_id}"  # a string, as the client's own ids may be numbers
        self._asking[id] = (request, conversation)
        self._send(id=id, method=method, **({"params": params} if params else {}))

    def _continue(self, message: Json) -> None:
        request, conversation = self._asking.pop(message["id"])
        if "error" in message:
            text = {"type": "text", "text": message["error"]["message"]}
            self._reply(request, {"content": [text], "isError": True})
        else:
            self._ask_on(request, conversation, message["result"])

    # Notifications and streams

    def _notified(self, message: Json) -> None:
        if message["method"] == "notifications/cancelled":
            self._listens.pop(message["params"]["requestId"], None)

    def _start_listening(self, request: Json) -> None:
        self._listens[request["id"]] = wanted = request["params"]["notifications"]
        self._notify(
            "notifications/subscriptions/acknowledged",
            notifications=wanted,
            _meta={"io.modelcontextprotocol/subscriptionId": request["id"]},
        )


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--revision", choices=REVISIONS, required=True)
    parser.add_argument("--record", type=Path, required=True)
    options = parser.parse_args()
    with options.record.open("w", encoding="utf-8") as file:

        def record(sender: str, line: str) -> None:
            file.write(json.dumps({"from": sender, "line": line}) + "\n")
            file.flush()

        server = ScriptedServer(options.revision, record)
        for line in sys.stdin.buffer:
            server.receive(line.decode().rstrip("\n"))


if __name__ == "__main__":
    main()
