"""Clients that are not ours use the demo server in every way, and see the same as ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
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
    "missing": [True, "there is no note 'nothing'; search for it"],
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


def run(python: str, peer: str, era: str, target: list[str]) -> dict[str, Any]:
    """Let a peer use the server; give what it saw."""
    script = PEERS / f"{peer}_client.py"
    return run_script([python, "-W", "ignore", str(script), era, *target])


def run_script(command: list[str], **environment: str) -> dict[str, Any]:
    """Run a script; give the JSON that it prints."""
    ran = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr, ran.stderr
    seen: dict[str, Any] = json.loads(ran.stdout)
    return seen


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
@pytest.mark.parametrize("peer", ["mcp2", "fastmcp4"])
@pytest.mark.parametrize(("era", "expected"), [("auto", MODERN), ("legacy", LEGACY)])
def test_a_peer_of_both_eras_sees_everything(
    peer: str, era: str, expected: dict[str, Any], target: list[str]
) -> None:
    assert run(sys.executable, peer, era, target) == expected


@pytest.mark.parametrize("target", ["sse"], indirect=True)
@pytest.mark.parametrize("peer", ["mcp2", "fastmcp4"])
def test_a_peer_over_the_first_http_transport_sees_everything(peer: str, target: list[str]) -> None:
    assert run(sys.executable, peer, "legacy", target) == LEGACY


@pytest.mark.parametrize("target", ["stdio", "http", "sse"], indirect=True)
def test_a_peer_that_knows_the_handshake_only_sees_everything(
    target: list[str], installed: Callable[[str], str]
) -> None:
    assert run(installed("build/mcp1/bin/python"), "mcp1", "legacy", target) == LEGACY


@pytest.mark.parametrize("target", ["stdio", "http"], indirect=True)
@pytest.mark.parametrize(("era", "expected"), [("auto", MODERN), ("legacy", LEGACY)])
def test_our_own_client_sees_everything(
    era: str, expected: dict[str, Any], target: list[str]
) -> None:
    assert run(sys.executable, "interlock", era, target) == expected


@pytest.mark.parametrize("target", ["sse"], indirect=True)
def test_our_own_client_sees_everything_over_the_first_http_transport(target: list[str]) -> None:
    assert run(sys.executable, "interlock", "auto", target) == LEGACY


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
def test_the_typescript_client_sees_everything(
    target: list[str], era: str, node: str, installed: Callable[[str], str]
) -> None:
    command = [node, str(PEERS / "typescript_client.cjs"), era, *target]
    seen = run_script(command, NODE_PATH=installed("build/interop/node_modules"))

    assert seen == {**(MODERN if era == "auto" else LEGACY), **TYPESCRIPT}
