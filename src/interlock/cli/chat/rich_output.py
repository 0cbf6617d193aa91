"""The views of `output` for a terminal with colours and cursor control."""

from __future__ import annotations

import os
import sys
from typing import Any

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.control import Control
from rich.live import Live
from rich.live_render import LiveRender
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from interlock.agent import ToolFinished, ToolProgress, ToolStarted
from interlock.cli.call_lines import call_line, excerpt, progress_text
from interlock.cli.terminal import is_terminal, safe, safe_line

_REFRESHES = 10  # redraws per second
_LARGE_BLOCK = 20_000  # characters; a longer block is redrawn as plain text, not as Markdown

# HTML is off, because "<T>" in a model's answer is text.
_parser = MarkdownIt(options_update={"html": False}).enable("strikethrough").enable("table")


class MarkdownAnswer:
    """Shows Markdown while it arrives: prints complete blocks once, and redraws the last block.

    So only the last block can flicker. If it is taller than the screen, only its end is shown.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False)
        self._live: Live | None = None
        self._open = ""  # text that is not printed yet
        self._next_parse = 0  # length of `_open` that triggers the next parse
        self._printed = False

    def add(self, text: str) -> None:
        self._open += text
        if self._live is None and self._open.strip():
            self._live = _ReflowingLive(
                console=self._console,
                get_renderable=lambda: _Tail(self._open),
                refresh_per_second=_REFRESHES,
                transient=True,
                redirect_stderr=is_terminal(sys.stderr),
            )
            self._live.start()
        # Parsing takes time in proportion to the length, so long blocks are parsed less often.
        if len(self._open) >= self._next_parse and "\n" in text:
            *complete, self._open = _blocks(self._open)
            self._print(complete)
            self._next_parse = len(self._open) * 5 // 4

    def finish(self) -> None:
        rest, self._open = self._open, ""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._print(_blocks(rest))
        self._next_parse = 0
        self._printed = False

    def _print(self, blocks: list[str]) -> None:
        for block in filter(str.strip, blocks):
            if self._printed:
                self._console.print()
            self._console.print(_Block(markdown(block)))
            self._printed = True


def markdown(text: str) -> Markdown:
    """Render a model's Markdown. HTML stays text, and each link shows its URL."""
    drawn = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    drawn.markup = safe(text)
    drawn.parsed = _parser.parse(drawn.markup)
    return drawn


def _blocks(text: str) -> list[str]:
    """Split Markdown into one or more blocks; text that follows can change only the last block."""
    # Leave only "\n" as a line end, so that `split` below counts the same lines as the parser.
    text = text.replace("\r\n", "\n").replace("\r", " ")
    lines = text.split("\n")
    starts = [token.map[0] for token in _parser.parse(text) if token.level == 0 and token.map]
    starts = sorted({0, *starts})
    ends = [*starts[1:], len(lines)]
    blocks = ["\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    return [*(f"{block}\n" for block in blocks[:-1]), blocks[-1]]


class _Tail:
    """Renders as much of a text's end as the screen has room for."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(3, console.height - 2)
        drawn: RenderableType
        if len(self._text) > _LARGE_BLOCK:
            drawn = Text("\n".join(safe(self._text[-_LARGE_BLOCK:]).splitlines()[-room:]))
        else:
            drawn = markdown(self._text)
        for line in _lines(drawn, console, options)[-room:]:
            yield from line
            yield Segment.line()


class _Block:
    """Renders Markdown without blank lines at its start and end."""

    def __init__(self, drawn: RenderableType) -> None:
        self._drawn = drawn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in _lines(self._drawn, console, options):
            yield from line
            yield Segment.line()


def _lines(drawn: RenderableType, console: Console, options: ConsoleOptions) -> list[list[Segment]]:
    lines = console.render_lines(drawn, options, pad=False)
    filled = [i for i, line in enumerate(lines) if any(part.text.strip() for part in line)]
    return lines[filled[0] : filled[-1] + 1] if filled else []


class _ReflowingLive(Live):
    """A live display that is erased completely even after the terminal became narrower."""

    def __init__(self, *, console: Console, **options: Any) -> None:
        super().__init__(console=console, **options)
        if "XTERM_VERSION" not in os.environ:  # xterm cuts long lines when it becomes narrower
            self._live_render = _ReflowingRender(console, self.get_renderable())


class _ReflowingRender(LiveRender):
    """Computes how many rows the last drawing takes at the terminal's present width."""

    def __init__(self, console: Console, renderable: RenderableType) -> None:
        super().__init__(renderable)
        self._console = console
        self._widths: list[int] = []  # widths of the last drawing's lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        drawn = list(super().__rich_console__(console, options))
        segments = [each for each in drawn if isinstance(each, Segment)]
        self._widths = [Segment.get_line_length(line) for line in Segment.split_lines(segments)]
        yield from drawn

    def position_cursor(self) -> Control:
        """Return the codes that move the cursor to the start of the drawing, and erase it."""
        self._count_rows()
        return super().position_cursor()

    def restore_cursor(self) -> Control:
        """Return the same codes, for a cursor on the line below the drawing."""
        self._count_rows()
        return super().restore_cursor()

    def _count_rows(self) -> None:
        if self._shape is not None:
            width = max(1, self._console.width)
            rows = sum(max(1, -(-each // width)) for each in self._widths)
            self._shape = (self._shape[0], rows)


class LiveActivity:
    """Shows a spinner for running calls and a line for each finished call."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._live: Live | None = None
        self._running: dict[str, str] = {}  # each running call's line, by call id
        self._progress: dict[str, str] = {}  # each running call's progress, by call id
        self._thought = ""
        self._has_results = False  # whether the last printed lines are results
        self._spinner = Spinner("dots", style="cyan")

    def think(self, thought: str = "") -> None:
        self._thought = (self._thought + thought)[-400:]
        self._show()

    def start(self, event: ToolStarted) -> None:
        self._thought = ""
        self._running[event.id] = call_line(event.address, event.arguments)
        self._show()

    def progress(self, event: ToolProgress) -> None:
        if event.id in self._running:
            self._progress[event.id] = progress_text(event)

    def finish(self, event: ToolFinished) -> None:
        """Print the call with its duration and the beginning of its result."""
        self._progress.pop(event.id, None)
        line = self._running.pop(event.id, "") or call_line(event.address, event.arguments)
        sign, style = ("✗", "red") if event.is_error else ("✓", "green")
        text = Text.assemble((f"{sign} ", style), line, (f"  {event.duration:.2f} s", "dim"))
        self._show()
        self._console.print(text, soft_wrap=True)
        for result in excerpt(event.result, max(20, self._console.width - 4)):
            self._console.print(Text(f"  {result}", style="dim"), no_wrap=True, overflow="ellipsis")
        self._has_results = True

    def pause(self) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def stop(self) -> None:
        self.pause()
        for line in self._running.values():
            self._console.print(Text.assemble(("✗ ", "red"), line, ("  stopped", "dim")))
        if self._has_results:
            self._console.print()
        self._has_results = False
        self._running.clear()
        self._progress.clear()
        self._thought = ""

    def _show(self) -> None:
        if self._live is None:
            self._live = _ReflowingLive(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=_REFRESHES,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()

    def _draw(self) -> RenderableType:
        room = max(20, self._console.width - 4)
        lines = [
            f"{self._progress[id]}  {line}" if id in self._progress else line
            for id, line in self._running.items()
        ] or [_end_of(self._thought, room) or "thinking"]
        self._spinner.update(text=Text(lines[0], style="dim", overflow="ellipsis", no_wrap=True))
        others = [
            Text(f"  {line}", style="dim", overflow="ellipsis", no_wrap=True) for line in lines[1:8]
        ]
        return Group(self._spinner, *others)


def _end_of(thought: str, room: int) -> str:
    line = safe_line(thought)
    return line if len(line) <= room else "…" + line[1 - room :]
