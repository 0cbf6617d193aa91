"""The pages: what their main thread does, by Chromium's own trace, and what sockets cost."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, redirect_stdout
from pathlib import Path
from time import perf_counter, time
from typing import Any

import uvloop
from playwright.async_api import Browser, Page, async_playwright

from benchmarks import audit_pages
from benchmarks.harness import ROOT, US, Effort, Row
from interlock import Server
from interlock.messages import AssistantMessage, Message, UserMessage
from interlock.models import ModelEvent, Reply, TextDelta, ToolDefinition
from interlock.models.scripted import ScriptedModel
from interlock.web.board import SCREENS
from interlock.web.chat.turn import TurnLimits
from interlock.web.files import files_of_package
from interlock.web.site import CHAT
from tests.browser import chromium
from tests.browser.board import board
from tests.browser.chat import Chat, call, calls, chat
from tests.browser.conftest import OpenPage, Watch
from tests.browser.inspect import inspecting
from tests.browser.trace import traced
from tests.gateway.conftest import offering

TITLE = "Web pages"
TOKENS = 20_000  # of four characters, at 1,000 a second
LONG = 10_000  # messages
ROWS = 100_000
RECORDS = 1_000_000  # of the trail; `python -m benchmarks.audit_pages` makes 10 million
KB = 1024
SWITCHES = 50
TURNS = 200
MANY = 1_000_000  # messages a minute that a person may send here
PAUSE = 0.05  # seconds between two tokens whose way to the glass is timed
SLOW_LINE = {"latency": 150, "downloadThroughput": 200_000, "uploadThroughput": 200_000}
TIMED = 200  # tokens
IDLE = 10  # seconds
SOCKETS = 1_000
SECONDS = 10  # of frames to all sockets
PATIENCE = 120_000  # milliseconds
MB = 1024 * 1024
# What text, lists and code begin with, every twenty words.
STARTS = (
    "\n\n",
    "and ",
    "\n- ",
    "\n- ",
    "\n- ",
    "\n\n",
    "\n\n```py\n",
    "\n",
    "\n```\n\n",
    "**so** ",
)
SENT = re.compile(rb'"content":" ([^"]*)"')  # of a token

# The gaps between frames, in milliseconds; STEP is code that moves, and returns whether to end.
FRAMES = """async () => {
  const gaps = [], step = (at) => { STEP };
  let last = 0;
  await new Promise((done) => {
    const frame = (now) => {
      if (last) gaps.push(now - last);
      last = now;
      if (step(gaps.length)) done(); else requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  return gaps.sort((one, other) => one - other);
}"""
# How long it takes from an action until something is painted, in milliseconds.
UNTIL = """async () => {
  const started = performance.now();
  ACTION;
  while (!(SHOWN)) await new Promise((done) => requestAnimationFrame(done));
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return performance.now() - started;
}"""


# Marks when something is there.
USABLE = """new MutationObserver((_, watch) => {
  if (!document.querySelector("SHOWN")) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => performance.mark("usable")));
}).observe(document, { childList: true, subtree: true })"""
# The milliseconds from the time that a token tells until it is painted, for each token.
GLYPHS = r"""async (count) => {
  const delays = new Map(), box = document.body;
  const look = () => {
    const now = performance.timeOrigin + performance.now();
    for (const [at] of box.textContent.matchAll(/\d+\.\d{3}(?=;)/g))
      if (!delays.has(at)) delays.set(at, now - Number(at));
  };
  await new Promise((done) => {
    const watch = new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
      look();
      if (delays.size >= count) done();
    })));
    watch.observe(box, { subtree: true, childList: true, characterData: true });
  });
  return [...delays.values()];
}"""
STOP = "document.querySelector('form.composer .danger').click()"
NOTHING = "/api/nothing"  # a page that loads no file


class Steady(ScriptedModel):
    """A model that streams 1,000 tokens a second, or tokens that tell the time."""

    async def stream(
        self, messages: Sequence[Message], tools: Sequence[ToolDefinition] = ()
    ) -> AsyncGenerator[ModelEvent, None]:
        if messages[-1].content == "time":
            for _ in range(TIMED):
                await asyncio.sleep(PAUSE)
                yield TextDelta(f"{time() * 1_000:.3f}; ")
            yield Reply(AssistantMessage("It is late."), stop_reason="end")
            return
        if messages[-1].content != "stream":
            async for event in super().stream(messages, tools):
                yield event
            return
        words = [
            f"w{n % 97:02} " if n % 20 else STARTS[n // 20 % len(STARTS)] for n in range(TOKENS)
        ]
        started = perf_counter()
        for n, word in enumerate(words):
            ahead = n / 1_000 - (perf_counter() - started)
            if ahead > 0:
                await asyncio.sleep(ahead)
            yield TextDelta(word)
        yield Reply(AssistantMessage("".join(words)), stop_reason="end")


def rows(effort: Effort) -> Iterator[Row]:
    yield from of_sizes()
    yield from asyncio.run(of_pages())
    yield from of_sockets(effort)


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    path, variables = chromium.find()
    async with async_playwright() as playwright:
        launched = await playwright.chromium.launch(
            executable_path=path, args=chromium.ARGUMENTS, env={**os.environ, **variables}
        )
        yield launched
        await launched.close()


def of_sizes() -> Iterator[Row]:
    files = files_of_package()
    chat = {*files.modules(CHAT.entry, *CHAT.screens), *files.later(CHAT)}
    screens = [f"board/screens/{each}.js" for each in (*SCREENS.values(), "call")]
    fonts = [f"vendor/{each}.woff2" for each in ("inter", "jetbrains-mono")]
    for what, names, goal in (
        ("chat: modules, compressed", chat, 90),
        ("styles", CHAT.styles, 20),
        ("fonts", fonts, 90),
        ("modules of all screens of the board beyond the chat's", (*screens, "board/board.js"), 35),
        ("of the inspector", ("inspect/inspect.js", "inspect/later.js"), 30),
    ):
        loaded = {*files.modules(*names)} - chat if goal in (35, 30) else names
        paths = (f"{files.version}/{name}" for name in loaded)
        sizes = [len(files.answer(each, {b"accept-encoding": b"gzip"}).body) for each in paths]
        yield Row(what, "KB", {US: [sum(sizes) / KB]}, {US: goal})


async def of_pages() -> list[Row]:
    found: list[Row] = []

    def add(what: str, unit: str, value: float, goal: float) -> None:
        found.append(Row(what, unit, {US: [value]}, {US: goal}))

    async with browser() as launched:
        for measure in (
            paint, paint_slowly, stream, glyphs, stopping, stopping_text, long_text,
            long_conversation, memory, idle, table,
        ):  # fmt: skip
            opener = OpenPage(launched, Watch())
            with tempfile.TemporaryDirectory() as folder:
                script: list[Any] = ["Short."] * (TURNS + 1)
                if measure is stopping:
                    script = [calls(call("wait"))]
                elif measure is long_text:
                    script = [calls(call("delete", name="a line of text\n" * 200_000))]
                async with chat(Path(folder), opener, *script, kind=Steady) as served:
                    for row in await measure(served, launched):
                        add(*row)
        for row in [*await large_result(launched), *await trail(launched)]:
            add(*row)
    return found


Figure = tuple[str, str, float, float]


async def paint(served: Chat, _browser: Browser) -> list[Figure]:
    page = await served.open(NOTHING)
    first, usable = await painted(page, served.url, "textarea:enabled")
    shift = await page.evaluate(
        """async () => {
          let shift = 0;
          new PerformanceObserver((list) => {
            for (const each of list.getEntries()) shift += each.value;
          }).observe({ type: "layout-shift", buffered: true });
          await new Promise((done) => setTimeout(done, 500));
          return shift;
        }"""
    )
    return [
        ("first paint of the chat, cold", "s", first, 0.3),
        ("its field for messages", "s", usable, 0.5),
        ("its layout shift", "", shift, 0.02),
    ]


async def paint_slowly(served: Chat, _browser: Browser) -> list[Figure]:
    page = await served.open(NOTHING)
    session = await page.context.new_cdp_session(page)
    await session.send("Network.enable")
    await session.send("Network.emulateNetworkConditions", {"offline": False, **SLOW_LINE})
    first, usable = await painted(page, served.url, "textarea:enabled")
    return [
        ("over 1.6 Mbit/s and 150 ms: first paint", "s", first, 1.2),
        ("its field for messages over that line", "s", usable, 2.0),
    ]


async def painted(page: Page, url: str, shown: str) -> tuple[float, float]:
    """Open a page; return the seconds to its first paint, and until something is there."""
    await page.add_init_script(USABLE.replace("SHOWN", shown))
    await page.goto(url)
    await page.locator(shown).first.wait_for()
    first, usable = await page.evaluate(
        """async () => {
          const at = (name) => performance.getEntriesByName(name)[0]?.startTime;
          while (!at("usable")) await new Promise((done) => setTimeout(done, 10));
          return [at("first-contentful-paint"), at("usable")];
        }"""
    )
    return first / 1_000, usable / 1_000


async def stream(served: Chat, launched: Browser) -> list[Figure]:
    page = await served.open()
    await page.get_by_label("Message", exact=True).fill("stream")
    frames = asyncio.create_task(frames_of(page, "return at > 60 * 20"))
    async with traced(launched, page) as tasks:
        await page.keyboard.press("Enter")
        gaps = await frames
        await page.locator(".reply[aria-busy=false]").wait_for(timeout=PATIENCE)
    return [
        ("80,000 characters at 1,000 tokens/s: processor time", "s", tasks.processor(), 2.5),
        ("p99 of a frame", "s", share(gaps, 0.99) / 1000, 0.02),
        ("p99 of its processor time", "s", share(tasks.frames(), 0.99), 0.02),
        ("processor time of the last quarter to that of the first", "", tasks.growth(), 1.25),
        ("tasks over 50 ms of processor time", "", tasks.over(50), 2),
    ]


async def glyphs(served: Chat, _browser: Browser) -> list[Figure]:
    page = await served.open()
    await page.get_by_label("Message", exact=True).fill("time")
    drawn = asyncio.create_task(page.evaluate(GLYPHS, TIMED))
    await asyncio.sleep(0.2)
    await page.keyboard.press("Enter")
    delays = sorted(await drawn)
    return [("p95 from a token of the model to the paint", "s", share(delays, 0.95) / 1_000, 0.06)]


async def stopping(served: Chat, _browser: Browser) -> list[Figure]:
    page = await served.ask()
    await served.desk.waiting.wait()
    await page.locator('[data-state="running"]').wait_for()
    started = perf_counter()
    word = timed(page, STOP, """document.querySelector('[data-state="stopped"]')""")
    (shown, _) = await asyncio.gather(word, served.desk.cancelled.wait())
    return [
        ("stop: to the word", "s", shown / 1_000, 0.1),
        ("stop: to the server that works, too", "s", perf_counter() - started, 1.0),
    ]


async def stopping_text(served: Chat, _browser: Browser) -> list[Figure]:
    page = await served.open()
    await page.get_by_label("Message", exact=True).fill("stream")
    await page.keyboard.press("Enter")
    await asyncio.sleep(5)
    shown = await timed(page, STOP, "document.querySelector('.line-note')")
    return [("stop of an answer at 1,000 tokens/s", "s", shown / 1_000, 0.2)]


async def long_text(served: Chat, launched: Browser) -> list[Figure]:
    page = await served.ask()
    fold = page.get_by_role("button", name="show 199,")
    await fold.wait_for()
    async with traced(launched, page) as tasks:
        await fold.click()
        await page.locator(".pieces[aria-busy=false]").wait_for(timeout=PATIENCE)
    return [
        ("a folded text of 3 MB opens: longest task, processor time", "s", tasks.longest(), 0.1)
    ]


async def large_result(launched: Browser) -> list[Figure]:
    """Call a tool in the inspector whose result has 15 MB."""
    server = Server("large")

    @server.tool
    def rows() -> list[dict[str, Any]]:
        return [{"row": n, "text": "x" * 90} for n in range(60_000)]

    opener = OpenPage(launched, Watch())
    with tempfile.TemporaryDirectory() as folder:
        async with inspecting(Path(folder), opener, large=server) as served:
            page = await served.open("/inspect/large/rows")
            await page.get_by_role("button", name="Call").first.wait_for()
            async with traced(launched, page) as tasks:
                await page.get_by_role("button", name="Call").first.click()
                await page.locator("[data-state=ran]").first.wait_for(timeout=PATIENCE)
                await page.get_by_role("tab", name="JSON", exact=True).last.click()
                await page.get_by_role("button", name="load more").last.wait_for()
    what = "a result of 15 MB in the inspector: longest task, processor time"
    return [(what, "s", tasks.longest(), 0.1)]


async def long_conversation(served: Chat, launched: Browser) -> list[Figure]:
    made = await stored(served, LONG)
    page = await served.open()
    link = page.locator(f'a[href$="{made}"]')
    await link.wait_for()
    await page.wait_for_load_state("networkidle")
    text = f"Answer {LONG - 1} to it."
    shown = f"[...document.querySelectorAll('.reply')].at(-1)?.textContent.includes('{text}')"
    async with traced(launched, page) as opening:
        await timed(page, f"document.querySelector('a[href$=\"{made}\"]').click()", shown)
    gaps = await frames_of(
        page,
        "const box = document.querySelector('.talk .body');box.scrollTop -= 300; return at > 240",
    )
    nodes = await page.evaluate("document.querySelectorAll('*').length")
    await page.get_by_label("Message", exact=True).fill("one more")
    send = "document.querySelector('form.composer').requestSubmit()"
    last = "[...document.querySelectorAll('.said')].at(-1)?.textContent.includes('one more')"
    async with traced(launched, page) as adding:
        await timed(page, send, last)
    return [
        ("10,000 messages: open, processor time", "s", opening.processor(), 0.15),
        ("one more, processor time", "s", adding.processor(), 0.02),
        ("p95 of a frame while scrolling up", "s", share(gaps, 0.95) / 1000, 0.033),
        ("elements", "", nodes, 5_000),
    ]


async def memory(served: Chat, _browser: Browser) -> list[Figure]:
    """Ask and switch between two conversations, as in a long day."""
    served.site._chat.turns.limits = TurnLimits(messages=MANY)
    ids = [await stored(served, 200) for _ in range(2)]
    page = await served.open(f"/c/{ids[0]}")
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")

    async def switch(times: int) -> dict[str, float]:
        for n in range(times):
            await page.locator(f'a[href$="{ids[(n + 1) % 2]}"]').click()
            await page.locator(f'[aria-current="page"][href$="{ids[(n + 1) % 2]}"]').wait_for()
            await page.locator(".reply").nth(29).wait_for()
        for _ in range(3):
            await session.send("HeapProfiler.collectGarbage")
        metrics = (await session.send("Performance.getMetrics"))["metrics"]
        return {each["name"]: each["value"] for each in metrics}

    before = await switch(4)
    for n in range(TURNS):
        await page.get_by_label("Message", exact=True).fill(f"Number {n}.")
        await page.keyboard.press("Enter")
        answered = page.locator(".said", has_text=f"Number {n}.").locator("+ .reply")
        await answered.and_(page.locator("[aria-busy=false]")).wait_for()
    after = await switch(SWITCHES)
    grown = {name: after[name] - before[name] for name in before}
    return [
        ("200 turns and 50 switches: heap", "MB", grown["JSHeapUsedSize"] / MB, 10),
        ("nodes", "%", max(0.0, 100 * grown["Nodes"] / before["Nodes"]), 2),
        ("listeners", "", max(0.0, grown["JSEventListeners"]), 0),
    ]


async def idle(served: Chat, launched: Browser) -> list[Figure]:
    page = await served.open()
    await page.wait_for_load_state("networkidle")
    await asyncio.sleep(1)
    async with traced(launched, page) as tasks:
        await asyncio.sleep(IDLE)
    return [
        ("idle page: timers in 10 s", "", tasks.count("TimerFire"), 0),
        ("animation frames in 10 s", "", tasks.count("FireAnimationFrame"), 0),
    ]


async def table(served: Chat, _browser: Browser) -> list[Figure]:
    page = await served.open()
    modules = f"{served.url}/static/{files_of_package().version}/shared"
    await page.evaluate(
        """async ([modules, count]) => {
          const { html, render } = await import(`${modules}/view.js`);
          const { Window } = await import(`${modules}/window.js`);
          const rows = Array.from({ length: count }, (_, n) => ({ n }));
          const box = document.createElement("div");
          box.style.cssText = "position: fixed; inset: 0; display: grid; background: white";
          document.body.append(box);
          const cells = (row) => ["00:00:00", "ran", `crm:tool_${row.n}`, "user:anna", "12 ms"];
          render(html`<${Window} label="rows" rows=${rows} id=${(row) => String(row.n)}
            cells=${cells} heads=${["a", "b", "c", "d", "e"]} kind="audit"
            choose=${() => {}} />`, box);
        }""",
        [modules, ROWS],
    )
    gaps = await frames_of(
        page,
        "document.querySelector('[role=grid]').scrollTop += 700; return at > 300",
    )
    nodes = await page.evaluate("document.querySelectorAll('[role=grid] *').length")
    return [
        ("100,000 rows of the audit trail: p95 of a frame", "s", share(gaps, 0.95) / 1000, 0.034),
        ("elements of the table", "", nodes, 1_000),
    ]


async def trail(launched: Browser) -> list[Figure]:
    """Read a long audit trail, at the server and on the board."""
    opener = OpenPage(launched, Watch())
    with tempfile.TemporaryDirectory() as folder:
        location = str(Path(folder) / "gateway.db")
        with redirect_stdout(sys.stderr):
            await audit_pages.make(location, RECORDS)
        slowest = (await audit_pages.pages(location, 1, 50))[0][1]
        async with board(Path(folder), opener, crm=offering("get")) as gateway:
            page = await gateway.open(NOTHING)
            _, shown = await painted(page, f"{gateway.url}/gateway/audit", "[role=gridcell]")
    return [
        (f"{RECORDS:,} records: the slowest page of all filters", "s", slowest / 1_000, 0.1),
        ("the first rows on the board", "s", shown, 0.3),
    ]


async def stored(served: Chat, messages: int) -> str:
    made = await served.store.create(f"{messages} messages", "scripted")
    said = [
        AssistantMessage(f"Answer **{n}** to it.") if n % 2 else UserMessage(f"Question {n}.")
        for n in range(messages)
    ]
    await served.store.append(made.id, *said, model="scripted")
    return made.id


async def timed(page: Page, action: str, shown: str) -> float:
    """Return the milliseconds from an action until something is painted."""
    return float(await page.evaluate(UNTIL.replace("ACTION", action).replace("SHOWN", shown)))


async def frames_of(page: Page, step: str) -> list[float]:
    """Return the gaps between frames, the shortest first, while code moves the page."""
    gaps: list[float] = await page.evaluate(FRAMES.replace("STEP", step))
    return gaps


def share(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))]


# Sockets


def of_sockets(effort: Effort) -> Iterator[Row]:  # noqa: ARG001
    alone, _, _ = sockets(1)
    used, delays, kilobytes = sockets(SOCKETS)
    beyond = (used - alone) * 20 * SOCKETS * 100
    goals = (beyond, 50), (share(delays, 0.99), 0.05), (kilobytes, 40)
    names = (
        ("processor beyond the turns", "%"),
        ("p99 of the delay", "s"),
        ("memory a socket", "KB"),
    )
    for place, ((what, unit), (value, goal)) in enumerate(zip(names, goals, strict=True)):
        prefix = f"{SOCKETS:,} sockets, 20 frames/s each: " if place == 0 else ""
        yield Row(prefix + what, unit, {US: [value]}, {US: goal})


def sockets(count: int) -> tuple[float, list[float], float]:
    """Return the seconds of a token, the delays in seconds, and the kilobytes of a socket.

    There are always 1,000 answers; `count` of them are watched.
    """
    command = [sys.executable, "-m", "benchmarks.peers.chat_server", str(SOCKETS - count)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            port = int(server.stdout.readline())
            before = memory_of(server.pid)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                return runner.run(watched(port, server.pid, count, before))
        finally:
            server.terminate()


class Watcher(asyncio.Protocol):
    """A socket that asks, and notes how late each token of the answer is.

    A client that decodes each frame would keep the processor from the server.
    """

    def __init__(self, delays: list[float], port: int) -> None:
        self._delays = delays
        self._port = port
        self.is_measuring = False
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        upgrade = (
            f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        transport.write(upgrade.encode())
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/"):
            for each in (b'{"type":"hello"}', b'{"type":"message","content":"go"}'):
                mask = bytes(4)
                self._transport.write(bytes((0x81, 0x80 | len(each))) + mask + each)
        elif self.is_measuring:
            now = perf_counter()
            for sent in SENT.findall(data):
                self._delays.extend(now - float(each) for each in sent.split())


async def watched(
    port: int, pid: int, count: int, before: float
) -> tuple[float, list[float], float]:
    delays: list[float] = []
    clients: list[tuple[Any, Watcher]] = []
    loop = asyncio.get_running_loop()
    for _ in range(count):
        made = await loop.create_connection(lambda: Watcher(delays, port), "127.0.0.1", port)
        clients.append(made)
        await asyncio.sleep(0.003)
    await asyncio.sleep(3)
    for _, client in clients:
        client.is_measuring = True
    started = processor_of(pid)
    await asyncio.sleep(SECONDS)
    used = processor_of(pid) - started
    tokens = len(delays) * SOCKETS / count
    kilobytes = (memory_of(pid) - before) / count
    for transport, _ in clients:
        transport.abort()
    return used / tokens, sorted(delays), kilobytes


def processor_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> float:
    command = ["ps", "-o", "rss=", "-p", str(pid)]
    return float(subprocess.check_output(command))
