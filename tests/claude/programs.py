"""The versions of Claude Code that the tests run, and their environment."""

from __future__ import annotations

import os
from pathlib import Path

BUILD = Path(__file__).parents[2] / "build"
NEWEST = "2.1.330"
VERSIONS = (NEWEST, "2.1.176", "2.1.59", "2.0.0")  # `make claude`
CHOSEN = tuple(filter(None, os.environ.get("CLAUDE_VERSIONS", NEWEST).split(",")))


def program(version: str) -> Path:
    """Find a version among what `make test-all` and `make claude` have installed."""
    modules = BUILD / ("claude" if version == NEWEST else "claude-all") / "node_modules"
    package = modules / f"claude-{version}"
    binary = "@anthropic-ai/claude-code-*/claude"
    found = [
        *package.glob("cli.js"),
        *package.glob(f"node_modules/{binary}"),
        *modules.glob(binary),
    ]
    assert found, f"{package} is missing: `make claude` installs it"
    return found[0]


def environment(url: str, home: Path) -> dict[str, str]:
    """Return the variables that keep a program on loopback and in its own folder."""
    return {
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home / "config"),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-ant-for-tests",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "CLAUDE_CODE_MAX_RETRIES": "1",
        "IS_SANDBOX": "1",
    }
