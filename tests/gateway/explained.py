"""A gateway whose calls are explained."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from interlock.auth.principal import Principal
from interlock.config import loads
from interlock.config.gateway import Limits
from interlock.gateway import ForwardingServer
from interlock.gateway.explain.explainer import Explainer
from interlock.gateway.explain.explanation import Explanation
from interlock.layers import Layers
from interlock.layers.limits import Limiter
from interlock.policy import Policy
from tests.support.scripted_server import MODERN, ScriptedServer, text, tool

ALL = frozenset({"mcp:*"})
ANNA = Principal("user:anna", ALL)


def crm(**answers: Any) -> ScriptedServer:
    """Return a server with a tool that pays, one that reads, and one that cannot be called."""
    pay = tool("pay") | {
        "inputSchema": {"type": "object", "properties": {"amount": {"type": "number"}}}
    }
    listed = {"tools": [pay, tool("get_a"), {"name": "broken", "inputSchema": {"type": "array"}}]}
    return ScriptedServer(MODERN, {"tools/list": listed, "tools/call": text("done"), **answers})


SERVER = crm()


def policy_of(**gateway: Any) -> Policy:
    """Return a policy for it."""
    file = {
        "mcpServers": {"crm": {"command": "x", "tools": {"risk": {"read": ["get_*"]}}}},
        "gateway": gateway,
    }
    return Policy.from_config(loads(msgspec.json.encode(file)))


@asynccontextmanager
async def explaining(
    policy: Policy, limits: Limits | None = None, **servers: Any
) -> AsyncIterator[tuple[ForwardingServer, Explainer, Limiter]]:
    """Run a gateway with its explainer and limiter."""
    limiter = Limiter(limits or Limits())
    gateway = ForwardingServer(
        servers or {"crm": crm()},
        policy,
        environ={},
        layers=Layers(admit=limiter.admit, limits=limiter.around),
    )
    async with gateway.running():
        yield gateway, Explainer(gateway, policy, limiter), limiter


def verdicts(explained: Explanation) -> dict[str, str]:
    """Return the verdict of each check."""
    return {each.step: each.verdict for each in explained.checks}


def facts(explained: Explanation) -> dict[str, str]:
    """Return the fact of each check."""
    return {each.step: each.detail for each in explained.checks}


RULES = [
    {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"},
    {
        "id": "small",
        "effect": "allow",
        "who": ["user:anna"],
        "tools": ["crm:pay"],
        "arguments": {"amount": {"maximum": 50}},
    },
    {
        "id": "large",
        "effect": "ask",
        "who": ["user:anna"],
        "tools": ["crm:pay"],
        "arguments": {"amount": {"exclusiveMinimum": 50}},
        "approvers": ["group:leads"],
    },
]
