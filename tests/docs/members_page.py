"""Writes docs/reference/members.md: every member of the files, with the page that describes it.

python -m tests.docs.members_page

The members are the names that the readers in `interlock.config` know.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.docs.page import ROOT

PAGE = ROOT / "docs/reference/members.md"
# Where a member may be described; the first page that has it is named.
PLACES = (
    "reference/servers-file reference/gateway-file reference/policy reference/limits"
    " use/http-apis use/settings use/web operate/* concepts/security reference/* author/*"
)
BEGIN = """# Every member of the configuration

The members of the [file of servers](servers-file.md), of its [member `gateway`](gateway-file.md)
and of the [settings](../use/settings.md). A name may stand in several objects.

| member | described in |
|---|---|
"""


def members() -> set[str]:
    """Return the names of all members."""
    return {name for file in (ROOT / "src/interlock/config").glob("*.py") for name in _known(file)}


def _known(file: Path) -> Iterator[str]:
    """Yield the names that a module passes to `warn_unknown` and `refuse_unknown`."""
    tree = ast.parse(file.read_text())
    values = {
        each.targets[0].id: each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in {"warn_unknown", "refuse_unknown"}
        ):
            yield from _names(node.args[0], values)


def _names(node: ast.AST, values: dict[str, ast.expr]) -> Iterator[str]:
    """Yield the texts in an expression, and in the constants that it names."""
    for each in ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and each.value[:1] != "$":
            yield each.value
        elif isinstance(each, ast.Name) and each.id in values:
            yield from _names(values[each.id], values)


def text() -> str:
    """Return the page."""
    pages = [
        page
        for place in PLACES.split()
        for page in sorted((ROOT / "docs").glob(f"{place}.md"))
        if page != PAGE
    ]
    texts = {page: page.read_text() for page in pages}
    lines = []
    for name in sorted(members(), key=str.lower):
        found = [page for page in pages if f"`{name}`" in texts[page] or f'"{name}"' in texts[page]]
        assert found, f"no page describes the member {name!r}"
        title = texts[found[0]].partition("\n")[0].removeprefix("# ")
        path = found[0].relative_to(ROOT / "docs")
        target = path.name if path.parent.name == "reference" else f"../{path}"
        lines.append(f"| `{name}` | [{title}]({target}) |")
    return BEGIN + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(text())
