"""docs/cli.md has the current help and names every option and variable."""

import runpy
from pathlib import Path

import pytest

from interlock.cli.chat.repl import COMMANDS

pages = runpy.run_path(str(Path(__file__).with_name("help_pages.py")), run_name="help_pages")
PAGE = pages["PAGE"].read_text()


def test_the_help_on_the_page_is_current():
    assert pages["updated"](PAGE) == PAGE, "run tests/cli/help_pages.py"


def test_every_command_and_option_is_on_the_page():
    for context, command in pages["commands"]():
        assert f"### `{context.command_path}`" in PAGE
        for parameter in command.params:
            for name in (*parameter.opts, *parameter.secondary_opts):
                assert name in PAGE or parameter.make_metavar(context) in PAGE


@pytest.mark.parametrize("word", COMMANDS)
def test_every_command_of_a_conversation_is_on_the_page(word: str):
    assert f"| `{word}` |" in PAGE or f", `{word}` |" in PAGE


@pytest.mark.parametrize(
    "variable",
    ["INTERLOCK_MCP_CONFIG", "INTERLOCK_DATABASE", "INTERLOCK_LOG", "INTERLOCK_MODEL"],
)
def test_every_variable_is_on_the_page(variable: str):
    assert variable in PAGE
