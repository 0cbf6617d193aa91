"""A server with an app, for the browser tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from playwright.async_api import FrameLocator, Page

from interlock import Server
from interlock.types import CallToolResult, TextContent
from interlock.web.app_documents import MIME
from tests.browser.chat import READ

# What every app of these tests has: requests with answers, as its page would make them.
RPC = """<!doctype html><title>App</title><body><h1>Orders</h1><p id=said></p><script>
let last = 0; const open = {}, heard = {}, waiting = {};
const say = (text) => document.getElementById("said").textContent = text;
const send = (message) => parent.postMessage({jsonrpc: "2.0", ...message}, "*");
const ask = (method, params) => new Promise((done) => {
  open[++last] = done; send({id: last, method, params});
});
const told = (method) => heard[method] ?? new Promise((done) => { waiting[method] = done; });
addEventListener("message", ({data}) => {
  if (data.method) { heard[data.method] = data.params; waiting[data.method]?.(data.params); }
  else if (data.id in open) open[data.id](data.result ?? data.error);
});
const begin = async () => {
  const host = await ask("ui/initialize", {protocolVersion: "2026-01-26",
    appInfo: {name: "orders", version: "1"}, appCapabilities: {}});
  send({method: "ui/notifications/initialized"});
  return host;
};
"""


def app(script: str, **ui: Any) -> Callable[[Server], None]:
    """Return what adds a tool with an app to a server."""
    return offering(lambda: f"{RPC}{script}</script>", **ui)


def offering(document: Callable[[], str], **ui: Any) -> Callable[[Server], None]:
    def extend(server: Server) -> None:
        @server.tool(annotations=READ, meta={"ui": {"resourceUri": "ui://desk/orders"}})
        def orders(year: int) -> CallToolResult:
            """Show orders."""
            text = TextContent(f"7 orders of {year}")
            return CallToolResult(content=[text], structured_content={"orders": 7})

        @server.tool(annotations=READ, meta={"ui": {"visibility": ["app"]}})
        def details(id: int) -> str:
            """Show one order."""
            return f"order {id} is paid"

        @server.tool(annotations=READ, meta={"ui": {"visibility": ["model"]}})
        def secret() -> str:
            """Return what apps may not ask for."""
            return "secret"

        @server.resource("ui://desk/orders", mime_type=MIME, meta={"ui": ui})
        def page() -> str:
            return document()

    return extend


def box(page: Page) -> FrameLocator:
    return page.frame_locator("iframe").first
