"""Writes the help of all commands into docs/reference/cli/. Run it after changing a help text:

python -m tests.cli.help_pages

A page belongs to a command of the program, or to several that are used together. Its text above the
marks is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from interlock.cli import interlock

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "cli"
BEGIN, END = "<!-- help: begin -->\n", "<!-- help: end -->"
# Commands that share a page, by its name. Any other command has a page of its own name.
TOGETHER = {
    "approvals": ("approvals", "explain"),
    "authors": ("run", "dev", "install", "uninstall"),
    "chat": ("chat", "web", "claude"),
    "doctor": ("doctor", "completion", "token", "hook"),
    "keys": ("keys", "people"),
    "models": ("models", "settings"),
    "tools": ("tools", "call", "resources", "read", "prompts", "prompt"),
}


def commands() -> Iterator[tuple[click.Context, click.Command]]:
    """Yield every command, each group before its commands."""
    settings = {**interlock.context_settings, "terminal_width": 100}
    whole = click.Context(interlock, info_name="interlock", **settings)
    found: list[tuple[click.Context, click.Command]] = [(whole, interlock)]
    while found:
        context, command = found.pop(0)
        yield context, command
        if isinstance(command, click.Group):
            inner = []
            for name in command.list_commands(context):
                each = command.get_command(context, name)
                assert each is not None
                inner.append((click.Context(each, context, info_name=name), each))
            found = [*inner, *found]


def page_of(path: str) -> str:
    """Return the name of the page that has the help of a command, such as `interlock keys list`."""
    _, *names = path.split()
    if not names:
        return "index"
    return next((page for page, each in TOGETHER.items() if names[0] in each), names[0])


def texts() -> dict[str, str]:
    """Return the generated part of each page."""
    parts: dict[str, list[str]] = {}
    order = {name: at for each in TOGETHER.values() for at, name in enumerate(each)}
    for context, command in sorted(
        commands(), key=lambda each: order.get(f"{each[0].command_path} ".split(" ")[1], 0)
    ):
        help = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        part = f"## `{context.command_path}`\n\n```text\n{help}\n```\n"
        parts.setdefault(page_of(context.command_path), []).append(part)
    return {page: "\n".join(each) for page, each in parts.items()}


def updated(page: str, text: str) -> str:
    """Return a page with the current help; begin the page if it is empty."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    page = page or f"# `interlock {text.split('`')[1].split()[-1]}`\n\n{BEGIN}{END}\n"
    assert pattern.search(page), f"a page without marks has {text.splitlines()[0]}"
    return pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", page)


def write() -> None:
    """Write the pages."""
    for name, text in texts().items():
        file = FOLDER / f"{name}.md"
        file.write_text(updated(file.read_text() if file.exists() else "", text))


if __name__ == "__main__":
    write()
