"""Commands, options and variables that a page names exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from interlock.cli import interlock
from tests.docs import members_page
from tests.docs.page import ROOT, pages
from tests.support.rows import each_row

_COMMAND = re.compile(r"(?:`|^\$ |\| )(interlock [a-z][^`\n|#]*)", re.MULTILINE)
_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_VARIABLE = re.compile(r"\bINTERLOCK_[A-Z_]+\b")
# What the program passes to its own processes.
OWN = {"INTERLOCK_CHILD", "INTERLOCK_WORKER"}


def parsed(text: str) -> tuple[click.Command, list[str]]:
    """Return the command that a text calls, and the words after its name."""
    words = text.split()[1:]
    command: click.Command = interlock
    while isinstance(command, click.Group) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"no command {words[0]!r}: {text}"
        command = found
        del words[0]
    return command, words


def options(command: click.Command) -> set[str]:
    # A command keeps the help option that it makes first, so its names must be the program's.
    context = click.Context(command, **interlock.context_settings)
    return {name for each in command.get_params(context) for name in each.opts}


def wrong(page: str) -> Iterator[str]:
    """Yield each command of a page that has an option which does not exist."""
    for text in _COMMAND.findall(page):
        command, words = parsed(text.split(" -- ")[0])
        given = re.sub(r"'[^']*'|\"[^\"]*\"", "", " ".join(words))
        for option in _OPTION.findall(given):
            if option not in options(command):
                yield f"{option}: {text}"


@each_row("page", pages())
def test_commands_and_options_on_a_page_exist(page: Path):
    assert [*wrong(page.read_text())] == []


def test_variables_on_the_pages_exist():
    source = "".join(each.read_text() for each in (ROOT / "src/interlock").rglob("*.py"))
    named = {each for page in pages() for each in _VARIABLE.findall(page.read_text())}

    assert "INTERLOCK_MODEL" in named
    # Whose name ends with the id of an input, in capitals.
    assert {each for each in named if each not in source} == {"INTERLOCK_INPUT_ID"}


def test_every_variable_of_the_program_is_in_the_reference():
    source = "".join(each.read_text() for each in (ROOT / "src/interlock").rglob("*.py"))
    places = ("reference/environment", "operate/telemetry")
    pages = "".join((ROOT / f"docs/{each}.md").read_text() for each in places)
    named = set(re.findall(r"\b(?:INTERLOCK|OTEL)_[A-Z_]*[A-Z]\b|\bMCP_[A-Z_]+(?=\")", source))

    assert {each for each in named if each not in pages} == OWN


def test_every_member_of_the_configuration_is_in_the_reference():
    page = members_page.PAGE.read_text()

    assert members_page.text() == page, "run: python -m tests.docs.members_page"


def test_unknown_command_or_option_is_found():
    assert [*wrong("`interlock chat --modell x`")] == ["--modell: interlock chat --modell x"]
    with pytest.raises(AssertionError, match="no command 'chatt'"):
        [*wrong("`interlock chatt`")]
