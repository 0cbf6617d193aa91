"""Pages of the board: each address leads to one screen."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from interlock.server.http.page_guard import PageGuard
from interlock.web.board import SCREENS, Board, screen_at
from interlock.web.files import files_of_package
from interlock.web.site import CHAT
from tests.support.rows import each_row

BEYOND_THE_CHAT = 35 * 1024  # bytes, compressed


@each_row(
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
def test_board_path_selects_its_screen(path: str, screen: str) -> None:
    assert screen_at(path) == f"board/screens/{screen}.js"


@each_row("path", ["/", "/gateway/x", "/gateway/keys/a/b", "/calls", "/calls/a/b"])
def test_unknown_path_has_no_screen(path: str) -> None:
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


def board() -> httpx.AsyncClient:
    """Return a client of the pages; other paths are answered with 418."""

    async def beside(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 418, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    transport = httpx.ASGITransport(Board(beside, PageGuard()))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_a_screen_is_a_page_with_a_strict_policy_and_other_paths_are_left_alone() -> None:
    async with board() as client:
        page, head = await client.get("/gateway/keys"), await client.head("/gateway/keys")
        others = [
            (await client.get("/gateway/none")).status_code,
            (await client.get("/admin/keys")).status_code,
            (await client.post("/gateway/keys")).status_code,
        ]

    assert (page.status_code, head.status_code) == (200, 200)
    assert page.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert head.content == b""
    assert others == [418, 418, 418]


async def test_a_screen_is_not_served_to_another_site() -> None:
    async with board() as client:
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            assert (await client.get("/gateway", headers=headers)).status_code == 403


async def test_content_policy_reports_of_a_browser_are_logged_up_to_a_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with board() as client:
        report = "blocked-uri " + "x" * 9_000
        foreign = await client.post(
            "/api/csp", content="FOREIGN", headers={"origin": "https://evil.example"}
        )
        own = await client.post("/api/csp", content=report, headers={"origin": "http://127.0.0.1"})

    assert (foreign.status_code, own.status_code) == (403, 204)
    assert "FOREIGN" not in caplog.text
    assert "content policy: blocked-uri xxx" in caplog.text
    assert "x" * 2_001 not in caplog.text
