"""`interlock doctor`: check an installation or a deployment, and print remedies."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct
from msgspec.structs import replace

from interlock import __version__, build
from interlock.cli import config_option
from interlock.cli.server_status import is_broken, problem_of, status_rows, statuses
from interlock.cli.signals import run
from interlock.cli.terminal import emit_json, emit_table, say, warn
from interlock.cli.troubleshooting import remedy_of
from interlock.errors import InterlockError, MissingExtra
from interlock.extras import install_command
from interlock.text.redaction import masked_arguments
from interlock.text.surrogates import path_text
from interlock.text.urls import display

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.toolbox import ServerStatus

_TRACERS = ("LANGSMITH", "LANGCHAIN")  # prefixes of environment variables
_PACKAGES = {  # package -> the extra that installs it
    "msgspec": "",
    "aiohttp": "",
    "jsonschema-rs": "",
    "sqlalchemy": "chat",
    "prompt-toolkit": "chat",
    "xllamacpp": "local",
    "keyring": "oauth",
    "pyyaml": "openapi",
    "uvicorn": "serve",
    "websockets": "web",
}


class Child(Struct, frozen=True):
    """A server process that was started by any interlock process of this user."""

    id: int
    command: str
    parent: int  # the interlock process that started it
    orphan: bool  # whether `parent` has ended


class Report(Struct):
    """The results of all checks; `problems` has one line for each problem."""

    versions: dict[str, str]
    config: str = ""  # the file or variable that configures the servers; "" if there is none
    servers: list[Any] = []
    logins: dict[str, str] = {}  # state of the login, by server
    children: list[Child] = []
    keys: dict[str, bool] = {}  # whether a key is set, by environment variable
    effects: dict[str, str] = {}  # surprising effects of environment variables, by name
    traces: str = ""  # where traces are exported to; "" if they are off
    metrics: str = ""  # where `interlock serve` exports metrics to; "" if it does not
    model: str = ""
    database: str = ""
    claude: str = ""  # the installed Claude Code: version, path, and whether it is supported
    problems: list[str] = []


@click.command()
@click.option(
    "--deployment",
    is_flag=True,
    help="Check what `interlock serve` needs: its user, key, disk, database, addresses, callers, "
    "audit trail, servers and collector.",
)
@config_option.config_option
@config_option.json_option
def doctor(deployment: bool, config: Path | None, as_json: bool) -> int:
    """Check versions, files, servers, logins, processes, keys, model and database.

    Starts the servers to check them. Shows which keys are set and which logins are stored, never
    their values. Exits with 1 if there is a problem.

    With --deployment, run it as the user of the gateway, with the same variables. A gateway may be
    running. Exits with 1 if there is an error; warnings are shown only.

    \b
    Example:
      interlock doctor
      interlock doctor --json
      interlock doctor --deployment --config gateway.json
    """
    if deployment:
        return _examine_deployment(config, as_json)
    report = Report(
        versions=_versions(), children=children(), keys=_keys(), effects=_effects(os.environ)
    )
    found = run(_check(report, config))
    if as_json:
        emit_json(report)
    else:
        _print(report, found)
        for problem in report.problems:
            warn(problem)
            if remedy := remedy_of(problem):
                say(remedy)
    return int(bool(report.problems))


def _examine_deployment(config: Path | None, as_json: bool) -> int:
    from interlock.gateway.deployment.deployment import examine

    def load() -> Config:
        found, ignored = config_option.in_force(config)
        return replace(found, warnings=(*ignored, *found.warnings))

    found = run(examine(load, os.environ))
    if as_json:
        emit_json({"checks": found})
    else:
        emit_table([(each.state, each.id, each.text) for each in found])
    return int(any(each.state == "error" for each in found))


def _print(report: Report, found: list[ServerStatus]) -> None:
    rows: list[tuple[str, str]] = [*report.versions.items()]
    rows.append(("config", report.config or "none"))
    rows += [
        (f"server {name}", ", ".join(each for each in rest if each not in ("", "-")))
        for name, *rest in status_rows(found)
    ]
    rows += [(f"login {name}", state) for name, state in report.logins.items()]
    rows += [
        (f"process {child.id}", f"{child.command}, of {child.parent}") for child in report.children
    ]
    rows += [(name, "set" if there else "not set") for name, there in report.keys.items()]
    rows += report.effects.items()
    rows += [("traces", report.traces)] if report.traces else []
    rows += [("metrics", report.metrics)] if report.metrics else []
    rows += [("model", report.model or "none"), ("database", report.database)]
    rows.append(("claude code", report.claude))
    emit_table(rows)


async def _check(report: Report, path: Path | None) -> list[ServerStatus]:
    found = await _servers(report, path)
    await _model(report)
    await _database(report)
    from interlock.aio import in_thread

    await in_thread(partial(_telemetry, report))
    report.claude = await in_thread(_claude)
    report.problems += [
        f"process {child.id} ({child.command}) outlived interlock; end it with: kill {child.id}"
        for child in report.children
        if child.orphan
    ]
    return found


async def _servers(report: Report, path: Path | None) -> list[ServerStatus]:
    from interlock.cli.servers.login_status import logins

    try:
        config = config_option.load(path)
        report.config = path_text(config.path or config.variable)
        report.logins = {**await logins(config.servers)}
        found = await statuses(config.servers)
    except InterlockError as error:
        report.problems.append(str(error))
        return []
    report.servers = list(found)
    report.problems += [f"{report.config}, {reason}" for reason in config.ignored.values()]
    report.problems += [problem_of(status) for status in found if is_broken(status)]
    report.problems += [
        f"server {status.name!r} is still starting"
        for status in found
        if status.state == "starting"
    ]
    return found


async def _model(report: Report) -> None:
    from interlock.cli.chat.settings import wishes

    try:
        model = await wishes().preferred()
    except InterlockError as error:
        report.problems.append(str(error))
        return
    report.model = model.name
    await model.close()


def _claude() -> str:
    """Describe the installed Claude Code; it is not a problem if Claude Code is missing."""
    from interlock.claude import program

    try:
        found = program.find()
        version = program.version(found)
    except InterlockError as error:
        return str(error)
    return f"{version} ({found.path}), {program.support(version)}"


async def _database(report: Report) -> None:
    from interlock import store
    from interlock.store.database import location

    try:
        found = location.find(None)
        if isinstance(found, Path) and not found.exists():
            report.database = f"{found} (created by the first conversation)"
            return
        report.database = str(found) if isinstance(found, Path) else location.public_name(found)
        async with store.ConversationStore.open():
            pass
    except MissingExtra as error:
        report.database += f" ({error})"
    except InterlockError as error:
        report.problems.append(str(error))


def _versions() -> dict[str, str]:
    from importlib import metadata

    versions = {
        "interlock": build.described(__version__),
        "python": f"{platform.python_version()} ({sys.executable})",
    }
    for package, extra in _PACKAGES.items():
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = f"not installed; extra {extra}: {install_command(extra)}"
    return versions


def _keys() -> dict[str, bool]:
    from interlock.models.providers import PROVIDERS

    return {each.keys[0]: bool(each.key()) for each in PROVIDERS if not each.is_local}


def _effects(environ: Mapping[str, str]) -> dict[str, str]:
    """Return surprising effects of variables that may have been set for another program."""
    found = {}
    if environ.get("MCP_SERVERS") and not environ.get("MCP_ENABLED"):
        found["MCP_SERVERS"] = "set and not used; set MCP_ENABLED=true to use it"
    # The package `langsmith` uses the first of these variables that is set.
    names = [f"{of}_{name}" for name in ("TRACING_V2", "TRACING") for of in _TRACERS]
    tracing = next((each for each in names if environ.get(each, "").strip()), "")
    if environ.get(tracing) == "true":
        places = (environ.get(f"{each}_ENDPOINT", "").strip() for each in _TRACERS)
        place = display(next(filter(None, places), "https://api.smith.langchain.com"))
        found[tracing] = (
            "programs with LangChain send prompts, answers, and the arguments and results of "
            f"tools to {place}; interlock's own commands do not"
        )
    return found


def _telemetry(report: Report) -> None:
    """Check where traces and metrics are exported to, and whether the collector answers."""
    from interlock.telemetry.checking import check_signals

    try:
        for each in check_signals(os.environ, "doctor"):
            setattr(report, each.name, each.target)
            if each.problem:
                text = f"{each.name} are not exported to {each.target}: {each.problem}"
                report.problems.append(text)
    except InterlockError as error:
        report.problems.append(str(error))


# Processes


def children() -> list[Child]:
    """Return the server processes of all interlock processes of this user. Needs /proc."""
    from interlock.transports.reaper import MARK_VARIABLE, marked

    found = (_child(id, MARK_VARIABLE) for id in marked(f"{MARK_VARIABLE}="))
    return [child for child in found if child is not None and child.id != os.getpid()]


def _child(id: int, variable: str) -> Child | None:
    try:
        environment = Path(f"/proc/{id}/environ").read_bytes().split(b"\0")
        arguments = Path(f"/proc/{id}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    except OSError:  # the process has ended
        return None
    mark = next((each for each in environment if each.startswith(f"{variable}=".encode())), b"")
    parent, _, rest = mark.decode(errors="replace").partition("=")[2].partition("-")
    if not parent.isdecimal():
        return None
    orphan = _start_of(int(parent)) != rest.partition("-")[0]
    command = " ".join(masked_arguments([each.decode(errors="replace") for each in arguments]))
    return Child(id, command[:200], int(parent), orphan)


def _start_of(id: int) -> str | None:
    """Return a process's start time, as in the mark it inherited; None if it has ended."""
    try:
        return Path(f"/proc/{id}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None
