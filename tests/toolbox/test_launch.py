"""How a server is launched, as a document without secrets."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.config import loads
from interlock.toolbox.launch import launch_of

KEY = b"k" * 32
SECRET = "s3cret-value"


def launch(entry: dict[str, Any], key: bytes = KEY, **environ: str) -> dict[str, Any]:
    import json

    server = loads(json.dumps({"mcpServers": {"s": entry}}).encode()).servers["s"]
    return launch_of(server, environ, key)


def test_launch_of_a_program_is_its_command_and_arguments():
    assert launch({"command": "npx", "args": ["-y", "pkg@1"]}) == {
        "command": "npx",
        "args": ["-y", "pkg@1"],
    }


@pytest.mark.parametrize(
    "entry",
    [
        {"command": "npx", "args": ["--token", "${TOKEN}"]},
        {"command": "${TOKEN}", "args": []},
        {"url": "https://x.test/${TOKEN}/mcp"},
        {"openapi": {"document": "https://x.test/${TOKEN}", "baseUrl": "https://x.test"}},
    ],
    ids=["argument", "command", "url", "document"],
)
def test_filled_in_variable_changes_the_launch_without_being_shown(entry: dict[str, Any]):
    before, after = launch(entry, TOKEN=SECRET), launch(entry, TOKEN="another")

    assert before != after
    assert SECRET not in str(before)
    assert "${TOKEN} (" in str(before) or "${TOKEN}/mcp (" in str(before)
    assert before != launch(entry, b"j" * 32, TOKEN=SECRET)  # so it cannot be guessed


def test_query_of_a_url_changes_the_launch_without_being_shown():
    before = launch({"url": f"https://x.test/mcp?key={SECRET}"})

    assert before != launch({"url": "https://x.test/mcp?key=another"})
    assert before["url"].startswith("https://x.test/mcp (")
    assert SECRET not in str(before)


@pytest.mark.parametrize("args", [["--token={}"], ["--api-key", "{}"], ["-e", "CRM_SECRET={}"]])
def test_secret_that_is_written_as_an_argument_changes_the_launch_without_being_shown(
    args: list[str],
):
    before, after = (
        launch({"command": "npx", "args": [each.format(value) for each in args]})
        for value in (SECRET, "another")
    )

    assert before != after
    assert "*** (" in before["args"][-1]
    assert SECRET not in str(before)
