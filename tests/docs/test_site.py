"""The site of the documentation: complete, without dead links, and without other hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs import api_pages, index_page
from tests.docs.page import ROOT, links
from tests.docs.site import DOCS, build, navigation, pages_in, problems
from tests.test_api import PUBLIC

ZENSICAL = ROOT / "build/docs/bin/zensical"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder, str(ZENSICAL))
    return folder / "html"


def test_every_page_is_once_in_the_navigation():
    pages = {str(each.relative_to(DOCS)) for each in DOCS.rglob("*.md")} | {"changelog.md"}

    assert sorted(pages_in(navigation())) == sorted(pages)


def test_index_lists_every_page_of_the_navigation():
    assert index_page.text() == index_page.PAGE.read_text(), "run: python -m tests.docs.index_page"


def test_every_page_is_two_links_from_the_index_at_most():
    index = DOCS / "index.md"
    first = linked(index)
    near = first.union(*map(linked, first))

    assert {*DOCS.rglob("*.md")} - near == {index}


def linked(page: Path) -> set[Path]:
    found = {(page.parent / each["file"]).resolve() for each in links.finditer(page.read_text())}
    return {each for each in found if each.suffix == ".md" and each.is_relative_to(DOCS)}


def test_every_public_name_is_on_one_page_of_the_api():
    texts = api_pages.texts()

    current = {each.name: each.read_text() for each in api_pages.FOLDER.glob("*.md")}
    assert {**current, **texts} == current, "run: python -m tests.docs.api_pages"
    shown = re.findall(r"^::: (\S+)$", "".join(texts.values()), re.MULTILINE)
    owned = {
        f"{api_pages.owner(module, each)}.{each}"
        for module, names in PUBLIC.items()
        for each in names
    }
    assert sorted(shown) == sorted(owned)


@pytest.mark.slow("builds the site")
def test_site_has_every_page_for_readers_and_for_programs_and_no_mistakes(site: Path):
    assert [*problems(site)] == []

    listed = re.findall(r"\]\(/(\S+\.md)\): \S", (site / "llms.txt").read_text())
    assert listed == [*pages_in(navigation())]
    for name in listed:
        text = (site / name).read_text()
        assert (site / name).with_suffix(".html").exists()
        assert ":::" not in text
        assert [each[0] for each in links.finditer(text) if not each["file"].startswith("/")] == []
    assert "Client.call_tool(self, name: " in (site / "reference/api/client.md").read_text()
