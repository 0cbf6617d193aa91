"""The shell of the pages: sign in, keep the session, sign out, themes."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import expect

from tests.browser.board import ADMIN, board
from tests.browser.conftest import OpenPage, Watch, violations_everywhere


async def test_pasted_key_opens_the_board_and_signing_out_ends_the_session(
    open_page: OpenPage, tmp_path: Path
):
    async with board(tmp_path, open_page) as gateway:
        key = await gateway.key("mara", *ADMIN)
        page = await open_page(f"{gateway.url}/gateway")

        await expect(page.get_by_label("Your key")).to_be_focused()
        await page.keyboard.type("ilk_wrong")
        await page.get_by_role("button", name="Sign in").click()
        await expect(page.get_by_role("alert")).to_contain_text("not valid here")
        await page.get_by_label("Your key").fill(key)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        await expect(page.get_by_text("user:mara")).to_be_visible()

        await page.reload()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        stored = await page.evaluate("JSON.stringify({...localStorage})")
        assert key not in stored + page.url + await page.title()

        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_label("Your key")).to_be_visible()
        await page.reload()
        await expect(page.get_by_label("Your key")).to_be_visible()


async def test_revoked_key_ends_the_page_with_a_sentence(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page) as gateway:
        page = await gateway.open()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        for each in await gateway.keys.list():
            await gateway.keys.revoke(each.id)
        await gateway.assembly.services.keys.refresh()

        await page.reload()

        await expect(page.get_by_role("status")).to_contain_text("You are signed out")


async def test_cookie_without_the_page_key_is_not_a_session(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page) as gateway:
        page = await gateway.open(stored={"interlock-key": "x" * 43})

        await expect(page.get_by_label("Your key")).to_be_visible()


async def test_one_time_code_in_the_address_signs_in_once_and_disappears(
    open_page: OpenPage, tmp_path: Path
):
    async with board(tmp_path, open_page) as gateway:
        found = gateway.assembly.services.keys.find((await gateway.key()).encode())
        assert found is not None
        code = await gateway.endpoint.sessions.issue_code(found.principal)

        page = await open_page(f"{gateway.url}/gateway#{code}")
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        assert code not in page.url
        second = await open_page(f"{gateway.url}/gateway#{code}")
        await expect(second.get_by_label("Your key")).to_be_visible()
        await expect(second.get_by_role("status")).to_contain_text("This link was used before")


async def test_chosen_theme_survives_a_reload(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page) as gateway:
        page = await gateway.open()
        ground = "getComputedStyle(document.documentElement).backgroundColor"
        light = await page.evaluate(ground)

        await page.get_by_label("Theme").select_option("dark")
        dark = await page.evaluate(ground)
        await page.reload()

        assert light != dark
        assert await page.evaluate(ground) == dark


async def test_page_refuses_markup_inline_code_and_foreign_requests(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["Content Security Policy", "Trusted", "CSP report", "fetch"]
    async with board(tmp_path, open_page) as gateway:
        page = await gateway.open()
        await expect(page.get_by_role("heading", name="Overview")).to_be_visible()

        assert (
            await page.evaluate(
                """() => { try { document.body.innerHTML = "<b>x</b>"; return "made" }
                       catch (error) { return error.name } }"""
            )
            == "TypeError"
        )
        assert (
            await page.evaluate(
                """() => { const s = document.createElement("script"); s.append("window.ran = 1");
                       try { document.body.append(s) } catch {} return window.ran ?? 0 }"""
            )
            == 0
        )
        assert (
            await page.evaluate("fetch('http://127.0.0.1:9/').then(() => 'sent', () => 'refused')")
            == "refused"
        )


async def test_login_page_has_no_accessibility_violations(open_page: OpenPage, tmp_path: Path):
    async with board(tmp_path, open_page) as gateway:
        page = await open_page(f"{gateway.url}/login")
        await expect(page.get_by_label("Your key")).to_be_visible()

        assert await violations_everywhere(page) == []
