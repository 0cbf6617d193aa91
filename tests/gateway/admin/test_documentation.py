"""The documentation of the API: every route is in its table, and its examples are true."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.gateway.admin.routes import ADMIN_ROUTES, LOGIN_ROUTES, USER_ROUTES
from tests.gateway.conftest import bearer, offering

PAGE = Path(__file__).parents[3] / "docs" / "gateway.md"
BEGIN, END = "<!-- routes -->\n", "<!-- end of routes -->"
RULES = [{"id": "all", "effect": "allow", "who": ["*"], "tools": ["crm:*"]}]


def table() -> str:
    """Return the table of routes."""
    lines = ["| route | scope | does |", "|---|---|---|"]
    for route in (*ADMIN_ROUTES, *USER_ROUTES, *LOGIN_ROUTES):
        scope = {"": "none", "any": "any", "mcp:": "any `mcp:`"}.get(route.scope)
        path = route.path.replace("*}", "}")
        lines.append(f"| `{route.method} {path}` | {scope or f'`{route.scope}`'} | {route.about} |")
    return "\n".join(lines) + "\n"


def renewed(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def examples() -> Iterator[tuple[str, str, Any, int, Any]]:
    """Yield each example: method, path with query, body, status, and what the answer has."""
    for block in re.findall(r"```http\n(.*?)```", PAGE.read_text(), re.S):
        request, _, answer = block.partition("\n\n")
        line, _, body = request.partition("\n")
        status, _, shown = answer.partition("\n")
        method, path = line.split()
        yield method, path, body, int(status), json.loads(shown) if shown.strip() else None


def is_like(found: Any, shown: Any) -> bool:
    """Return whether an answer has every member that an example shows, of the same type."""
    if isinstance(shown, dict):
        return isinstance(found, dict) and all(
            name in found and is_like(found[name], each) for name, each in shown.items()
        )
    if isinstance(shown, list) and shown:
        return bool(found) and is_like(found[0], shown[0])
    return type(found) is type(shown) or isinstance(found, int | float)


def test_table_of_routes_matches_the_source():
    page = PAGE.read_text()
    assert renewed(page) == page, "renew it: python -m tests.gateway.admin.test_documentation"


@pytest.mark.slow("fills a database")
async def test_examples_are_answered_as_shown(running):
    async with running({"policy": {"rules": RULES}}, crm=offering("refund")) as gateway:
        scopes = ("mcp:*", "admin:read", "admin:approve", "admin:write")
        key = await gateway.key("anna", *scopes)
        await gateway.call("crm__refund", key, amount=80)
        await gateway.settle()
        own = gateway.assembly.services.keys.find(key.encode()).stored.id
        seen = 0
        for method, path, body, status, shown in examples():
            path, _, query = path.replace("7fk2m9qdx3ha", own).partition("?")
            body = body.replace("7fk2m9qdx3ha", own).replace("ilk_…", key)
            reply = await gateway.http.request(
                method,
                path,
                body.encode(),
                bearer(key) | {"content-type": "application/json"},
                query=query,
            )
            assert reply.code == status, (path, reply.body)
            assert is_like(json.loads(reply.body) if reply.body else None, shown), reply.body
            seen += 1
    assert seen >= 6


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
