"""Find phrases that CONTRIBUTING.md forbids, in the source, the pages and the names of tests.

python -m tests.prose            print each with its file and line; exit with 1 if there are any
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ("*.md", "docs/**/*.md", "benchmarks/*.md", ".github/**/*")
SOURCE = ("src/**/*.py", "examples/*")
TESTS = ("tests/**/test_*.py",)

# A phrase may go on in the next line, also of a comment or of a string.
_GAP = r'(?:\s*"\s*\n\s*f?"|\s*\n\s*#\s*|\s+)'
_PHRASES = re.compile(
    r"\bis no (?!longer\b)\w+|that is none|\bwho (?:asks|waits|sends)|whoever|\banew\b|of ours\b".replace(
        " ", _GAP
    ),
    re.IGNORECASE,
)
_TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Find forbidden phrases; return the line and the words of each."""
    for found in _PHRASES.finditer(text):
        words = re.sub(_GAP, " ", found[0])
        yield text.count("\n", 0, found.start()) + 1, words


def names_of_tests(text: str) -> str:
    """Return the names of tests as sentences, each in its own line, and nothing else."""
    lines = [""] * (text.count("\n") + 1)
    for found in _TEST_NAME.finditer(text):
        lines[text.count("\n", 0, found.start(1))] = found[1].replace("_", " ")
    return "\n".join(lines)


def main() -> None:
    """Check every file, and print what was found."""
    count = 0
    for patterns, read in (((*SOURCE, *PAGES), str), (TESTS, names_of_tests)):
        files = sorted({file for pattern in patterns for file in ROOT.glob(pattern)})
        for file in (each for each in files if each.is_file()):
            for line, words in phrases(read(file.read_text())):
                print(f"{file.relative_to(ROOT)}:{line}: {words}")
                count += 1
    if count:
        sys.exit(f"error: {count} forbidden phrases; say what happens in plain words")


if __name__ == "__main__":
    main()
