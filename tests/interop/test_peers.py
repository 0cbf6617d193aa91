"""Clients that are not ours use the demo server in every way, and see the same as ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

PEERS = Path(__file__).with_name("peers")

NOTE = "Notes are short texts with a name."
FOUND = [{"name": "shopping", "text": "apples, bread, cheese"}]
MODERN: dict[str, Any] = {
    "revision": "2026-07-28",
    "name": "notes",
    "instructions": "Search before you write: a note of the same name is replaced.",
    "tools": [
        "search", "write", "delete", "count_words", "summarize", "sign", "folders", "tidy",
        "attach", "swatch", "pin",
    ],
    "found": FOUND,
    "found_text": FOUND,
    "counted": {"welcome": 7, "shopping": 3, "travel": 6},
    "steps": [[1, 3, "welcome"], [2, 3, "shopping"], [3, 3, "travel"]],
    "logs": [
        ["info", "notes", {"note": "welcome", "words": 7}],
        ["info", "notes", {"note": "shopping", "words": 3}],
        ["info", "notes", {"note": "travel", "words": 6}],
    ],
    "attached": ["text", "resource", "resource_link"],
    "painted": ["image/png"],
    "wrong": [True, "limit: expected `int` >= 1"],
    "missing": [True, "note 'nothing' does not exist; search for it"],
    "tidied": "sorted 3 notes",
    "unknown": -32602,
    "deleted": "deleted travel",
    "summary": "Short is good",
    "folders": '["file:///work"]',
    "signed": "apples, bread, cheese (Ada: Short is good)",
    "resources": ["notes://all", "notes://logo"],
    "templates": ["notes://{name}"],
    "note": NOTE,
    "logo": ["image/png", "iVBORw0K"],
    "no_resource": -32602,
    "no_note": -32602,
    "prompts": ["review"],
    "review": ["Review this note in a curt tone.", NOTE],
    "names": ["welcome"],
    "tones": ["critical"],
    "no_prompt": -32602,
    "heard": ["notes://shopping", "prompts", "resources", "tools"],
    "new_tools": ["read_welcome"],
    "pinned": NOTE,
}  # fmt: skip
LEGACY = {
    **MODERN,
    "revision": "2025-11-25",
    "found": {"result": FOUND},  # structured content was an object
    "no_resource": -32002,
    "no_note": -32002,
}


See = Callable[[str, str, list[str]], dict[str, Any]]


@pytest.fixture(scope="module")
def see(
    node: str, installed: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[See]:
    """Let a peer use the server at a target; returns what it saw. A peer is started once."""
    log = tmp_path_factory.mktemp("peers") / "log"
    running: dict[str, subprocess.Popen[str]] = {}

    def start(peer: str) -> subprocess.Popen[str]:
        script = str(PEERS / f"{peer}_client.py")
        command = [sys.executable, "-W", "ignore", script]
        if peer == "mcp1":
            command[0] = installed("build/mcp1/bin/python")
        elif peer == "typescript":
            command = [node, str(PEERS / "typescript_client.cjs")]
        with log.open("a") as errors:
            return subprocess.Popen(
                command,
                env={**os.environ, "NODE_PATH": installed("build/interop/node_modules")},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def see(peer: str, era: str, target: list[str]) -> dict[str, Any]:
        if peer not in running:
            running[peer] = start(peer)
        process = running[peer]
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([era, *target]) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            del running[peer]  # the next case starts it again
        assert line, log.read_text()
        seen: dict[str, Any] = json.loads(line)
        return seen

    yield see
    for process in running.values():
        process.communicate()
    assert [process.returncode for process in running.values()] == [0] * len(running)
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
@pytest.mark.parametrize("peer", ["mcp2", "fastmcp4"])
@pytest.mark.parametrize(("era", "expected"), [("auto", MODERN), ("legacy", LEGACY)])
def test_a_peer_of_both_eras_sees_everything(
    see: See, peer: str, era: str, expected: dict[str, Any], target: list[str]
) -> None:
    assert see(peer, era, target) == expected


@pytest.mark.parametrize("target", ["sse"], indirect=True)
@pytest.mark.parametrize("peer", ["mcp2", "fastmcp4"])
def test_a_peer_over_the_first_http_transport_sees_everything(
    see: See, peer: str, target: list[str]
) -> None:
    assert see(peer, "legacy", target) == LEGACY


@pytest.mark.parametrize("target", ["stdio", "http", "sse"], indirect=True)
def test_peer_that_supports_the_handshake_only_sees_everything(see: See, target: list[str]) -> None:
    assert see("mcp1", "legacy", target) == LEGACY


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
@pytest.mark.parametrize(("era", "expected"), [("auto", MODERN), ("legacy", LEGACY)])
def test_interlock_client_sees_everything(
    see: See, era: str, expected: dict[str, Any], target: list[str]
) -> None:
    assert see("interlock", era, target) == expected


@pytest.mark.parametrize("target", ["sse"], indirect=True)
def test_interlock_client_sees_everything_over_http_sse(see: See, target: list[str]) -> None:
    assert see("interlock", "auto", target) == LEGACY


# It tells the progress of `tidy` instead, and gives the older error code as the newer one.
TYPESCRIPT = {
    "steps": [[1, 3, "sorted shopping"], [2, 3, "sorted travel"], [3, 3, "sorted welcome"]],
    "no_resource": -32602,
    "no_note": -32602,
}


@pytest.mark.parametrize(
    ("target", "era"),
    [
        *((over, era) for over in ("stdio", "http") for era in ("auto", "legacy")),
        ("sse", "legacy"),
    ],
    indirect=["target"],
)
def test_typescript_client_can_use_every_feature(see: See, target: list[str], era: str) -> None:
    expected = {**(MODERN if era == "auto" else LEGACY), **TYPESCRIPT}

    assert see("typescript", era, target) == expected
