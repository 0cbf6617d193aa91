"""Faults of one server in a toolbox, whose other servers must not notice."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

from interlock.config import HttpServer, ServerConfig, StdioServer
from interlock.errors import (
    ConnectionClosed,
    HttpError,
    InsufficientScope,
    InterlockError,
    InvalidArguments,
    LoginRequired,
    MessageTooLarge,
    RedirectRefused,
    RemoteProtocolError,
    RequestTimeout,
    ServerExited,
    ServerUnavailable,
    StreamEnded,
    UnknownTool,
)
from interlock.toolbox import Toolbox
from interlock.transports import InProcessServer
from tests.faults.ground import CANARY, EVIL, Ground, alive, all_of, until
from tests.faults.matrix import ALL, HTTP, JSON, MEMORY, OLDEST, SESSION, STDIO, row
from tests.servers.evil_http import EvilHttp
from tests.servers.evil_memory import EvilMemory

Json = dict[str, Any]
ANYTHING = {"type": "object"}


class Box:
    """A toolbox of two servers: "evil", and "good", which must keep working.

    Args:
        ground: Sets the transport of "evil".
        tools: The input schemas of the tools that "evil" lists, by name.
        options: Settings of "evil" in the configuration.
    """

    def __init__(self, ground: Ground, tools: dict[str, Json], **options: Any) -> None:
        self.ground = ground
        self._tools = [{"name": name, "inputSchema": tools[name]} for name in tools]
        self._options = options
        self.toolbox: Toolbox

    async def open(self) -> Toolbox:
        """Start the servers and open the toolbox."""
        good: ServerConfig | InProcessServer = EvilMemory()
        if self.ground.transport in HTTP:
            honest = await self.ground.stack.enter_async_context(EvilHttp())
            good = HttpServer(url=honest.url)
        servers = {"evil": await self._evil(), "good": good}
        self.toolbox = Toolbox(servers, environ={"EVIL_KEY": CANARY})
        await self.ground.stack.enter_async_context(self.toolbox)
        return self.toolbox

    async def _evil(self) -> ServerConfig | InProcessServer:
        if self.ground.transport == STDIO:
            told = f"tools/list={json.dumps({'tools': self._tools})}"
            args = (*EVIL[1:], told)
            return StdioServer(command=EVIL[0], args=args, env={"KEY": CANARY}, **self._options)
        if self.ground.transport == MEMORY:
            self.ground.server = EvilMemory()
            self.ground.server.tools = self._tools
            return self.ground.server
        url = await self.ground.url()
        self.ground.server.tools = self._tools
        return HttpServer(url=url, **self.ground.secrets(), **self._options)

    async def good(self) -> None:
        """Assert that the good server answers within a second."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert (await self.toolbox.call("good:echo", {"text": "hi"})).text == "hi"
        seconds = loop.time() - began
        if seconds > 1:
            self.ground.keep(seconds, "the good server was late")


async def box(ground: Ground, *tools: str, **options: Any) -> Box:
    """Open a toolbox whose evil server has these tools."""
    made = Box(ground, dict.fromkeys(tools, ANYTHING), **options)
    await made.open()
    return made


# Exits and restarts


@row(
    "Server exits mid-call: in a toolbox",
    "ServerExited; the next call starts it again, the lost one is not repeated",
    STDIO,
    within=1.0,
)
async def exits_in_a_toolbox(ground: Ground) -> None:
    evil = await box(ground, "exit", "echo")
    with ground.promise(ServerExited, "exited with code 3: gone, with \\*\\*\\*"):
        diagnostics = f"gone, with {CANARY}\n"
        await evil.toolbox.call("evil:exit", {"code": 3, "stderr": diagnostics})
    assert evil.toolbox.status["evil"].state == "down"
    await evil.good()
    with ground.promise(outcome="started again, answered"):
        assert (await evil.toolbox.call("evil:echo", {"text": "back"})).text == "back"
    assert evil.toolbox.status["evil"].starts == 2


@row(
    "Server exits mid-call: again and again",
    "five starts a minute, then ServerUnavailable with the time",
    STDIO,
    within=1.0,
)
async def exits_again_and_again(ground: Ground) -> None:
    evil = await box(ground, "exit")
    for _ in range(5):
        (error,) = await all_of(evil.toolbox.call("evil:exit", {"code": 1}))
        assert isinstance(error, ServerExited)
    with ground.promise(ServerUnavailable, r"'evil' is not available: .*next try in \d\d\.\d s"):
        await evil.toolbox.call("evil:exit", {"code": 1})
    await evil.good()


@row(
    "Server hangs: three times, in a toolbox",
    "RequestTimeout each time, then a new connection or process",
    *ALL,
    within=0.7,
)
async def hangs_in_a_toolbox(ground: Ground) -> None:
    evil = await box(ground, "mute", "echo")
    starts = evil.toolbox.status["evil"].starts
    for _ in range(3):
        with ground.promise(RequestTimeout, r"within 0\.1 s"):
            call = evil.toolbox.call("evil:mute", timeout=0.1)
            await asyncio.gather(call, evil.good())
    assert (await evil.toolbox.call("evil:echo", {"text": "back"})).text == "back"
    assert evil.toolbox.status["evil"].starts == starts + 1


# What ends a connection, by calls of these tools, the last of which has this error.
ENDS: dict[str, tuple[type[InterlockError], list[tuple[str, Json]], tuple[str, ...]]] = {
    "Garbage / invalid UTF-8 line": (
        RemoteProtocolError,
        [("say", {"lines": ["\xff" * 50_000] * 101})],
        (STDIO, MEMORY, OLDEST),
    ),
    "100 MB line / endless line": (
        MessageTooLarge,
        [("frame", {"size": 16 * 2**20 + 1})],
        (STDIO, MEMORY, OLDEST),
    ),
    "Closes stdout, stays alive": (ConnectionClosed, [("close_stdout", {})], (STDIO,)),
    "Closes stdin early": (
        ConnectionClosed,
        [("close_stdin", {}), ("echo", {"text": "x" * 100_000})],
        (STDIO,),
    ),
}


def ends(
    fault: str,
    kind: type[InterlockError],
    calls: list[tuple[str, Json]],
    transports: tuple[str, ...],
) -> None:
    """Add a row for calls after which the toolbox restarts or reconnects to the server."""

    @row(
        f"{fault}: in a toolbox",
        f"{kind.__name__}; the next call gets a new connection or process",
        *transports,
        within=1.0,
    )
    async def scenario(ground: Ground) -> None:
        evil = await box(ground, "echo", "surroundings", *{name for name, _ in calls})
        ids = []
        if ground.transport == STDIO:
            told = (await evil.toolbox.call("evil:surroundings")).text
            ids = json.loads(told)["processes"]
        *before, (name, arguments) = calls
        for each, its_arguments in before:
            await evil.toolbox.call(f"evil:{each}", its_arguments)
        with ground.promise(kind):
            await asyncio.gather(evil.toolbox.call(f"evil:{name}", arguments), evil.good())
        assert evil.toolbox.status["evil"].state == "down"
        assert evil.toolbox.status["evil"].flagged == ()  # the tool may not have been it
        with ground.promise(outcome="then answered"):
            assert (await evil.toolbox.call("evil:echo", {"text": "back"})).text == "back"
        await evil.good()
        await until(lambda: not any(map(alive, ids)))


for _fault, (_kind, _calls, _transports) in ENDS.items():
    ends(_fault, _kind, _calls, _transports)


@row(
    "Missing binary / bad path / not executable: in a toolbox",
    "ServerUnavailable with the reason, not tried again; the others start",
    STDIO,
    within=0.3,
)
async def is_missing_in_a_toolbox(ground: Ground) -> None:
    servers = {"evil": StdioServer(command="no-such-program"), "good": EvilMemory()}
    with ground.promise(outcome="the others are open"):
        toolbox = await ground.stack.enter_async_context(Toolbox(servers, environ={}))
    for _ in range(3):
        with ground.promise(ServerUnavailable, "'evil' is not available: .*program not found"):
            await toolbox.call("evil:echo")
    assert toolbox.status["evil"].starts == 1
    assert (await toolbox.call("good:echo", {"text": "hi"})).text == "hi"


@row(
    "DNS failure / connect refused / TLS error: in a toolbox",
    "ServerUnavailable with the reason; when it is there, the call is answered",
    *HTTP,
    within=1.0,
)
async def is_not_there_in_a_toolbox(ground: Ground) -> None:
    url = await ground.url()
    await ground.http.stop()
    servers = {"evil": HttpServer(url=url, **ground.secrets()), "good": EvilMemory()}
    with ground.promise(outcome="the others are open"):
        toolbox = await ground.stack.enter_async_context(Toolbox(servers, environ={}))
    assert (await toolbox.call("good:echo", {"text": "hi"})).text == "hi"
    with ground.promise(ServerUnavailable, "'evil' is not available: .*Connection refused"):
        await toolbox.call("evil:echo", {"text": "hi"})
    await ground.http.start()
    with ground.flying_time():
        await asyncio.sleep(1)  # it is not tried sooner
    await toolbox.refresh()
    await toolbox.upstream("evil").start()
    with ground.promise(outcome="then answered"):
        assert (await toolbox.call("evil:echo", {"text": "hi"})).text == "hi"


# What a server may do to its own calls, and to no others


def scoped(code: int, kind: str) -> Json:
    """Return the status and headers of a response with a Bearer challenge."""
    return {"code": code, "headers": {"WWW-Authenticate": f'Bearer error="{kind}", scope="a"'}}


ELSEWHERE = {"code": 307, "headers": {"Location": "http://127.0.0.1:9/mcp"}}
CUT = (StreamEnded, [("cut", {}), ("cut", {"at": "event"}), ("quiet", {})])
TOLD: dict[str, tuple[type[InterlockError], list[tuple[str, Json]]]] = {
    "HTTP 401": (LoginRequired, [("status", {"code": 401})]),
    "HTTP 403 insufficient scope": (
        InsufficientScope,
        [("status", scoped(403, "insufficient_scope"))],
    ),
    "HTTP 429/503": (HttpError, [("status", {"code": 503, "headers": {"Retry-After": "600"}})]),
    "HTTP 500 / HTML / empty body": (
        HttpError,
        [("status", {"code": 500, "body": "<html>", "type": "text/html"})],
    ),
    "Redirect": (RedirectRefused, [("status", ELSEWHERE)]),
    "Cut mid-SSE / clean EOF without answer": CUT,
    "Slow drip": (RequestTimeout, [("drip", {"every": 0.05})]),
}


def tell(fault: str, kind: type[InterlockError], calls: list[tuple[str, Json]]) -> None:
    """Add a row for a fault that must affect only the calls of its own server."""

    @row(
        f"{fault}: in a toolbox",
        f"{kind.__name__}, without secrets; the other servers answer meanwhile",
        *HTTP,
        within=1.0,
    )
    async def scenario(ground: Ground) -> None:
        evil = await box(ground, "echo", *{name for name, _ in calls}, timeout=0.2)
        for name, arguments in calls:
            with ground.promise(kind):
                call = evil.toolbox.call(f"evil:{name}", arguments)
                await asyncio.gather(call, evil.good(), evil.good())
            await evil.good()
            if ground.transport != OLDEST:
                assert (await evil.toolbox.call("evil:echo", {"text": "hi"})).text == "hi"


for _fault, (_kind, _calls) in TOLD.items():
    tell(_fault, _kind, _calls)


@row(
    "Gzip bomb: in a toolbox",
    "MessageTooLarge; the other servers answer meanwhile",
    JSON,
    SESSION,
    within=1.0,
)
async def sends_a_bomb_in_a_toolbox(ground: Ground) -> None:
    evil = await box(ground, "bomb")
    with ground.promise(MessageTooLarge):
        await asyncio.gather(evil.toolbox.call("evil:bomb"), evil.good())


# What a server may say of its tools


@row(
    "Schema bomb / ReDoS / remote `$ref`",
    "the tool is left out, with the reason; no fetch; others are offered",
    *ALL,
    within=1.0,
)
async def has_bad_schemas(ground: Ground) -> None:
    with socket.socket() as subscriber:
        subscriber.bind(("127.0.0.1", 0))
        subscriber.listen()
        subscriber.setblocking(False)
        remote = f"http://127.0.0.1:{subscriber.getsockname()[1]}/schema.json"
        evil = Box(
            ground,
            {
                "remote": {"type": "object", "properties": {"a": {"$ref": remote}}},
                "file": {"type": "object", "properties": {"a": {"$ref": "file:///etc/passwd"}}},
                "bomb": bomb(25),
                "wide": {"type": "object", "properties": {str(n): {} for n in range(3_000)}},
                "no-object": {"type": "string"},
                "echo": ANYTHING,
            },
        )
        with ground.promise(outcome="left out, each with its reason"):
            toolbox = await evil.open()
        offered = {entry.tool.name for entry in toolbox.tools if entry.server == "evil"}
        assert offered == {"echo"}
        missing = "\n".join(toolbox.status["evil"].missing)
        for name in ("remote", "file", "bomb", "wide", "no-object"):
            assert f"tool {name!r}" in missing
        try:
            subscriber.accept()
        except BlockingIOError:
            pass
        else:
            raise AssertionError("a schema was fetched")


# What takes long to look at, and what is wrong for each: by tool and parameter.
SLOW: dict[str, tuple[str, Json, object]] = {
    "echo": ("text", {"type": "string", "pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
    "frame": ("size", {"anyOf": [{"pattern": f"^(a|{n})*$"} for n in range(50)]}, "a" * 999 + "!"),
    "say": ("lines", {"uniqueItems": True}, [*([n] for n in range(5_000)), [0]]),
    "error": ("code", {"$ref": "#"}, 3),
}


@row(
    "Schema bomb / ReDoS / remote `$ref`: what arguments cost",
    "InvalidArguments at once; nothing is sent",
    *ALL,
    within=0.05,
)
async def has_slow_schemas(ground: Ground) -> None:
    tools = {
        name: {"type": "object", "properties": {parameter: schema}}
        for name, (parameter, schema, _) in SLOW.items()
    }
    toolbox = await Box(ground, tools).open()
    for name, (parameter, _, value) in SLOW.items():
        with ground.promise(InvalidArguments, f"evil:{name}: {parameter}: "):
            await toolbox.call(f"evil:{name}", {parameter: value})


def bomb(doublings: int) -> Json:
    """Return a schema whose number of checks doubles with each level."""
    levels = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(doublings)}
    end = {f"a{doublings}": {"type": "string"}}
    return {"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": levels | end}


@row(
    "Same tool name on two servers",
    "both are called by their address; the bare name is refused",
    *ALL,
    within=0.5,
)
async def have_the_same_name(ground: Ground) -> None:
    evil = await box(ground, "echo")
    with ground.promise(outcome="both answer"):
        for address in ("evil:echo", "good:echo"):
            assert (await evil.toolbox.call(address, {"text": "hi"})).text == "hi"
    with ground.promise(UnknownTool, "no tool 'echo'; did you mean evil:echo or good:echo"):
        await evil.toolbox.call("echo", {"text": "hi"})
    names = [entry.wire_name for entry in evil.toolbox.tools]
    assert len(set(names)) == len(names)
