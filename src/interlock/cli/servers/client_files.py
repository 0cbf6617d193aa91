"""Edits the files in which other MCP clients configure their servers.

Rules:

1. Files keep their comments, order and other members. They are replaced whole, after a backup.
2. Only entries that interlock made are replaced or removed, unless the user forces it. They are
   recorded in `installed.json` in the user's data folder.
3. No secret is written to a file that is shared with others: the values of `env` and `headers` must
   be `${VAR}`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from interlock.config import shared_file
from interlock.config.jsonc import JsoncDocument, JsoncError
from interlock.config.variables import fill
from interlock.errors import ConfigError
from interlock.text.surrogates import path_text

Entry = dict[str, Any]
_REFERENCE = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(:-[^}]*)?\}")
_TIMEOUT = 30.0  # seconds for the command `claude mcp`


class ClientFile(Struct, frozen=True):
    """A file in which a client configures its servers.

    Attributes:
        client: The client's name.
        scope: "user", "project" or "local".
        path: The file.
        keys: The keys that lead to the servers in the file.
        variables: The client's notation for variables; "" if it does not support variables.
        is_shared: Whether other people read the file, because it is committed to a repository.
        has_cwd: Whether the client supports a working folder for a server.
    """

    client: str
    scope: str
    path: Path
    keys: tuple[str, ...]
    variables: Literal["", "${%s}", "${env:%s}"]
    is_shared: bool = False
    has_cwd: bool = False

    # Entries

    def of_program(self, command: str, args: list[str], env: Mapping[str, str]) -> Entry:
        entry: Entry = {"command": command, "args": [self._text(each, "args") for each in args]}
        if env:
            entry["env"] = {name: self._secret(value, f"env.{name}") for name, value in env.items()}
        return entry if self.client == "cursor" else {"type": "stdio", **entry}

    def of_url(self, url: str, headers: Mapping[str, str], *, kind: str = "http") -> Entry:
        """Return the entry for a server with a URL.

        Raises:
            ConfigError: The client starts programs only.
        """
        if self.client == "claude-desktop":
            raise ConfigError(
                "Claude Desktop reads no URLs from its file; add the URL in its settings, under "
                "Connectors"
            )
        entry: Entry = {"type": kind, "url": self._text(url, "url")}
        if headers:
            entry["headers"] = {
                name: self._secret(value, f"headers.{name}") for name, value in headers.items()
            }
        return entry

    def document(self, entries: Mapping[str, Entry]) -> dict[str, Any]:
        """Return a whole document with these entries, in the client's format."""
        document: dict[str, Any] = dict(entries)
        for key in reversed(self.keys):
            document = {key: document}
        return document

    def _secret(self, value: str, what: str) -> str:
        if self.is_shared and not _REFERENCE.search(value):
            raise ConfigError(
                f"{what} has a value, and {self.path} is shared with others; "
                "write it as ${VARIABLE} in your configuration"
            )
        return self._text(value, what)

    def _text(self, text: str, what: str) -> str:
        """Write variables in the client's notation, or replace them if it has none."""
        if not self.variables:
            return fill(text, what, os.environ)
        if self.variables == "${env:%s}" and any(match[2] for match in _REFERENCE.finditer(text)):
            raise ConfigError(f"{what} has a default, which {self.client} does not support")
        if self.variables == "${%s}":
            return text.replace("${env:", "${")
        return _REFERENCE.sub(lambda match: "${env:%s}" % match[1], text)  # noqa: UP031

    # The file

    def entries(self) -> dict[str, Entry]:
        """Return all entries of the file.

        Raises:
            ConfigError: The file cannot be read.
        """
        found: Any = self._value()
        for key in self.keys:
            found = found.get(key, {}) if isinstance(found, dict) else {}
        return found if isinstance(found, dict) else {}

    def ours(self) -> dict[str, Entry]:
        """Return the entries that interlock made, as they are in the file now."""
        made = {
            name
            for path, keys, name, _ in _records()
            if (path, keys) == (path_text(self.path), self.keys)
        }
        return {name: entry for name, entry in self.entries().items() if name in made}

    def add(self, name: str, entry: Entry, *, force: bool) -> None:
        """Add a server's entry to the file.

        Raises:
            ConfigError: The file cannot be edited, or has an entry that interlock did not make.
        """
        if name in self.entries():
            self._check_ours(name, force, "replace")
            self.remove(name, force=True)
        if self._is_claudes_own:
            self._add_by_claude(name, entry)
        else:
            self._edit(lambda document: self._with(document, name, entry))
        written = self.entries().get(name)
        if written is None:
            raise ConfigError(f"{self.client} did not keep {name!r} in {self.path}")
        others = [each for each in _records() if each[:3] != self._record(name)]
        _keep([*others, (*self._record(name), written)])

    def remove(self, name: str, *, force: bool) -> None:
        """Remove a server's entry from the file.

        Raises:
            ConfigError: The file cannot be edited, or interlock did not make the entry.
        """
        if name not in self.entries():
            raise ConfigError(
                f"{self.path} has no server {name!r} in the scope {self.scope};"
                " --scope names another one"
            )
        self._check_ours(name, force, "remove")
        if self._is_claudes_own:
            _run_claude(["remove", "--scope", self.scope, name])
        else:
            self._edit(lambda document: document.without_member((*self.keys, name)))
        _keep([each for each in _records() if each[:3] != self._record(name)])

    def _add_by_claude(self, name: str, entry: Entry) -> None:
        add = ["add-json", "--scope", self.scope, name]
        if "stdin" in _run_claude(["add-json", "--help"]):
            _run_claude([*add, "-"], json.dumps(entry))
        elif any(each in entry for each in _SECRET):  # other users can see a program's arguments
            raise ConfigError(f"{name!r} may hold secrets, which needs a newer Claude Code; update")
        else:
            _run_claude([*add, json.dumps(entry)])

    @property
    def _is_claudes_own(self) -> bool:
        """Whether Claude Code itself writes the file while it runs."""
        return self.client == "claude" and not self.is_shared

    def _check_ours(self, name: str, force: bool, what: str) -> None:
        current = self.entries()[name]
        if force or (*self._record(name), current) in _records():
            return
        names = {**current, **{each: sorted(current[each]) for each in _SECRET if each in current}}
        raise ConfigError(
            f"{self.path} has another server {name!r}: {json.dumps(names)}; --force to {what} it"
        )

    def _with(self, document: JsoncDocument, name: str, entry: Entry) -> str:
        key = self.keys[0]
        if key not in document.value:
            return document.with_member((), key, {name: entry})
        return document.with_member(self.keys, name, entry)

    def _edit(self, change: Any) -> None:
        def content() -> bytes:
            if not self.path.exists():
                document = JsoncDocument(b"{}\n")
            else:
                before = shared_file.read(self.path)
                document = JsoncDocument(before)
                shutil.copy2(self.path, self.path.with_name(f"{self.path.name}.backup"))
            after: str = change(document)
            return after.encode()

        try:
            shared_file.edit(self.path, content)
        except JsoncError as error:
            raise ConfigError(f"{self.path}, line {error.line}: {error}") from None

    def _value(self) -> Any:
        if not self.path.exists():
            return {}
        try:
            return JsoncDocument(self.path.read_bytes()).value
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from None
        except JsoncError as error:
            raise ConfigError(f"{self.path}, line {error.line}: {error}") from None

    def _record(self, name: str) -> tuple[str, tuple[str, ...], str]:
        return path_text(self.path), self.keys, name


_SECRET = ("env", "headers")


def place_of(client: str, scope: str) -> ClientFile:
    """Return the file in which a client keeps its servers.

    Raises:
        ConfigError: The client has no such scope.
    """
    home, here = Path.home(), Path.cwd()
    if scope == "local" and client != "claude":
        raise ConfigError(f"{client} has no scope 'local'; use 'user' or 'project'")
    is_shared = scope == "project"
    if client == "claude":
        own = Path(os.environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
        path = here / ".mcp.json" if is_shared else own
        keys = ("projects", str(here), "mcpServers") if scope == "local" else ("mcpServers",)
        return ClientFile(client, scope, path, keys, "${%s}", is_shared)
    if client == "claude-desktop":
        if is_shared:
            raise ConfigError("claude-desktop has no scope 'project'; use 'user'")
        path = application_folder("Claude") / "claude_desktop_config.json"
        return ClientFile(client, scope, path, ("mcpServers",), "")
    if client == "cursor":
        path = (here if is_shared else home) / ".cursor" / "mcp.json"
        return ClientFile(client, scope, path, ("mcpServers",), "${env:%s}", is_shared)
    path = (
        here / ".vscode" / "mcp.json" if is_shared else application_folder("Code") / "User/mcp.json"
    )
    return ClientFile(client, scope, path, ("servers",), "${env:%s}", is_shared, has_cwd=True)


def application_folder(name: str) -> Path:
    """Return the folder of a desktop program's settings."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / name
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA", Path.home() / "AppData/Roaming")) / name
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / name


def _run_claude(arguments: list[str], stdin: str = "") -> str:
    """Run `claude` to edit Claude Code's file, which it may be writing too; return the output."""
    from interlock.claude import find
    from interlock.transports.process import spawn_error

    program = find().argv
    try:
        ran = subprocess.run(  # noqa: S603 - the user's own program
            [*program, "mcp", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT,
            check=False,
        )
    except OSError as error:
        raise spawn_error(program[0], error) from error
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"Claude Code did not answer within {_TIMEOUT:g} s; run `claude mcp list` to see why"
        ) from None
    if ran.returncode != 0:
        said = " ".join((ran.stderr or ran.stdout).split())[:300]
        raise ConfigError(f"Claude Code did not change its servers: {said}")
    return ran.stdout


# Entries that interlock made

Record = tuple[str, tuple[str, ...], str, Entry]


def _file() -> Path:
    from platformdirs import user_data_path

    return user_data_path("interlock") / "installed.json"


def _records() -> list[Record]:
    path = _file()
    if not path.exists():
        return []
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Record])
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None


def _keep(records: list[Record]) -> None:
    # Entries may hold secrets of the user, so only the owner may read the file.
    shared_file.edit(_file(), lambda: msgspec.json.encode(records))
