"""The documentation lists the same routes and frames as the source.

python -m tests.web.test_documentation    updates the tables of routes
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from interlock.server.http.json_api import Route
from interlock.web.apps import apps
from interlock.web.chat import chat_api
from interlock.web.inspector import inspector_api as inspect_api

ROOT = Path(__file__).parents[2]
PAGES = {"chat": ROOT / "docs/use/web.md", "inspector": ROOT / "docs/author/inspector.md"}
END = "<!-- end of routes -->"
TABLES: dict[str, Iterable[Route]] = {
    "chat": (*chat_api.LOCAL_ROUTES, *apps.ROUTES),
    "inspector": inspect_api.routes(""),
}


def renewed(name: str, page: str) -> str:
    """Return a page with the table of routes of the source."""
    begin = f"<!-- routes of the {name} -->\n"
    before, found, rest = page.partition(begin)
    assert found, f"{PAGES[name]} has no {begin.strip()}"
    lines = [f"| `{each.method} {_path(each)}` | {each.about} |\n" for each in TABLES[name]]
    table = "| route | for |\n|---|---|\n" + "".join(lines)
    return f"{before}{begin}{table}{END}{rest.partition(END)[2]}"


def _path(route: Route) -> str:
    return re.sub(r"\{(\w+)\*?\}", lambda match: match[1].upper(), route.path)


def test_documented_route_tables_equal_the_source():
    for name, file in PAGES.items():
        page = file.read_text()
        assert renewed(name, page) == page, "renew it: python -m tests.web.test_documentation"


def test_frames_of_the_socket_are_all_documented():
    text = (ROOT / "docs/connect/chat-server.md").read_text().partition("## `/ws`")[2]
    tables = re.findall(r"(?m)(?:^\|.*\n)+", text)[:2]
    to_server, from_server = ({*re.findall(r"`(\w+)`", _names(each))} for each in tables)
    folder = ROOT / "src/interlock/web/chat"
    source = "".join((folder / f"{each}.py").read_text() for each in ("events", "turn", "socket"))
    sent = {*re.findall(r"""(?:"type": |type=|_end\(\s*)"(\w+)"(?!\.)""", source)}

    handlers = source.partition("handlers = {")[2].partition("}")[0]
    assert to_server == {*re.findall(r'"(\w+)":', handlers)}
    assert from_server == sent


def _names(table: str) -> str:
    """Return the first cells of the rows."""
    return "\n".join(row.split("|")[1] for row in table.splitlines()[2:])


if __name__ == "__main__":
    for name, file in PAGES.items():
        file.write_text(renewed(name, file.read_text()))
