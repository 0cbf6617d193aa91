"""The page on which a person signs in and decides about an OAuth client."""

from __future__ import annotations

import json
import secrets
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit
from urllib.request import Request, urlopen

from playwright.async_api import expect

from interlock.aio import in_thread
from tests.browser.conftest import OpenPage, Watch, served, violations
from tests.browser.test_gateway_chat import ServedGateway, gateway_with_chat
from tests.gateway.notes import serving_notes


class Client:
    """A program on the person's computer that asks for access.

    Attributes:
        url: Where the answers go.
        answers: The parameters of each answer.
        id: Its client id.
        verifier: The PKCE verifier.
    """

    def __init__(self, url: str) -> None:
        self.url = f"{url}/callback"
        self.answers: list[dict[str, str]] = []
        self.id = ""
        self.verifier = secrets.token_urlsafe(48)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/callback":
            self.answers.append(dict(parse_qsl(scope["query_string"].decode())))
        body = b"<!doctype html><title>Client</title>You can go back to the program."
        headers = [(b"content-type", b"text/html")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def register(self, gateway: str, name: str) -> str:
        """Register, and return the address that the program opens."""
        metadata = {
            "client_name": name,
            "redirect_uris": [self.url],
            "token_endpoint_auth_method": "none",
        }
        made = await in_thread(lambda: post(f"{gateway}/register", metadata))
        self.id = made["client_id"]
        challenge = urlsafe_b64encode(sha256(self.verifier.encode()).digest()).decode()
        asked = {
            "response_type": "code",
            "client_id": made["client_id"],
            "redirect_uri": self.url,
            "state": "s1",
            "code_challenge": challenge.rstrip("="),
            "code_challenge_method": "S256",
        }
        return f"{gateway}/authorize?{urlencode(asked)}"


def post(url: str, body: object) -> Any:
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as reply:
        return json.load(reply)


@asynccontextmanager
async def asking(
    folder: Path,
    open_page: OpenPage,
    name: str = "Editor",
    servers: dict[str, Any] | None = None,
) -> AsyncIterator[tuple[ServedGateway, Client, str]]:
    """Serve a gateway and a client that asks for access; yield the address to open."""
    apps: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps["client"](scope, receive, send)

    async with (
        served(app) as url,
        gateway_with_chat(folder, open_page, servers=servers, auth={"oauth": {}}) as gateway,
    ):
        client = apps["client"] = Client(url)
        yield gateway, client, await client.register(gateway.url, name)


async def test_person_decides_by_keyboard_in_a_narrow_window(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with asking(tmp_path, open_page) as (gateway, client, url):
        page = await open_page(url, width=320, height=700)
        await expect(page.get_by_text('A program that calls itself "Editor"')).to_be_visible()
        assert await violations(page) == []
        await page.get_by_label("API key").fill(await gateway.key("anna"))
        await page.keyboard.press("Enter")

        title = page.get_by_role("heading", name='calls itself "Editor" wants to use')
        await expect(title).to_be_visible()
        await expect(title).to_contain_text("as user:anna")
        await expect(page.get_by_text("allow only what you have just started")).to_be_visible()
        allow = page.get_by_role("button", name="Allow")
        await expect(allow).to_be_enabled()
        await expect(title).to_be_focused()
        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        assert await violations(page, rules=["color-contrast"]) == []
        assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
        for _ in range(10):
            await page.keyboard.press("Tab")
            if await allow.evaluate("(each) => each === document.activeElement"):
                break
        await page.keyboard.press("Enter")
        await expect(page).to_have_title("Client")
        (answer,) = client.answers
        assert answer["state"] == "s1"
        assert answer["iss"] == gateway.url
        assert answer["code"]


async def test_person_who_has_signed_in_denies_with_one_click(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with asking(tmp_path, open_page, "<b>Editor</b>") as (gateway, client, url):
        page = await open_page(url)
        await page.get_by_label("API key").fill(await gateway.key("anna"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Deny")).to_be_visible()
        await page.goto(url)
        await expect(page.get_by_text('calls itself "<b>Editor</b>" wants')).to_be_visible()
        await page.get_by_role("button", name="Deny").click()
        await expect(page).to_have_title("Client")
        assert client.answers[0]["error"] == "access_denied"


async def test_wrong_key_is_said_and_the_page_stays(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with asking(tmp_path, open_page) as (_, client, url):
        page = await open_page(url)
        await page.get_by_label("API key").fill("ilk_wrong")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("alert")).to_have_text("the credential is not valid")
        assert client.answers == []


async def test_refused_request_redirects_nowhere_and_says_the_way_out(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("400")
    async with asking(tmp_path, open_page) as (_, client, url):
        other = urlencode({"redirect_uri": "https://evil.example/callback"})
        query = urlsplit(url).query
        kept = "&".join(each for each in query.split("&") if not each.startswith("redirect_uri="))
        page = await open_page(f"{url.partition('?')[0]}?{kept}&{other}")
        await expect(page.get_by_text("Nothing was sent there.")).to_be_visible()
        assert await violations(page) == []
        assert client.answers == []


async def test_person_sees_what_is_allowed_and_ends_it(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with asking(tmp_path, open_page) as (gateway, client, url):
        page = await open_page(url)
        await page.get_by_label("API key").fill(await gateway.key("anna"))
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Allow").click()
        await expect(page).to_have_title("Client")
        form = {
            "grant_type": "authorization_code",
            "code": client.answers[0]["code"],
            "client_id": client.id,
            "redirect_uri": client.url,
            "code_verifier": client.verifier,
        }
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        sent = Request(f"{gateway.url}/token", urlencode(form).encode(), kind)
        assert await in_thread(lambda: urlopen(sent).status) == 200

        await page.goto(f"{gateway.url}/clients")
        row = page.get_by_role("listitem").filter(has_text='calls itself "Editor"')
        await expect(row).to_be_visible()
        assert await violations(page) == []
        await row.get_by_role("button", name="Disconnect").click()
        await expect(page.get_by_text("You have not allowed any client.")).to_be_visible()


async def test_person_connects_a_server_and_comes_back_to_the_same_request(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with (
        serving_notes() as notes,
        asking(tmp_path, open_page, servers={"notes": notes.entry()}) as (gateway, client, url),
    ):
        page = await open_page(url)
        await page.get_by_label("API key").fill(await gateway.key("anna"))
        await page.keyboard.press("Enter")
        connect = page.get_by_role("button", name="Connect notes")
        await expect(connect).to_be_visible()
        assert await violations(page) == []
        await connect.click()
        await expect(connect).to_be_hidden()
        await expect(page).to_have_url(url)
        await page.get_by_role("button", name="Allow").click()
        await expect(page).to_have_title("Client")
        assert client.answers[0]["code"]
