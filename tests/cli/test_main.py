"""The command as a whole: help, version, exit codes, logs and closed streams."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from interlock import __version__, build, cli
from interlock.cli import interlock as group
from interlock.errors import InterlockError
from tests.support.rows import each_row


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its words, groups included."""
    waiting: list[tuple[str, click.Command]] = [("", group)]
    while waiting:
        words, command = waiting.pop(0)
        yield words, command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                found = command.get_command(context, name)
                assert found is not None
                waiting.append((f"{words} {name}".strip(), found))


def test_every_command_has_help_with_an_example(interlock):
    for words, _ in commands():
        ran = interlock(*words.split(), "--help")

        assert (ran.code, ran.err) == (0, ""), words
        assert "Example:\n    interlock " in ran.out, words


@pytest.mark.parametrize("words", ["", "conversations"])
def test_command_without_arguments_prints_its_help(interlock, words: str):
    ran = interlock(*words.split())

    assert (ran.code, ran.out) == (2, "")
    assert ran.err == interlock(*words.split(), "--help").out


def test_version_option_prints_the_version_and_the_commit(interlock):
    assert interlock("--version") == (0, f"interlock {build.described(__version__)}\n", "")


@pytest.mark.slow("starts programs")
@each_row("words", ["--version", "--help", "completion of se"])
def test_help_version_and_completion_import_no_command(words: str):
    code = (
        "import sys, interlock.cli\n"
        "sys.argv[1:] = sys.argv[1:2]\n"
        "try: interlock.cli.main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    environment = dict(os.environ)
    if words.startswith("completion"):
        environment |= {"_INTERLOCK_COMPLETE": "bash_complete"}
        environment |= {"COMP_WORDS": "interlock se", "COMP_CWORD": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", code, words],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    loaded = ran.stderr.split()

    own = {name for name in loaded if name.startswith("interlock")}
    parts = {"build", "cli", "cli.terminal", "errors", "lazy", "text", "text.quoting"}
    assert own == {"interlock", *(f"interlock.{part}" for part in parts)}
    assert not {*loaded} & {"asyncio", "rich", "aiohttp", "sqlalchemy", "prompt_toolkit"}
    assert len(loaded) < 150  # 277 when each command was imported
    if words.startswith("completion"):
        assert ran.stdout.split() == ["plain,servers", "plain,settings", "plain,serve"]


def test_command_list_in_help_repeats_the_summary_of_each_command():
    context = click.Context(group)
    shown = group.get_help(click.Context(group, terminal_width=200, max_content_width=200))
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        help = re.escape(command.get_short_help_str(1000))
        assert re.search(rf"^  {name} +{help}$", shown, re.MULTILINE), name


@each_row(
    ("arguments", "message"),
    [
        (["cal"], "unknown command 'cal'; did you mean call?"),
        (["x\x1b[2J"], "unknown command 'x\\x1b[2J': see `interlock --help`"),
        (["chat", "--modle", "x"], "--modle"),
        (["servers", "ad"], "'ad'"),
        (["call"], "[SERVER:]TOOL"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(interlock, arguments: list[str], message: str):
    ran = interlock(*arguments)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_an_interlock_error_is_one_line_and_exit_code_1(interlock):
    ran = interlock("tools", "--config", "missing.json")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: the file named by --config does not exist: missing.json\n"


def test_control_characters_in_an_error_are_escaped(interlock, monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> None:
        raise InterlockError("said\n\x1b[2J")

    monkeypatch.setattr("interlock.cli.config_option.load", fail)

    assert interlock("tools").err == "error: said \\x1b[2J\n"


def test_a_bug_raises_with_its_traceback(interlock, monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> None:
        raise KeyError("bug")

    monkeypatch.setattr("interlock.cli.config_option.load", fail)
    monkeypatch.setattr(sys, "argv", ["interlock", "tools"])

    with pytest.raises(KeyError):
        cli.main()


@pytest.mark.slow("starts a program")
def test_a_closed_stdout_ends_the_command_quietly(program, servers):
    servers()
    read, write = os.pipe()
    os.close(read)
    ran = program("tools", stdout=write)
    os.close(write)

    assert ran.wait() == 1
    assert ran.stderr.read() == ""


@pytest.mark.slow("starts a program")
def test_a_full_disk_is_an_error(program, servers):
    servers()
    with Path("/dev/full").open("w") as full:
        ran = program("tools", stdout=full)

    assert ran.wait() == 1
    assert ran.stderr.read() == "error: cannot write the output: No space left on device\n"


@pytest.mark.slow("starts a program")
def test_a_command_with_closed_streams_exits_with_0(program, servers):
    servers()
    shell = f'exec "{Path(sys.executable).with_name("interlock")}" tools <&- >&- 2>&-'
    ran = subprocess.run(["sh", "-c", shell], check=False)

    assert ran.returncode == 0


@pytest.mark.slow("works through much data")
def test_every_command_with_a_table_has_a_json_option(interlock, servers):
    servers()
    for words in ("tools", "servers list", "servers check", "conversations list", "doctor"):
        ran = interlock(*words.split(), "--json")

        assert json.loads(ran.out) is not None, words
