"""What was on the screen is kept: answers that end early, messages that are not sent, pictures."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path
from time import perf_counter

import pytest
from playwright.async_api import Page, expect

from interlock.errors import ModelRefused
from interlock.messages import Message
from interlock.models import ModelEvent, TextDelta, ToolDefinition
from interlock.models.scripted import ScriptedModel
from interlock.web.chat.turn import TurnLimits
from tests.browser.chat import PIXEL, call, calls, chat
from tests.browser.conftest import OpenPage, Watch, violations_everywhere
from tests.browser.test_chat import card
from tests.models import wire_openai as wire

PICTURE = base64.b64decode(PIXEL)


class Halting(ScriptedModel):
    """Answers as its script says; "…" at the end of a text: the answer goes on for ever."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        async for event in super().stream(messages, tools):
            yield event
            if isinstance(event, TextDelta) and event.text.endswith("…"):
                await asyncio.Event().wait()


class Busy(ScriptedModel):
    """Streams 1,000 tokens a second, and lets nothing else run meanwhile."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        for _ in range(20_000):
            ready = perf_counter() + 0.001
            while perf_counter() < ready:
                pass
            yield TextDelta("word ")
        async for event in super().stream(messages, tools):
            yield event


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def test_stopped_answer_is_there_after_a_reload_and_the_model_gets_it_as_unfinished(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "One two three…", "Four.", kind=Halting) as served:
        page = await served.ask()
        await expect(page.get_by_text("One two three…")).to_be_visible()
        await page.keyboard.press("Escape")
        stopped = page.get_by_text("You stopped this answer.")
        await expect(stopped).to_be_visible()

        await page.reload()
        await expect(page.get_by_text("One two three…")).to_be_visible()
        await expect(stopped).to_be_visible()
        await say(page, "And then?")
        await expect(page.get_by_text("Four.")).to_be_visible()

        told = [each.content for each in served.model.requests[-1].messages]
        note = "[The user stopped this answer before it was complete.]"
        assert told == ["go", "One two three…", note, "And then?"]


async def test_answer_that_takes_the_whole_processor_is_stopped(
    open_page: OpenPage, tmp_path: Path
):
    async with chat(tmp_path, open_page, "It is over.", kind=Busy) as served:
        page = await served.ask()
        await page.get_by_role("button", name="Stop").click()

        await expect(page.get_by_text("You stopped this answer.")).to_be_visible()
        await expect(page.get_by_text("It is over.")).to_have_count(0)


async def test_reason_of_a_model_that_failed_is_shown_and_the_answer_is_continued(
    open_page: OpenPage, tmp_path: Path
):
    why = "api.openai.com refused the key for openai:m (401): it is revoked; check OPENAI_API_KEY"
    async with chat(tmp_path, open_page, ModelRefused(why), "It is noon.") as served:
        page = await served.ask()
        note = page.locator('[data-error="model_failed"]')
        await expect(note).to_contain_text(why.removeprefix("a"))
        await page.reload()
        await expect(note).to_contain_text(why.removeprefix("a"))
        assert await violations_everywhere(page) == []

        await note.get_by_role("button", name="Continue").click()
        await expect(page.get_by_text("It is noon.")).to_be_visible()
        assert [each.content for each in served.model.requests[-1].messages] == ["go"]


async def test_killed_server_loses_less_than_a_second_of_the_answer(
    open_page: OpenPage, watch: Watch, tmp_path: Path
):
    watch.expected += ["WebSocket connection to", "CONNECTION_REFUSED"]  # while it is down
    model = wire.server()
    await model.start()
    pieces = [
        wire.chunk(role="assistant", content=""),
        *(wire.chunk(content=f"w{n} ") for n in range(50)),
    ]
    begun = wire.chunks(*pieces, done=False)._replace(hangs=True)
    model.script = [begun, wire.says("And w50.")]
    programs: list[Program] = []
    try:
        first = await started(tmp_path, model.root)
        programs.append(first)
        page = await open_page(first.url)
        await say(page, "Count.")
        await expect(page.get_by_text("w48 w49")).to_be_visible()
        await until_stored(tmp_path, "w49")
        first.kill()
        bar = page.locator('[data-line="lost"]')
        await expect(bar).to_contain_text(
            "while its server runs; all but its last second is stored"
        )
        assert await violations_everywhere(page) == []

        programs.append(await started(tmp_path, model.root, port=first.port))
        note = page.locator('[data-error="draft"]')
        await expect(note).to_contain_text("its program was ended")
        await expect(page.get_by_text("w48 w49")).to_be_visible()
        assert await violations_everywhere(page) == []
        await note.get_by_role("button", name="Continue").click()
        await expect(page.get_by_text("And w50.")).to_be_visible()
        await page.reload()
        await expect(page.get_by_text("The answer was cut off.")).to_be_visible()

        told = [each["content"] for each in model.asked[-1].body["messages"]]
        assert told[1].endswith("w48 w49 ")
        assert "Continue it where it ends" in told[2]
        assert model.problems == []
        await open_page.close()
    finally:
        for each in programs:
            each.kill()
        await model.stop()


class Program:
    """A running `interlock web`."""

    def __init__(self, process: asyncio.subprocess.Process, url: str) -> None:
        self._process = process
        self.url = url
        self.port = int(url.partition("/#")[0].rpartition(":")[2])

    def kill(self) -> None:
        with suppress(ProcessLookupError):  # it was killed before
            os.killpg(self._process.pid, signal.SIGKILL)


async def started(folder: Path, model: str, *, port: int = 0) -> Program:
    command = ["-m", "interlock", "web", "--no-open", "--no-tools", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *command, "--model", f"openai:m@{model}/v1"),
        env={**os.environ, "HOME": str(folder), "INTERLOCK_DATABASE": str(folder / "chat.db")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    return Program(process, (await process.stdout.readline()).decode().strip())


async def until_stored(folder: Path, text: str) -> None:
    while True:
        with sqlite3.connect(f"file:{folder / 'chat.db'}?mode=ro", uri=True) as database:
            rows = database.execute("SELECT content FROM messages ORDER BY position").fetchall()
        if text in rows[-1][0]:
            return
        await asyncio.sleep(0.05)


async def test_message_that_is_not_sent_is_back_with_its_reason_and_its_files_after_a_reload(
    open_page: OpenPage, tmp_path: Path
):
    script = [calls(call("delete", name=f"n{n}")) for n in range(5)]
    async with chat(tmp_path, open_page, *script, "Wait…", "Done.", kind=Halting) as served:
        served.site._chat.turns.limits = TurnLimits(turns=1)
        page = await served.open()
        for _ in script:  # any number of conversations may wait for a person
            await page.goto(served.url)
            await say(page, "Delete it")
            await expect(card(page, "asking")).to_be_visible()
        await page.goto(served.url)
        await say(page, "go")
        await expect(page.get_by_text("Wait…")).to_be_visible()

        await page.goto(served.url)
        picture = {"name": "cat.png", "mimeType": "image/png", "buffer": PICTURE}
        await page.locator('input[type="file"]').set_input_files(picture)
        await expect(page.get_by_text("the model gets the file")).to_be_visible()
        await say(page, "What is this?")
        problem = page.locator(".composer").get_by_role("alert")
        await expect(problem).to_contain_text("1 answer is being written, which is the limit")
        await page.reload()
        await expect(problem).to_contain_text("send it again when one has ended")
        message = page.get_by_label("Message", exact=True)
        await expect(message).to_have_value("What is this?")
        await expect(page.get_by_role("button", name="Show cat.png")).to_be_visible()
        assert await violations_everywhere(page) == []

        served.site._chat.turns.limits = TurnLimits()
        await message.press("Enter")
        await expect(page.get_by_text("Done.")).to_be_visible()
        await expect(problem).to_have_count(0)
        (attached,) = served.model.requests[-1].messages[-1].attachments
        assert attached.data == PICTURE


async def test_message_in_the_queue_is_not_lost_by_a_reload(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page, "Wait…", kind=Halting) as served:
        page = await served.ask()
        await expect(page.get_by_text("Wait…")).to_be_visible()
        await say(page, "And then?")
        await expect(page.get_by_text("Waits until the answer is complete")).to_be_visible()
        await page.reload()

        await expect(page.get_by_label("Message", exact=True)).to_have_value("And then?")
        await expect(page.locator(".composer").get_by_role("alert")).to_contain_text("waited")


@pytest.mark.parametrize("way", ["paste", "drop"])
async def test_picture_pasted_or_dropped_anywhere_is_shown_and_reaches_the_model(
    open_page: OpenPage, tmp_path: Path, way: str
):
    async with chat(tmp_path, open_page, "A cat.") as served:
        page = await served.open()
        await expect(page.get_by_role("heading", name="What should be done?")).to_be_visible()
        await page.evaluate(GIVE, [way, PIXEL])
        shown = page.get_by_role("button", name="Show cat.png")
        await expect(shown.locator("img")).to_be_visible()
        await expect(page.get_by_text("the model gets the file")).to_be_visible()
        await say(page, "What is this?")
        await expect(page.get_by_text("A cat.")).to_be_visible()
        (attached,) = served.model.requests[-1].messages[-1].attachments
        assert (attached.media_type, attached.data) == ("image/png", PICTURE)

        await page.reload()
        await shown.click()
        await expect(page.get_by_role("dialog").get_by_role("img", name="cat.png")).to_be_visible()
        assert await violations_everywhere(page) == []


GIVE = """([way, data]) => {
  const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  const given = new DataTransfer();
  given.items.add(new File([bytes], "cat.png", { type: "image/png" }));
  const options = { bubbles: true, cancelable: true, dataTransfer: given, clipboardData: given };
  const place = document.querySelector(".transcript");
  if (way === "paste") place.dispatchEvent(new ClipboardEvent("paste", options));
  else for (const each of ["dragover", "drop"]) place.dispatchEvent(new DragEvent(each, options));
}"""
