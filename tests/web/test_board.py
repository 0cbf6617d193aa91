"""Pages of the board: each address leads to one screen."""

from __future__ import annotations

import pytest

from interlock.web.board import SCREENS, screen_at
from interlock.web.files import files_of_package

BEYOND_THE_SHELL = 35 * 1024  # bytes, compressed


@pytest.mark.parametrize(
    ("path", "screen"),
    [
        ("/gateway", "overview"),
        ("/gateway/", "overview"),
        ("/gateway/keys", "keys"),
        ("/gateway/servers/crm", "servers"),
        ("/login", "overview"),
        ("/calls/c1", "call"),
    ],
)
def test_an_address_has_its_screen(path: str, screen: str) -> None:
    assert screen_at(path) == f"board/screens/{screen}.js"


@pytest.mark.parametrize("path", ["/", "/gateway/x", "/gateway/keys/a/b", "/calls", "/calls/a/b"])
def test_another_address_has_none(path: str) -> None:
    assert screen_at(path) is None


@pytest.mark.parametrize("screen", sorted({*SCREENS.values(), "call"}))
def test_screen_loads_no_more_than_its_budget_beyond_the_shell(screen: str):
    files = files_of_package()
    of_board = files.modules("board/board.js")
    shell = {each for each in of_board if each.startswith(("shared/", "vendor/"))}
    loaded = {*files.modules("board/board.js", f"board/screens/{screen}.js")} - shell
    headers = {b"accept-encoding": b"gzip"}

    sizes = [
        len(files.answer(f"{files.version}/{name}", headers).body)
        for name in (*loaded, "board/messages/en.json")
    ]
    assert sum(sizes) <= BEYOND_THE_SHELL
