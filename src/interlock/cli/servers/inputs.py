"""Asks for the values that a configuration leaves to the user: `${input:ID}`, `${user:NAME}`."""

from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from interlock.cli.database_options import database_of
from interlock.cli.signals import run
from interlock.cli.terminal import is_terminal, safe_line, say, warn
from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.cli.servers.kept_inputs import KeptInputs
    from interlock.config import Config, ServerConfig
    from interlock.config.inputs import Input
    from interlock.config.servers import KeptLogin

_TERMINAL = Path("/dev/tty")  # works even if stdin is a file


def answered(config: Config, keys: Iterable[str] | None = None) -> Config:
    """Return the configuration with its placeholders replaced by values of the local user.

    For each `${input:ID}`, look up the value in the keyring; if it is missing and there is a
    terminal, ask the user once. Replace `${user:NAME}` by the credential stored for `user:local`.
    If a value is missing, the server does not start, and the reason in its status names the
    remedy. Logins of `user:local` on the pages of a gateway are used as well.

    Args:
        config: The configuration.
        keys: The names in the file of the servers that will start; None for all servers.
    """
    starting = {
        key: server
        for key, server in config.servers.items()
        if server.enabled and (keys is None or key in keys)
    }
    texts = {key: msgspec.json.encode(each).decode() for key, each in starting.items()}
    answers = _answers(config, starting)
    credentials = _credentials(config, texts)
    logins = {} if config.gateway is None else _kept_logins(config, starting)
    if not answers and not credentials and not logins:
        return config
    servers = {
        key: msgspec.structs.replace(
            server,
            known={**answers.get(key, {}), **credentials.get(key, {})},
            kept_login=logins.get(key),
        )
        for key, server in config.servers.items()
    }
    return msgspec.structs.replace(config, servers=servers)


def _kept_logins(config: Config, servers: Mapping[str, ServerConfig]) -> dict[str, KeptLogin]:
    from interlock.config.servers import KeptLogin
    from interlock.toolbox.user_credentials import may_keep_login

    return {
        key: KeptLogin(database_of(config), server.namespace or key)
        for key, server in servers.items()
        if may_keep_login(server)
    }


def _answers(config: Config, servers: Mapping[str, ServerConfig]) -> dict[str, dict[str, str]]:
    """Return the answers for these servers by reference; ask for answers that are not stored."""
    from interlock.cli.servers.kept_inputs import ids_of
    from interlock.config import variables

    wanted = {
        (key, id)
        for key, server in servers.items()
        for id in ids_of(server)
        if variables.input_variable(id) not in os.environ
    }
    if not wanted:
        return {}
    kept, keyring = _kept(servers, wanted)
    given = _asked(config, {id for key, id in wanted - kept.keys()})
    new = {(key, id): given[id] for key, id in wanted - kept.keys() if id in given}
    if keyring is not None and new:
        _offer_to_keep(keyring, servers, new)
    answers: dict[str, dict[str, str]] = {}
    for (key, id), answer in {**kept, **new}.items():
        answers.setdefault(key, {})[variables.INPUT + id] = answer
    return answers


def _kept(
    servers: Mapping[str, ServerConfig], wanted: Iterable[tuple[str, str]]
) -> tuple[dict[tuple[str, str], str], KeptInputs | None]:
    """Return the stored answers by server and id, and the keyring if it can be used."""
    from interlock.cli.servers.kept_inputs import KeptInputs

    keyring = KeptInputs.find()
    if keyring is None:
        return {}, None
    try:
        found = {(key, id): keyring.load(servers[key], id) for key, id in wanted}
    except InterlockError as error:
        warn(str(error))
        return {}, None
    return {place: answer for place, answer in found.items() if answer is not None}, keyring


def _asked(config: Config, missing: Collection[str]) -> dict[str, str]:
    from interlock.config.inputs import Input

    answers: dict[str, str] = {}
    if not is_terminal(sys.stderr):
        return answers
    described = [id for id in config.inputs if id in missing]
    for id in dict.fromkeys([*described, *sorted(missing)]):
        answer = _ask(config.inputs.get(id) or Input(id))
        if answer is None:  # without a terminal, or after Ctrl-D
            break
        answers[id] = answer
    return answers


def _offer_to_keep(
    keyring: KeptInputs, servers: Mapping[str, ServerConfig], new: Mapping[tuple[str, str], str]
) -> None:
    try:
        reply = _line("Keep this in your keyring? [y/N] ", is_secret=False)
    except (EOFError, OSError):
        return
    if reply.strip().lower() not in ("y", "yes"):
        return
    try:
        for (key, id), answer in new.items():
            keyring.save(servers[key], id, answer)
    except InterlockError as error:
        warn(str(error))


def _credentials(config: Config, texts: Mapping[str, str]) -> dict[str, dict[str, str]]:
    from interlock.config import variables

    using = [key for key, text in texts.items() if variables.user_names(text)]
    if not using:
        return {}

    async def read() -> dict[str, dict[str, str]]:
        from interlock.store.credentials import CredentialStore

        found = {}
        async with CredentialStore.open(database_of(config)) as store:
            for key in using:
                server = config.servers[key].namespace or key
                values = await store.values("user:local", server)
                found[key] = {variables.USER + name: value for name, value in values.items()}
        return found

    try:
        return run(read())
    except (InterlockError, ImportError) as error:
        warn(f"stored credentials cannot be read: {error}")
        return {}


def _ask(input: Input) -> str | None:
    question = safe_line(input.description or input.id, 200)
    if input.options:
        question += f" ({', '.join(safe_line(each, 40) for each in input.options)})"
    if input.default and not input.is_secret:
        question += f" [{safe_line(input.default, 40)}]"
    while True:
        try:
            given = _line(f"{question}: ", is_secret=input.is_secret)
        except (EOFError, OSError):
            return None
        answer = given or input.default
        if not input.options or answer in input.options:
            return answer
        say(f"answer one of {', '.join(safe_line(each, 40) for each in input.options)}")


def _line(question: str, *, is_secret: bool) -> str:
    """Read a line from the terminal.

    Raises:
        EOFError: The user has ended the input.
        OSError: The process has lost its terminal.
    """
    if is_secret:
        return getpass.getpass(question)
    with _TERMINAL.open(encoding="utf-8", errors="replace") as terminal:
        print(question, end="", file=sys.stderr, flush=True)
        line = terminal.readline()
    if not line:
        raise EOFError
    return line.rstrip("\r\n")
