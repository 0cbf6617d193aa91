"""The page on which a user connects to a server, from its link to the answer of the call."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import expect

from interlock.config import loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Endpoint
from tests.browser.conftest import OpenPage, Watch, served, violations
from tests.gateway.notes import User, reason, serving_notes
from tests.server.http.conftest import Http


class Gateway:
    """A served gateway, and the user of its key."""

    def __init__(self, app: Any, key: str) -> None:
        self.http = Http(app)
        self.user = User(self, key)


@asynccontextmanager
async def gateway(
    folder: Path, open_page: OpenPage, entry: dict[str, Any]
) -> AsyncIterator[Gateway]:
    settings = {"database": str(folder / "gateway.db")}
    config = loads(json.dumps({"mcpServers": {"notes": entry}, "gateway": settings}).encode())
    apps: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps["public"](scope, receive, send)

    async with (
        served(app) as url,
        Assembly.open(config, environ={}) as assembly,
        assembly.server.running(),
    ):
        address = Address("127.0.0.1", urlsplit(url).port or 0)
        apps["public"] = Endpoint(assembly, f"{url}/mcp", address=address).app
        try:
            yield Gateway(apps["public"], assembly.services.callers.key_for_this_run() or "")
        finally:
            await open_page.close()
            await apps["public"].close()


async def test_user_logs_in_to_the_server_and_the_next_call_is_answered(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    async with serving_notes() as notes, gateway(tmp_path, open_page, notes.entry()) as running:
        user = running.user
        page = await open_page(await user.url())
        assert await violations(page) == []

        watch.expected.append("status 401")
        await page.get_by_label("Your key").fill("ilk_wrong")
        await page.get_by_role("button", name="Connect").click()
        await expect(page.get_by_role("status")).to_contain_text("not valid")
        await page.get_by_label("Your key").fill(user.key)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Connected")).to_be_visible()

        assert "/oauth/callback/" in page.url
        assert user.key not in await page.evaluate("JSON.stringify({...localStorage})")
        assert (await user.call()).text.startswith("access-1")


async def test_user_stores_a_value_and_needs_no_key_for_the_next_page(
    open_page: OpenPage, tmp_path: Path
):
    async with serving_notes() as notes:
        notes.authorization.access_tokens |= {"first-token": "", "second-token": ""}
        entry = notes.entry(auth="bearer", headers={"Authorization": "Bearer ${user:TOKEN}"})
        async with gateway(tmp_path, open_page, entry) as running:
            user = running.user
            page = await open_page(await user.url())
            await page.get_by_label("Your key").fill(user.key)
            await page.get_by_label("TOKEN").fill("first-token")
            await page.get_by_role("button", name="Connect").click()
            await expect(page.get_by_role("status")).to_contain_text("Connected")
            first = (await user.call()).text
            del notes.authorization.access_tokens["first-token"]
            await page.goto(reason(await user.call())["url"])
            await page.get_by_label("TOKEN").fill("second-token")
            await page.get_by_role("button", name="Connect").click()
            await expect(page.get_by_role("status")).to_contain_text("Connected")
            second = (await user.call()).text

    assert (first, second) == ("first-token", "second-token")
