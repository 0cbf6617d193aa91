"""The same as `screen`, on a terminal that can draw."""

from __future__ import annotations

import sys

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markdown import Markdown
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from interlock.agent import ToolFinished, ToolStarted
from interlock.cli.call_lines import call_line, excerpt
from interlock.cli.terminal import is_terminal, safe, safe_line

_REFRESHES = 10  # a second
_LARGE_BLOCK = 20_000  # characters that are drawn again and again as Markdown, at most

# A model's "<T>" is text, and so is every other tag.
_parser = MarkdownIt(options_update={"html": False}).enable("strikethrough").enable("table")


class MarkdownAnswer:
    """Markdown that grows: whole blocks are printed for good, the last one is drawn anew.

    So nothing is drawn twice however long the answer gets, and nothing flickers but the last
    block, of which only the end is shown while it is taller than the screen.
    """

    def __init__(self) -> None:
        self._console = Console(file=sys.stdout, highlight=False)
        self._live: Live | None = None
        self._open = ""  # text that has not been printed for good
        self._look_again = 0  # length of `_open` from which it may have a whole block
        self._printed = False

    def add(self, text: str) -> None:
        """Show the next piece."""
        self._open += text
        if self._live is None and self._open.strip():
            self._live = Live(
                console=self._console,
                get_renderable=lambda: _Tail(self._open),
                refresh_per_second=_REFRESHES,
                transient=True,
                redirect_stderr=is_terminal(sys.stderr),
            )
            self._live.start()
        # Looking takes time in proportion to the length, so look ever more seldom.
        if len(self._open) >= self._look_again and "\n" in text:
            *whole, self._open = _blocks(self._open)
            self._print(whole)
            self._look_again = len(self._open) * 5 // 4

    def finish(self) -> None:
        """Print the rest for good."""
        rest, self._open = self._open, ""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        self._print(_blocks(rest))
        self._look_again = 0
        self._printed = False

    def _print(self, blocks: list[str]) -> None:
        for block in filter(str.strip, blocks):
            if self._printed:
                self._console.print()
            self._console.print(_Block(markdown(block)))
            self._printed = True


def markdown(text: str) -> Markdown:
    """Draw a model's Markdown: no HTML, no hidden addresses behind links."""
    drawn = Markdown("", code_theme="ansi_dark", hyperlinks=False)
    drawn.markup = safe(text)
    drawn.parsed = _parser.parse(drawn.markup)
    return drawn


def _blocks(text: str) -> list[str]:
    """Split Markdown into its blocks: at least one, and nothing can be added but to the last."""
    # The parser ends lines at these only, and its line numbers must be ours.
    text = text.replace("\r\n", "\n").replace("\r", " ")
    lines = text.split("\n")
    starts = [token.map[0] for token in _parser.parse(text) if token.level == 0 and token.map]
    starts = sorted({0, *starts})
    ends = [*starts[1:], len(lines)]
    blocks = ["\n".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]
    return [*(f"{block}\n" for block in blocks[:-1]), blocks[-1]]


class _Tail:
    """As much of the end of a text as the screen has room for."""

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
    """A piece of Markdown without the blank lines that some kinds bring along."""

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


class LiveTalk:
    """A spinner for what is under way, a line for what is done."""

    def __init__(self) -> None:
        self._console = Console(file=sys.stderr, highlight=False)
        self._live: Live | None = None
        self._running: dict[str, str] = {}  # call id -> its line
        self._thought = ""
        self._told = False  # results stand right above
        self._spinner = Spinner("dots", style="cyan")

    def think(self, thought: str = "") -> None:
        """Show the spinner, and the end of what the model thinks aloud."""
        self._thought = (self._thought + thought)[-400:]
        self._show()

    def start(self, event: ToolStarted) -> None:
        """Show the call beside the spinner."""
        self._thought = ""
        self._running[event.id] = call_line(event.address, event.arguments)
        self._show()

    def finish(self, event: ToolFinished) -> None:
        """Print the call with its time, and the beginning of its result."""
        line = self._running.pop(event.id, "") or call_line(event.address, event.arguments)
        sign, style = ("✗", "red") if event.is_error else ("✓", "green")
        text = Text.assemble((f"{sign} ", style), line, (f"  {event.duration:.2f} s", "dim"))
        self._show()
        self._console.print(text, soft_wrap=True)
        for result in excerpt(event.result, max(20, self._console.width - 4)):
            self._console.print(Text(f"  {result}", style="dim"), no_wrap=True, overflow="ellipsis")
        self._told = True

    def pause(self) -> None:
        """Take the spinner away."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()
        for line in self._running.values():
            self._console.print(Text.assemble(("✗ ", "red"), line, ("  stopped", "dim")))
        if self._told:
            self._console.print()
        self._told = False
        self._running.clear()
        self._thought = ""

    def _show(self) -> None:
        if self._live is None:
            self._live = Live(
                console=self._console,
                get_renderable=self._draw,
                refresh_per_second=_REFRESHES,
                transient=True,
                redirect_stdout=False,
            )
            self._live.start()

    def _draw(self) -> RenderableType:
        room = max(20, self._console.width - 4)
        lines = list(self._running.values()) or [_end_of(self._thought, room) or "thinking"]
        self._spinner.update(text=Text(lines[0], style="dim", overflow="ellipsis", no_wrap=True))
        others = [
            Text(f"  {line}", style="dim", overflow="ellipsis", no_wrap=True) for line in lines[1:8]
        ]
        return Group(self._spinner, *others)


def _end_of(thought: str, room: int) -> str:
    line = safe_line(thought)
    return line if len(line) <= room else "…" + line[1 - room :]
