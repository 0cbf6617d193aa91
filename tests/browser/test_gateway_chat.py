"""The chat of `interlock serve` in a real browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import expect

from interlock.config import loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.endpoint import Endpoint
from interlock.web.gateway_chat import GatewayChat
from tests.browser.conftest import OpenPage, Watch, served

OBJECT = "tests.browser.test_gateway_chat:desk"


def _desk() -> Any:
    from interlock import Server

    server = Server("desk")

    @server.tool
    def find(text: str) -> str:
        """Find notes that contain a text."""
        return f"3 notes contain {text}"

    return server


desk = _desk()


async def test_user_signs_in_with_a_key_and_gets_an_answer(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    call = {"id": "call_1", "name": "desk__find", "input": {"text": "milk"}}
    script = tmp_path / "script.json"
    script.write_text(json.dumps([{"content": "", "tool_calls": [call]}, {"content": "Three."}]))
    entries = {"desk": {"type": "python", "object": OBJECT}}
    settings = {
        "database": str(tmp_path / "gateway.db"),
        "chat": {"models": [f"scripted:{script}"]},
    }
    config = loads(json.dumps({"mcpServers": entries, "gateway": settings}).encode())
    apps: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps["public"](scope, receive, send)

    async with (
        served(app) as url,
        Assembly.open(config, environ={}) as assembly,
        assembly.gateway.running(),
    ):
        address = Address("127.0.0.1", urlsplit(url).port or 0)
        endpoint = Endpoint(assembly, f"{url}/mcp", address=address, chat=GatewayChat)
        apps["public"] = endpoint.app
        try:
            page = await open_page(url)
            await page.get_by_label("Key", exact=False).fill(assembly.key_for_this_run() or "")
            await page.keyboard.press("Enter")
            await page.get_by_label("Message", exact=True).fill("Where is the milk?")
            await page.keyboard.press("Enter")

            card = page.locator('[data-call][data-state="ran"]')
            await expect(card).to_contain_text("desk:find")
            await expect(page.get_by_text("Three.", exact=True)).to_be_visible()
        finally:
            await open_page.close()
            await endpoint.close()
            await apps["public"].close()
