"""Claude Code's own options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from interlock.claude import program
from interlock.errors import LocalProtocolError
from interlock.types import JsonObject


class ProgramOptions(TypedDict, total=False):
    """Claude Code's own options. What is not given is as Claude Code has it by default."""

    mode: str  # of permissions: "default", "acceptEdits", "plan", "bypassPermissions"
    model: str | None
    fallback_model: str | None
    max_turns: int | None
    max_cost: float | None  # US dollars
    output_schema: JsonObject | None  # for `Answer.structured`
    instructions: str | None  # appended to the system prompt
    system_prompt: str | None  # replaces it
    agents: JsonObject | None  # subagents by name: description, prompt, tools, model
    add_dirs: Sequence[str | Path]
    thinking: int | str | None  # tokens, "adaptive" or "disabled"
    built_in: Sequence[str] | None  # names of its own tools; () for none, None for all
    settings: Sequence[str]  # of "user", "project", "local"; what they contain is trusted
    session: str | None  # the id of a new session, a UUID
    resume: str | None  # the id of a session to continue
    fork: bool  # continue a copy of it
    arguments: Sequence[str]  # further ones, as on its command line


def checked_options(options: ProgramOptions) -> program.Options:
    """Return the options of a program.

    Raises:
        LocalProtocolError: An option is unknown.
    """
    try:
        return program.Options(**options)
    except TypeError as error:
        known = ", ".join(ProgramOptions.__annotations__)
        raise LocalProtocolError(f"{error}; the options of Claude Code are {known}") from None
