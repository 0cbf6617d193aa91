"""What the first screen of the chat loads, and conversations that are too long to be drawn."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Locator, Page, Route, expect

from interlock.messages import AssistantMessage, UserMessage
from interlock.web.files import files_of_package
from interlock.web.site import CHAT
from tests.browser.chat import Chat, call, calls, chat
from tests.browser.conftest import PATIENCE, TIMERS, OpenPage, expect_idle

MOST_REQUESTS = 40
MOST_ELEMENTS = 5_000
LONG = 10_000  # messages


def compressed(*names: str) -> int:
    """Return the bytes that a browser receives for files."""
    files, headers = files_of_package(), {b"accept-encoding": b"gzip"}
    return sum(len(files.answer(f"{files.version}/{name}", headers).body) for name in names)


async def test_compressed_files_of_the_chat_are_within_their_budget():
    files = files_of_package()
    modules = [*files.modules(CHAT.entry, *CHAT.screens), *files.later(CHAT)]

    assert compressed(*modules) <= 90 * 1024
    assert compressed(*CHAT.styles) <= 20 * 1024


async def test_first_screen_needs_at_most_forty_files_and_does_not_move(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page) as served:
        page = await served.open()
        await expect(page.get_by_role("heading", name="What should be done?")).to_be_visible()
        await page.wait_for_load_state("networkidle")
        loaded = await page.evaluate(
            """() => performance.getEntriesByType("resource")
                 .map((each) => [each.name, each.startTime, each.responseEnd])"""
        )
        shift = await page.evaluate(
            """() => new Promise((done) => {
              let sum = 0;
              new PerformanceObserver((list) => {
                for (const each of list.getEntries()) sum += each.value;
              }).observe({ type: "layout-shift", buffered: true });
              setTimeout(() => done(sum), 100);
            })"""
        )

    files = files_of_package()
    later = {*files.later(CHAT)}
    first, rest = [], []
    for url, start, end in loaded:
        name = urlsplit(url).path.partition(f"/static/{files.version}/")[2]
        if name in later:
            rest.append(start)
        elif name:
            first.append(0.0 if name.endswith(".woff2") else end)  # text is shown without fonts
    assert 1 + len(first) <= MOST_REQUESTS  # with the document
    assert len(rest) == len(later)
    assert min(rest) > max(first)
    assert shift <= 0.02


async def test_page_is_painted_before_its_modules_have_arrived(open_page: OpenPage, tmp_path: Path):
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def hold(route: Route) -> None:
        await held
        await route.continue_()

    async with chat(tmp_path, open_page) as served:
        page = await served.open("/login")
        await page.route("**/chat/*.js", hold)
        opening = asyncio.create_task(page.goto(served.url))
        await expect(page.get_by_text("interlock", exact=True)).to_be_visible()
        held.set_result(None)
        await opening
        await expect(page.get_by_role("heading", name="What should be done?")).to_be_visible()
        await expect(page.get_by_text("interlock", exact=True)).to_have_count(1)


async def long_conversation(served: Chat, messages: int) -> str:
    """Store a conversation; return its path."""
    made = await served.store.create("A long one", "scripted")
    said = [
        AssistantMessage(f"Answer **{n}** to it.") if n % 2 else UserMessage(f"Question {n}.")
        for n in range(messages)
    ]
    await served.store.append(made.id, *said, model="scripted")
    return f"/c/{made.id}"


async def scroll_up(page: Page, wanted: Locator) -> None:
    """Scroll to the top again and again, until older messages have arrived with what is wanted."""
    body = page.get_by_role("region", name="Transcript")
    async with asyncio.timeout(PATIENCE / 1_000):
        while not await wanted.count():
            await body.evaluate("box => box.scrollTo(0, 0)")
            await page.evaluate("new Promise(requestAnimationFrame)")


async def test_long_conversation_is_drawn_in_parts_up_to_its_first_message(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "The last answer.") as served:
        page = await served.open(await long_conversation(served, LONG))
        await expect(page.get_by_text(f"Answer {LONG - 1} to it.")).to_be_in_viewport()
        opened = await page.locator(".said, .reply").count()

        await scroll_up(page, page.get_by_text(f"Question {LONG - 500}.", exact=True))
        scrolled = page.locator(".said, .reply")
        await expect(scrolled).to_have_count(300)
        elements = await page.evaluate("document.querySelectorAll('*').length")
        assert opened <= 60
        assert elements <= MOST_ELEMENTS

        await page.get_by_label("Message", exact=True).fill("one more")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("The last answer.")).to_be_in_viewport()
        assert await scrolled.count() <= 300


async def test_loading_earlier_messages_keeps_the_scroll_position(
    open_page: OpenPage, tmp_path: Path
):
    place = """(box) => {
      const seen = [...box.querySelectorAll(".said, .reply")]
        .find((each) => each.getBoundingClientRect().bottom > box.getBoundingClientRect().top);
      return [seen.textContent, Math.round(seen.getBoundingClientRect().top)];
    }"""
    async with chat(tmp_path, open_page) as served:
        page = await served.open(await long_conversation(served, 200))
        body = page.get_by_role("region", name="Transcript")
        await expect(page.get_by_text("Answer 199 to it.")).to_be_in_viewport()
        await body.hover()
        top = await body.evaluate("box => box.scrollTop")

        await page.mouse.wheel(0, -900)
        async with asyncio.timeout(PATIENCE / 1_000):
            while await body.evaluate("box => box.scrollTop") > top - 900:
                await page.evaluate("new Promise(requestAnimationFrame)")
        before = None
        while before != (before := await body.evaluate(place)):
            await page.wait_for_timeout(30)
        count = await page.locator(".said, .reply").count()
        await page.get_by_role("button", name="Show earlier messages").dispatch_event("click")
        await expect(page.locator(".said, .reply")).not_to_have_count(count)

        assert await body.evaluate(place) == before
        await scroll_up(page, page.get_by_text("Question 0.", exact=True))
        await body.evaluate("box => box.scrollTo(0, 0)")
        await expect(page.get_by_text("Question 0.", exact=True)).to_be_in_viewport()
        await expect(page.get_by_role("button", name="Show earlier messages")).to_have_count(0)


async def test_reply_split_over_two_pages_of_history_is_shown_as_one(
    open_page: OpenPage, tmp_path: Path
):
    made = [calls(*(call("find", f"c{n}{m}", text="x") for m in range(10))) for n in range(7)]
    async with chat(tmp_path, open_page, *made, "Found all.") as served:
        page = await served.ask()
        await expect(page.get_by_text("Found all.")).to_be_visible()

        await page.reload()
        await expect(page.get_by_text("Found all.")).to_be_visible()
        await scroll_up(page, page.locator(".reply [data-call]").nth(69))

        await expect(page.locator(".reply")).to_have_count(1)
        await expect(page.locator(".reply [data-call]")).to_have_count(70)


async def test_idle_chat_has_no_fast_timers(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, "Done.") as served:
        page = await served.ask()
        await expect(page.get_by_text("Done.")).to_be_visible()

        await page.add_init_script(TIMERS)
        await page.reload(wait_until="networkidle")
        await expect_idle(page)


async def test_turns_and_switches_leave_no_nodes_and_no_listeners(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, *["Short."] * 8) as served:
        paths = [await long_conversation(served, 100) for _ in range(2)]
        page = await served.open(paths[0])
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")

        async def switch(times: int) -> dict[str, float]:
            for _ in range(times):
                for path in reversed(paths):
                    await page.locator(f'a[href$="{path}"]').click()
                    await expect(page.locator(f'[href$="{path}"]')).to_have_attribute(
                        "aria-current", "page"
                    )
                    await expect(page.locator(".said, .reply")).to_have_count(60)
            await session.send("HeapProfiler.collectGarbage")
            metrics = (await session.send("Performance.getMetrics"))["metrics"]
            return {each["name"]: each["value"] for each in metrics}

        before = await switch(2)
        for n in range(8):
            await page.get_by_label("Message", exact=True).fill(f"Number {n}.")
            await page.keyboard.press("Enter")
            reply = page.locator(".said", has_text=f"Number {n}.").locator("+ .reply")
            await expect(reply).to_have_attribute("aria-busy", "false")
        after = await switch(4)

        assert after["Nodes"] <= before["Nodes"] * 1.02
        assert after["JSEventListeners"] <= before["JSEventListeners"]


async def test_search_hit_opens_at_its_message_in_any_part_and_both_ends_are_reached_at_once(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "The newest answer.") as served:
        path = await long_conversation(served, LONG)
        page = await served.open(path)
        last = page.get_by_text(f"Answer {LONG - 1} to it.")
        await expect(last).to_be_in_viewport()
        for number in (0, 2, 4_998, LONG - 2):
            await page.get_by_role("searchbox").fill(f'"Question {number}"')
            await page.locator(f'a[href$="{path}?at={number}"]').click()
            hit = page.locator(".found")
            await expect(hit).to_have_text(re.compile(rf"^Question {number}\."))
            await expect(hit).to_be_in_viewport()
            await expect(hit).to_be_focused()
            assert await page.locator(".said, .reply").count() <= 300
        await page.reload()
        await expect(page.locator(".found")).to_be_in_viewport()

        await page.keyboard.press("Home")
        first = page.get_by_text("Question 0.", exact=True)
        await expect(first).to_be_in_viewport()
        await expect(page.get_by_role("button", name="Show earlier messages")).to_have_count(0)
        await page.keyboard.press("End")
        await expect(last).to_be_in_viewport()
        assert page.url == served.url + path  # a reload stays at the end

        await page.keyboard.press("Home")
        await expect(first).to_be_in_viewport()
        await page.get_by_label("Message", exact=True).fill("one more")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("The newest answer.")).to_be_in_viewport()


async def test_messages_after_a_search_hit_are_loaded_by_scrolling_down_to_the_end(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "The newest answer.") as served:
        path = await long_conversation(served, 300)
        page = await served.open(f"{path}?at=101")
        await expect(page.locator(".found")).to_contain_text("Answer 101 to it.")
        body = page.get_by_role("region", name="Transcript")
        last = page.get_by_text("Answer 299 to it.")
        async with asyncio.timeout(PATIENCE / 1_000):
            while not await last.count():
                await body.evaluate("box => box.scrollTo(0, box.scrollHeight)")
                await page.evaluate("new Promise(requestAnimationFrame)")

        texts = await page.locator(".said, .reply").all_inner_texts()
        numbers = [int(n) for text in texts for n in re.findall(r"(?:Question|Answer) (\d+)", text)]
        assert numbers == [*range(numbers[0], 300)]
        await page.get_by_label("Message", exact=True).fill("one more")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("The newest answer.")).to_be_in_viewport()


async def test_end_follows_the_answer_again_after_home(open_page: OpenPage, tmp_path: Path):
    words = "\n\n".join(f"Line {n}." for n in range(400))
    async with chat(tmp_path, open_page, *calls_then(words)) as served:
        page = await served.ask()
        await served.desk.waiting.wait()
        await page.get_by_role("region", name="Transcript").focus()
        await page.keyboard.press("Home")
        await page.keyboard.press("End")
        served.desk.go_on.set()
        await expect(page.get_by_text("Line 399.")).to_be_in_viewport()


async def test_reopened_conversation_has_its_counts(open_page: OpenPage, tmp_path: Path):
    script = [calls(call("find", "c1", text="x"), call("find", "c2", text="y")), "Found.", "Again."]
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask()
        await expect(page.get_by_text("Found.")).to_be_visible()
        facts = page.locator(".panel .facts")
        counts = re.compile(r"answers\s*1\s*calls\s*2$")
        await expect(facts).to_have_text(counts)
        await page.reload()
        await expect(facts).to_have_text(counts)
        await page.get_by_label("Message", exact=True).fill("again")
        await page.keyboard.press("Enter")
        await expect(facts).to_have_text(re.compile(r"answers\s*2\s*calls\s*2$"))


def calls_then(words: str) -> list[Any]:
    """Return a script that waits in a tool, and then says words."""
    return [calls(call("wait")), words]
