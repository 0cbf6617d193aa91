"""Markdown that arrives in pieces equals Markdown rendered at once, and the weight of the page."""

from __future__ import annotations

import gzip
import random
from pathlib import Path
from typing import Any

from interlock.web.files import FOLDER, Files
from interlock.web.site import CHAT
from tests.browser.chat import chat
from tests.browser.conftest import OpenPage

TEXTS = 60
BLOCKS = [
    "# Heading",
    "plain *text* with **bold** and `code` & &amp; &lt;b&gt;",
    "- one\n- two\n  - inner\n\n  more of two\n- three",
    "1. first\n\n2. second\n3. third",
    "```py\nprint('a')\n\n# not a heading\n```",
    "> quoted\n> more\nlazy",
    "| a | b |\n|---|--:|\n| 1 | `2` |\n| 3 | 4 |",
    "Setext\n===",
    "<div>\nmarkup <b>here</b>\n</div>",
    "    indented code\n\n    more",
    "- [x] done\n- [ ] open",
    "***",
    "[link](https://example.com) and https://example.org/x_y.",
    "* other bullet\n* second\n\n",
    "[ref] and [ref][]\n\n[ref]: https://example.net",
    "~~gone~~ line\\\nbreak  \nbreak",
]
COMPARE = """async ([module, text, cuts]) => {
  const { MarkdownStream, rendered } = await import(module);
  const box = document.createElement("div");
  const stream = new MarkdownStream(box);
  let last = 0;
  for (const cut of [...cuts, text.length]) {
    stream.append(text.slice(last, cut));
    stream.draw();
    last = cut;
  }
  stream.end();
  const whole = document.createElement("div");
  whole.append(...rendered(text));
  const shown = (node) => new XMLSerializer().serializeToString(node);
  const same = box.isEqualNode((whole.normalize(), box.normalize(), whole));
  return [same || shown(box) + "\\n----\\n" + shown(whole), stream.rebuilt];
}"""


async def test_text_cut_anywhere_becomes_the_nodes_of_the_whole_text(
    open_page: OpenPage, tmp_path: Path
):
    choose = random.Random(7)
    async with chat(tmp_path, open_page) as served:
        page = await served.open()
        module = f"{served.url}/static/{Files().version}/shared/markdown.js"
        for _ in range(TEXTS):
            blocks = choose.choices(BLOCKS, k=choose.randint(1, 8))
            text = choose.choice(["\n", "\r\n"]).join(
                line for block in blocks for line in [*block.split("\n"), ""]
            )
            cuts = sorted(choose.sample(range(len(text)), min(len(text), choose.randint(0, 40))))
            found: list[Any] = await page.evaluate(COMPARE, [module, text, cuts])
            assert found[0] is True, (text, cuts, found[0])
            assert found[1] == int("[ref]:" in text)


async def test_compressed_modules_of_the_chat_are_within_their_budget():
    names = Files().modules(CHAT.entry, *CHAT.screens)
    scripts = sum(len(gzip.compress((FOLDER / name).read_bytes(), 9)) for name in names)
    styles = sum(len(gzip.compress((FOLDER / name).read_bytes(), 9)) for name in CHAT.styles)

    assert scripts <= 90 * 1024
    assert styles <= 20 * 1024
