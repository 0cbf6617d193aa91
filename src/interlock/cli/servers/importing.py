"""`interlock servers import`: copy servers from other programs' files on this machine."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click
from msgspec import Struct
from msgspec.structs import replace

from interlock.cli import config_option
from interlock.cli.servers.client_files import application_folder
from interlock.cli.terminal import emit_json, emit_table, safe_line, say, warn
from interlock.errors import ConfigError
from interlock.text.quoting import visible
from interlock.text.surrogates import path_text

if TYPE_CHECKING:
    from interlock.config import Config, HttpServer, ServerConfig, StdioServer
    from interlock.config.section import Section

PROGRAMS = (
    "amp", "claude", "claude-desktop", "cline", "codex", "cursor", "gemini", "opencode", "roo",
    "vscode", "windsurf", "zed",
)  # fmt: skip

State = Literal["new", "there", "clash", "twice", "wrong"]
_WORDS: dict[State, str] = {
    "new": "can be imported",
    "there": "is in your file already",
    "clash": "your file has another server of this name",
    "twice": "a program above has a server of this name, too",
    "wrong": "cannot be used",
}


class FoundServer(Struct, frozen=True):
    """A server that is configured in another program's file.

    Attributes:
        program: The program that has the server.
        file: The program's file.
        name: The server's name in that file.
        server: The server in interlock's form; None if it cannot be used.
        state: The effect of importing the server.
        detail: Why the server cannot be used; "" if it can.
    """

    program: str
    file: Path
    name: str
    server: StdioServer | HttpServer | None
    state: State
    detail: str = ""


@click.command("import")
@click.argument("program", required=False, type=click.Choice(PROGRAMS))
@click.option("--only", "names", metavar="NAME", multiple=True, help="Only this one; repeatable.")
@click.option("--yes", is_flag=True, help="Write them to your file, instead of showing them.")
@config_option.config_option
@config_option.json_option
def import_(
    program: str | None, names: tuple[str, ...], yes: bool, config: Path | None, as_json: bool
) -> int:
    """Show the servers of other programs on this machine; with --yes, add them to your file.

    Files of your user and of the working folder are read, and none of them is changed. Values of
    variables and headers are copied, but not shown.

    \b
    Example:
      interlock servers import
      interlock servers import cursor --only notes --yes
    """
    path = config_option.own_file(config)
    found = [
        each
        for each in _find(program, path)
        if not names or each.name in names
    ]  # fmt: skip
    if missing := sorted(set(names) - {each.name for each in found}):
        raise ConfigError(
            f"no program on this machine has a server {missing[0]!r}; "
            "see all with: interlock servers import"
        )
    if as_json:
        emit_json({"servers": [_shown(each) for each in found]})
    else:
        emit_table(
            (
                each.program,
                visible(each.name),
                visible(_line(each.server)),
                _WORDS[each.state] + (f": {safe_line(each.detail)}" if each.detail else ""),
            )
            for each in found
        )
        _name_files(found)
        _tell_consents(found)
    return _add(found, path) if yes else _suggest(found)


def _name_files(found: list[FoundServer]) -> None:
    """Print where to correct the servers that cannot be used."""
    wrong = dict.fromkeys((each.file, each.program) for each in found if each.state == "wrong")
    for file, program in wrong:
        say(
            f"correct the servers of {program} in {safe_line(path_text(file))}, or add them with "
            "`interlock servers add`"
        )


def _tell_consents(found: list[FoundServer]) -> None:
    from interlock.config.consent import consents

    for each in found:
        for line in consents(each.server) if each.server is not None else ():
            say(f"{visible(each.name)} of {each.program} {visible(line)}")


def _suggest(found: list[FoundServer]) -> int:
    new = sum(each.state == "new" for each in found)
    if not found:
        say("no servers of other programs were found")
    elif new:
        say(f"{new} of {len(found)} can be imported; do it with: interlock servers import --yes")
    else:
        say("nothing to import")
    return 0


def _add(found: list[FoundServer], path: Path) -> int:
    from interlock.config import add_server

    failed = 0
    for each in found:
        if each.state != "new" or each.server is None:
            continue
        try:
            add_server(path, each.name, each.server)
        except ConfigError as error:  # for example, two programs have a server of this name
            warn(f"{each.name!r} of {each.program} was not imported: {error}")
            failed += 1
        else:
            say(f"added {each.name!r} of {each.program} to {path}")
    return int(bool(failed))


# Finding


def _find(program: str | None, own: Path) -> Iterator[FoundServer]:
    from interlock.config import load

    existing = load(own if own.exists() else None)
    seen: set[str] = set()
    for each in PROGRAMS if program is None else (program,):
        for file, keys in dict.fromkeys(_places(each)):
            if not file.is_file() or file == own:
                continue
            for found in _of_file(each, file, keys, existing):
                is_twice = found.state == "new" and found.name in seen
                yield replace(found, state="twice") if is_twice else found
                seen.add(found.name)


def _of_file(
    program: str, file: Path, keys: tuple[str, ...], existing: Config
) -> Iterator[FoundServer]:
    from interlock.config.other_programs import place_of_servers
    from interlock.config.reading import read_servers

    try:
        root = _parsed(file)
        place = keys or place_of_servers(root.members)
        if not _has_servers(root.members, place):
            return
        found = read_servers(root, place, file, program)
    except (OSError, ConfigError, ValueError) as error:
        warn(f"{file} of {program} cannot be read: {error}")
        return
    for name, server in found.servers.items():
        yield _compared(program, file, name, server, existing)
    for name, reason in found.ignored.items():
        if file.suffix == ".toml":  # the line is that of the JSON made from it
            reason = reason.partition(": ")[2]
        yield FoundServer(program, file, name, None, "wrong", reason)


def _has_servers(members: Any, place: tuple[str, ...]) -> bool:
    for key in place:
        members = members.get(key) if isinstance(members, dict) else None
    return isinstance(members, dict | list)


def _parsed(file: Path) -> Section:
    """Parse a file in JSON or TOML.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file is not valid TOML.
        ConfigError: The file is not valid JSON.
    """
    from interlock.config.section import parse

    if file.suffix != ".toml":
        return parse(file.read_bytes(), file)
    import tomllib

    return parse(json.dumps(tomllib.loads(file.read_text()), default=str).encode(), file)


def _compared(
    program: str, file: Path, name: str, server: ServerConfig, existing: Config
) -> FoundServer:
    from interlock.config import HttpServer, StdioServer

    if not isinstance(server, StdioServer | HttpServer):
        return FoundServer(program, file, name, None, "wrong", "it has neither a program nor a URL")
    there = existing.servers.get(name)
    if there is None:
        return FoundServer(program, file, name, server, "new")
    return FoundServer(
        program, file, name, server, "there" if _what(there) == _what(server) else "clash"
    )


def _places(program: str) -> list[tuple[Path, tuple[str, ...]]]:
    """Return a program's files, each with the keys that lead to its servers; () to find them."""
    home, here = Path.home(), Path.cwd()
    servers, code = ("mcpServers",), application_folder("Code") / "User"
    match program:
        case "amp":
            folders = (here / ".amp", home / ".config" / "amp")
            return [(each / "settings.json", ("amp.mcpServers",)) for each in folders]
        case "claude":
            own = Path(os.environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
            of_folder = ("projects", str(here), "mcpServers")
            return [(here / ".mcp.json", servers), (own, of_folder), (own, servers)]
        case "claude-desktop":
            return [(application_folder("Claude") / "claude_desktop_config.json", servers)]
        case "cline":
            folder = code / "globalStorage" / "saoudrizwan.claude-dev" / "settings"
            return [(folder / "cline_mcp_settings.json", servers)]
        case "codex":
            own = Path(os.environ.get("CODEX_HOME") or home / ".codex")
            folders = (here / ".codex", own)
            return [(each / "config.toml", ("mcp_servers",)) for each in folders]
        case "cursor":
            return [(each / ".cursor" / "mcp.json", servers) for each in (here, home)]
        case "gemini":
            return [(each / ".gemini" / "settings.json", servers) for each in (here, home)]
        case "opencode":
            folders = (here, home / ".config" / "opencode")
            names = ("opencode.json", "opencode.jsonc")
            return [(folder / name, ()) for folder in folders for name in names]
        case "roo":
            folder = code / "globalStorage" / "rooveterinaryinc.roo-cline" / "settings"
            return [(here / ".roo" / "mcp.json", servers), (folder / "mcp_settings.json", servers)]
        case "vscode":
            return [
                (here / ".vscode" / "mcp.json", ("servers",)),
                (code / "mcp.json", ("servers",)),
            ]
        case "windsurf":
            return [(home / ".codeium" / "windsurf" / "mcp_config.json", servers)]
        case _:
            return [(application_folder("zed") / "settings.json", ("context_servers",))]


# Showing


def _what(server: Any) -> str:
    if server is None:
        return ""
    url = getattr(server, "url", None)
    if url is not None:
        return str(url)
    return " ".join([getattr(server, "command", ""), *getattr(server, "args", ())])


def _line(server: Any) -> str:
    """Return what a server runs or contacts; values of variables may be secret."""
    if getattr(server, "command", None) is None:
        return _what(server)
    folder = f" in {server.cwd}" if server.cwd else ""
    variables = [f"{name}=…" for name in server.env]
    return " ".join([*variables, shlex.join([server.command, *server.args])]) + folder


def _shown(found: FoundServer) -> dict[str, str | list[str]]:
    from interlock.config.consent import consents

    shown: dict[str, str | list[str]] = {
        "program": found.program,
        "file": str(found.file),
        "server": found.name,
        "target": _what(found.server),
        "state": found.state,
        "detail": found.detail,
    }
    granted = consents(found.server) if found.server is not None else []
    return {key: value for key, value in (shown | {"consents": granted}).items() if value}
