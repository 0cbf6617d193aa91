"""Everything that a file grants to a server is said before somebody agrees to it."""

from __future__ import annotations

import json
from typing import Any

from interlock import config
from interlock.config.consent import consents
from tests.support.rows import each_row

STDIO: dict[str, Any] = {"command": "x"}


@each_row(
    ("entry", "lines"),
    [
        (STDIO, []),
        (STDIO | {"alwaysAllow": ["wipe"]}, ["runs without asking you: wipe"]),
        (STDIO | {"autoApprove": ["a", "b"]}, ["runs without asking you: a, b"]),
        (STDIO | {"tools": {"risk": {"read": ["*"]}}}, ["is said to only read: *"]),
        (STDIO | {"tools": {"idempotent": ["*"]}}, ["may be called twice after a lost answer: *"]),
        (STDIO | {"envFile": ".env"}, ["gets the variables of the file .env"]),
        (STDIO | {"asks": ["sampling"]}, ["may ask: sampling"]),
        (STDIO | {"asks": "never"}, []),
        ({"url": "https://a.example", "headers": {"X-Key": "s"}}, ["gets the headers: X-Key"]),
    ],
)
def test_each_grant_is_a_line(entry: dict[str, Any], lines: list[str]) -> None:
    found = config.loads(json.dumps({"mcpServers": {"x": entry}}).encode())

    assert consents(found.servers["x"]) == lines
