"""A server on stdio that misbehaves as it is told. Standard library only, quick to start.

    python -I -S evil.py [revision=2025-11-25] [METHOD=ANSWER ...] [exit=CODE] [stderr=TEXT]
                         [slow=SECONDS] [stay] [grandchildren] [seed=N]

ANSWER is "mute", "exit", "late" (comes just before the next answer), a result as a JSON object,
or an error as a JSON array of code and data; with "once:" before it, only the first time.
`stay` ignores end of input and SIGTERM; `grandchildren` starts two that ignore every signal.

All other misbehaviour is a tool, so that one server has many faults and the test spells them
out. Most of it is `say`, which writes any bytes. The tool `anything` does what comes next in a
script, which is the same for the same seed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

Json = dict[str, Any]
Line = str | list[tuple[str, int]]  # text, or pieces of text and how often each comes

MODERN = "2026-07-28"

told = dict(argument.partition("=")[::2] for argument in sys.argv[1:])
revision = told.get("revision", MODERN)
late: list[Json] = []
listens: list[int | str] = [0]
hearing: list[tuple[Json, int, list[str]]] = []  # who hears, how many lines, which came
process_ids = [os.getpid()]


def main() -> None:
    """Answer until the end of input."""
    if "stay" in told:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "grandchildren" in told:
        process_ids.extend((grandchild(own_session=False), grandchild(own_session=True)))
    time.sleep(float(told.get("slow", 0)))
    if "stderr" in told:
        write(2, told["stderr"].encode())
    if "exit" in told:
        os._exit(int(told["exit"]))
    for line in sys.stdin.buffer:
        receive(line)
    while "stay" in told:
        signal.pause()


# Messages


def receive(line: bytes) -> None:
    """Handle one line: a request, or a message that a tool waits for."""
    message = json.loads(line)
    if isinstance(message, dict) and {"id", "method"} <= message.keys():
        answer(message)
    elif hearing:
        request, count, lines = hearing[0]
        lines.append(line.decode().rstrip("\n"))
        if len(lines) == count:
            hearing.pop(0)
            reply_text(request, "\n".join(lines))


def answer(request: Json) -> None:
    """Answer a request, or apply the misbehaviour configured for its method."""
    method = request["method"]
    how = told.get(method, "")
    if how.startswith("once:"):
        how = told.pop(method).removeprefix("once:")
    if how == "mute":
        return
    if how == "exit":
        leave(1, f"cannot take {method}\n")
    if how == "late":
        late.append(request)
        return
    while late:
        reply(late[0], results(late.pop(0)))
    if how.startswith("{"):
        reply(request, json.loads(how))
    elif how.startswith("["):
        refuse(request, *json.loads(how))
    elif method == "tools/call":
        params = request["params"]
        TOOLS[params["name"]](request, **params.get("arguments", {}))
    elif method == "subscriptions/listen" and revision == MODERN:
        listens.append(request["id"])
        ids = {"io.modelcontextprotocol/subscriptionId": request["id"]}
        params = {"notifications": request["params"]["notifications"], "_meta": ids}
        send(method="notifications/subscriptions/acknowledged", params=params)
    elif (result := results(request)) is None:
        refuse(request, -32022 if method == "initialize" else -32601, {"supported": [revision]})
    else:
        reply(request, result)


def results(request: Json) -> Json | None:
    """Return a correct result; None for an unknown method."""
    capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
    info = {"name": "evil", "version": "1"}
    method = request["method"]
    if method == "tools/list":
        return tools_page(request.get("params", {}).get("cursor"))
    if method == "server/discover" and revision == MODERN:
        meta = {"io.modelcontextprotocol/serverInfo": info}
        return {"supportedVersions": [revision], "capabilities": capabilities, "_meta": meta}
    if method == "initialize" and revision != MODERN:
        return {"protocolVersion": revision, "capabilities": capabilities, "serverInfo": info}
    if method in ("ping", "resources/subscribe", "resources/unsubscribe") and revision != MODERN:
        return {}
    return None


def tools_page(cursor: str | None) -> Json:
    """List one tool; with "pages=endless" or "pages=loop" there is always another page."""
    place = int(cursor or 0)
    page: Json = {"tools": [{"name": f"tool{place}", "inputSchema": {"type": "object"}}]}
    if "pages" in told:
        page["nextCursor"] = str(place + 1 if told["pages"] == "endless" else 1)
    return page


# Tools


def say(request: Json, lines: list[Line], end: str = "\n") -> None:
    """Write lines; each character is a byte, and $ID is the id of the call."""
    for line in lines:
        for text, times in [(line, 1)] if isinstance(line, str) else line:
            text = text.replace("$ID", json.dumps(request["id"]))
            text = text.replace("$LISTEN", json.dumps(listens[-1]))
            write(1, text.encode("latin-1") * times)
        write(1, end.encode())


def hear(request: Json, lines: list[Line], count: int = 1) -> None:
    """Write lines and answer with the next lines that are not requests."""
    hearing.append((request, count, []))
    say(request, lines)


def echo(request: Json, text: str) -> None:
    """Answer with the same text."""
    reply_text(request, text)


def frame(request: Json, size: int) -> None:
    """Answer with a line of exactly this many bytes."""
    empty = {"jsonrpc": "2.0", "id": request["id"], "result": {"content": [text_block("")]}}
    space = size - len(json.dumps(empty))
    send(id=request["id"], result={"content": [text_block("x" * space)]})


def leave(code: int, stderr: str = "") -> NoReturn:
    """Exit after writing to stderr."""
    write(2, stderr.encode())
    os._exit(code)


def exit_with_heir(request: Json, descriptor: int) -> None:
    """Exit with code 3, but leave a child that keeps writing to this descriptor."""
    if not os.fork():
        while True:
            os.write(descriptor, b'{"jsonrpc":"2.0","method":"notifications/heir"}\n' * 1000)
    time.sleep(0.05)  # it shall be writing by then
    leave(3)


def progress(request: Json) -> None:
    """Send progress until something comes in; never answer."""
    token, told_so_far = request["params"]["_meta"]["progressToken"], 0
    while not select.select([0], [], [], 0.001)[0]:
        told_so_far += 1
        params = {"progressToken": token, "progress": told_so_far}
        send(method="notifications/progress", params=params)


def drip(request: Json, every: float) -> None:
    """Answer byte by byte, this many seconds apart, until something comes in."""
    line = b'{"jsonrpc":"2.0","id":%d,"result":{}}\n' % request["id"]
    for byte in line:
        if select.select([0], [], [], every)[0]:
            return
        write(1, bytes([byte]))


def flood_stderr(request: Json, size: int) -> None:
    """Write this many bytes to stderr, then answer."""
    write(2, b"e" * size)
    reply_text(request, "done")


def close_stdout(request: Json) -> None:
    """Close stdout and stay alive."""
    os.close(1)


def close_stdin(request: Json) -> None:
    """Answer, close stdin and stay alive."""
    os.close(0)
    reply_text(request, "done")
    while True:
        signal.pause()


def deaf(request: Json) -> None:
    """Read nothing any more."""
    while True:
        signal.pause()


def rounds(request: Json, count: int, question: Json | None = None) -> None:
    """Ask for input this many times, counting in requestState, then return the input."""
    params = request["params"]
    so_far = int(params.get("requestState", 0))
    if so_far == count:
        reply_text(request, json.dumps(params.get("inputResponses")))
        return
    result: Json = {"resultType": "input_required", "requestState": str(so_far + 1)}
    if question is not None:
        result["inputRequests"] = {"q": question}
    reply(request, result)


def anything(request: Json) -> None:
    """Run the next misbehaviour of the script."""
    name, arguments = next(script)
    TOOLS[name](request, **arguments)


def make_script(seed: int) -> Iterator[tuple[str, Json]]:
    """Yield random tool calls without end; half of them are harmless."""
    import random  # takes longer to import than we to start

    chance = random.Random(seed)
    nonsense = ["\xff", "[]", '{"jsonrpc":"2.0","id":99,"result":{}}', '{"jsonrpc":"2.0","id":']
    while True:
        yield chance.choice(
            [
                *[("echo", {"text": "hi"})] * 6,
                ("say", {"lines": nonsense}),
                ("mute", {}),
                ("frame", {"size": 10 ** chance.randint(3, 6)}),
                ("flood_stderr", {"size": 10 ** chance.randint(3, 6)}),
                ("drip", {"every": 0.001}),
                ("close_stdout", {}),
                ("exit", {"code": 3, "stderr": "out of cheese\n"}),
            ]
        )


def surroundings(request: Json) -> None:
    """Answer with environment, arguments, folder and the ids of all our processes."""
    facts = {
        "environment": dict(os.environ),
        "arguments": sys.argv[1:],
        "folder": os.getcwd(),  # noqa: PTH109 - pathlib takes longer to import than we to start
        "processes": process_ids,
    }
    reply_text(request, json.dumps(facts))


def grandchild(*, own_session: bool) -> int:
    """Start a process that ignores signals; optionally in a new session, as an orphan."""
    reader, writer = os.pipe()
    if not os.fork():
        if own_session:
            os.setsid()
            if os.fork():
                os._exit(0)
        for each in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(each, signal.SIG_IGN)
        os.write(writer, b"%d" % os.getpid())
        while True:
            signal.pause()
    id = int(os.read(reader, 20))
    os.close(reader)
    os.close(writer)
    return id


TOOLS: dict[str, Callable[..., None]] = {
    "say": say,
    "hear": hear,
    "echo": echo,
    "anything": anything,
    "frame": frame,
    "exit": lambda request, **how: leave(**how),
    "exit_with_heir": exit_with_heir,
    "mute": lambda request: None,
    "progress": progress,
    "drip": drip,
    "flood_stderr": flood_stderr,
    "close_stdout": close_stdout,
    "close_stdin": close_stdin,
    "deaf": deaf,
    "rounds": rounds,
    "surroundings": surroundings,
}


# Writing


def text_block(text: str) -> Json:
    """Return a text content block."""
    return {"type": "text", "text": text}


def reply_text(request: Json, text: str) -> None:
    """Answer a tool call."""
    reply(request, {"content": [text_block(text)]})


def reply(request: Json, result: Json | None) -> None:
    """Answer a request."""
    if revision == MODERN:
        result = {"resultType": "complete", **(result or {})}
    send(id=request["id"], result=result)


def refuse(request: Json, code: int, data: object = None) -> None:
    """Answer a request with an error."""
    send(id=request["id"], error={"code": code, "message": f"error {code}", "data": data})


def send(**message: Any) -> None:
    """Write one message."""
    write(1, json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


def write(descriptor: int, data: bytes) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


script = make_script(int(told.get("seed", 0)))


if __name__ == "__main__":
    main()
