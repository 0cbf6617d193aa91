"""States of the chat that a person meets on a bad day, and other ways to use it."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
from playwright.async_api import Route, expect

from interlock.config.settings import ModelSettings, Price, Settings
from interlock.messages import AssistantMessage, ToolCall, Usage, UserMessage
from interlock.models.scripted import ScriptedModel
from interlock.store.chat import transcripts
from interlock.web.chat import turn_toolbox
from tests.browser.chat import call, calls, chat
from tests.browser.conftest import OpenPage, Watch, violations
from tests.browser.test_chat import card

OVERFLOWS = """() => [...document.querySelectorAll("body *")].filter((each) =>
  each.getBoundingClientRect().right > innerWidth + 1 && each.checkVisibility()
  && !each.closest(".scroll-x, pre, .hidden")).map((each) => each.outerHTML.slice(0, 90))"""


async def test_expired_approval_is_marked_and_its_call_does_not_run(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(turn_toolbox, "APPROVAL_SECONDS", 1)
    async with chat(tmp_path, open_page, calls(call("delete", name="x")), "I leave it.") as served:
        page = await served.ask()

        await expect(page.get_by_text("I leave it.")).to_be_visible()
        await expect(card(page, "refused")).to_contain_text("the approval expired")
        await card(page, "refused").get_by_role("button").click()
        await expect(page.get_by_text("Nobody decided in time")).to_be_visible()
        assert served.desk.deleted == []


async def test_switched_model_answers_after_a_line_that_names_it(
    open_page: OpenPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    other = ScriptedModel(["From the other one."], name="other")
    async with chat(tmp_path, open_page, "One.", models=("other",)) as served:
        choice = served.site._context.engine.models
        first = choice.get

        async def get(name: str) -> ScriptedModel:
            return other if name == "other" else await first(name)

        monkeypatch.setattr(choice, "get", get)
        page = await served.open("/login")
        is_answered, is_switched = asyncio.Event(), asyncio.Event()

        async def late(route: Route, event: asyncio.Event) -> None:
            if route.request.method == "GET":
                await event.wait()
            await route.continue_()

        # The page learns too late what models there are, and which one this conversation has.
        await page.route("**/api/models", lambda route: late(route, is_answered))
        await page.route("**/api/conversations/*", lambda route: late(route, is_switched))
        await page.goto(served.url)
        await page.get_by_label("Message", exact=True).fill("go")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("One.", exact=True)).to_be_visible()
        is_answered.set()
        await page.get_by_label("Model").select_option("other")
        await page.get_by_label("Message", exact=True).fill("and now?")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("From the other one.")).to_be_visible()
        is_switched.set()

        line = page.get_by_text("other answers from here on")
        await expect(line).to_have_count(1)
        await page.reload()
        await expect(line).to_have_count(1)


async def test_panel_shows_the_tokens_and_the_price_of_an_answer_and_of_the_conversation(
    open_page: OpenPage, tmp_path: Path
):
    answer = AssistantMessage("It is noon.", usage=Usage(1_000, 200))
    async with chat(tmp_path, open_page, answer, answer) as served:
        prices = ModelSettings(price=Price(2, 10))
        served.site._context.engine.models.settings = Settings(models={"scripted": prices})
        page = await served.ask()
        await expect(page.get_by_text("1,000 tokens in · 200 out · cost 0.0040")).to_have_count(2)

        await page.get_by_label("Message", exact=True).fill("and now?")
        await page.keyboard.press("Enter")
        whole = page.get_by_text("2,000 tokens in · 400 out · cost 0.0080")
        await expect(whole).to_be_visible()
        await expect(page.get_by_text("All of scripted", exact=False)).to_be_visible()
        await page.reload()
        await expect(whole).to_be_visible()


async def test_result_of_fifteen_megabytes_is_cut_with_a_notice(
    open_page: OpenPage, tmp_path: Path
):
    made = [call("rows", "c1", count=90), call("rows", "c2", count=65_000)]
    async with chat(tmp_path, open_page, calls(*made), "See above.") as served:
        page = await served.ask()
        await expect(page.get_by_text("See above.")).to_be_visible()
        small, large = card(page, "ran").nth(0), card(page, "ran").nth(1)

        await small.get_by_role("button").first.click()
        await expect(small).to_contain_text("Rows 1–50 of 90")
        await small.get_by_role("button", name="JSON").click()
        await expect(small).to_contain_text("row: 89")
        await large.get_by_role("button").first.click()
        shown = large.locator(".result-text").last
        await expect(shown).to_be_visible()

        text = await shown.text_content()
        assert re.search(r"items 1–\d+ of 65,000 are above", text)
        assert len(text) <= 200_000
        assert await page.evaluate("document.querySelectorAll('*').length") < 3_000


async def test_turn_of_a_server_that_has_ended_is_continued(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, "It is done now.") as served:
        made = await served.store.create("Cut off", "scripted")
        asked = AssistantMessage("", (ToolCall("c1", "desk__delete", {"name": "x"}),))
        await served.store.append(made.id, UserMessage("Delete it"), asked, model="scripted")
        page = await served.open(f"/c/{made.id}")

        await expect(page.locator("[data-interrupted]")).to_contain_text("no answer yet")
        await expect(card(page, "failed")).to_contain_text("may or may not have taken effect")
        await page.get_by_role("button", name="Continue").click()

        await expect(page.get_by_text("It is done now.")).to_be_visible()
        await expect(page.locator("[data-interrupted]")).to_have_count(0)
        assert served.desk.deleted == []


async def test_failed_call_is_run_again_and_shows_the_log_of_its_server(
    open_page: OpenPage, tmp_path: Path
):
    script = (calls(call("broken")), "It failed.", calls(call("find", "c2", text="x")), "Better.")
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask()
        await expect(page.get_by_text("It failed.")).to_be_visible()

        await page.get_by_role("button", name="Server log").click()
        await expect(page.get_by_text("desk has written nothing to its log.")).to_be_visible()
        await page.get_by_role("tab", name="Record").click()
        await expect(card(page, "failed")).to_contain_text("conversation_id")
        await page.get_by_role("button", name="Run again").click()

        await expect(page.get_by_text("Better.")).to_be_visible()
        assert "Run desk:broken again" in served.model.requests[2].messages[-1].content


async def test_writing_call_has_no_run_again_button(open_page: OpenPage, tmp_path: Path):
    script = (calls(call("delete", name=5)), "It failed.")
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask()
        await page.get_by_role("button", name="Approve once").or_(card(page, "failed")).wait_for()

        await expect(page.get_by_text("It failed.")).to_be_visible()
        await expect(page.get_by_role("button", name="Run again")).to_have_count(0)


async def test_draft_survives_a_lost_connection_and_is_sent_after_it(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["ERR_INTERNET_DISCONNECTED", "Failed to load"]
    async with chat(tmp_path, open_page, "Here I am.") as served:
        page = await served.open()
        await expect(page.get_by_text("8 tools from 1 server are ready.")).to_be_visible()
        await page.context.set_offline(True)
        for each in [*served.site._chat._sockets._sockets]:
            each.close(1001, "cut")
        await expect(page.locator("[data-line=lost]")).to_be_visible()
        message = page.get_by_label("Message", exact=True)
        await message.fill("kept while away")
        await page.keyboard.press("Enter")
        await expect(message).to_have_value("kept while away")

        await page.context.set_offline(False)
        await expect(page.locator("[data-line=lost]")).to_have_count(0)
        await message.press("Enter")

        await expect(page.get_by_text("Here I am.")).to_be_visible()


async def test_page_that_lost_its_connection_while_it_loaded_is_completed_later(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["ERR_FAILED", "Failed to load", "net::"]
    async with chat(tmp_path, open_page, "Here I am.") as served:
        page = await served.open("/login")
        is_cut = True

        async def cut(route: Route) -> None:
            await (route.abort() if is_cut else route.continue_())

        for part in ("**/chat/later.js", "**/shared/markdown.js", "**/api/tools"):
            await page.route(part, cut)
        await page.goto(served.url)
        await expect(page.get_by_text("A part of this page could not be loaded.")).to_be_visible()
        is_cut = False
        for each in [*served.site._chat._sockets._sockets]:
            each.close(1001, "cut")

        await expect(page.get_by_text("8 tools from 1 server are ready.")).to_be_visible()
        await page.get_by_label("Message", exact=True).fill("are you there?")
        await page.get_by_role("button", name="Send").click()  # once it is connected again
        await expect(page.get_by_text("Here I am.")).to_be_visible()


async def test_actions_without_a_connection_show_an_error_and_keep_the_input(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["ERR_INTERNET_DISCONNECTED", "Failed to load"]
    async with chat(tmp_path, open_page, "Here I am.") as served:
        page = await served.open()
        await page.get_by_role("button", name="8 of 8 tools").click()
        await page.get_by_role("switch", name="Use desk:delete").uncheck()
        await page.get_by_role("button", name="Done").click()
        await page.context.set_offline(True)
        await page.get_by_label("Message", exact=True).fill("with fewer tools")
        await page.keyboard.press("Enter")

        refused = page.get_by_role("dialog")
        await expect(page.locator(".composer").get_by_role("alert")).to_contain_text(
            "cannot be reached"
        )
        message = page.get_by_label("Message", exact=True)
        await expect(message).to_have_value("with fewer tools")
        await page.get_by_label("Search").fill("anything")
        await expect(refused).to_contain_text("cannot be reached")


async def test_reader_who_scrolled_up_stays_there_while_text_arrives(
    open_page: OpenPage, tmp_path: Path
):
    lines = "\n\n".join(f"line {n}" for n in range(120))
    async with chat(tmp_path, open_page, lines, calls(call("wait"), text="Wait."), lines) as served:
        page = await served.ask()
        await expect(page.get_by_text("line 119")).to_be_in_viewport()
        await page.get_by_label("Message", exact=True).fill("more")
        await page.keyboard.press("Enter")
        await served.desk.waiting.wait()
        await expect(card(page, "running")).to_be_in_viewport()
        await page.get_by_role("region", name="Transcript").hover()
        await page.mouse.wheel(0, -1500)
        await expect(card(page, "running")).not_to_be_in_viewport()

        served.desk.go_on.set()
        await expect(page.get_by_text("line 119")).to_have_count(2)

        await expect(page.get_by_text("line 119").last).not_to_be_in_viewport()
        await page.get_by_role("button", name=re.compile("New text below|To the end")).click()
        await expect(page.get_by_text("line 119").last).to_be_in_viewport()


ANNOUNCED = """() => {
  window.announced = [];
  new MutationObserver(() => {
    const text = document.querySelector(".talk > [role=status]")?.textContent ?? "";
    if (text && text !== window.announced.at(-1)) window.announced.push(text);
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


async def test_screen_reader_announces_each_event_once_and_no_tokens(
    open_page: OpenPage, tmp_path: Path
):
    script = calls(call("find", text="x")), "An answer of many words that arrive one by one."
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.open()
        await page.evaluate(ANNOUNCED)
        await page.get_by_label("Message", exact=True).fill("go")
        await page.keyboard.press("Enter")
        status = page.locator(".talk > [role=status]")
        await expect(status).to_have_text("The answer is complete")

        announced = await page.evaluate("window.announced")
        assert announced == ["desk:find: Ran", "The answer is complete"]
        live = page.locator(".talk [aria-live], .talk [role=log], .talk [role=alert]")
        await expect(live).to_have_count(0)


async def test_whole_chat_works_by_keyboard(open_page: OpenPage, tmp_path: Path):
    script = (calls(call("delete", name="x")), "Done.", "Second.")
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.open()
        keys = page.keyboard
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await keys.type("first")
        await keys.press("Enter")
        await expect(card(page, "asking")).to_be_visible()
        for _ in range(30):
            await keys.press("Shift+Tab")
            if await page.evaluate("document.activeElement.matches('[data-state=asking]')"):
                break
        while await card(page, "asking").count():  # keys do not decide at once
            await keys.press("a")
        await expect(page.get_by_text("Done.")).to_be_visible()

        await page.get_by_label("Message", exact=True).focus()
        await keys.type("/new")
        await keys.press("Enter")
        await expect(page.get_by_role("heading", name="What should be done?")).to_be_visible()
        await keys.type("second")
        await keys.press("Enter")
        await expect(page.get_by_text("Second.")).to_be_visible()
        await keys.press("Shift+Tab")
        await page.get_by_role("region", name="Transcript").focus()
        await keys.press("/")
        await keys.type("first")
        await expect(page.get_by_text("1 conversation")).to_be_visible()


@pytest.mark.parametrize(
    ("width", "height", "options"),
    [
        pytest.param(390, 844, {"has_touch": True, "is_mobile": True}, id="phone"),
        pytest.param(640, 400, {"device_scale_factor": 2}, id="200-percent"),
        pytest.param(1440, 900, {"forced_colors": "active"}, id="forced-colours"),
    ],
)
async def test_chat_can_be_used_on_small_touch_and_high_contrast_screens(
    open_page: OpenPage, tmp_path: Path, width: int, height: int, options: dict[str, object]
):
    text = "# A heading\n\n```py\n" + "x = 1  # " + "long " * 60 + "\n```\n\n|a|b|\n|-|-|\n|1|2|"
    script = (calls(call("people", "c1"), text=text), text, calls(call("delete", name="x")), "Ok.")
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask(width=width, height=height, **options)
        if options.get("has_touch"):
            await page.get_by_role("button", name="Send").tap()
        await expect(card(page, "ran")).to_be_visible()
        await expect(page.get_by_role("heading", name="A heading")).to_have_count(2)
        await card(page, "ran").get_by_role("button").first.click()
        message = page.get_by_label("Message", exact=True)
        await message.fill("delete it")
        await page.get_by_role("button", name="Send").click()
        approve = page.get_by_role("button", name="Approve once")
        await expect(approve).to_be_in_viewport()
        await message.fill("and then")

        assert await page.evaluate(OVERFLOWS) == []
        assert await violations(page) == []
        if options.get("has_touch"):
            box = await approve.bounding_box()
            assert box is not None
            assert box["height"] >= 44
        await approve.click()
        await expect(page.get_by_text("Ok.", exact=True)).to_be_visible()


async def test_branch_export_equals_the_export_of_the_command(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, "One.", "Two.") as served:
        page = await served.ask("first")
        await expect(page.get_by_text("One.", exact=True)).to_be_visible()
        await page.get_by_role("button", name="Try again").click()
        await expect(page.get_by_role("group", name="Branches")).to_contain_text("2/2")
        await expect(page.get_by_text("Two.", exact=True)).to_be_visible()

        await page.get_by_role("button", name="Export").click()
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="As JSON").click()
        saved = json.loads((await (await waiting.value).path()).read_text())
        id = page.url.rpartition("/")[2]
        stored = await served.store.resolve(id)
        messages = await served.store.messages(id)

        assert [each["content"] for each in saved["messages"]] == ["first", "Two."]
        assert saved == json.loads(json.dumps(transcripts.as_json(stored, messages), default=str))


async def test_file_over_the_limit_is_not_sent(open_page: OpenPage, tmp_path: Path):
    large = tmp_path / "large.bin"
    with large.open("wb") as file:
        file.truncate(17 * 1024 * 1024)
    async with chat(tmp_path, open_page) as served:
        page = await served.open()
        sent: list[str] = []
        page.on("request", lambda each: sent.append(each.url))
        await page.locator('input[type="file"]').set_input_files(large)

        await expect(page.get_by_role("alert")).to_contain_text(
            "too large (17.0 MB, limit 16.0 MB)"
        )
        await expect(page.get_by_role("button", name="Send")).to_be_disabled()
        await page.get_by_role("button", name="Remove large.bin").click()
        await expect(page.get_by_role("alert")).to_have_count(0)
        assert not [each for each in sent if "/api/files" in each]
