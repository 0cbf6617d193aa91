"""Pages of the board: each address leads to one screen."""

from __future__ import annotations

import pytest

from interlock.web.board import SCREENS, screen_at
from interlock.web.files import files_of_package
from interlock.web.site import CHAT

BEYOND_THE_CHAT = 35 * 1024  # bytes, compressed


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


def test_all_screens_together_load_no_more_than_their_budget_beyond_the_chat():
    files = files_of_package()
    chat = {*files.modules(CHAT.entry, *CHAT.screens), *files.later(CHAT)}
    screens = [f"board/screens/{each}.js" for each in (*SCREENS.values(), "call")]
    headers = {b"accept-encoding": b"gzip"}

    sizes = [
        len(files.answer(f"{files.version}/{name}", headers).body)
        for name in {*files.modules("board/board.js", *screens)} - chat
    ]
    assert sum(sizes) <= BEYOND_THE_CHAT
