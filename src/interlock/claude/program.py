"""The Claude Code program: where it is, and the arguments and environment it starts with."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Timer
from typing import TypedDict
from uuid import UUID

import msgspec
from msgspec import Struct

from interlock.errors import ConfigError, LocalProtocolError, SpawnError
from interlock.protocol.envelope import encode
from interlock.types import JsonObject

VARIABLE = "INTERLOCK_CLAUDE"
OLDEST = (2, 0, 0)
SUPPORTED = (2, 1, 59)
VERSION_TIMEOUT = 20.0  # seconds for `claude --version`
MAX_VERSION = 4_096  # bytes of its output

# Variables that Claude Code inherits, in addition to the variables of every server program.
_INHERITED = (
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("LANGUAGE", "SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS"),
    *("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("ENABLE_TOOL_SEARCH", "MAX_THINKING_TOKENS", "IS_SANDBOX", "CLOUD_ML_REGION"),
    *("DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING"),
)
_INHERITED_PREFIXES = ("LC_", "ANTHROPIC_", "CLAUDE_", "AWS_", "GOOGLE_", "VERTEX")
# Variables that Claude Code sets when it starts this process; a new program must not see them.
_NOT_INHERITED = {"CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT"}

_MODES = ("default", "acceptEdits", "bypassPermissions", "plan", "dontAsk", "auto", "manual")


class FoundProgram(Struct, frozen=True):
    """A Claude Code program that was found on this computer.

    Attributes:
        path: The program's file.
        argv: The beginning of its command line, such as the file, or Node.js and the file.
    """

    path: str
    argv: tuple[str, ...]


class ProgramOptions(TypedDict, total=False):
    """Claude Code's own options. Claude Code's defaults apply to missing options."""

    mode: str  # permission mode: "default", "acceptEdits", "plan", "bypassPermissions"
    model: str | None
    fallback_model: str | None
    max_turns: int | None
    max_cost: float | None  # US dollars
    output_schema: JsonObject | None  # for `ClaudeAnswer.structured`
    instructions: str | None  # appended to the system prompt
    system_prompt: str | None  # replaces the system prompt
    agents: JsonObject | None  # subagents by name: description, prompt, tools, model
    add_dirs: Sequence[str | Path]
    thinking: int | str | None  # a number of tokens, "adaptive" or "disabled"
    built_in: Sequence[str] | None  # names of Claude Code's tools; () allows none, None all
    settings: Sequence[str]  # "user", "project", "local"; the content of these files is trusted
    session: str | None  # the id of a new session, a UUID
    resume: str | None  # the id of a session to continue
    fork: bool  # whether `resume` continues a copy of the session
    arguments: Sequence[str]  # further command-line arguments


class Options(Struct, frozen=True, kw_only=True):
    """`ProgramOptions` with defaults for missing options."""

    mode: str = "default"
    model: str | None = None
    fallback_model: str | None = None
    max_turns: int | None = None
    max_cost: float | None = None
    output_schema: JsonObject | None = None
    instructions: str | None = None
    system_prompt: str | None = None
    agents: JsonObject | None = None
    add_dirs: Sequence[str | Path] = ()
    thinking: int | str | None = None
    built_in: Sequence[str] | None = None
    settings: Sequence[str] = ()
    session: str | None = None
    resume: str | None = None
    fork: bool = False
    arguments: Sequence[str] = ()


def checked_options(options: ProgramOptions) -> Options:
    """Convert `ProgramOptions` to `Options`.

    Raises:
        LocalProtocolError: An option is unknown.
    """
    try:
        return Options(**options)
    except TypeError as error:
        known = ", ".join(ProgramOptions.__annotations__)
        raise LocalProtocolError(f"{error}; the options of Claude Code are {known}") from None


# Finding


def find(program: str | Path | None = None) -> FoundProgram:
    """Find Claude Code.

    Args:
        program: The program's path; None to look in `INTERLOCK_CLAUDE` and the usual places.

    Raises:
        SpawnError: Claude Code was not found; the text lists the places searched.
    """
    named = program or os.environ.get(VARIABLE)
    if named:
        path = Path(named).expanduser()
        if not path.is_file():
            raise SpawnError(f"Claude Code not found: {path} does not exist")
        return _found(path)
    looked = []
    for path in _places():
        if path.is_file() and (os.access(path, os.X_OK) or path.suffix == ".js"):
            return _found(path)
        looked.append(str(path))
    raise SpawnError(
        f"Claude Code not found in PATH or {', '.join(looked)}; install it"
        f" (npm install -g @anthropic-ai/claude-code), or name it in {VARIABLE}"
    )


def _places() -> Iterator[Path]:
    windows = sys.platform == "win32"
    # On Windows, npm's "claude" is a batch file: cmd.exe could run commands in its arguments.
    name = "claude.exe" if windows else "claude"
    if in_path := shutil.which(name):
        yield Path(in_path)
    home = Path.home()
    yield home / ".local" / "bin" / name
    yield home / ".claude" / "local" / name
    if not windows:
        prefix = os.environ.get("NPM_CONFIG_PREFIX")
        yield Path(prefix or home / ".npm-global") / "bin" / name
        yield Path("/usr/local/bin") / name
    spec = importlib.util.find_spec("claude_agent_sdk")
    if spec is not None and spec.origin:
        yield Path(spec.origin).parent / "_bundled" / name


def _found(path: Path) -> FoundProgram:
    if path.suffix.lower() in (".cmd", ".bat"):
        raise SpawnError(f"{path} is a batch file; use claude.exe instead")
    if path.suffix in (".js", ".cjs", ".mjs"):
        node = shutil.which("node")
        if node is None:
            raise SpawnError(f"{path} runs on Node.js, and node is not in PATH; install Node.js")
        return FoundProgram(str(path), (node, str(path)))
    return FoundProgram(str(path), (str(path),))


def version(found: FoundProgram, timeout: float = VERSION_TIMEOUT) -> str:
    """Run `claude --version` and return its output. The call blocks.

    Args:
        found: The program.
        timeout: Seconds after which the program is killed.

    Raises:
        SpawnError: The program cannot be run.
    """
    try:
        with subprocess.Popen(  # noqa: S603 - the program that would be started in any case
            [*found.argv, "--version"],
            env=environment({}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as running:
            end = partial(_kill_group, running.pid)
            killing = Timer(timeout, end)
            killing.start()
            try:
                # Another program may never stop writing.
                output = running.stdout.read(MAX_VERSION) if running.stdout else b""
                if len(output) == MAX_VERSION:
                    end()
                code = running.wait()
            finally:
                is_late = not killing.is_alive()
                killing.cancel()
    except OSError as error:
        raise SpawnError(f"{found.path} does not run: {error}") from None
    if is_late:
        raise SpawnError(f"{found.path} does not run: no answer to --version in {timeout:g} s")
    text = output.decode(errors="replace").strip()
    if code != 0 or not parse_version(text):
        raise SpawnError(f"{found.path} is not Claude Code: --version printed {text[:80]!r}")
    return text.partition(" ")[0]


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def parse_version(text: str) -> tuple[int, ...]:
    """Return the numbers in a version such as "2.1.330 (Claude Code)"; () if there are none."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", text)
    return tuple(map(int, match.groups())) if match else ()


def support(version: str) -> str:
    """Return a sentence about how well this version is supported."""
    numbers = parse_version(version)
    if numbers < OLDEST:
        return "too old: update it"
    if numbers < SUPPORTED:
        return "calls, cancellation and permissions only: update it for the rest"
    return "supported"


# Starting


def environment(env: Mapping[str, str], *, inherit: bool = False) -> dict[str, str]:
    """Return the environment of the program.

    Args:
        env: Variables to add.
        inherit: Whether to add our whole environment, not only the variables Claude Code needs.
    """
    own = {
        name: value
        for name, value in os.environ.items()
        if name not in _NOT_INHERITED
        and (inherit or name in _INHERITED or name.startswith(_INHERITED_PREFIXES))
    }
    return {
        **own,
        "CLAUDE_CODE_SDK_READS_SESSION_STATE": "1",
        # Larger than our own limits, so that ours apply first and the model reads their reasons.
        "MCP_TOOL_TIMEOUT": "86400000",
        "MAX_MCP_OUTPUT_TOKENS": "100000",
        **env,
    }


def arguments(options: Options) -> list[str]:
    """Return the program's command-line arguments. None of them contains a secret.

    Raises:
        ConfigError: An option's value is not valid.
    """
    argv = [
        *("--output-format", "stream-json", "--verbose", "--input-format", "stream-json"),
        *("--include-partial-messages", "--permission-prompt-tool", "stdio"),
        f"--permission-mode={_one_of('mode', options.mode, _MODES)}",
        # As two arguments: version 2.0 ignores `--setting-sources=` and would load all settings.
        *("--setting-sources", ",".join(_sources(options.settings))),
    ]
    if not options.settings:
        argv.append("--strict-mcp-config")  # ignore the folder's `.mcp.json`
    # `--flag=value`, so that a value which begins with "-" is not read as another flag.
    flags = {
        "model": options.model,
        "fallback-model": options.fallback_model,
        "max-turns": options.max_turns,
        "max-budget-usd": options.max_cost,
        "append-system-prompt": options.instructions,
        "system-prompt": options.system_prompt,
        "agents": _json(options.agents),
        "json-schema": _json(options.output_schema),
        "tools": None if options.built_in is None else ",".join(options.built_in),
        "session-id": _uuid("session", options.session),
        "resume": _uuid("resume", options.resume),
    }
    argv += [f"--{name}={value}" for name, value in flags.items() if value is not None]
    if options.fork:
        argv.append("--fork-session")
    for folder in options.add_dirs:
        argv.append(f"--add-dir={folder}")
    if isinstance(options.thinking, int):
        argv.append(f"--max-thinking-tokens={options.thinking}")
    elif options.thinking is not None:
        argv.append(f"--thinking={options.thinking}")
    return [*argv, *options.arguments]


def _json(value: JsonObject | None) -> str | None:
    try:
        return None if value is None else encode(value).decode()
    except (TypeError, msgspec.MsgspecError) as error:
        raise ConfigError(f"an option of Claude Code is not JSON: {error}") from None


def _uuid(name: str, value: str | None) -> str | None:
    if value is None:
        return None
    try:
        return str(UUID(value))
    except ValueError:
        raise ConfigError(f"{name} {value!r} is not a UUID") from None


def _one_of(name: str, value: str, known: Sequence[str]) -> str:
    if value not in known:
        raise ConfigError(f"unknown {name} {value!r}; use one of {', '.join(known)}")
    return value


def _sources(settings: Sequence[str]) -> list[str]:
    if isinstance(settings, str):
        raise ConfigError(f'settings must be a list, such as ["user"], not {settings!r}')
    return [_one_of("settings", each, ("user", "project", "local")) for each in settings]
