"""The pictures of the pages, which `make pictures` writes; people look at them."""

from __future__ import annotations

import math
import os
from functools import partial
from pathlib import Path
from time import time
from typing import Any

import pytest
from playwright.async_api import Page, expect
from sqlalchemy import insert

from interlock import Server
from interlock.messages import AssistantMessage, ToolCall
from interlock.models.scripted import ScriptedModel
from interlock.store.database import tables
from tests.browser.board import BoardUnderTest, board
from tests.browser.chat import READ, chat
from tests.browser.conftest import OpenPage
from tests.browser.inspect import inspecting, program
from tests.browser.test_board import DOWN
from tests.gateway.conftest import offering

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "docs/pictures"
WRITES = bool(os.environ.get("INTERLOCK_WRITE_PICTURES"))

SOAK = pytest.mark.product  # `make test-all` takes one picture of each kind of page


async def take(page: Page, name: str, *, polls: bool = False) -> None:
    if not polls:  # such a page always waits for the server
        await page.wait_for_load_state("networkidle")
    picture = await page.screenshot(path=PICTURES / f"{name}.png" if WRITES else None)
    assert picture.startswith(b"\x89PNG")
    pages = ("use/web", "operate/board", "author/inspector")
    texts = [(ROOT / f"docs/{each}.md").read_text() for each in pages]
    assert any(f"pictures/{name}.png" in each for each in texts)


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
    await gateway.assembly.services.database.write(
        lambda connection: connection.execute(work, rows)
    )


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=SOAK)])
async def test_picture_of_the_overview(open_page: OpenPage, tmp_path: Path, theme: str):
    servers = {"crm": offering("list_customers", "refund"), "time": offering("now")}
    async with board(tmp_path, open_page, **servers, fetch=DOWN) as gateway:
        await gateway.key("ci", "mcp:read", name="ci-bot")
        await add_a_day_of_calls(gateway)
        page = await gateway.open("/gateway", theme=theme)
        await expect(page.get_by_role("region", name="Calls", exact=True)).to_be_visible()

        await take(page, "board" if theme == "light" else "board-dark")


@SOAK
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


@SOAK
async def test_picture_of_explain(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page, crm=offering("list_customers", "refund")) as gateway:
        await gateway.key("ci", "mcp:read", name="ci-bot")
        stored = next(each for each in await gateway.keys.list() if each.user == "ci")
        page = await gateway.open(f"/gateway/tools/crm%3Arefund?key={stored.id}")
        await expect(page.get_by_role("list", name="Steps of the decision")).to_be_visible()

        await take(page, "explain")


def shop() -> dict[str, Server]:
    """Return the servers of the pictures of the chat."""
    crm, mail = Server("crm"), Server("mail")

    @crm.tool(annotations=READ)
    def inactive_customers(days: int) -> list[dict[str, Any]]:
        """List customers who have not ordered for some days."""
        names = ("Brandt & Søn", "Kessler Optik", "Atelier Mounier", "Halme Oy")
        spent = (18_240, 12_905, 9_870, 7_310)
        return [
            {"customer": name, "orders": 42 - 5 * n, "spent": spent[n], "days": days + 9 * n}
            for n, name in enumerate(names)
        ]

    @crm.tool
    def create_list(name: str, customers: int) -> str:
        """Keep a list of customers."""
        return f"{name}: {customers} customers"

    @mail.tool
    def send_campaign(list: str, subject: str, body: str) -> str:
        """Send a mail to all customers of a list."""
        return f"{list} {subject} {body}"

    return {"crm": crm, "mail": mail}


BODY = (
    "Dear {{name}},\n\nyour last order was on {{last_order}}. Until Friday you get 10 % off your"
    " next one.\n\nWith kind regards"
)
CONVERSATION = [
    AssistantMessage("I look them up.", (ToolCall("c1", "crm__inactive_customers", {"days": 90}),)),
    AssistantMessage(
        "There are **four**, worth € 48,325 together. I drafted a mail to them:",
        (
            ToolCall(
                "c2",
                "mail__send_campaign",
                {"list": "inactive-90d", "subject": "We kept your basket", "body": BODY},
            ),
        ),
    ),
]


@pytest.mark.parametrize(
    ("name", "width", "height", "theme"),
    [
        ("chat", 1240, 880, "light"),
        pytest.param("chat-dark", 1240, 880, "dark", marks=SOAK),
        pytest.param("chat-phone", 390, 840, "light", marks=SOAK),
    ],
)
async def test_picture_of_the_chat(
    open_page: OpenPage, tmp_path: Path, name: str, width: int, height: int, theme: str
):
    model = partial(ScriptedModel, name="anthropic:claude-sonnet-4-5")
    async with chat(tmp_path, open_page, *CONVERSATION, kind=model, servers=shop()) as served:
        for title in ("Invoice 2231, two currencies", "Release notes for 0.4"):
            await served.store.create(title, "scripted")
        page = await served.ask(
            "Which customers have not ordered for 90 days? Write them a mail.",
            width=width,
            height=height,
            theme=theme,
        )
        await expect(page.get_by_role("button", name="Approve once")).to_be_visible()
        if width > 1000:
            await page.locator('[data-call][data-state="ran"]').get_by_role("button").click()
            await expect(page.get_by_role("cell", name="Brandt & Søn")).to_be_visible()

        await take(page, name)


@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=SOAK)])
async def test_picture_of_the_inspector(open_page: OpenPage, tmp_path: Path, theme: str):
    orders = program(ROOT / "tests/servers/orders.py")
    async with inspecting(tmp_path, open_page, orders=orders) as served:
        page = await served.open("/inspect/orders/place_order", theme=theme)
        await page.get_by_label("customer").fill("C-20418")
        for at, (sku, quantity) in enumerate((("KX-1120", "3"), ("KX-1121", "1"))):
            await page.get_by_role("button", name="Add to items").click()
            await page.locator(f'[data-field="items[{at}].sku"] textarea').fill(sku)
            await page.locator(f'[data-field="items[{at}].quantity"] input').fill(quantity)
        await page.get_by_label("delivery").select_option("express")
        await page.get_by_role("button", name="Call", exact=False).first.click()
        await expect(page.locator("[data-call]")).to_have_attribute("data-state", "ran")
        await page.locator("[data-kind=sent]", has_text="tools/call").first.click()
        await page.locator('[data-field="items[1].quantity"] input').fill("0")
        await expect(page.get_by_text("1 thing to correct")).to_be_visible()
        await page.locator(".body").evaluate("body => body.scrollTo(0, 0)")

        await take(page, "inspector" if theme == "light" else "inspector-dark", polls=True)
