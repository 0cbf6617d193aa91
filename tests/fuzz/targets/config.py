"""Configuration: a file is refused with its line or read as a whole; an edit changes one member."""

from __future__ import annotations

import contextlib
import json
import re
from typing import Any

from interlock import config
from interlock.config import HttpServer, StdioServer, ToolFilter, editing
from interlock.config.jsonc import JsoncDocument, JsoncError, write_place
from interlock.config.other_programs import place_of_servers
from interlock.errors import ConfigError
from tests.fuzz.choices import Choices
from tests.fuzz.watch import check_text

TOKENS = [
    *(b'"mcpServers":{', b'"servers":{', b'"command":"x"', b'"args":[', b'"env":{', b'"url":'),
    *(b'"https://x/"', b'"headers":{', b'"type":"sse"', b'"timeout":1', b'"tools":{"allow":['),
    *(b'"enabled":true', b'"namespace":"n"', b'"inputs":[]', b"//", b"/*", b"*/", b",]", b",}"),
    *(b"${A}", b"${env:A:-b}", b"${", b"\\ud800", b"NaN", b"1e999", b"\xef\xbb\xbf", b"\r\n"),
    *(b'"auth":"oauth"', b'"sharing":"per_user"', b'"concurrency":1', b"99999999999999999999999"),
]
COMMENTS = ["// x\n", "/* x */", "\n", "/* , } */", " ", '// "\n', ",", "/*"]
MEMBERS: list[tuple[str, list[Any]]] = [
    ("args", [["a", "${A}"], [], ["//"]]),
    ("env", [{"A": "${env:B:-c}"}, {"": ""}, {"A=": "x"}]),
    ("headers", [{"X": "y"}, {"Authorization": "Bearer ${T}"}, {"X": "a\nb"}, {"é": "x"}]),
    ("url", ["https://x/${A}", "ftp://x", "https://u:p@x/?t=1"]),
    ("type", ["stdio", "http", "sse", "streamable-http", "local", "Streamable_HTTP"]),
    ("transport", ["sse", {"type": "http", "url": "https://x/"}, {"command": ["x", 1]}]),
    ("timeout", [1, 0.5, 0, 1e999, 10**30, True, None, 5000, "5000ms", "1.5h"]),
    ("env_http_headers", [{"X": "A"}, {"X": ["A"]}]),
    ("env_vars", [["A"], ["="]]),
    ("namespace", ["n", "", "a:b", "a"]),
    ("tools", [{"allow": ["a*"], "deny": []}, {"x": 1}]),
    ("sharing", ["shared", "per_user"]),
    ("pool", [{"max": 2, "idle": "5m"}, {"spare": 17}, {"life": "1w"}, {}]),
    ("auth", ["auto", "oauth", "bearer", "none"]),
    ("concurrency", [1, 10**5]),
    ("maxMessageBytes", [1, 2**40]),
    ("disabled", [True, False]),
    ("cwd", ["/", ""]),
    ("command", ["y", " "]),
]
ADDED = [
    StdioServer(command="x", args=("a", "ü"), env={"A": "b"}, timeout=5.0),
    HttpServer(url="https://x/y", headers={"X": "y"}, tools=ToolFilter(("a",), ("b",))),
]


def target(data: bytes) -> None:
    choices = Choices(data)
    added, as_it_is = choices.one_of(ADDED), choices.flag()
    content = choices.rest() if as_it_is else file_of(choices)
    document = read(content)
    try:
        loaded = config.loads(content)
    except ConfigError as error:
        check_text(error)
        return
    assert document is not None
    for server in loaded.servers.values():
        repr(server)
        with contextlib.suppress(ConfigError):
            config.resolve(server, {"A": "a", "EMPTY": ""})
    edit(content, loaded, added)


def file_of(choices: Choices) -> bytes:
    """Return a file in a person's style, mostly valid."""
    table = {name: entry_of(choices) for name in choices.some_of(["a", "b", "c d", "é", "a:b"], 3)}
    root = {choices.one_of(["mcpServers", "mcpServers", "servers", "x"]): table}
    if not choices.number(8):
        root[choices.text()] = choices.json(2)
    text = json.dumps(root, indent=choices.one_of([None, 2, "\t"]), ensure_ascii=choices.flag())
    for _ in range(choices.number(6)):
        at = choices.number(len(text))
        at = max(text.rfind(sign, 0, at) for sign in ",{[") + 1  # mostly a valid position
        text = text[:at] + choices.one_of(COMMENTS) + text[at:]
    if choices.flag():
        text = re.sub(r"([^,{\[\s])(\s*[}\]])", r"\1,\2", text)
    return text.replace("\n", choices.one_of(["\n", "\r\n"])).encode()


def entry_of(choices: Choices) -> Any:
    entry: dict[str, Any] = dict([choices.one_of([("command", "x"), ("url", "https://x/")])])
    for key, values in choices.some_of(MEMBERS, 4):
        entry[key] = choices.one_of([*values, *values, choices.json(1)])
    return entry


def read(content: bytes) -> JsoncDocument | None:
    """Read JSON with comments; plain JSON must have the value that `json` returns."""
    try:
        plain: Any = json.loads(content.decode("utf-8-sig"), object_pairs_hook=unique)
    except (ValueError, RecursionError, KeyError):
        plain = Ellipsis
    try:
        document = JsoncDocument(content)
    except JsoncError as error:
        check_text(error)
        check_refusal(error, plain is Ellipsis)
        return None
    if plain is not Ellipsis:
        assert json.dumps(document.value) == json.dumps(plain)
    for place, span in document.spans.items():
        assert 0 <= span.start <= span.value < span.end <= len(document.text)
        document.line(place)
        write_place(place)
    return document


def check_refusal(error: JsoncError, is_invalid_json: bool) -> None:
    """Check that valid JSON is refused only if it exceeds one of our limits."""
    assert is_invalid_json or "digits" in str(error) or "not JSON" in str(error)


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) < len(pairs):
        raise KeyError("a member occurs twice")
    return dict(pairs)


def edit(content: bytes, loaded: config.Config, added: StdioServer | HttpServer) -> None:
    """Add a server, remove it, then remove all others."""
    name = "new"
    if name in loaded.servers or name in {each.namespace for each in loaded.servers.values()}:
        return
    document = JsoncDocument(content)
    place = place_of_servers(document.value)
    entry = editing._entry(added)
    if place not in document.spans:
        longer = document.with_member((), place[0], {name: entry})
    elif document.text[document.spans[place].value] == "{":
        longer = document.with_member(place, name, entry)
    else:
        return  # `add_server` refuses a list
    assert config.loads(encoded(longer)).servers == {**loaded.servers, name: added}
    left = loaded.servers.copy()
    shorter = JsoncDocument(encoded(longer)).without_member((*place, name))
    assert config.loads(encoded(shorter)).servers == left
    for other in list(left):
        del left[other]
        shorter = JsoncDocument(encoded(shorter)).without_member((*place, other))
        assert config.loads(encoded(shorter)).servers == left


def encoded(text: str) -> bytes:
    return text.encode()
