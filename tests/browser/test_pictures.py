"""The pictures of docs/web.md. `make pictures` writes them; they are looked at, not compared."""

from __future__ import annotations

import math
import os
from pathlib import Path
from time import time

import pytest
from playwright.async_api import Page, expect
from sqlalchemy import insert

from interlock.store import tables
from tests.browser.board import BoardUnderTest, board
from tests.browser.conftest import OpenPage
from tests.browser.test_board import DOWN
from tests.gateway.conftest import offering

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
WRITES = bool(os.environ.get("INTERLOCK_WRITE_PICTURES"))


async def take(page: Page, name: str) -> None:
    await page.wait_for_load_state("networkidle")
    picture = await page.screenshot(path=PICTURES / f"{name}.png" if WRITES else None)
    assert picture.startswith(b"\x89PNG")
    assert f"pictures/{name}.png" in (ROOT / "docs/web.md").read_text()


async def add_a_day_of_calls(gateway: BoardUnderTest) -> None:
    """Count calls of the last 24 hours, with an hour in which many fail."""
    now = int(time()) // 60
    rows = []
    for back in range(0, 1440, 10):
        wave = int(20 + 16 * math.sin(back / 230))
        counts = {"ran": wave, "refused": back % 3, "failed": 9 if 300 < back < 360 else back % 2}
        rows += [
            {
                "minute": now - back,
                "writer": "w",
                "tenant": "default",
                "server": "crm",
                "tool": "crm:list_customers",
                "key": "k",
                "outcome": outcome,
                "calls": calls,
                "bytes": 400 * calls,
                "ms": (calls << 32 * 12).to_bytes(128, "little"),
            }
            for outcome, calls in counts.items()
            if calls
        ]
    work = insert(tables.rollups)
    await gateway.assembly.database.write(lambda connection: connection.execute(work, rows))


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_picture_of_the_overview(open_page: OpenPage, tmp_path: Path, theme: str):
    servers = {"crm": offering("list_customers", "refund"), "time": offering("now")}
    async with board(tmp_path, open_page, **servers, fetch=DOWN) as gateway:
        await gateway.key("ci", "mcp:read", name="ci-bot")
        await add_a_day_of_calls(gateway)
        page = await gateway.open("/gateway", theme=theme)
        await expect(page.get_by_role("region", name="Calls", exact=True)).to_be_visible()

        await take(page, "board" if theme == "light" else "board-dark")


async def test_picture_of_the_audit_trail(open_page: OpenPage, tmp_path: Path):
    rules = [
        {"id": "reads", "effect": "allow", "who": ["*"], "tools": ["crm:list_*"]},
        {
            "id": "small-refunds",
            "effect": "allow",
            "who": ["*"],
            "tools": ["crm:refund"],
            "arguments": {"amount": {"maximum": 50}},
        },
    ]
    servers = {"crm": offering("list_customers", "refund")}
    settings = {"policy": {"rules": rules}, "limits": {"tools": {"crm:refund": "3/min"}}}
    async with board(tmp_path, open_page, settings, **servers) as gateway:
        keys = [await gateway.key(user, "mcp:*", name=f"{user}-laptop") for user in ("anna", "ben")]
        for amount in (10, 20, 80, 30, 40, 50, 60):
            await gateway.call(keys[0], "crm__list_customers")
            await gateway.call(keys[1], "crm__refund", amount=amount)
        await add_a_day_of_calls(gateway)
        page = await gateway.open("/gateway/audit")
        await page.get_by_role("grid").get_by_text("Limited").last.click()
        await expect(page.get_by_role("list", name="Steps of the decision")).to_be_visible()

        await take(page, "audit")


async def test_picture_of_explain(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page, crm=offering("list_customers", "refund")) as gateway:
        await gateway.key("ci", "mcp:read", name="ci-bot")
        stored = next(each for each in await gateway.keys.list() if each.user == "ci")
        page = await gateway.open(f"/gateway/tools/crm%3Arefund?key={stored.id}")
        await expect(page.get_by_role("list", name="Steps of the decision")).to_be_visible()

        await take(page, "explain")
