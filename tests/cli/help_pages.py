"""Writes the help of all commands into docs/cli.md. Run it after changing a help text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from interlock.cli import interlock

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN, END = "<!-- help: begin -->\n", "<!-- help: end -->"


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


def text() -> str:
    """Return the help of all commands as Markdown."""
    parts = []
    for context, command in commands():
        help = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
        parts.append(f"### `{context.command_path}`\n\n```text\n{help}\n```\n")
    return "\n".join(parts)


def updated(page: str) -> str:
    """Return the page with the current help."""
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    assert pattern.search(page), f"{PAGE} has no marks"
    return pattern.sub(lambda _: f"{BEGIN}\n{text()}\n{END}", page)


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
