"""The README is short, and what it says of others is what their packages have."""

from __future__ import annotations

import importlib
import re

import pytest

from tests.docs import moving_picture
from tests.docs.page import ROOT

README = (ROOT / "README.md").read_text()


def test_readme_is_an_invitation_of_at_most_120_lines():
    assert README.count("\n") <= 120


def test_moving_picture_shows_the_sessions_of_the_first_tutorial():
    assert moving_picture.PICTURE.read_text() == moving_picture.picture() + "\n", (
        "run: python -m tests.docs.moving_picture"
    )
    assert moving_picture.PICTURE.stat().st_size < 1_000_000


def test_comparison_names_the_pinned_versions_and_a_source_for_each_row():
    pins = "".join((ROOT / "requirements" / each).read_text() for each in ("dev.txt", "bench.txt"))
    pins += "".join(each.read_text() for each in (ROOT / "requirements").glob("*[em].txt"))
    table = re.search(r"(?m)(?:^\|.*\n)+", README)
    assert table
    head, _, *rows = table[0].splitlines()
    packages = {"FastMCP": "fastmcp", "ContextForge": "mcp-contextforge-gateway"}
    for name, version in re.findall(r"\| (\w+) (\d+\.[\d.]+) ", head):
        assert f"{packages.get(name, name.lower())}=={version} " in pins
    sources = {*re.findall(r"(?m)^(\d)\. ", README)}
    for row in rows:
        cells = [each.strip() for each in row.split("|")[1:-1]]
        compared = {*cells[2:]} - {"not compared"}
        assert not compared or re.findall(r"\[(\d)\]$", cells[0])[0] in sources, row
    assert sum("| **no** |" in row for row in rows) >= 4


@pytest.mark.program("FastMCP")
def test_packages_of_others_have_what_the_comparison_says():
    for module, name in (
        ("fastmcp.server.auth", "OAuthProxy"),
        ("fastmcp", "apps"),
        ("mcp.server.auth.provider", "OAuthAuthorizationServerProvider"),
    ):
        assert hasattr(importlib.import_module(module), name) or importlib.import_module(
            f"{module}.{name}"
        )
