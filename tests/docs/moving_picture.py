"""Makes docs/pictures/assistant.svg of the sessions of the first tutorial: `make pictures`.

The lines of the sessions appear one after the other, twelve seconds in all, in the colours of the
reader's theme. The test of the tutorial runs the same lines.
"""

from __future__ import annotations

from html import escape

from tests.docs.page import ROOT, blocks

PICTURE = ROOT / "docs/pictures/assistant.svg"
SECONDS = 12
FIRST, LAST = 0.3, 9.0  # seconds; then the whole picture stays
LINE, LEFT, TOP, WIDTH = 22, 20, 54, 860
STYLE = """
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; white-space: pre; }
.back { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; }
.typed { font-weight: 600; fill: #0550ae; } .ok { fill: #116329; } .asks { fill: #953800; }
@media (prefers-color-scheme: dark) {
  .back { fill: #0d1117; stroke: #30363d; } text { fill: #e6edf3; }
  .typed { fill: #79c0ff; } .ok { fill: #7ee787; } .asks { fill: #ffa657; }
}
@media (prefers-reduced-motion: reduce) { text { animation: none !important; } }
"""


def lines() -> list[str]:
    """Return the lines of both sessions, without notes of the program and the second question."""
    page = (ROOT / "docs/start/assistant.md").read_text()
    sessions = [each.text for each in blocks(page) if "$ interlock chat" in each.text]
    first, second = (each.splitlines() for each in sessions)
    asked = [each for each in first if not each.startswith(("the embedded", "continue with"))]
    end = next(at for at, each in enumerate(second) if "black tea" in each)
    return [*asked, "", *second[:end]]


def kind(line: str) -> str:
    if line.startswith(("$ ", "> ")):
        return "typed"
    if line.startswith("✓"):
        return "ok"
    return "asks" if line.startswith("Run it?") else "plain"


def picture() -> str:
    """Return the picture."""
    shown = lines()
    rules, texts = [], []
    for at, line in enumerate(shown):
        start = 100 * (FIRST + (LAST - FIRST) * at / len(shown)) / SECONDS
        rules.append(
            f"@keyframes l{at} {{ 0%, {start:.1f}% {{ opacity: 0 }}"
            f" {start + 0.1:.1f}%, 100% {{ opacity: 1 }} }}"
        )
        texts.append(
            f'<text class="{kind(line)}" x="{LEFT}" y="{TOP + LINE * at}"'
            f' style="animation: l{at} {SECONDS}s infinite">{escape(line)}</text>'
        )
    height = TOP + LINE * len(shown)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
            f' width="{WIDTH}" height="{height}" role="img">',
            "<title>A question, a call, a question before a write, and the answer</title>",
            f"<style>{STYLE}{chr(10).join(rules)}</style>",
            f'<rect class="back" x="0.5" y="0.5" rx="8"'
            f' width="{WIDTH - 1}" height="{height - 1}"/>',
            *texts,
            "</svg>",
        ]
    )


if __name__ == "__main__":
    PICTURE.write_text(picture() + "\n")
