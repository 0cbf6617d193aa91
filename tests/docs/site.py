"""Builds the site of the documentation: `make docs`, or python -m tests.docs.site FOLDER ZENSICAL.

The pages are copied to FOLDER/pages, where links to files outside of docs/ lead to copies. Zensical
makes FOLDER/html of them, without a network. Beside each page is its Markdown, with the text of the
API in it; `llms.txt` lists the pages, and `llms-full.txt` has them all.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml

from tests.docs.page import ROOT, links

DOCS = ROOT / "docs"
_FETCHED = re.compile(r"""url\(\s*["']?(https?:[^)"']+)|@import\s+["'](https?:[^"']+)""")
_API = re.compile(r"^::: (interlock[\w.]*)\.(\w+)$", re.MULTILINE)


def build(folder: Path, zensical: str) -> None:
    """Build the site.

    Raises:
        SystemExit: Zensical finds a mistake in a page.
    """
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    shutil.copytree(DOCS, pages)
    shutil.copy(ROOT / "CHANGELOG.md", pages / "changelog.md")
    for page in pages.rglob("*.md"):
        page.write_text(_with_copies(page, pages))
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    config |= {"docs_dir": "pages", "site_dir": "html"}
    (plugin,) = (each["mkdocstrings"] for each in config["plugins"] if isinstance(each, dict))
    plugin["handlers"]["python"]["paths"] = [str(ROOT / "src")]
    (folder / "mkdocs.yml").write_text(yaml.safe_dump(config))
    command = [
        Path(zensical).resolve(),
        "build",
        "--strict",
        "--config-file",
        str(folder / "mkdocs.yml"),
    ]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stdout + ran.stderr)
    _write_texts(config, folder)


def _with_copies(page: Path, pages: Path) -> str:
    """Return a page whose links out of docs/ lead to copies, which are made."""
    is_log = page == pages / "changelog.md"
    original = ROOT / "CHANGELOG.md" if is_log else DOCS / page.relative_to(pages)

    def moved(found: re.Match[str]) -> str:
        target = (original.parent / found["file"]).resolve()
        if target.is_relative_to(DOCS):
            at = pages / target.relative_to(DOCS)
        elif target == ROOT / "CHANGELOG.md":
            at = pages / "changelog.md"
        else:  # not as Markdown, which would be a page
            name = f"{target.relative_to(ROOT)}" + ".txt" * (target.suffix in {".md", ".py"})
            at = pages / "files" / name
            at.parent.mkdir(parents=True, exist_ok=True)
            if target.is_file():
                shutil.copy(target, at)
        return f"]({os.path.relpath(at, page.parent)}{found['anchor']})"

    return _outside_code(partial(links.sub, moved), page.read_text())


def _outside_code(change: Callable[[str], str], text: str) -> str:
    parts = re.split(r"(^ *```.*?^ *```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(each if at % 2 else change(each) for at, each in enumerate(parts))


# Texts for programs


def _write_texts(config: dict[str, object], folder: Path) -> None:
    """Write each page as Markdown, and both lists of all pages."""
    names = [*pages_in(config["nav"])]
    lines = [f"# {config['site_name']}\n\n> {config['site_description']}\n"]
    whole = []
    for name in names:
        text = _API.sub(_documented, (folder / "pages" / name).read_text())
        text = _outside_code(partial(links.sub, partial(_absolute, page=name)), text)
        (folder / "html" / name).write_text(text)
        title, about = _summary(text)
        lines.append(f"- [{title}](/{name}): {about}")
        whole.append(text)
    (folder / "html" / "llms.txt").write_text("\n".join(lines) + "\n")
    (folder / "html" / "llms-full.txt").write_text("\n\n".join(whole))


def pages_in(nav: object) -> Iterator[str]:
    """Yield the names of the pages of the navigation, in its order."""
    if isinstance(nav, str):
        yield nav
    for each in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else []:
        yield from pages_in(each)


def navigation() -> list[dict[str, list[str | dict[str, list[str]]]]]:
    """Return the navigation of mkdocs.yml: its sections, each with pages and groups of pages."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    nav: list[dict[str, list[str | dict[str, list[str]]]]] = config["nav"]
    return nav


def _absolute(found: re.Match[str], page: str) -> str:
    path = os.path.normpath(Path(page).parent / found["file"])
    return f"](/{path}{found['anchor']})"


def _summary(text: str) -> tuple[str, str]:
    """Return the title of a page, and its first sentence."""
    title, *rest = text.removeprefix("# ").strip().split("\n\n")
    prose = next((each for each in rest if re.match(r"\w|`(?!``)|\[", each)), "")
    return title.strip().replace("`", ""), re.split(r"(?<=[.:])\s", " ".join(prose.split()))[0]


def _documented(found: re.Match[str]) -> str:
    """Return the signature and the docstring of a public name as Markdown, with its methods."""
    value = getattr(importlib.import_module(found[1]), found[2])
    parts = [_described(found[2], value)]
    if inspect.isclass(value):
        parts += [
            _described(f"{found[2]}.{name}", member)
            for name, member in vars(value).items()
            if not name.startswith("_") and inspect.isfunction(member)
        ]
    text = "\n\n".join(parts)
    return f"## `{found[1]}.{found[2]}`\n\n```text\n{text}\n```"


def _described(name: str, value: object) -> str:
    with suppress(TypeError, ValueError, NameError):  # a value, or hints that only checkers see
        name += str(inspect.signature(value))  # type: ignore[arg-type]
    return f"{name}\n\n{inspect.getdoc(value) or ''}".rstrip()


# Checks


class Html(HTMLParser):
    """A page of the site: its ids, links, requests and the cells of its tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: set[str] = set()
        self.requests: set[str] = set()
        self.cells: list[str] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if id := given.get("id"):
            self.ids.add(id)
        if tag == "a" and given.get("href"):
            self.links.add(str(given["href"]))
        address = given.get("src") or (given.get("href") if tag == "link" else None)
        if address and given.get("rel") != "canonical":
            self.requests.add(address)
        if tag == "td":
            self._in_cell = True
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.cells[-1] += data


def problems(site: Path) -> Iterator[str]:
    """Yield each dead link, request to another host, and backslash in a cell of a table."""
    every = {file: Html(file.read_text()) for file in site.rglob("*.html")}
    for file, page in every.items():
        name = file.relative_to(site)
        for link in page.links | page.requests:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.requests:
                    yield f"{name}: requests {link}"
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            if name.name == "404.html" and parts.path.startswith("/"):
                continue
            if not target.exists():
                yield f"{name}: no file for {link}"
            elif parts.fragment and target in every and parts.fragment not in every[target].ids:
                yield f"{name}: no heading for {link}"
        yield from (f"{name}: backslash in {each!r}" for each in page.cells if "\\|" in each)
    for file in [*site.rglob("*.css"), *site.rglob("*.html")]:
        for url in _FETCHED.findall(file.read_text()):
            yield f"{file.relative_to(site)}: requests {url}"


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve(), sys.argv[2])
    found = [*problems(Path(sys.argv[1]).resolve() / "html")]
    if found:
        sys.exit("\n".join(["error: mistakes in the site:", *found]))
