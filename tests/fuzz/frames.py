"""Random bytes -> JSON-RPC messages that are right but for little."""

from __future__ import annotations

import json
from typing import Any

from tests.fuzz.choices import Choices

METHODS = [
    *("ping", "tools/call", "initialize", "tools/list", "notifications/progress", "rpc.x", "ü"),
    *("notifications/cancelled", "notifications/message", "notifications/initialized", ""),
]
IDS: list[Any] = [1, 2, 3, "a", 0, -1, 2**53, 2**64, 1.0, "1", None, True, [], 10**20]
PARAMS: list[Any] = [
    *({}, {"name": "x", "arguments": {"a": [1]}}, [], None, "x", {"_meta": {"progressToken": 1}}),
    *({"progressToken": 1, "progress": 1}, {"progressToken": 2, "progress": 0.5, "total": 1}),
    *({"requestId": 1}, {"requestId": "a", "reason": "enough"}, {"progressToken": 3}),
]
ERRORS: list[Any] = [{"code": -32601, "message": "no"}, {"code": "x"}, None, {"code": 1e99}, []]
BLANKS = ["", "", "", " ", "\n", "\t \r"]


def frame_of(choices: Choices) -> bytes:
    """Write a message; now and then a member is odd, doubled or in other case, or a byte is."""
    members: list[tuple[str, Any]] = [("jsonrpc", choices.one_of(["2.0"] * 15 + ["1.0"]))]
    kind = choices.number(4)
    if kind != 1:
        members.append(("id", choices.one_of(IDS[:4] * 4 + IDS)))
    if kind < 2:
        members.append(("method", choices.one_of(METHODS)))
        members.append(("params", choices.one_of([*PARAMS, *PARAMS, choices.json(3)])))
    elif kind == 2:
        members.append(("result", choices.one_of([{}, {"content": []}, choices.json(3)])))
    else:
        members.append(("error", choices.one_of(ERRORS)))
    if not choices.number(6):
        name, value = choices.one_of(members)
        members.append((choices.one_of([name, name.upper(), "x"]), value))
    if not choices.number(4):
        members.reverse()
    if not choices.number(32):
        members.append(("x", deep(choices.number(80))))
    blank = choices.one_of(BLANKS)
    written = (f"{json.dumps(name)}:{blank}{json.dumps(value)}" for name, value in members)
    frame = f"{blank}{{{f',{blank}'.join(written)}}}".encode()
    if not choices.number(8):
        at = choices.number(len(frame))
        frame = frame[:at] + choices.bytes(3) + frame[at + choices.number(3) :]
    return frame


def deep(levels: int) -> Any:
    """Nest lists."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value
