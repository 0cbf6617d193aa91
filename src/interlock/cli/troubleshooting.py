"""The headings of docs/troubleshooting.md that explain a problem."""

from __future__ import annotations

import re

PAGE = "docs/troubleshooting.md"
# The words of a problem, and the heading of the page about them.
_HEADINGS = {
    r"program not found; is it installed": (
        "program not found; is it installed, and is its folder in PATH?"
    ),
    r"exited with code": "exited with code",
    r"no answer from the server within": "no answer from the server within",
    r"cannot be reached: Connection refused": "cannot be reached: Connection refused",
    r"the environment variable \w+ is not set": "and the environment variable is not set",
    r"outlived interlock": "outlived interlock",
    r" needs login: ": "needs login",
    r"no key for": "no key for",
    r"unknown model provider": "unknown model provider",
    r"no model file at": "no model file at",
    r"Expecting property name": "Expecting property name enclosed in double quotes",
}
HEADINGS = tuple(_HEADINGS.values())


def link_of(problem: str) -> str:
    """Return the place of the heading about a problem, as in a link; "" if there is none."""
    for words, heading in _HEADINGS.items():
        if re.search(words, problem):
            return f"{PAGE}#{anchor_of(heading)}"
    return ""


def anchor_of(heading: str) -> str:
    """Return what a link calls a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
