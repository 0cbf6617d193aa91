"""`pg_dump` and `pg_restore`. They get the server and the password by environment variables."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import parse_qsl, unquote

from interlock.errors import StoreError
from interlock.store.database.location import public_name

_SETTINGS = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "passfile": "PGPASSFILE",
    "dbname": "PGDATABASE",
    "database": "PGDATABASE",
    "service": "PGSERVICE",
    "options": "PGOPTIONS",
    "sslmode": "PGSSLMODE",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcrl": "PGSSLCRL",
    "krbsrvname": "PGKRBSRVNAME",
    "gsslib": "PGGSSLIB",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
}
_TAIL = 3  # lines of a program's errors that are shown
_KEPT = 64 * 1024  # bytes of them that are kept


def environment_of(url: str) -> dict[str, str]:
    """Return the environment variables by which PostgreSQL's programs connect to a URL."""
    rest, _, query = url.partition("://")[2].partition("?")
    authority, _, database = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    found = {"PGUSER": unquote(user), "PGPASSWORD": unquote(password)}
    found["PGDATABASE"] = unquote(database)
    found |= _hosts(hosts)
    options = []
    for name, value in parse_qsl(query):
        if name in _SETTINGS:
            found[_SETTINGS[name]] = value
        else:  # a setting of the server, such as search_path
            escaped = value.replace("\\", "\\\\").replace(" ", "\\ ")
            options.append(f"-c {name}={escaped}")
    if options:
        found["PGOPTIONS"] = " ".join([found.get("PGOPTIONS", ""), *options]).strip()
    return {name: value for name, value in found.items() if value}


def _hosts(text: str) -> dict[str, str]:
    hosts, ports = [], []
    for each in text.split(","):
        host, _, port = each.rpartition(":") if each[-1:] != "]" and ":" in each else (each, "", "")
        hosts.append(unquote(host.strip("[]")))
        ports.append(port)
    has_ports = any(ports)
    return {"PGHOST": ",".join(hosts), "PGPORT": ",".join(ports) if has_ports else ""}


def dump_arguments(schema: str, tables: Sequence[str], file: str) -> list[str]:
    """Return the arguments of a `pg_dump` of some tables into a file."""
    return [
        *("--format=custom", "--no-owner", "--no-privileges", "--no-password"),
        *(f"--table={_quoted(schema)}.{_quoted(table)}" for table in tables),
        f"--file={file}",
    ]


def dump_line(url: str, schema: str, tables: Sequence[str]) -> str:
    """Return the command that makes a backup by hand. It contains no password."""
    environment = environment_of(url)
    environment.pop("PGPASSWORD", None)
    settings = [f"{name}={shlex.quote(value)}" for name, value in sorted(environment.items())]
    arguments = dump_arguments(schema, tables, "interlock.dump")
    return " ".join([*settings, "pg_dump", *map(shlex.quote, arguments)])


async def run_program(
    name: str, arguments: Sequence[str], url: str, stdin: int = asyncio.subprocess.DEVNULL
) -> None:
    """Run one of PostgreSQL's programs; end it if this is cancelled.

    Raises:
        StoreError: The program is missing, or it fails.
    """
    path = shutil.which(name)
    if path is None:
        raise StoreError(f"{name} is not installed: install PostgreSQL's client programs")
    environment = {**_inherited(), **environment_of(url), "PGAPPNAME": f"interlock {name}"}
    process = await asyncio.create_subprocess_exec(
        *(path, *arguments),
        env=environment,
        stdin=stdin,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    errors = b""
    try:
        while process.stderr and (block := await process.stderr.read(_KEPT)):
            errors = (errors + block)[-_KEPT:]
        code = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        raise
    if code:
        lines = errors.decode(errors="replace").split("\n")
        tail = "; ".join([line.strip() for line in lines if line.strip()][-_TAIL:])
        raise StoreError(f"{name} of {public_name(url)} failed: {tail or f'exit code {code}'}")


def restore_arguments(url: str) -> list[str]:
    """Return the arguments of a `pg_restore` of everything or nothing, from its standard input."""
    name = environment_of(url).get("PGDATABASE", "")
    escaped = name.replace("\\", "\\\\").replace("'", "\\'")
    return [
        *("--no-owner", "--no-privileges", "--no-password", "--exit-on-error"),
        *("--single-transaction", f"--dbname=dbname='{escaped}'" if name else "--dbname="),
    ]


def _inherited() -> Mapping[str, str]:
    # The program needs none of this program's secrets.
    return {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
