"""The browser tells that a call waits, while its page is not in view."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.async_api import Page, expect

from tests.browser.board import board
from tests.browser.chat import call, calls, chat
from tests.browser.conftest import OpenPage, violations
from tests.browser.test_board import ASK
from tests.gateway.conftest import offering

# A browser that asks nobody, keeps what it shows, and whose page is not in view.
HIDDEN = """
window.told = [];
window.Notification = class {
  static permission = localStorage.getItem("test-permission") ?? "default";
  static async requestPermission() {
    return (Notification.permission = localStorage.getItem("test-answer"));
  }
  constructor(title, options) { Object.assign(this, options, { title }); told.push(this); }
  close() {}
};
Object.defineProperty(document, "hidden", { get: () => true });
"""


async def hidden(page: Page, answer: str) -> None:
    """Load the page again in a browser of which the person sees another page."""
    await page.add_init_script(f"localStorage.setItem('test-answer', '{answer}'); {HIDDEN}")
    await page.reload()


async def told(page: Page) -> Any:
    """Return what the browser has shown, once there is something."""
    return await page.evaluate(
        """() => new Promise((done) => {
          const look = () => told.length ? done(told.map((each) => [each.title, each.body]))
            : requestAnimationFrame(look);
          look();
        })"""
    )


async def test_user_who_turned_notifications_on_is_notified_of_a_waiting_conversation(
    open_page: OpenPage, tmp_path: Path
):
    made = [calls(call("delete", name="SECRET")) for _ in range(2)]
    async with chat(tmp_path, open_page, made[0], "Denied.", made[1]) as served:
        page = await served.ask()
        await page.get_by_role("button", name="Deny").click()
        bell = page.get_by_role("button", name="Notify me when a call waits")
        await expect(bell).to_be_visible()
        await page.evaluate("localStorage.setItem('notify', 'off')")
        await hidden(page, "granted")
        await bell.click()
        await expect(bell).to_have_attribute("aria-pressed", "true")
        assert await violations(page) == []
        await page.get_by_label("Message", exact=True).fill("go")
        await page.keyboard.press("Enter")

        assert await told(page) == [
            ["A call waits for a decision", "A conversation waits for your answer."]
        ]
        await page.get_by_role("button", name="New conversation").click()
        await page.evaluate("told[0].onclick()")
        await expect(page.locator("[data-state=asking]")).to_be_visible()


async def test_approver_is_notified_of_new_calls_only(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page, ASK, crm=offering("refund")) as gateway:
        key = await gateway.key("anna", "mcp:*")
        await gateway.call(key, "crm__refund", amount=1)
        page = await gateway.open("/gateway/audit")
        await page.clock.install()
        await hidden(page, "granted")
        async with page.expect_response("**/approvals?state=pending**"):
            await page.get_by_role("button", name="Notify me when a call waits").click()
        await gateway.call(key, "crm__refund", amount=2)
        await page.clock.run_for(31_000)

        assert await told(page) == [["A call waits for a decision", "crm:refund for user:anna"]]
        await page.evaluate("told[0].onclick()")
        await expect(page.locator(".arguments")).to_contain_text("2")


async def test_browser_that_refuses_is_named_and_shows_nothing(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("delete", name="x"))) as served:
        page = await served.open(stored={"notify": "off"})
        await hidden(page, "denied")
        await page.get_by_role("button", name="Notify me when a call waits").click()
        name = "The browser does not allow this page to notify you"
        await expect(page.get_by_role("button", name=name)).to_be_visible()
        await page.get_by_label("Message", exact=True).fill("go")
        await page.keyboard.press("Enter")

        await expect(page.locator("[data-state=asking]")).to_be_visible()
        assert await page.evaluate("told") == []
