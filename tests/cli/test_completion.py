"""What a shell completes of `interlock`."""

from __future__ import annotations

import subprocess

import pytest
from click.shell_completion import ShellComplete

from interlock.cli import interlock as command
from tests.support.rows import each_row


def completed(*args: str) -> list[str]:
    """Return what the last word may become."""
    *before, incomplete = args
    shell = ShellComplete(command, {}, "interlock", "_INTERLOCK_COMPLETE")
    return [item.value for item in shell.get_completions(before, incomplete)]


@pytest.mark.slow("starts a program")
def test_tools_and_arguments_that_a_command_has_listed_are_completed(interlock, servers):
    servers()
    before = completed("call", "e")
    interlock("tools")

    assert before == ["e:"]
    assert completed("call", "e:ec") == ["e:echo"]
    assert completed("explain", "e:ec") == ["e:echo"]
    assert completed("call", "e:echo", "te") == ["text="]
    assert completed("call", "e:echo", "text=a", "te") == []


@pytest.mark.slow("opens a database")
def test_servers_conversations_and_models_are_completed(interlock, servers, script):
    servers()
    interlock("chat", "--no-tools", "--model", script("Hello."), "hello")
    (made,) = interlock("conversations", "list", "--json").json

    assert completed("servers", "check", "") == ["e"]
    assert completed("conversations", "show", "") == [made["id"]]
    assert completed("chat", "--model", "lo") == ["local"]


def test_servers_from_variables_are_offered_by_completion_if_enabled(servers, monkeypatch):
    servers()
    monkeypatch.setenv("MCP_ENABLED", "1")
    monkeypatch.setenv("MCP_SERVERS", '[{"name": "kb", "url": "https://kb.example/mcp"}]')

    assert completed("servers", "check", "") == ["kb"]


@pytest.mark.parametrize("content", ["{", None], ids=["a broken file", "no file"])
def test_without_a_configuration_there_is_nothing_to_complete(servers, content: str | None):
    path = servers()
    if content is None:
        path.unlink()
    else:
        path.write_text(content)

    assert completed("call", "") == []


@each_row("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(interlock, shell: str):
    ran = interlock("completion", shell)

    assert ran.code == 0
    assert f"_INTERLOCK_COMPLETE={shell}_complete" in ran.out
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=ran.out, text=True, check=True)
