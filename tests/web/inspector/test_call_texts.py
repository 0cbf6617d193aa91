"""The texts of a call are run: as Python, as a command, as a test."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.config import load
from interlock.layers import Layers
from interlock.layers.asking import asking
from interlock.policy import LOCAL_USER, Policy
from interlock.toolbox import Toolbox
from interlock.web.by_hand import ask_on_page
from interlock.web.inspector import call_texts as inspect_texts
from interlock.web.inspector.inspection import Host, Inspection
from interlock.web.inspector.inspector import Inspector, Wanted

pytestmark = pytest.mark.slow("starts programs")
ECHO = Path(__file__).parents[2] / "servers" / "echo.py"
ARGUMENTS = {"text": 'it\'s "quoted"\n', "count": 2, "place": {"a": None}}


def inspector_of(path: Path) -> Inspector:
    """Return the inspector of a configuration file, for the local user."""
    config = load(path)
    policy = Policy.for_local_user(config)
    layers = Layers(policy=policy, approval=asking(ask_on_page))
    return Inspector(
        Host(
            servers=lambda: config.servers,
            layers=lambda: layers,
            policy=lambda: policy,
            toolbox=Toolbox({}),
            checks_pins=lambda: False,
            environ={},
            path=path,
            is_local=True,
        )
    )


async def called(path: Path, tool: str, arguments: dict[str, Any]) -> tuple[Inspection, Inspector]:
    """Return an inspection in which a tool was called."""
    inspector = inspector_of(path)
    inspection = await inspector.open(LOCAL_USER, Wanted(server="echo"))
    assert inspection is not None
    card = await inspection.send("tools/call", {"name": tool, "arguments": arguments})
    assert card["state"] in ("ran", "failed"), card
    return inspection, inspector


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A configuration file with one server."""
    server = {"command": sys.executable, "args": ["-I", "-S", str(ECHO)]}
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"echo": server}}))
    return file


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


async def test_copied_texts_of_a_call_repeat_the_call(path: Path, tmp_path: Path):
    inspection, inspector = await called(path, "echo", ARGUMENTS)
    texts = inspect_texts.of_call(inspection, "echo", ARGUMENTS)
    await inspector.close()
    program, test = tmp_path / "call.py", tmp_path / "test_call.py"
    program.write_text(texts["python"])
    test.write_text(texts["test"])
    _, *command = shlex.split(texts["command"])

    by_python = run(sys.executable, str(program))
    by_command = run(sys.executable, "-m", "interlock", *command)
    by_test = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))

    assert json.loads(by_python.stdout) == ARGUMENTS, by_python.stderr
    assert json.loads(by_command.stdout) == ARGUMENTS, by_command.stderr
    assert by_test.returncode == 0, by_test.stdout
    assert "assert result.text ==" in texts["test"]


async def test_text_of_a_failing_call_is_a_test_that_fails(path: Path, tmp_path: Path):
    inspection, inspector = await called(path, "fail", {"text": "no disk"})
    texts = inspect_texts.of_call(inspection, "fail", {"text": "no disk"})
    await inspector.close()
    test = tmp_path / "test_call.py"
    test.write_text(texts["test"])

    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test))

    assert done.returncode == 1
    assert "no disk" in done.stdout


async def test_server_that_is_in_no_file_has_no_texts_but_a_reason(path: Path):
    inspector = inspector_of(path)
    command = shlex.join([sys.executable, "-IS", str(ECHO)])
    inspection = await inspector.open(LOCAL_USER, Wanted(command=command))
    assert inspection is not None
    await inspection.connection.ready()
    texts = inspect_texts.of_call(inspection, "echo", {})
    await inspector.close()

    assert inspection.connection.name == "echo"
    assert texts == {"reason": "not_in_file"}


async def test_documented_text_equals_the_generated_text(path: Path):
    inspection, inspector = await called(path, "say", {"text": "hello"})
    text = inspect_texts.of_call(inspection, "say", {"text": "hello"})["test"]
    await inspector.close()
    page = (Path(__file__).parents[3] / "docs/author/inspector.md").read_text()

    assert text.replace(str(path), "mcp.json") in page
