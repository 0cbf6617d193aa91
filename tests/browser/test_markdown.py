"""Markdown that arrives in pieces equals Markdown rendered at once."""

from __future__ import annotations

from pathlib import Path

from interlock.web.files import files_of_package
from tests.browser.chat import chat
from tests.browser.conftest import OpenPage

TEXTS = 5_000
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
COMPARE = """async ([module, blocks, texts, seed]) => {
  const { MarkdownStream, rendered } = await import(module);
  let state = seed;
  const random = (below) => {  // a generator of numbers that each run repeats
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) % below;
  };
  const written = (node) => new XMLSerializer().serializeToString(node);
  const wrong = [];
  for (let made = 0; made < texts && wrong.length < 3; made += 1) {
    const parts = Array.from({ length: 1 + random(7) }, () => blocks[random(blocks.length)]);
    const text = parts.join(["\\n\\n", "\\r\\n\\r\\n", "\\n"][random(3)]);
    const cuts = Array.from({ length: random(9) }, () => random(text.length + 1));
    const box = document.createElement("div");
    const stream = new MarkdownStream(box);
    let last = 0;
    for (const cut of [...cuts.sort((one, other) => one - other), text.length]) {
      stream.append(text.slice(last, cut));
      stream.draw();
      last = cut;
    }
    stream.end();
    const whole = document.createElement("div");
    whole.append(...rendered(text));
    box.normalize();
    whole.normalize();
    const isRebuilt = stream.rebuilt <= Number(text.includes("[ref]:"));
    if (!whole.isEqualNode(box) || !isRebuilt) {
      wrong.push([text, cuts, written(box), written(whole), stream.rebuilt]);
    }
  }
  return wrong;
}"""


async def test_split_texts_give_the_same_nodes_as_whole_texts(open_page: OpenPage, tmp_path: Path):
    async with chat(tmp_path, open_page) as served:
        page = await served.open()
        module = f"{served.url}/static/{files_of_package().version}/shared/markdown.js"

        wrong = await page.evaluate(COMPARE, [module, BLOCKS, TEXTS, 7])

    assert wrong == []
