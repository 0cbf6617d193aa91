"""Writes the lists of docs/index.md: each page of the navigation, but for those of single modules.

python -m tests.docs.index_page
"""

from __future__ import annotations

from tests.docs.page import ROOT
from tests.docs.site import navigation, pages_in

PAGE = ROOT / "docs/index.md"
BEGIN = "## Find a task\n"


def text() -> str:
    """Return the page with the current lists."""
    before, _, _ = PAGE.read_text().partition(BEGIN)
    lines = [before + BEGIN]
    for section in navigation()[1:]:
        ((name, entries),) = section.items()
        lines.append(f"### {name}\n")
        for group, pages in _groups(entries):
            lines.append(f"{group}:\n" if group else "")
            lines.append("\n".join(f"- [{_title(each)}]({each})" for each in pages) + "\n")
    return "\n".join(lines).replace("\n\n\n", "\n\n")


def _groups(entries: list[str | dict[str, list[str]]]) -> list[tuple[str, list[str]]]:
    groups = [("", [each for each in entries if isinstance(each, str)])]
    for each in entries:
        if isinstance(each, dict):
            groups += [(name, [*pages_in(pages)]) for name, pages in each.items()]
    listed = [
        (name, [each for each in pages if (ROOT / "docs" / each).exists() and not _is_module(each)])
        for name, pages in groups
    ]
    return [each for each in listed if each[1]]


def _is_module(page: str) -> bool:
    return page.startswith("reference/api/") and page != "reference/api/index.md"


def _title(page: str) -> str:
    return (ROOT / "docs" / page).read_text().partition("\n")[0].removeprefix("# ")


if __name__ == "__main__":
    PAGE.write_text(text())
