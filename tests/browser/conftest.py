"""Real browsers: one of a kind for each worker, a context for each test, a watch over every page.

All tests of this folder and the servers that they start run in one event loop, the browser's.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
import uvicorn
from playwright.async_api import (
    Browser,
    BrowserContext,
    Error,
    Page,
    Request,
    Response,
    Route,
    async_playwright,
    expect,
)

from tests.browser import chromium, firefox

HERE = Path(__file__).parent
AXE = chromium.UNPACKED / "node_modules/axe-core/axe.min.js"
PATIENCE = 120_000  # milliseconds; before the limit of the suite, to name the step that hangs
expect.set_options(timeout=PATIENCE)
# Milliseconds that each request of a page may be kept back, to find tests and pages that need a
# fast machine: `INTERLOCK_LATE=400 pytest tests/browser`.
LATE = int(os.environ.get("INTERLOCK_LATE", "0"))
# Rules of WCAG 2.2, A and AA, and those of them that compare colours.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
COLOURS = ["color-contrast", "link-in-text-block"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home directory of the browsers."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def variables(home: Path) -> dict[str, str]:
    """The environment of the browsers."""
    return {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home), "TZ": "UTC"}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium_browser(variables: dict[str, str]) -> AsyncIterator[Browser]:
    """Chromium."""
    path, needed = chromium.find()
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=path, args=chromium.ARGUMENTS, env={**variables, **needed}
        )
        yield launched
        await launched.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def firefox_browser(home: Path, variables: dict[str, str]) -> AsyncIterator[Browser]:
    """Firefox; the URLs of apps that it opens are in the file `opened` of its home directory."""
    async with async_playwright() as playwright:
        launched = await playwright.firefox.launch(
            channel="moz-firefox",  # not a Firefox that Playwright has changed
            executable_path=firefox.prepare(home),
            firefox_user_prefs=firefox.PREFERENCES,
            env={**variables},
        )
        yield launched
        await launched.close()


@pytest.fixture
def browser(chromium_browser: Browser) -> Browser:
    """The browser of a test; a file of tests that need both overrides this fixture."""
    return chromium_browser


class Watch:
    """What went wrong in the pages of a test.

    Attributes:
        found: A line for each.
        expected: Parts of lines that the test causes on purpose.
    """

    def __init__(self) -> None:
        self.found: list[str] = []
        self.expected: list[str] = []

    def follow(self, context: BrowserContext) -> None:
        context.on("console", lambda each: self._console(each.type, each.text))
        context.on("weberror", lambda each: self.found.append(f"error: {each.error}"))
        context.on("request", self._requested)
        context.on("response", self._answered)

    def _console(self, kind: str, text: str) -> None:
        # The browser says so of every status over 399; `_answered` knows which are designed.
        is_status = text.startswith("Failed to load resource: the server responded with")
        if kind in ("error", "warning") and not is_status:
            self.found.append(f"console: {text}")

    def _requested(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and url.hostname != "127.0.0.1":
            self.found.append(f"request to elsewhere: {request.url}")
        if url.path.endswith("/api/csp"):
            self.found.append(f"CSP report: {request.post_data}")

    def _answered(self, response: Response) -> None:
        path = urlsplit(response.url).path
        is_api = path.startswith(("/api/", "/admin/", "/me"))
        if response.status >= (500 if is_api else 400):
            self.found.append(f"status {response.status}: {path}")

    def problems(self) -> list[str]:
        return [each for each in self.found if not any(part in each for part in self.expected)]


@pytest.fixture
def watch() -> Watch:
    """The watch over the pages; a test may add to `expected`."""
    return Watch()


class OpenPage:
    """Opens pages, each in a context of its own."""

    def __init__(self, browser: Browser, watch: Watch) -> None:
        self._browser = browser
        self._watch = watch
        self._contexts: list[BrowserContext] = []

    async def __call__(
        self,
        url: str,
        *,
        width: int = 1440,
        height: int = 900,
        theme: str = "light",
        stored: dict[str, str] | None = None,
        cookies: Iterable[dict[str, Any]] = (),
        **options: Any,
    ) -> Page:
        """Open a page; `stored` is what its storage has at each load."""
        context = await self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if theme == "dark" else "light",
            locale="en-GB",
            timezone_id="UTC",
            reduced_motion="reduce",
            **options,
        )
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        if LATE:
            await context.route("**", answer_late)
        self._watch.follow(context)
        if cookies:
            await context.add_cookies(list(cookies))  # type: ignore[arg-type]
        page = await context.new_page()
        if stored:
            await page.add_init_script(
                f"for (const [k, v] of Object.entries({stored!r})) localStorage.setItem(k, v)"
            )
        await page.goto(url)
        return page

    async def close(self) -> None:
        """Close all pages; a server is ended after its pages."""
        while self._contexts:
            await self._contexts.pop().close()


async def answer_late(route: Route) -> None:
    """Let a request go on after a while, so that answers come in any order."""
    await asyncio.sleep(random.uniform(0, LATE) / 1_000)
    with suppress(Error):  # the page was closed meanwhile
        await route.continue_()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(browser: Browser, watch: Watch) -> AsyncIterator[OpenPage]:
    """Open pages in contexts of their own; afterwards nothing may have gone wrong in them."""
    opener = OpenPage(browser, watch)
    yield opener
    await opener.close()
    problems = "\n".join(watch.problems())
    assert problems == ""


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an application on a free port; gives its URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="websockets-sansio")
        server = uvicorn.Server(config)
        listener.listen()  # early requests wait in the socket
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = server.force_exit = True
            await serving


async def violations(page: Page, *, rules: Iterable[str] = ()) -> list[str]:
    """Return what axe finds in a page, by all rules of WCAG or only by `rules`."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(AXE.read_text())
    chosen = [*rules]
    only = {"type": "rule", "values": chosen} if chosen else {"type": "tag", "values": RULES}
    options = {"runOnly": only, "resultTypes": ["violations"]}
    result = await page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
        for each in result["violations"]
        for node in each["nodes"]
    ]


ARE_CUT = "all => all.some((each) => each.scrollWidth > each.clientWidth)"


async def violations_everywhere(page: Page) -> list[str]:
    """Return what axe finds in a page at each width in both themes."""
    found: list[str] = []
    for width in (360, 768, 1440):
        await page.set_viewport_size({"width": width, "height": 800})
        if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{width} pixels: wider than the window")
        if await page.locator(".tabs").evaluate_all(ARE_CUT):
            found.append(f"{width} pixels: tabs are cut off")
        for theme, rules in (("light", []), ("dark", COLOURS)):  # themes differ in colours only
            await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            problems = await violations(page, rules=rules)
            found += [f"{theme}, {width} pixels: {each}" for each in problems]
    return found


# Keeps the delays of all timers that wait; that of an animation frame is 0.
TIMERS = """
const waiting = new Map();
const watch = (start, stop, repeats, wait = (_, ms = 0) => ms) => {
  const [starts, stops] = [window[start].bind(window), window[stop].bind(window)];
  window[start] = (run, ...rest) => {
    const id = starts((...given) => {
      if (!repeats) waiting.delete(`${start}${id}`);
      return run(...given);
    }, ...rest);
    waiting.set(`${start}${id}`, wait(run, ...rest));
    return id;
  };
  window[stop] = (id) => { waiting.delete(`${start}${id}`); stops(id); };
};
watch("setTimeout", "clearTimeout", false);
watch("setInterval", "clearInterval", true);
watch("requestAnimationFrame", "cancelAnimationFrame", false, () => 0);
window.waitingTimers = () => [...waiting.values()];
"""
IDLE_TIMER = 20_000  # milliseconds: the shortest interval of a timer while the page is idle


async def expect_idle(page: Page) -> None:
    """Wait until a page that has loaded `TIMERS` has no timer shorter than `IDLE_TIMER`."""
    timers: list[float] = [0]
    async with asyncio.timeout(PATIENCE / 1_000):
        while any(each < IDLE_TIMER for each in timers):
            timers = await page.evaluate("waitingTimers()")
