"""Remedies for problems whose text does not state one."""

from __future__ import annotations

import re

# The words of a problem, and the remedy, in the words of docs/troubleshooting.md.
REMEDIES = {
    r"program not found; is it installed": "Write the path of the program, or install it.",
    r"exited with code": "Run the command yourself: what it prints on stderr is the reason.",
    r"cannot be reached: Connection refused": "Start the server, and compare host and port.",
    r"no key for": "Set the variable, or choose another model: `interlock models` lists them.",
    r"no model file at": "The path is relative to the working folder.",
    r"Expecting property name": "The file is not valid JSON at this place.",
}


def remedy_of(problem: str) -> str:
    """Return the remedy for a problem; "" if the text of the problem states it."""
    return next((each for words, each in REMEDIES.items() if re.search(words, problem)), "")
