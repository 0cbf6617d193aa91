"""A loopback server that validates requests and writes answers as one provider does."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from aiohttp import web

KEY = "sk-lab-4f9c2e7d81"
EVERY = "every argument"  # arguments of a call: a text for each property that the model was offered


class Call(NamedTuple):
    """A call in an answer; the arguments are JSON as the model writes it."""

    name: str
    arguments: str = "{}"


class Says(NamedTuple):
    """An answer of the model."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    stop: str = "end"  # or "length" or "refusal"


class Fails(NamedTuple):
    """An answer that does not arrive: a refusal of the table, or a stream that breaks.

    `how` is a key of `Fake.refusals`, or "cut", "ends" (early) or "breaks" (with an error).
    """

    how: str
    after: Mapping[str, str] = {}


class Refused(Exception):
    """The provider refuses a request."""

    def __init__(self, message: str, *, status: int = 400, param: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code


@dataclass
class Request:
    """A request, and what the provider has issued so far.

    `issued` has what must come back with a call or a text, by the call's id: a signature.
    """

    body: dict[str, Any]
    headers: Mapping[str, str]
    path: str
    query: str
    raw: bytes = b""
    issued: dict[str, str] = field(default_factory=dict)

    @property
    def messages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.body["messages"]
        return found

    @property
    def turn(self) -> list[dict[str, Any]]:
        """The messages after the user's last one."""
        users = [place for place, each in enumerate(self.messages) if each["role"] == "user"]
        return self.messages[users[-1] + 1 :] if users else self.messages

    @property
    def model(self) -> str:
        return str(self.body.get("model", ""))


_SERVERS = count(1)
Rule = Callable[[Request], None]  # raises Refused
Write = Callable[[Says, Request, Iterator[int]], list[bytes]]


def problem_with(body: dict[str, Any], rules: Iterable[Rule]) -> str | None:
    """Return the text with which one of the rules refuses a request; None if all accept it."""
    try:
        for rule in rules:
            rule(Request(body, {}, "", ""))
    except Refused as refused:
        return refused.message
    return None


def openai_error(refused: Refused) -> Any:
    """Return an error as OpenAI, DeepSeek, Groq and Azure write it."""
    fields = {"param": refused.param or None, "code": refused.code or None}
    return {"error": {"message": refused.message, "type": "invalid_request_error", **fields}}


class Fake(NamedTuple):
    """A provider: what it accepts, how it refuses, and how it writes answers.

    Attributes:
        name: The name of the row.
        model: The model, as for `--model`.
        path: The path of requests.
        rules: The rules of valid requests.
        write: Returns the events of an answer.
        error: Returns the body of an error.
        refusals: Status and text by the kind of a failure.
        takes: The kinds of files that the model can read.
        unread: Media types that the model cannot read, although it reads others of their kind.
        reasons: Whether the answers have reasoning.
        cached: Whether the usage has cached tokens.
        most_tools: The largest number of tools; 0 for any.
        teaches: How often a refusal may teach what a conversation must have.
    """

    name: str
    model: str
    path: str
    rules: tuple[Rule, ...]
    write: Write
    refusals: Mapping[str, tuple[int, str]]
    error: Callable[[Refused], Any] = openai_error
    takes: frozenset[str] = frozenset(("images", "documents", "sounds"))
    unread: frozenset[str] = frozenset()
    reasons: bool = True
    cached: bool = True
    most_tools: int = 0
    teaches: int = 0


class ProviderServer:
    """Answers each valid request with the next answer of its script.

    Attributes:
        script: The next answers.
        asked: The requests.
        refused: The texts with which requests were refused.
    """

    def __init__(self, fake: Fake) -> None:
        self.script: list[Says | Fails] = []
        self.asked: list[Request] = []
        self.refused: list[str] = []
        self.root = ""
        self._fake = fake
        self._issued: dict[str, dict[str, str]] = {}  # by model
        self._numbers = count(1_000 * next(_SERVERS))  # of calls, which no other server has
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, handler_cancellation=True, access_log=None)

    async def start(self) -> None:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.root = f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()

    def reset(self) -> None:
        """Forget the requests of a conversation."""
        self.script, self.asked, self.refused = [], [], []

    async def _answer(self, http: web.Request) -> web.StreamResponse:
        raw = await http.read()
        request = Request(json.loads(raw), http.headers, http.path, http.query_string, raw)
        request.issued = self._issued.setdefault(request.model, {})
        self.asked.append(request)
        try:
            for rule in self._fake.rules:
                rule(request)
        except Refused as refused:
            self.refused.append(refused.message)
            return self._error(refused)
        answer = self.script.pop(0)
        if isinstance(answer, Fails) and answer.how in self._fake.refusals:
            status, text = self._fake.refusals[answer.how]
            code = "tool_use_failed" if answer.how == "call" else ""
            return self._error(Refused(text, status=status, code=code), answer.after)
        return await self._stream(http, request, answer)

    def _error(self, refused: Refused, headers: Mapping[str, str] = {}) -> web.Response:
        body = self._fake.error(refused)
        return web.json_response(body, status=refused.status, headers=headers)

    async def _stream(
        self, http: web.Request, request: Request, answer: Says | Fails
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(http)
        says = answer if isinstance(answer, Says) else Says("An answer of which half is missing.")
        events = self._fake.write(says, request, self._numbers)
        if isinstance(answer, Fails):
            events = events[: len(events) // 2]
        if isinstance(answer, Fails) and answer.how == "breaks":
            known = KEY if any(KEY in each for each in request.headers.values()) else ""
            error = self._fake.error(Refused(f"The server had an error {known}.", status=500))
            error = error[0] if isinstance(error, list) else error
            events.append(b"event: error\ndata: " + json.dumps(error).encode() + b"\n\n")
        body = b"".join(events)
        for start in range(0, len(body), 997):  # an odd number splits events anywhere
            await response.write(body[start : start + 997])
        if isinstance(answer, Fails) and answer.how == "cut":
            assert http.transport is not None
            http.transport.abort()
        else:
            await response.write_eof()
        return response
