"""The site of the documentation in a browser: search, narrow screens, themes and the keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import expect
from starlette.staticfiles import StaticFiles

from tests.browser.conftest import OpenPage, served, violations
from tests.docs.site import build
from tests.docs.test_site import ZENSICAL

# A word, and a page that is among the first three results.
SEARCHES = {
    "approve": "/operate/approvals.html",
    "sealing_key": "/author/develop.html",
    "mount": "/author/mounting.html",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder, str(ZENSICAL))
    return folder / "html"


async def test_search_finds_the_page_among_the_first_three(site: Path, open_page: OpenPage):
    async with served(StaticFiles(directory=site, html=True)) as url:
        page = await open_page(f"{url}/index.html")
        for text, wanted in SEARCHES.items():
            await page.wait_for_load_state("networkidle")  # the button has no effect before
            await page.locator(".md-search__button").click()
            await page.keyboard.type(text)
            # The list changes while the word is typed; the page of a result marks the whole word.
            found = page.locator(f'li:nth-child(-n+3) > a[href*="{wanted}?h={text}"]')
            await expect(found.first).to_be_visible()
            await page.goto(f"{url}/index.html")


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_page_is_usable_on_a_narrow_screen_in_each_theme(
    site: Path, open_page: OpenPage, theme: str
):
    async with served(StaticFiles(directory=site, html=True)) as url:
        for name in ("index", "start/assistant", "operate/keys", "reference/api/client"):
            page = await open_page(f"{url}/{name}.html", width=320, theme=theme)
            wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
            assert not wide, name
            assert await violations(page) == [], name
