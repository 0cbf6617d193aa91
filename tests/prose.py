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
DOCSTRINGS = ("src/**/*.py",)

# A phrase may go on in the next line, also of a comment or of a string.
_GAP = r'(?:\s*"\s*\n\s*f?"|\s*\n\s*#\s*|\s+)'
_PHRASES = re.compile(
    r"\bis no (?!longer\b)\w+|that is none|\bwho (?:asks|waits|sends)|whoever|\banew\b"
    r"|of ours\b".replace(" ", _GAP),
    re.IGNORECASE,
)
# A docstring without a verb, and a line about an attribute or argument without a noun.
_HABITS = re.compile(
    r'"""(?:What|How many|Those that|Where|Who|Which|As) '
    r"|^ +[a-z_]\w*: (?:Of|That|Its|As|By|Those|What|Where)\b(?= [^=|])",
    re.MULTILINE,
)
_TEST_NAME = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Find forbidden phrases; return the line and the words of each."""
    for found in _PHRASES.finditer(text):
        words = re.sub(_GAP, " ", found[0])
        yield text.count("\n", 0, found.start()) + 1, words


def habits(text: str) -> Iterator[tuple[int, str]]:
    """Find docstrings, and lines of them, that begin in a forbidden way."""
    for found in _HABITS.finditer(text):
        yield text.count("\n", 0, found.start()) + 1, found[0].strip(' "')


def names_of_tests(text: str) -> str:
    """Return the names of tests as sentences, each in its own line, and nothing else."""
    lines = [""] * (text.count("\n") + 1)
    for found in _TEST_NAME.finditer(text):
        lines[text.count("\n", 0, found.start(1))] = found[1].replace("_", " ")
    return "\n".join(lines)


def main() -> None:
    """Check every file, and print what was found."""
    count = 0
    for patterns, find in (
        ((*SOURCE, *PAGES), phrases),
        (TESTS, lambda text: phrases(names_of_tests(text))),
        (DOCSTRINGS, habits),
    ):
        files = sorted({file for pattern in patterns for file in ROOT.glob(pattern)})
        for file in (each for each in files if each.is_file()):
            name = file.relative_to(ROOT)
            for line, words in find(file.read_text()):
                print(f"{name}:{line}: {words}")
                count += 1
    if count:
        sys.exit(f"error: {count} forbidden phrases; say what happens in plain words")


if __name__ == "__main__":
    main()
