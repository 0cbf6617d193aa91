"""docs/reference/cli/ has the current help, and names every option and variable."""

from __future__ import annotations

from interlock.cli.chat.repl import COMMANDS
from tests.cli import help_pages
from tests.support.rows import each_row

CHAT = (help_pages.FOLDER / "chat.md").read_text()


def test_the_help_on_the_pages_is_current():
    for name, text in help_pages.texts().items():
        page = (help_pages.FOLDER / f"{name}.md").read_text()
        assert help_pages.updated(page, text) == page, "run: python -m tests.cli.help_pages"


def test_every_command_and_option_is_on_a_page():
    pages = help_pages.texts()
    for context, command in help_pages.commands():
        page = pages[help_pages.page_of(context.command_path)]
        assert f"## `{context.command_path}`" in page
        for parameter in command.params:
            for name in (*parameter.opts, *parameter.secondary_opts):
                assert name in page or parameter.make_metavar(context) in page


@each_row("word", COMMANDS)
def test_every_command_of_a_conversation_is_on_the_page(word: str):
    assert f"| `{word}` |" in CHAT or f", `{word}` |" in CHAT


@each_row(
    "variable", ["INTERLOCK_MCP_CONFIG", "INTERLOCK_DATABASE", "INTERLOCK_LOG", "INTERLOCK_MODEL"]
)
def test_every_variable_is_on_the_page(variable: str):
    assert variable in (help_pages.FOLDER.parent / "environment.md").read_text()
