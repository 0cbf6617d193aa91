"""Where the program is found, and what it is given."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlock.claude import program
from interlock.errors import ConfigError, LocalProtocolError, SpawnError
from tests.support.rows import each_row


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [*os.environ]:
        if name.startswith(("ANTHROPIC_", "CLAUDE", "AWS_", "INTERLOCK_", "NPM_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def script(path: Path, text: str = "#!/bin/sh\necho '2.1.330 (Claude Code)'\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_find_prefers_the_variable_then_path_then_usual_folders(home: Path, monkeypatch):
    local = script(home / ".local" / "bin" / "claude")
    assert program.find().path == str(local)
    in_path = script(home / "bin" / "claude")
    assert program.find().path == str(in_path)
    named = script(home / "my-claude")
    monkeypatch.setenv("INTERLOCK_CLAUDE", str(named))
    assert program.find().path == str(named)
    assert program.find(local).path == str(local)


def test_missing_program_lists_where_it_was_sought(home: Path):
    with pytest.raises(SpawnError, match=r"not found in PATH or .*\.local/bin/claude.*npm install"):
        program.find()


def test_javascript_runs_on_node_and_shell_shims_are_refused(home: Path):
    module = script(home / "cli.js")
    with pytest.raises(SpawnError, match="node is not in PATH"):
        program.find(module)
    node = script(home / "bin" / "node")
    assert program.find(module).argv == (str(node), str(module))
    with pytest.raises(SpawnError, match=r"claude\.exe instead"):
        program.find(script(home / "claude.cmd"))


@pytest.mark.parametrize(
    "text", ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 3\n", "not a program"]
)
def test_file_that_is_not_claude_code_is_named(home: Path, text: str):
    found = program.find(script(home / "other", text))

    with pytest.raises(SpawnError, match="other"):
        program.version(found)


@each_row(
    ("text", "why"),
    [
        ("#!/bin/sh\nsleep 60\n", "no answer to --version in 0.2 s"),
        ("#!/bin/sh\nwhile :; do echo loading; done\n", "--version printed 'loading"),
        ("#!/bin/sh\nexec cat /dev/zero\n", "--version printed"),
    ],
)
def test_a_program_that_never_ends_or_never_stops_writing_is_killed(
    home: Path, text: str, why: str
):
    with pytest.raises(SpawnError, match=why):
        program.version(program.find(script(home / "other", text)), 0.2)


def test_version_and_its_support(home: Path):
    assert program.version(program.find(script(home / "claude"))) == "2.1.330"
    assert program.support("2.1.59") == "supported"
    assert program.support("2.0.0").startswith("calls, cancellation and permissions only")
    assert program.support("1.0.128").startswith("too old")


def test_environment_contains_only_the_variables_that_the_program_needs(home: Path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    monkeypatch.setenv("CLAUDECODE", "1")
    monkeypatch.setenv("GITHUB_TOKEN", "s3cr3t")
    env = program.environment({"MINE": "1"})

    assert env["ANTHROPIC_API_KEY"] == "k"
    assert env["MINE"] == "1"
    assert "CLAUDECODE" not in env
    assert "GITHUB_TOKEN" not in env
    assert program.environment({}, inherit=True)["GITHUB_TOKEN"] == "s3cr3t"
    assert "CLAUDECODE" not in program.environment({}, inherit=True)


def test_an_option_value_that_looks_like_a_flag_stays_a_value():
    options = program.Options(instructions="--help", built_in=(), add_dirs=["/a"], thinking=1000)
    argv = program.arguments(options)

    assert "--append-system-prompt=--help" in argv
    assert "--tools=" in argv
    assert "--add-dir=/a" in argv
    assert "--max-thinking-tokens=1000" in argv
    assert argv[argv.index("--setting-sources") + 1] == ""
    assert "--strict-mcp-config" in argv
    assert "--strict-mcp-config" not in program.arguments(program.Options(settings=["user"]))


@each_row(
    ("options", "error"),
    [
        ({"resume": "--help"}, "resume '--help' is not a UUID"),
        ({"mode": "yolo"}, "unknown mode 'yolo'"),
        ({"settings": ["global"]}, "unknown settings 'global'"),
        ({"settings": "user"}, "settings must be a list"),
        ({"output_schema": {"a": object()}}, "is not JSON"),
    ],
)
def test_wrong_option_is_refused(options: dict[str, object], error: str):
    with pytest.raises(ConfigError, match=error):
        program.arguments(program.Options(**options))  # type: ignore[arg-type]


def test_unknown_option_is_refused_with_the_names_of_the_known_ones():
    with pytest.raises(LocalProtocolError, match=r"'moddel'.*the options of Claude Code are mode,"):
        program.checked_options({"moddel": "opus"})  # type: ignore[typeddict-unknown-key]


def test_given_options_are_kept():
    options = program.checked_options({"model": "opus", "max_turns": 3})

    assert (options.model, options.max_turns) == ("opus", 3)
