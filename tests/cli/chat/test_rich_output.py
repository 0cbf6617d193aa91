"""Markdown on a terminal: printed completely, once, and without control characters."""

import io
import re

import pytest
from rich.console import Console

from interlock.cli.chat.rich_output import MarkdownAnswer, _blocks, markdown
from tests.support.rows import each_row

LONG = (
    "# Title\n\nSome *text*.\n\n"
    + "".join(f"- item {number}\n" for number in range(60))
    + "\n```python\n"
    + "".join(f"x{number} = 1\n\n" for number in range(60))
    + "```\n\n| a | b |\n|---|---|\n| cell | 2 |\n\n1. one\n\n2. two\n\nThe end.\n"
)


class Window(io.StringIO):
    """A terminal that wraps long lines again when its width changes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.rows: list[str] = [""]
        self._wrapped: set[int] = set()  # rows that go on in the next one
        self._row = 0
        self._column = 0

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[?0-9;]*[A-Za-z]|[\s\S]", text):
            match part:
                case "\n":
                    self._down()
                    self._column = 0
                case "\r":
                    self._column = 0
                case "\x1b[1A":
                    self._row -= 1
                case "\x1b[2K":
                    self.rows[self._row] = ""
                    self._wrapped -= {self._row, self._row - 1}
                case _ if len(part) == 1:
                    self._put(part)
        return len(text)

    def _put(self, char: str) -> None:
        if self._column == self.width:
            self._wrapped.add(self._row)
            self._down()
            self._column = 0
        row = self.rows[self._row].ljust(self._column)
        self.rows[self._row] = row[: self._column] + char + row[self._column + 1 :]
        self._column += 1

    def _down(self) -> None:
        self._row += 1
        if self._row == len(self.rows):
            self.rows.append("")

    def resize(self, width: int) -> None:
        lines = [""]
        for number, row in enumerate(self.rows):
            lines[-1] += row
            if number not in self._wrapped:
                lines.append("")
        self.width, self.rows, self._wrapped = width, [], set()
        for line in lines[:-1]:
            parts = [line[start : start + width] for start in range(0, len(line), width)] or [""]
            first = len(self.rows)
            self._wrapped |= set(range(first, first + len(parts) - 1))
            self.rows += parts
        self._row = len(self.rows) - 1
        self._column = min(self._column, len(self.rows[-1]))


@pytest.mark.parametrize("width", [15, 25, 80])
def test_answer_is_shown_once_after_the_window_was_resized(
    width: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("XTERM_VERSION", raising=False)
    window = Window(40)
    window.write("typed before\n")
    answer = MarkdownAnswer()
    console = Console(file=window, width=40, height=30, force_terminal=True, color_system=None)
    answer._console = console
    words = [f"word{number:03}" for number in range(40)]
    answer.add(" ".join(words[:30]))
    assert answer._live is not None
    answer._live.refresh()
    with answer._live._lock:  # no redrawing in between
        window.resize(width)
        console.width = width
    answer.add(" " + " ".join(words[30:]))
    answer._live.refresh()
    answer.finish()

    assert re.findall(r"word\d+", " ".join(window.rows)) == words
    assert window.rows[0].startswith("typed")


def shown(pieces: list[str]) -> str:
    screen = io.StringIO()
    answer = MarkdownAnswer()
    answer._console = Console(file=screen, width=60, height=10)
    for piece in pieces:
        answer.add(piece)
    answer.finish()
    return screen.getvalue()


@each_row("size", [1, 7, 100, 10_000])
def test_a_long_answer_in_pieces_is_printed_exactly_once(size: int):
    out = shown([LONG[start : start + size] for start in range(0, len(LONG), size)])

    assert re.findall(r"item (\d+)", out) == [str(number) for number in range(60)]
    assert re.findall(r"x(\d+) = 1", out) == [str(number) for number in range(60)]
    for text in ("Title", "Some text.", "cell", "one", "two", "The end."):
        assert out.count(text) == 1, text


def test_the_output_does_not_depend_on_the_pieces():
    assert shown(list(LONG)) == shown([LONG])


def test_blocks_splits_markdown_where_the_next_block_starts():
    assert _blocks("one\n\ntw") == ["one\n\n", "tw"]
    assert _blocks("- a\n\n- b\n") == ["- a\n\n- b\n"]
    assert _blocks("```\na\n\nb\n") == ["```\na\n\nb\n"]
    assert _blocks("") == [""]


def test_unusual_line_endings_keep_the_whole_text():
    text = "a\x0bb\x85c\u2028d\x0ce\r\n\r\nf\rg\n\nh"

    assert _blocks(text) == ["a\x0bb\x85c\u2028d\x0ce\n\n", "f g\n\n", "h"]
    assert shown(list(text)) == shown([text])


def test_html_is_shown_as_text_and_links_show_their_url():
    screen = io.StringIO()
    text = "List<T> <script>x</script>\n\n<div>\ny\n</div>\n\n[good](http://evil.example/?q=1)"
    Console(file=screen, width=60, force_terminal=True).print(markdown(text))
    out = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue())

    assert "List<T> <script>x</script>" in out
    assert "<div>" in out
    assert "http://evil.example/?q=1" in out
    assert "\x1b]8" not in out


@each_row("kind", ["{}", "**{}**", "`{}`", "```\n{}\n```", "# {}"])
def test_control_characters_in_markdown_are_escaped(kind: str):
    out = shown([kind.format("\x1b[2J \x9b1m \x07 \u202eabc \u200b"), "\n\nend"])

    assert not re.search("[\x07\x1b\x9b\u202e\u200b]", out)
    for words in ("\\x1b[2J", "\\x9b1m", "\\x07", "\\u202eabc", "\\u200b"):
        assert words in out


def test_images_show_their_text_only():
    screen = io.StringIO()
    Console(file=screen, width=60).print(markdown("![alt](http://evil.example/x.png)"))

    assert "alt" in screen.getvalue()
