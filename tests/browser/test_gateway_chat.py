"""The chat of `interlock serve` in a real browser."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Page, expect

from interlock import Client
from interlock.config import Config, loads
from interlock.config.gateway import Address
from interlock.gateway.assembly import Assembly
from interlock.gateway.serving.endpoint import Endpoint
from interlock.store.keys import KeyStore
from interlock.web.board import Board
from interlock.web.gateway_chat import GatewayChat
from tests.browser.apps import app, box
from tests.browser.conftest import OpenPage, Watch, served, violations
from tests.support.authorization import Protected, protected

OBJECT = "tests.browser.test_gateway_chat:desk"


def _desk() -> Any:
    from interlock import Server

    server = Server("desk")

    @server.tool
    def find(text: str) -> str:
        """Find notes that contain a text."""
        return f"3 notes contain {text}"

    app(FINDS)(server)
    return server


FINDS = """(async () => {
  await begin();
  const found = await ask("tools/call", {name: "find", arguments: {text: "milk"}});
  say(found.message ?? found.content[0].text);
})();"""
desk = _desk()


class ServedGateway:
    """A gateway with the chat and the board on one listener."""

    def __init__(
        self, url: str, assembly: Assembly, keys: KeyStore, config: Callable[..., Config]
    ) -> None:
        self.url = url
        self.assembly = assembly
        self.config = config
        self._keys = keys

    async def key(self, user: str, *scopes: str) -> str:
        """Create a key that the gateway knows at once."""
        _, key = await self._keys.create(user, scopes=scopes or ("mcp:*",))
        await self.assembly.services.keys.refresh()
        return key


@asynccontextmanager
async def gateway_with_chat(
    folder: Path,
    open_page: OpenPage,
    *replies: Any,
    servers: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[ServedGateway]:
    script = folder / "script.json"
    script.write_text(json.dumps(replies))

    def config(**settings: Any) -> Config:
        gateway = {
            "database": str(folder / "gateway.db"),
            "chat": {"models": [f"scripted:{script}"]},
            **settings,
        }
        entries = {"desk": {"type": "python", "object": OBJECT}, **(servers or {})}
        return loads(json.dumps({"mcpServers": entries, "gateway": gateway}).encode())

    apps: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps["public"](scope, receive, send)

    async with (
        served(app) as url,
        KeyStore.open(folder / "gateway.db") as keys,
        Assembly.open(config(**settings), environ={}) as assembly,
        assembly.server.running(),
    ):
        address = Address("127.0.0.1", urlsplit(url).port or 0)
        endpoint = Endpoint(assembly, f"{url}/mcp", address=address, board=Board, chat=GatewayChat)
        apps["public"] = endpoint.app
        try:
            yield ServedGateway(url, assembly, keys, config)
        finally:
            await open_page.close()
            await endpoint.close()
            await apps["public"].close()


async def sign_in(page: Page, key: str) -> None:
    await page.get_by_label("Key", exact=False).fill(key)
    await page.keyboard.press("Enter")


async def test_user_signs_in_with_a_key_and_the_graph_engine_answers(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    call = {"id": "call_1", "name": "desk__find", "input": {"text": "milk"}}
    replies = ({"content": "", "tool_calls": [call]}, {"content": "Three."})
    chat = {"models": [f"scripted:{tmp_path / 'script.json'}"], "engine": "graph"}
    async with gateway_with_chat(tmp_path, open_page, *replies, chat=chat) as gateway:
        page = await open_page(gateway.url)
        await sign_in(page, gateway.assembly.services.callers.key_for_this_run() or "")
        await expect(page.get_by_text("The policy decides which calls run")).to_be_visible()
        await page.get_by_label("Message", exact=True).fill("Where is the milk?")
        await page.keyboard.press("Enter")

        card = page.locator('[data-call][data-state="ran"]')
        await expect(card).to_contain_text("desk:find")
        await expect(page.get_by_text("Three.", exact=True)).to_be_visible()


async def test_call_that_others_must_approve_is_run_again_after_they_have(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    call = {"id": "call_1", "name": "desk__find", "input": {"text": "milk"}}
    asked = {"content": "", "tool_calls": [call]}
    replies = asked, {"content": "It waits."}, asked, {"content": "Three."}
    rule = {"id": "leads-first", "effect": "ask", "who": ["*"], "tools": ["desk:find"]}
    policy = {"rules": [rule | {"approvers": ["user:berta"]}]}
    async with gateway_with_chat(tmp_path, open_page, *replies, policy=policy) as gateway:
        page = await open_page(gateway.url)
        await sign_in(page, await gateway.key("anna"))
        await page.get_by_label("Message", exact=True).fill("Where is the milk?")
        await page.keyboard.press("Enter")
        await expect(page.get_by_text("Others decide about this call.")).to_be_visible()
        await expect(page.locator("[data-call]")).to_contain_text("needs approval by user:berta")
        await expect(page.get_by_text("It waits.", exact=True)).to_be_visible()

        lead = await open_page(f"{gateway.url}/gateway/approvals")
        await sign_in(lead, await gateway.key("berta", "admin:read", "admin:approve"))
        await lead.get_by_role("button", name="Approve once").click()
        await expect(lead.get_by_role("button", name="Approve once")).to_have_count(0)
        await page.get_by_role("button", name="Run again").click()

        await expect(page.get_by_text("Three.", exact=True)).to_be_visible()
        await expect(page.locator('[data-state="ran"]')).to_have_count(1)


async def test_person_signs_in_at_the_issuer_of_their_organisation(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    """The issuer is `oidc-provider`, with its own pages."""
    watch.expected += ["401", "fonts.googleapis.com"]
    with protected(tmp_path) as (server, issuer):
        provider = Protected(server, issuer)
        await provider.wish(groups={"ada": ["support"]})
        async with gateway_with_chat(tmp_path, open_page) as gateway:
            client = await provider.register(
                redirect_uris=[f"{gateway.url}/login/callback"],
                grant_types=["authorization_code"],
                token_endpoint_auth_method="client_secret_basic",
                scope="openid groups",
            )
            config = gateway.config(
                auth={
                    "issuers": [
                        {
                            "issuer": issuer,
                            "audience": f"{gateway.url}/mcp",
                            "jwksUrl": f"{issuer}/jwks",
                            "groups": "groups",
                            "scopes": {"support": ["mcp:*"]},
                            "clientId": client["client_id"],
                            "clientSecret": client["client_secret"],
                        }
                    ]
                }
            )
            await gateway.assembly.reload(config)
            page = await open_page(f"{gateway.url}/c/none")
            fonts = "https://fonts.googleapis.com/**"  # which the issuer's own pages ask for
            await page.route(fonts, lambda route: route.fulfill(body="", content_type="text/css"))
            await page.get_by_role("link", name=f"Sign in at {urlsplit(issuer).netloc}").click()
            await page.locator("input[name=login]").fill("ada")
            await page.locator("input[name=password]").fill("any")
            await page.keyboard.press("Enter")
            await page.get_by_role("button", name="Continue").click()

            await expect(page.locator(".who")).to_have_text(f"{issuer}#ada")
            assert urlsplit(page.url).path == "/c/none"
            stored = await page.evaluate("JSON.stringify({...localStorage})")
            assert "interlock-key" in stored
            assert client["client_secret"] not in stored + await page.content()


async def test_call_of_an_app_that_a_rule_asks_about_is_approved_by_its_user(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected += ["401", "localStorage"]
    shows = {"effect": "allow", "who": ["*"]}
    rules = [
        shows | {"id": "show", "tools": ["desk:orders"]},
        shows | {"id": "app", "resources": ["desk:ui://*"]},
        {
            "id": "find",
            "effect": "ask",
            "who": ["*"],
            "tools": ["desk:find"],
            "approvers": ["caller"],
        },
    ]
    call = {"id": "call_1", "name": "desk__orders", "input": {"year": 2025}}
    replies = ({"content": "", "tool_calls": [call]}, {"content": "Here."})
    async with gateway_with_chat(tmp_path, open_page, *replies, policy={"rules": rules}) as gateway:
        page = await open_page(gateway.url)
        await sign_in(page, await gateway.key("anna"))
        await page.get_by_label("Message", exact=True).fill("Show the orders")
        await page.keyboard.press("Enter")

        asked = page.get_by_role("group", name="desk:find waits for a decision")
        await expect(asked).to_contain_text("rule find; caller may decide")
        await asked.get_by_role("button", name="Approve once").click()
        await expect(box(page).locator("#said")).to_have_text("3 notes contain milk")


async def test_call_of_a_program_is_approved_on_its_page_by_its_user(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    rule = {"id": "ask", "effect": "ask", "who": ["*"], "tools": ["desk:find"]}
    async with gateway_with_chat(tmp_path, open_page, policy={"rules": [rule]}) as gateway:
        key = await gateway.key("anna")
        headers = {"Authorization": f"Bearer {key}"}
        asking = Client.http(f"{gateway.url}/mcp", headers=headers)
        async with asking as client:
            await client.call_tool("desk__find", {"text": "milk"})
            (waiting,) = await gateway.assembly.services.approvals.list()
            page = await open_page(f"{gateway.url}/calls/{waiting.call}")
            await page.clock.install()
            await sign_in(page, key)
            await expect(page.locator(".arguments")).to_contain_text("milk")
            assert await violations(page) == []
            await page.get_by_role("button", name="Approve once").click()
            await expect(page.get_by_text("Approve once")).to_have_count(0)
            result = await client.call_tool("desk__find", {"text": "milk"})

        assert result.text == "3 notes contain milk"
        await page.clock.fast_forward(5_000)  # when the page asks again
        await expect(page.locator('[data-state="ran"]')).to_be_visible()


async def test_board_links_to_the_chat_if_the_chat_is_served(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with gateway_with_chat(tmp_path, open_page) as gateway:
        page = await open_page(f"{gateway.url}/gateway")
        await sign_in(page, await gateway.key("mara", "admin:read", "mcp:*"))
        await page.get_by_role("link", name="Chat").click()
        await expect(page.get_by_label("Message", exact=True)).to_be_visible()
