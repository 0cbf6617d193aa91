"""A page of the documentation as the blocks of code in it.

| block | meaning |
|---|---|
| `python title="notes.py"` | a file of the page's folder, which is imported once |
| `python` | runs in the page's namespace, in which `await` may stand anywhere |
| `json title="mcp.json"` | a file, which its own reader accepts |
| `toml title="..."`, `nginx`, `yaml`, ... | a file, which commands on the page read |
| `console` | lines that begin with `$ ` run; the others are their output |
| `http` | a request to the running gateway, an empty line, the status and an answer like that |
| `text` | nothing to run: a drawing, a message, a format |

`{.norun reason="..."}` after the language keeps a block of Python from running. Comments directly
above a block are for its test: `<!-- model: [...] -->` has the replies of the model.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FILES = {"json", "toml", "nginx", "haproxy", "caddyfile", "ini", "yaml", "dockerfile", "sh"}
ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(
    r"^((?:<!--(?:(?!-->).)*-->\n)*)( *)```([^\n]*)\n(.*?)^\2```$", re.MULTILINE | re.DOTALL
)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.DOTALL)
# A link to a file of the checkout, with its anchor.
links = re.compile(r"\]\((?!https?:|mailto:|#)(?P<file>[^)#\s]+)(?P<anchor>(?:#[^)\s]*)?)\)")
_FROM_EXAMPLE = re.compile(r"examples/\w+\.py")


class Block(NamedTuple):
    """A fenced block."""

    line: int  # of its first line of text
    language: str
    title: str
    norun: str  # the reason why it does not run; "" if it does
    comments: tuple[str, ...]
    text: str
    section: str = ""  # the heading of level 2 above it; "" at the beginning of a page

    @property
    def is_converted(self) -> bool:
        """Whether the page's own test can run or read it, or there is nothing to run."""
        if self.language == "python":
            return not any(map(_FROM_EXAMPLE.fullmatch, self.comments))
        if self.language == "text":
            return not re.search(r"^\$ ", self.text, re.MULTILINE)
        if self.language in FILES:
            return self.title != ""
        return self.language in {"console", "http"}


def pages() -> list[Path]:
    """Return every page that a reader may copy code from."""
    patterns = ("*.md", "docs/**/*.md", "examples/*/*.md")
    return [page for pattern in patterns for page in sorted(ROOT.glob(pattern))]


def blocks(page: str) -> Iterator[Block]:
    """Yield the blocks of a page."""
    for found in _BLOCK.finditer(page):
        above, _, info, text = found.groups()
        title = re.search(r'title="([^"]*)"', info)
        norun = re.search(r'\{\.norun reason="([^"]+)"\}', info)
        assert norun or ".norun" not in info, f"{info}: .norun needs a reason"
        yield Block(
            line=page.count("\n", 0, found.start(4)) + 1,
            language=info.strip().partition(" ")[0],
            title=title[1] if title else "",
            norun=norun[1] if norun else "",
            comments=tuple(_COMMENT.findall(above)),
            text=textwrap.dedent(text),
            section=(_SECTION.findall(page, 0, found.start()) or [""])[-1],
        )
