"""The routes in docs/reference/admin-api.md are complete; `python -m` this module renews them."""

from __future__ import annotations

from pathlib import Path

from interlock.gateway.admin import login
from interlock.gateway.admin.routes import ADMIN_ROUTES, USER_ROUTES

PAGE = Path(__file__).parents[3] / "docs/reference/admin-api.md"
BEGIN, END = "<!-- routes -->\n", "<!-- end of routes -->"


def table() -> str:
    """Return the table of routes."""
    lines = ["| route | scope | does |", "|---|---|---|"]
    for route in (*ADMIN_ROUTES, *USER_ROUTES, *login.ROUTES):
        scope = {"": "none", "any": "any", "mcp:": "any `mcp:`"}.get(route.scope)
        path = route.path.replace("*}", "}")
        lines.append(f"| `{route.method} {path}` | {scope or f'`{route.scope}`'} | {route.about} |")
    return "\n".join(lines) + "\n"


def renewed(page: str) -> str:
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def test_table_of_routes_matches_the_source():
    page = PAGE.read_text()
    assert renewed(page) == page, "renew it: python -m tests.gateway.admin.test_documentation"


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
