"""Warnings of rules that do not do what they seem to do."""

from __future__ import annotations

from typing import Any

import msgspec

from interlock import config
from interlock.calls import Entry
from interlock.policy import find_unchecked, find_warnings
from interlock.types import Tool
from tests.support.rows import each_row


def described(address: str, *arguments: str, **schema: Any) -> Entry:
    server, _, name = address.partition(":")
    properties = {each: {} for each in arguments}
    tool = Tool(name, {"type": "object", "properties": properties, **schema})
    return Entry(server, tool, address, f"{server}__{name}", b"{}")


CATALOGUE = [
    described("crm:get_customer", "id"),
    described("crm:list_customers"),
    described("crm:refund", "amount", "env"),
    described("crm:any", **{"$ref": "#/$defs/any"}),
]


def warned(gateway: dict[str, Any]) -> list[str]:
    return find_warnings(loaded(gateway), CATALOGUE)


def loaded(gateway: dict[str, Any]) -> config.Config:
    servers = {
        "crm": {"command": "crm", "tools": {"risk": {"read": ["get_*", "list_*"]}}},
        "down": {"command": "down"},
    }
    text = msgspec.json.encode({"mcpServers": servers, "gateway": gateway})
    return config.loads(text)


def warned_of(**members: Any) -> list[str]:
    whole = {"id": "r", "effect": "allow", "who": ["*"], "tools": ["crm:*"]} | members
    return warned({"policy": {"rules": [whole]}})


@each_row(
    ("members", "warnings"),
    [
        ({}, []),
        (
            {"tools": ["crm:refnd", "crm:get_*"]},
            ["rule r: crm:refnd matches no tool (did you mean 'crm:refund'?)"],
        ),
        ({"tools": ["*:delete_*"]}, ["rule r: *:delete_* matches no tool"]),
        ({"tools": ["down:anything"]}, []),
        (
            {"tools": ["crm:get_*"], "risk": "write"},
            ["rule r: no tool that it names has risk write"],
        ),
        ({"tools": ["crm:refund"], "arguments": {"amount": {}}}, []),
        (
            {"tools": ["crm:refund"], "arguments": {"amuont": {}}},
            ["rule r: no argument 'amuont' in crm:refund"],
        ),
        (
            {"arguments": {"env": {}}},
            ["rule r: no argument 'env' in crm:get_customer, crm:list_customers"],
        ),
        ({"arguments": {"env": {}}, "effect": "deny"}, []),
        (
            {"tools": ["crm:*_*"], "arguments": {"env": {}}, "effect": "deny"},
            ["rule r: no argument 'env' in crm:get_customer, crm:list_customers"],
        ),
        (
            {"effect": "ask"},
            [
                "rule r: the caller alone approves calls of risk write, such as crm:refund; "
                "name other approvers for what cannot be undone"
            ],
        ),
        ({"effect": "ask", "risk": "read"}, []),
        ({"effect": "ask", "approvers": ["group:leads", "caller"]}, []),
    ],
)
def test_dubious_rule_causes_a_warning(members: dict[str, Any], warnings: list[str]):
    assert warned_of(**members) == warnings


def test_patterns_of_views_and_limits_that_match_nothing_cause_warnings():
    assert warned(
        {
            "views": {"v": {"tools": {"allow": ["crm:get"], "deny": ["crm:refund"]}}},
            "limits": {"tools": {"crm:refunds": "5/s", "crm:*": "9/s"}},
        }
    ) == [
        "view v, allow: crm:get matches no tool (did you mean 'crm:get_customer'?)",
        "limits.tools: crm:refunds matches no tool (did you mean 'crm:refund'?)",
    ]


def test_names_are_unchecked_unless_the_tools_of_their_server_are_known():
    rule = {"id": "r", "effect": "ask", "who": ["*"], "risk": "write"}
    file = loaded(
        {
            "views": {"v": {"tools": {"allow": ["crm:get_*", "down:x", "down:*"]}}},
            "limits": {"tools": {"down:y": "5/s"}},
            "policy": {
                "rules": [
                    rule | {"tools": ["crm:refund"], "arguments": {"amount": {"maximum": 1}}},
                    rule | {"id": "s", "tools": ["down:*"], "arguments": {"a": {"const": 1}}},
                    {"id": "t", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
                ]
            },
        }
    )

    rest = "risk write, argument 'a', writes that the caller alone approves"
    assert find_unchecked(file, CATALOGUE) == [
        "view v, allow: down:x",
        "limits.tools: down:y",
        f"rule s: {rest}",
    ]
    amount = rest.replace("'a'", "'amount'")
    assert find_unchecked(file, ()) == [
        "view v, allow: crm:get_*, down:x",
        "limits.tools: down:y",
        f"rule r: crm:refund, {amount}",
        f"rule s: {rest}",
    ]


def test_a_file_without_gateway_has_no_warnings():
    assert find_warnings(config.loads(b"{}"), CATALOGUE) == []
