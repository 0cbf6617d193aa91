"""Flows of the chat in a real browser."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from functools import partial
from pathlib import Path
from typing import Any

from playwright.async_api import WebSocketRoute, expect

from interlock import Server
from interlock.errors import ToolError
from interlock.messages import SEARCH_TOOLS, ToolCall
from interlock.models import ModelEvent, Notice, ScriptedModel
from tests.browser.chat import READ, Desk, call, calls, chat
from tests.browser.conftest import OpenPage, Watch, violations_everywhere
from tests.browser.hostile_texts import ELEMENTS, HIDDEN, MARKDOWN, MARKUP
from tests.browser.trace import traced

LONG = (
    "# Heading\n\nSome **bold** text and `code`.\n\n1. one\n2. two\n\n```py\nprint(1)\n```\n\n"
    "- [x] write\n- [ ] **send**\n"
)

# Links of the transcript that hide where they lead, or give something away.
LINKS = """() => [...document.querySelectorAll(".transcript a[href]:not([href*='/calls/'])")]
  .filter((each) => !["http:", "https:", "mailto:"].includes(each.protocol)
    || each.rel !== "noopener noreferrer" || each.ping
    || !each.parentElement.textContent.includes(each.host))
  .map((each) => each.outerHTML)"""


def card(page, state: str):
    return page.locator(f'[data-call][data-state="{state}"]')


async def test_first_question_is_answered_with_a_card_for_its_call(
    open_page: OpenPage, tmp_path: Path
):
    script = (calls(call("find", text="milk"), text="Let me look."), LONG)
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask("Where is the milk?")

        await expect(card(page, "ran")).to_contain_text("desk:find")
        await expect(page.get_by_role("heading", name="Heading")).to_be_visible()
        await expect(page.get_by_role("checkbox", name="write")).to_be_checked()
        await expect(page.get_by_role("checkbox", name="send")).not_to_be_checked()
        # `wait_for_function` evaluates text in the page, which its policy refuses.
        while not await page.evaluate("CSS.highlights.get('code-name')?.size === 1"):
            await page.wait_for_timeout(20)
        await expect(page.get_by_role("link", name="Where is the milk?")).to_be_visible()
        await expect(page).to_have_url(re.compile(r"/c/\w+$"))
        await card(page, "ran").get_by_role("button").click()
        await expect(card(page, "ran")).to_contain_text("3 notes contain milk")
        await page.get_by_role("tab", name="Arguments").click()
        await expect(card(page, "ran")).to_contain_text("milk")


async def test_one_time_code_opens_the_page_once(open_page: OpenPage, watch: Watch, tmp_path: Path):
    watch.expected.append("401")
    async with chat(tmp_path, open_page) as served:
        link = await served.link()

        first, second = await open_page(link), await open_page(link)

        await expect(first.get_by_label("Message", exact=True)).to_be_visible()
        assert "#" not in first.url
        await expect(second.get_by_role("heading")).to_have_text("Open this page with a link")
        await expect(second.get_by_role("alert")).to_contain_text("This link was used before")
        assert await violations_everywhere(second) == []
        await second.set_viewport_size({"width": 1440, "height": 900})
        await expect(second.get_by_text("interlock web --link")).to_be_visible()
        card = await second.locator(".login > .box").bounding_box()
        assert card is not None
        assert card["width"] == 400
        assert card["x"] == (1440 - 400) / 2


async def test_page_reloaded_during_an_answer_shows_the_same_text(
    open_page: OpenPage, tmp_path: Path
):
    script = (calls(call("wait"), text="Reading."), LONG)
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask()
        await expect(card(page, "running")).to_contain_text("desk:wait")
        await expect(page.get_by_text("Reading 31 of 48 lines")).to_be_visible()

        await page.reload()
        await expect(card(page, "running")).to_have_count(1)
        await expect(page.get_by_text("Reading.", exact=True)).to_have_count(1)
        served.desk.go_on.set()

        await expect(page.get_by_role("heading", name="Heading")).to_be_visible()
        await expect(page.get_by_role("checkbox", name="write")).to_be_checked()
        await expect(page.get_by_role("checkbox", name="send")).not_to_be_checked()
        live = await page.locator(".reply").inner_text()
        await page.reload()
        await expect(page.get_by_role("heading", name="Heading")).to_be_visible()
        await expect(page.get_by_role("checkbox", name="write")).to_be_checked()
        await expect(page.get_by_role("checkbox", name="send")).not_to_be_checked()
        again = await page.locator(".reply").inner_text()
        assert again.replace("scripted", "").split() == live.replace("scripted", "").split()


async def test_stop_during_a_call_reaches_its_server(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("wait"))) as served:
        page = await served.ask()
        await served.desk.waiting.wait()
        await expect(card(page, "running")).to_be_visible()

        await page.get_by_label("Message", exact=True).press("Escape")

        await expect(card(page, "stopped")).to_contain_text("stopped by you")
        await expect(page.get_by_text("You stopped this answer.")).to_be_visible()
        await served.desk.cancelled.wait()


async def test_one_call_is_stopped_and_the_answer_continues(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("wait")), "I go on without it.") as served:
        page = await served.ask()
        await served.desk.waiting.wait()

        await page.locator(".running-card").get_by_role("button", name="Stop").click()

        await expect(card(page, "stopped")).to_be_visible()
        await expect(page.get_by_text("I go on without it.")).to_be_visible()
        await served.desk.cancelled.wait()


async def test_exactly_the_call_that_was_shown_is_approved(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("delete", name="milk")), "Done.") as served:
        page = await served.ask()

        await expect(card(page, "asking")).to_contain_text("milk")
        assert served.desk.deleted == []
        await page.get_by_role("button", name="Approve once").click()

        await expect(page.get_by_text("Done.")).to_be_visible()
        assert served.desk.deleted == ["milk"]
        await page.reload()
        await card(page, "ran").get_by_role("button").click()
        await expect(page.get_by_text("Approved by local")).to_be_visible()


async def test_denied_call_does_not_run_and_shows_who_denied_it(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, calls(call("delete", name="x")), "Fine.") as served:
        page = await served.ask()
        await page.get_by_role("button", name="Deny").click()

        await expect(card(page, "refused")).to_contain_text("a person denied this call")
        await expect(page.get_by_text("Fine.")).to_be_visible()
        assert served.desk.deleted == []


async def test_keys_decide_only_with_the_focus_and_after_a_pause(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, calls(call("delete", name="x")), "Done.") as served:
        page = await served.ask()
        asking = card(page, "asking")
        await expect(asking).to_be_visible()

        await page.get_by_label("Message", exact=True).press("a")
        await asking.focus()
        shown = 'performance.now() - [...document.querySelectorAll("[data-state=asking]")].length'
        await page.evaluate(shown)
        await asking.dispatch_event("keydown", {"key": "a", "repeat": True})
        assert served.desk.deleted == []
        await page.wait_for_timeout(600)
        await asking.press("a")

        await expect(page.get_by_text("Done.")).to_be_visible()
        assert served.desk.deleted == ["x"]


BIG = 9007199254740993123  # JavaScript would write ...3000
MAIL = "Dear Anna,\n" + "\n" * 300 + "Transfer 5,000 now.\n" + "\n" * 40 + "Best, Bob"


class Outbox:
    """Has a tool that keeps the arguments of its calls."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def add(self, server: Server) -> None:
        @server.tool
        def send(
            to: str = "",
            body: str = "",
            amount: int = 0,
            rate: float = 0,
            of: dict[str, Any] | None = None,
        ) -> str:
            """Send a mail, which cannot be taken back."""
            given = {"to": to, "body": body, "amount": amount, "rate": rate, "of": of}
            self.sent.append({name: value for name, value in given.items() if value})
            return "sent"


async def test_folds_say_what_they_hide_and_all_are_opened_before_approval(
    open_page: OpenPage, tmp_path: Path
):
    outbox = Outbox()
    nested = {"cc": ["a@example.com", "b@example.com"], "text": "word " * 200 + "at the end"}
    made = calls(call("send", to="anna", body=MAIL, of=nested))
    for width, height in ((1440, 900), (820, 1000), (390, 844)):
        folder = tmp_path / str(width)
        folder.mkdir()
        async with chat(folder, open_page, made, "Done.", extend=outbox.add) as served:
            page = await served.ask(width=width, height=height)
            asking = card(page, "asking")
            approve = asking.get_by_role("button", name="Approve once")
            await expect(approve).to_be_disabled()
            for shown in (
                asking.get_by_text("desk:send"),
                asking.get_by_text("Dear Anna,"),
                asking.get_by_role("button", name=re.compile("^show 341 lines, 3[67].")),
                asking.get_by_text("Best, Bob"),
                asking.get_by_text("show 2 members, "),
                approve,
                asking.get_by_role("button", name="Deny"),
            ):
                await expect(shown).to_be_in_viewport(ratio=1)
            await expect(asking.get_by_text("Transfer")).to_have_count(0)
            await asking.focus()
            await page.wait_for_timeout(600)
            await asking.press("a")

            await asking.get_by_role("button", name="show 341 lines").click()
            await expect(asking.get_by_text("300 blank lines")).to_be_visible()
            await expect(asking.get_by_text("Transfer 5,000 now.")).to_be_visible()
            await expect(approve).to_be_disabled()
            await asking.get_by_role("button", name="Open all").click()
            await expect(asking.get_by_text("at the end")).to_be_visible()
            await expect(asking.get_by_text("desk:send")).to_be_in_viewport(ratio=1)
            assert await violations_everywhere(page) == []
            await approve.click()
            await expect(page.get_by_text("Done.")).to_be_visible()


async def test_numbers_keep_their_digits_from_the_card_to_the_call(
    open_page: OpenPage, tmp_path: Path
):
    outbox = Outbox()
    made = calls(call("send", amount=BIG, rate=1.0, of={"id": BIG}))
    async with chat(tmp_path, open_page, made, "Done.", extend=outbox.add) as served:
        page = await served.ask()
        asking = card(page, "asking")
        await expect(asking.get_by_text(f"{BIG}", exact=True)).to_be_visible()
        await expect(asking.get_by_text("1.0", exact=True)).to_be_visible()
        await expect(asking).to_contain_text(f'{{"id":{BIG}}}')

        await page.get_by_role("button", name="Change arguments").click()
        await asking.get_by_role("button", name="Edit rate").click()
        await asking.get_by_label("rate").fill("0.1234567890123456789")
        await asking.get_by_role("button", name="Ask with these").click()
        await expect(asking.get_by_role("alert")).to_contain_text(
            "would become 0.12345678901234568"
        )
        await asking.get_by_label("rate").fill("2.50")
        await asking.get_by_role("button", name="Ask with these").click()
        await expect(asking.get_by_text("2.5", exact=True)).to_be_visible()
        await expect(asking.get_by_text(f"{BIG}", exact=True)).to_be_visible()
        await asking.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Done.")).to_be_visible()

        await page.reload()
        ran = card(page, "ran")
        await ran.get_by_role("button").first.click()
        await ran.get_by_role("tab", name="Arguments").click()
        await expect(ran.get_by_text(f"{BIG}", exact=True)).to_be_visible()
    assert outbox.sent == [{"amount": BIG, "rate": 2.5, "of": {"id": BIG}}]


async def test_text_of_three_megabytes_opens_without_a_long_task(
    open_page: OpenPage, tmp_path: Path
):
    outbox = Outbox()
    for body in ("word " * 600_000, "a line of text\n" * 200_000):
        folder = tmp_path / body[0]
        folder.mkdir()
        made = calls(call("send", body=body))
        async with chat(folder, open_page, made, "Done.", extend=outbox.add) as served:
            page = await served.ask()
            asking = card(page, "asking")
            fold = asking.get_by_role("button", name=re.compile(r"^show [\d,]+ lines?, [23],"))
            await expect(fold).to_be_visible()
            async with traced(page.context.browser, page) as tasks:
                # Finding elements by their roles would cost the page more than the text.
                await page.locator("button.fold").click()
                await page.locator(".pieces[aria-busy=false]").wait_for()
            await expect(asking.get_by_role("button", name="Approve once")).to_be_enabled()
            assert tasks.longest() < 0.1


async def test_changed_arguments_are_shown_and_approved_like_any_other(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, calls(call("delete", name="milk")), "Done.") as served:
        page = await served.ask()
        await page.get_by_role("button", name="Change arguments").click()
        await page.get_by_role("button", name="All as JSON").click()
        field = page.get_by_label("Arguments as JSON")
        await field.fill('{"name": 5}')
        await page.get_by_role("button", name="Ask with these").click()
        await expect(page.get_by_role("alert")).to_be_visible()
        await field.fill('{"name": "bread"}')
        await page.get_by_role("button", name="Ask with these").click()

        await expect(card(page, "asking")).to_contain_text("bread")
        assert served.desk.deleted == []
        await page.get_by_role("button", name="Approve once").click()

        await expect(page.get_by_text("Done.")).to_be_visible()
        assert served.desk.deleted == ["bread"]
        assert "changed the arguments" in served.model.requests[-1].messages[-1].content


async def test_unchanged_arguments_stay_folded_while_others_are_edited(
    open_page: OpenPage, tmp_path: Path
):
    outbox = Outbox()
    made = calls(call("send", to="an\u200bna", body=MAIL))
    async with chat(tmp_path, open_page, made, "Done.", extend=outbox.add) as served:
        page = await served.ask()
        asking = card(page, "asking")
        await asking.get_by_role("button", name="Change arguments").click()
        await expect(asking.get_by_role("button", name="show 341 lines")).to_be_visible()
        await asking.get_by_role("button", name="Edit to").click()
        await expect(asking.get_by_label("to")).to_have_value('"an\\u200bna"')
        await asking.get_by_label("to").fill('"anna"')
        await asking.get_by_role("button", name="Ask with these").click()

        await expect(asking.get_by_text('"anna"')).to_be_visible()
        await asking.get_by_role("button", name="Open all").click()
        await asking.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Done.")).to_be_visible()
    assert outbox.sent == [{"to": "anna", "body": MAIL}]


async def test_equal_calls_are_approved_together_by_button_or_key(
    open_page: OpenPage, tmp_path: Path
):
    outbox = Outbox()
    made = [call("delete", f"call_{n}", name=f"note {n}") for n in range(3)]
    texts = [call("send", f"call_{n}", body=MAIL) for n in range(2)]
    script = (calls(*made), "All gone.", calls(*made), "None gone.", calls(*texts), "Both sent.")
    async with chat(tmp_path, open_page, *script, extend=outbox.add) as served:
        page = await served.ask()
        await page.get_by_role("button", name="Approve these 3").click()
        await expect(page.get_by_text("All gone.")).to_be_visible()
        assert sorted(served.desk.deleted) == ["note 0", "note 1", "note 2"]

        for key, end in (("d", "None gone."), ("a", "Both sent.")):
            await page.get_by_label("Message", exact=True).fill("go")
            await page.keyboard.press("Enter")
            batch = card(page, "asking")
            await expect(batch).to_be_visible()
            await batch.focus()
            await batch.press(key)  # at once
            await page.wait_for_timeout(600)
            if key == "a":
                await batch.press(key)  # with parts that were never shown
                assert outbox.sent == []
                await batch.get_by_role("button", name="Open all").click()
            await batch.press(key)
            await expect(page.get_by_text(end)).to_be_visible()
        assert len(served.desk.deleted) == 3
        assert outbox.sent == [{"body": MAIL}] * 2


async def test_two_tabs_agree_about_a_decision(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("delete", name="x")), "Done.") as served:
        one = await served.ask()
        await expect(card(one, "asking")).to_be_visible()
        two = await served.open(one.url.removeprefix(served.url))
        await expect(card(two, "asking")).to_be_visible()

        await two.get_by_role("button", name="Approve once").click()

        for page in (one, two):
            await expect(page.get_by_text("Done.")).to_be_visible()
            await expect(card(page, "asking")).to_have_count(0)


async def test_question_of_a_server_is_answered_in_a_form(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("ask")), "Thanks.") as served:
        page = await served.ask()

        await expect(page.get_by_text("Which colour?")).to_be_visible()
        await page.get_by_role("button", name="Send answer").click()
        await expect(page.get_by_role("alert")).to_have_text("A value is required.")
        assert await violations_everywhere(page) == []
        await page.get_by_label("Colour").select_option("blue")
        await page.get_by_label("How many").fill("2")
        await page.get_by_role("button", name="Send answer").click()

        await expect(page.get_by_text("Thanks.")).to_be_visible()
        await expect(page.get_by_text("You answered desk.")).to_be_visible()
        assert "blue" in served.model.requests[-1].messages[-1].content


async def test_results_are_shown_as_table_picture_and_error(open_page: OpenPage, tmp_path: Path):
    made = [call("people", "c1"), call("picture", "c2"), call("broken", "c3")]
    async with chat(tmp_path, open_page, calls(*made), "See above.") as served:
        page = await served.ask()

        await expect(card(page, "failed")).to_contain_text("the disk is full")
        await expect(card(page, "ran")).to_have_count(2)
        for each in await card(page, "ran").all():
            await each.get_by_role("button").first.click()
        await expect(page.get_by_role("cell", name="=Bob")).to_be_visible()
        picture = page.get_by_role("img", name="Picture in the result")
        await expect(picture).to_be_visible()
        assert (await picture.get_attribute("src") or "").startswith("blob:")


async def test_search_for_tools_shows_its_queries_and_a_table_of_the_tools(
    open_page: OpenPage, tmp_path: Path
):
    search = ToolCall("call_1", SEARCH_TOOLS, {"queries": ["find notes", "list people"]})
    async with chat(tmp_path, open_page, calls(search), "Found.") as served:
        page = await served.ask("Search")
        shown = card(page, "ran")
        await expect(shown).to_contain_text("interlock:search_tools")
        await expect(shown).to_contain_text("find notes · list people")
        await shown.get_by_role("button").first.click()
        row = shown.get_by_role("row").filter(has_text="desk__find")
        await expect(row).to_contain_text("Find notes that contain a text.")
        await expect(row).to_contain_text("true")


async def test_page_that_lost_its_connection_comes_back_with_the_same_text(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["ERR_INTERNET_DISCONNECTED", "Failed to load"]
    script = (calls(call("wait"), text="Reading."), LONG)
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.ask()
        await served.desk.waiting.wait()
        for socket in [*served.site._chat._sockets._sockets]:
            socket.close(1001, "cut")
        await expect(page.locator("[data-line=lost]")).to_be_visible()
        served.desk.go_on.set()

        await expect(page.get_by_role("heading", name="Heading")).to_be_visible()
        await expect(page.get_by_role("checkbox", name="write")).to_be_checked()
        await expect(page.get_by_role("checkbox", name="send")).not_to_be_checked()
        await expect(page.get_by_text("Reading.", exact=True)).to_have_count(1)
        await expect(card(page, "ran")).to_have_count(1)


async def test_draft_survives_a_reload(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page) as served:
        page = await served.open()
        await page.get_by_label("Message", exact=True).fill("half a thought")

        await page.reload()

        await expect(page.get_by_label("Message", exact=True)).to_have_value("half a thought")


async def test_message_sent_during_an_answer_waits_for_its_end(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, calls(call("wait")), "One.", "Two.") as served:
        page = await served.ask("first")
        await served.desk.waiting.wait()
        await page.get_by_label("Message", exact=True).fill("second")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Waits until the answer is complete")).to_be_visible()

        served.desk.go_on.set()

        await expect(page.get_by_text("Two.")).to_be_visible()
        contents = [each.content for each in served.model.requests[-1].messages]
        assert contents[-1] == "second"


async def test_message_sent_before_the_first_one_has_arrived_is_of_the_same_conversation(
    open_page: OpenPage, tmp_path: Path
):
    held: list[Callable[[], None]] | None = []
    arrived = asyncio.Event()

    def hold(socket: WebSocketRoute) -> None:
        """Let the page wait for the news that its first message has arrived."""

        def pass_on(message: str | bytes) -> None:
            if held or (held is not None and '"started"' in str(message)):
                held.append(partial(socket.send, message))
                arrived.set()
            else:
                socket.send(message)

        socket.connect_to_server().on_message(pass_on)

    async with chat(tmp_path, open_page, "One.", "Two.") as served:
        page = await served.open()
        await page.route_web_socket("**", hold)
        await page.reload()
        for text in ("first", "second"):
            await page.get_by_label("Message", exact=True).fill(text)
            await page.keyboard.press("Enter")
            await arrived.wait()
        await expect(page.get_by_text("Waits until the answer is complete")).to_be_visible()

        waiting, held = held, None
        for send in waiting:
            send()

        await expect(page.get_by_text("Two.")).to_be_visible()
        asked = [each.content for each in served.model.requests[-1].messages]
        assert asked[-3:] == ["first", "One.", "second"]


async def test_edited_message_is_sent_in_a_copy_of_the_conversation(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "One.", "Two.") as served:
        page = await served.ask("first")
        await expect(page.get_by_text("One.", exact=True)).to_be_visible()
        before = page.url

        await page.get_by_role("button", name="Edit", exact=True).click()
        await page.get_by_label("Edit", exact=True).fill("other")
        await page.get_by_role("button", name="Ask in a copy").click()

        await expect(page.get_by_text("Two.")).to_be_visible()
        await expect(page.get_by_role("group", name="Branches")).to_contain_text("2/2")
        await page.get_by_role("button", name="Branch before").click()
        await expect(page).to_have_url(before)
        await expect(page.get_by_text("One.", exact=True)).to_be_visible()


async def test_conversation_is_searched_renamed_exported_and_deleted(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "The milk is in the fridge.") as served:
        page = await served.ask("Where is it?")
        await expect(page.get_by_text("The milk is in the fridge.")).to_be_visible()

        await page.get_by_label("Search").fill("fridge")
        await expect(page.get_by_text("1 conversation")).to_be_visible()
        await page.get_by_label("Search").fill("no such words")
        await expect(page.get_by_text("No conversation contains this text.")).to_be_visible()
        await page.get_by_label("Search").fill("")

        await page.get_by_role("button", name="More").click()
        await page.get_by_role("button", name="Rename").click()
        await page.get_by_label("Title").fill("Milk")
        await page.get_by_role("button", name="Save").click()
        await expect(page.get_by_role("link", name="Milk")).to_be_visible()

        await page.get_by_role("button", name="Export").click()
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name="As Markdown").click()
        saved = await (await waiting.value).path()
        assert "The milk is in the fridge." in saved.read_text()

        await page.get_by_role("button", name="More").click()
        await page.get_by_role("button", name="Delete").click()
        await page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        await expect(page.get_by_text("No conversations yet.")).to_be_visible()
        assert await served.store.list() == []


async def test_uploaded_file_goes_to_the_model_as_text_as_it_is_or_by_name_only(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "Read.") as served:
        page = await served.open()
        await page.locator('input[type="file"]').set_input_files(
            [
                {"name": "notes.txt", "mimeType": "text/html", "buffer": b"<b>milk</b>"},
                {"name": "data.bin", "mimeType": "text/plain", "buffer": b"\0\1"},
                {"name": "cat.png", "mimeType": "text/plain", "buffer": b"\x89PNG\r\n\x1a\n"},
            ]
        )
        await expect(page.get_by_text("the model gets its text")).to_be_visible()
        await expect(page.get_by_text("the model gets only its name")).to_be_visible()
        await expect(page.get_by_text("the model gets the file")).to_be_visible()
        await page.get_by_label("Message", exact=True).fill("Read these")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Read.", exact=True)).to_be_visible()

        asked = served.model.requests[-1].messages[-1]
        assert "<b>milk</b>" in asked.content
        assert "data.bin" in asked.content
        assert [each.name for each in asked.attachments] == ["cat.png"]
        await page.reload()
        said = page.locator('[data-role="user"]')
        await expect(said).to_contain_text("notes.txt")
        await expect(said).not_to_contain_text("milk")
        await page.set_viewport_size({"width": 390, "height": 800})
        assert await said.locator(".file").first.evaluate(LINES_OF_NAME) == 1


LINES_OF_NAME = """file => {
  const range = document.createRange();
  range.selectNodeContents([...file.querySelectorAll("span")].find(
    (each) => each.firstChild?.nodeType === Node.TEXT_NODE).firstChild);
  return range.getClientRects().length;
}"""


class Remarking(ScriptedModel):
    """Remarks something before each answer."""

    async def stream(self, *asked: Any) -> AsyncGenerator[ModelEvent, None]:
        yield Notice("scripted cannot read <b>cat.png</b>")
        async for event in super().stream(*asked):
            yield event


async def test_a_remark_about_the_model_is_a_line_above_its_answer(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "Read.", kind=Remarking) as served:
        page = await served.ask("What is this?")

        await expect(page.locator(".line-note")).to_have_text("scripted cannot read <b>cat.png</b>")
        await expect(page.get_by_text("Read.", exact=True)).to_be_visible()


async def test_tools_are_searched_and_switched_and_the_model_gets_the_enabled_ones(
    open_page: OpenPage, tmp_path: Path
):
    other = Server("other")

    @other.tool
    def clock() -> str:
        """Tell the time."""
        return ""

    servers = {"desk": Desk().server, "other": other}
    script = (calls(call("find", text="x")), "Done.")
    async with chat(tmp_path, open_page, *script, servers=servers) as served:
        page = await served.open()
        await page.get_by_role("button", name="9 of 9 tools").click()
        dialog = page.get_by_role("dialog")
        delete = dialog.locator('[data-tool="desk:delete"]')
        await expect(delete).to_contain_text("writes")
        await expect(delete).to_contain_text("Delete a note.")
        assert await violations_everywhere(page) == []

        await dialog.get_by_label("Search tools").fill("notes find")
        await expect(dialog.locator("[data-tool]")).to_have_count(1)
        await expect(dialog.locator("[data-tool]")).to_contain_text("reads")
        await dialog.get_by_text("Find notes that contain").click()
        await dialog.get_by_label("When desk:find asks").select_option("ask")
        await dialog.get_by_label("Search tools").fill("nothing like this")
        await expect(dialog.get_by_text("No tool has “nothing like this”")).to_be_visible()
        await dialog.get_by_label("Search tools").fill("")
        await dialog.get_by_role("switch", name="All tools of other").uncheck()
        await dialog.get_by_role("switch", name="Use desk:delete").uncheck()
        await expect(dialog.get_by_role("switch", name="Use other:clock")).not_to_be_checked()
        await expect(dialog).to_contain_text("7 of 8 on")
        await dialog.get_by_role("button", name="Done").click()
        await page.get_by_label("Message", exact=True).fill("go")
        await page.keyboard.press("Enter")

        await expect(card(page, "asking")).to_contain_text("desk:find")
        await page.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Done.", exact=True)).to_be_visible()
        offered = {each.name for each in served.model.requests[0].tools}
        assert "desk__find" in offered
        assert not offered & {"desk__delete", "other__clock"}


async def test_hostile_texts_run_no_script_send_no_request_and_create_no_elements(
    open_page: OpenPage, tmp_path: Path
):
    markup, text = "\n\n".join(MARKUP), "\n\n".join([*MARKDOWN, *MARKUP])

    def extend(server: Server) -> None:
        @server.tool(annotations=READ, title=MARKUP[2], description=markup)
        def fail(text: str) -> str:
            raise ToolError(text)

    made = (call("find", "c1", text=text), call("fail", "c2", **{"text": text, MARKUP[0]: 1}))
    async with chat(tmp_path, open_page, calls(*made, text=text), text, extend=extend) as served:
        page = await served.ask(markup)
        await expect(page.locator(".reply[aria-busy=false]")).to_be_visible()
        for address in (page.url, page.url):  # as it arrives, and as it is stored
            for state in ("ran", "failed"):
                head = card(page, state).get_by_role("button").first
                if await head.get_attribute("aria-expanded") == "false":
                    await head.click()
                await card(page, state).get_by_role("tab", name="Arguments").click()
            await expect(page.locator(".reply .markdown").last).to_contain_text("ontoggle")

            assert (
                await page.locator("main")
                .locator(ELEMENTS)
                .and_(page.locator(":not(form.composer)"))
                .evaluate_all("found => found.map((each) => each.outerHTML)")
                == []
            )
            assert await page.locator("main a[href*='evil.example']").count() >= 5  # as links
            assert await page.evaluate(LINKS) == []
            assert await page.evaluate("window.ran ?? null") is None
            await page.goto(address)


async def test_hidden_characters_in_an_approval_are_visible_marks_and_stay_in_the_call(
    open_page: OpenPage, tmp_path: Path
):
    name = "".join(f"{each}x" for each in HIDDEN)
    async with chat(tmp_path, open_page, calls(call("delete", name=name)), "Done.") as served:
        page = await served.ask()
        for mark in HIDDEN.values():
            await expect(card(page, "asking").get_by_text(mark, exact=True)).to_be_visible()
        await page.get_by_role("button", name="Approve once").click()
        await expect(page.get_by_text("Done.")).to_be_visible()

    assert served.desk.deleted == [name]


async def test_chat_page_passes_the_axe_accessibility_check(open_page: OpenPage, tmp_path: Path):
    script = (calls(call("people", "c1"), call("broken", "c2"), text=LONG), LONG,
              calls(call("delete", name="x")))  # fmt: skip
    async with chat(tmp_path, open_page, *script) as served:
        page = await served.open()
        await expect(page.get_by_role("heading", name="What should be done?")).to_be_visible()
        assert await violations_everywhere(page) == []
        for text, state in (("go", "failed"), ("more", "asking")):
            await page.get_by_label("Message", exact=True).fill(text)
            await page.keyboard.press("Enter")
            await expect(card(page, state)).to_be_visible()
            await expect(page.locator(".reply[aria-busy=true]")).to_have_count(
                int(state == "asking")
            )
            assert await violations_everywhere(page) == []
