"""A gateway's servers, rules and principals, with the tools that each principal may use."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.auth.principal import Principal
from interlock.context import Context
from interlock.errors import InterlockError
from interlock.gateway import ForwardingServer
from interlock.protocol import Request
from interlock.types import ClientCapabilities
from tests.support.scripted_server import MODERN, Json, ScriptedServer, text, tool

SERVERS = ("crm", "git", "docs", "lab")
NAMES = ("get_a", "get_b", "list_c", "set_d", "pay", "drop_e", "env", "get_prod", "w", "x")

FILE: Json = {
    "mcpServers": {
        name: {"command": "x", "tools": {"risk": {"read": ["get_*", "list_*"]}}} for name in SERVERS
    },
    "gateway": {
        "views": {
            "sales": {"servers": ["crm"], "tools": {"deny": ["crm:drop_*"]}},
            "plain": {"servers": ["git"], "names": "plain"},
        },
        "groups": {"sales": ["user:anna", "user:s"], "dev": ["user:bert"]},
        "policy": {
            "rules": [
                {"id": "read", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"},
                {
                    "id": "pay",
                    "effect": "allow",
                    "who": ["group:sales"],
                    "tools": ["crm:pay"],
                    "arguments": {"amount": {"maximum": 50}},
                },
                {"id": "dev", "effect": "allow", "who": ["group:dev"], "tools": ["git:*"]},
                {
                    "id": "ask",
                    "effect": "ask",
                    "who": ["group:dev"],
                    "tools": ["lab:pay"],
                    "arguments": {"amount": {"exclusiveMinimum": 50}},
                },
                {"id": "root", "effect": "allow", "who": ["user:root"], "tools": ["*:*"]},
                {"id": "no-prod", "effect": "deny", "who": ["*"], "tools": ["*:*prod"]},
                {
                    "id": "view",
                    "effect": "allow",
                    "who": ["*"],
                    "tools": ["crm:set_d"],
                    "view": "sales",
                },
                {
                    "id": "claims",
                    "effect": "allow",
                    "who": ["*"],
                    "tools": ["lab:w"],
                    "claims": {"level": {"minimum": 3}},
                },
                {"id": "docs", "effect": "allow", "who": ["*"], "resources": ["docs:*"]},
                {"id": "own", "effect": "allow", "who": ["user:root"], "resources": ["*:*"]},
                {"id": "prompts", "effect": "allow", "who": ["group:dev"], "prompts": ["git:*"]},
            ]
        },
    },
}

ALL = frozenset({"mcp:*"})
READS = [f"{s}:{n}" for s in SERVERS for n in ("get_a", "get_b", "list_c")]
# Each principal with the addresses of the tools that it may use.
TABLE: list[tuple[Principal, list[str]]] = [
    (Principal("user:anna", ALL), [*READS, "crm:pay"]),
    (
        Principal("user:bert", ALL),
        [*READS, *(f"git:{n}" for n in NAMES if n != "get_prod"), "lab:pay"],
    ),
    (Principal("user:carl", ALL), READS),
    (
        Principal("user:root", ALL),
        [f"{s}:{n}" for s in SERVERS for n in NAMES if n != "get_prod"],
    ),
    (Principal("user:root", frozenset({"mcp:read"})), READS),
    (
        Principal("user:root", frozenset({"mcp:crm:*"})),
        [f"crm:{n}" for n in NAMES if n != "get_prod"],
    ),
    (Principal("user:root", frozenset({"mcp:lab:set_*"})), ["lab:set_d"]),
    (Principal("user:root", frozenset({"admin:read"})), []),
    (Principal("user:root", frozenset()), []),
    (
        Principal("user:s", ALL, view="sales"),
        ["crm:get_a", "crm:get_b", "crm:list_c", "crm:pay", "crm:set_d"],
    ),
    (Principal("user:root", ALL, view="unknown"), []),
    (Principal("user:x", ALL, claims={"level": 4}), [*READS, "lab:w"]),
]


# The arguments with which each of these tools is called; the others are called without any.
ARGUMENTS: dict[str, list[Json]] = {
    address: [{"amount": 20}, {"amount": 80}, {"amount": "20"}, {"amount": None}, {}]
    for address in ("crm:pay", "lab:pay")
}


def upstream(server: str) -> ScriptedServer:
    return ScriptedServer(
        MODERN,
        {
            "tools/list": {"tools": [tool(each) for each in NAMES]},
            "tools/call": text("done"),
            "resources/list": {"resources": [{"uri": f"{server}://1", "name": "1"}]},
            "resources/templates/list": {"resourceTemplates": []},
            "resources/read": {"contents": []},
            "prompts/list": {"prompts": [{"name": "p"}]},
            "prompts/get": {"messages": []},
        },
        capabilities={"tools": {}, "resources": {}, "prompts": {}},
    )


def context_of(principal: Principal, revision: str) -> Context:
    return Context(
        revision=revision,
        request_id=1,
        link=None,  # type: ignore[arg-type]  # nothing is sent back
        loop=None,  # type: ignore[arg-type]
        client_capabilities=ClientCapabilities(),
        principal=principal,
    )


async def answer(gateway: ForwardingServer, context: Context, method: str, **params: Any) -> Json:
    """Return the result or the error of a request."""
    request = Request(1, method, msgspec.Raw(msgspec.json.encode(params)))
    try:
        found: Json = msgspec.json.decode(await gateway.answer(request, context))
    except InterlockError as error:
        return {"error": str(error)}
    return found
