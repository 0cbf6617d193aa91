"""The pages on which a person signs in and decides about OAuth clients, in Chromium and Firefox."""

from __future__ import annotations

import asyncio
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

import pytest
from playwright.async_api import Browser, Page, expect

from interlock.aio import in_thread
from interlock.gateway.front_door import consent
from tests.browser.conftest import COLOURS, PATIENCE, OpenPage, Watch, served, violations
from tests.browser.test_gateway_chat import ServedGateway, gateway_with_chat
from tests.gateway.notes import serving_notes
from tests.servers.certificate_authority import CertificateAuthority

ISSUER = {"issuer": "https://id.example.com", "clientId": "interlock", "clientSecret": "secret"}
# What Cursor registers for its app: https://github.com/erp-mafia/accounted/pull/2225
CURSOR = "cursor://anysphere.cursor-mcp/oauth/callback"


@pytest.fixture(params=["chromium_browser", "firefox_browser"])
def browser(request: pytest.FixtureRequest) -> Browser:
    """Each of the two browsers."""
    launched: Browser = request.getfixturevalue(request.param)
    return launched


class Client:
    """A program that asks for access.

    Attributes:
        url: Where the answers go: to this program on the person's computer, unless it is changed.
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

    async def redeem(self, gateway: str) -> Any:
        """Return what the token endpoint answers for the code of the last answer."""
        form = {
            "grant_type": "authorization_code",
            "code": self.answers[-1]["code"],
            "client_id": self.id,
            "redirect_uri": self.url,
            "code_verifier": self.verifier,
        }
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        sent = Request(f"{gateway}/token", urlencode(form).encode(), kind)
        return await in_thread(lambda: json.load(urlopen(sent)))


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
    **auth: Any,
) -> AsyncIterator[tuple[ServedGateway, Client, str]]:
    """Serve a gateway and a client that asks for access; yield the address to open."""
    apps: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await apps["client"](scope, receive, send)

    async with (
        served(app) as url,
        gateway_with_chat(
            folder, open_page, servers=servers, auth={"oauth": {}, **auth}
        ) as gateway,
    ):
        client = apps["client"] = Client(url)
        yield gateway, client, await client.register(gateway.url, name)


async def problems_of_looks(page: Page) -> list[str]:
    """Return what axe finds in both colour schemes, and whether a page is too wide."""
    found = await violations(page)
    if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
        found.append("wider than the window")
    await page.emulate_media(color_scheme="dark")
    found += await violations(page, rules=COLOURS)
    await page.emulate_media(color_scheme="light")
    return found


async def press(page: Page, name: str, key: str = "Enter", role: Any = "button") -> None:
    """Move to a control by the keyboard, and press a key there."""
    control = page.get_by_role(role, name=name, exact=True)
    await expect(control).to_be_enabled()
    for _ in range(20):
        if await control.evaluate("(each) => each === document.activeElement"):
            break
        await page.keyboard.press("Tab")
    await expect(control).to_be_focused()
    await page.keyboard.press(key)


async def test_person_decides_by_keyboard_in_a_narrow_window(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("401")
    async with asking(tmp_path, open_page, issuers=[ISSUER]) as (gateway, client, url):
        page = await open_page(url, width=320, height=700)
        await expect(page.get_by_text('A program that calls itself "Editor"')).to_be_visible()
        assert await problems_of_looks(page) == []
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Sign in with id.example.com")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.type(await gateway.key("anna", "mcp:read", "mcp:desk:find"))
        await page.keyboard.press("Enter")

        title = page.get_by_role("heading", name='calls itself "Editor" wants to use')
        await expect(title).to_be_visible()
        await expect(title).to_contain_text("as user:anna")
        await expect(page.get_by_text("Allow only what you have just started")).to_be_visible()
        await expect(title).to_be_focused()
        assert await problems_of_looks(page) == []
        await press(page, "all tools that only read (mcp:read)", "Space", "checkbox")
        allow = page.get_by_role("button", name="Allow")
        await expect(allow).to_be_enabled()
        # A page in front of this one has closed itself between the clicks of a double-click.
        await page.evaluate("window.dispatchEvent(new Event('focus')), allow.click()")
        await expect(allow).to_be_disabled(timeout=1)
        assert client.answers == []
        await press(page, "Allow")
        await expect(page).to_have_title("Client")
        (answer,) = client.answers
        assert answer["state"] == "s1"
        assert answer["iss"] == gateway.url
        assert (await client.redeem(gateway.url))["scope"] == "mcp:desk:find"


async def test_person_who_has_signed_in_looks_at_the_tools_and_denies_with_another_account(
    open_page: OpenPage, tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch
):
    watch.expected.append("401")
    monkeypatch.setattr(consent, "MAX_LISTED", 1)
    async with asking(tmp_path, open_page, "<b>Editor</b>") as (gateway, client, url):
        page = await open_page(url)
        await page.get_by_label("API key").fill(await gateway.key("anna"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Deny")).to_be_visible()
        await page.goto(url)
        await expect(page.get_by_text('calls itself "<b>Editor</b>" wants')).to_be_visible()
        await page.get_by_text("Tools that can change something: 4").click()
        await expect(page.get_by_role("listitem").first).to_have_text("desk:find")
        await expect(page.get_by_text("and 3 more")).to_be_visible()
        await expect(page.get_by_text("Tools that only read")).to_be_hidden()
        await press(page, "Use another account")
        await expect(page.get_by_label("API key")).to_be_focused()
        await page.keyboard.type(await gateway.key("ben"))
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="as user:ben")).to_be_visible()
        await press(page, "Deny")
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
        await expect(page.get_by_role("alert")).to_have_text("The credential is not valid.")
        assert client.answers == []


async def test_refused_request_redirects_nowhere_and_says_the_way_out(
    open_page: OpenPage, tmp_path: Path, watch: Watch
):
    watch.expected.append("400")
    async with asking(tmp_path, open_page) as (_, client, url):
        other = urlencode({"redirect_uri": "https://evil.example/callback"})
        query = urlsplit(url).query
        kept = "&".join(each for each in query.split("&") if not each.startswith("redirect_uri="))
        page = await open_page(f"{url.partition('?')[0]}?{kept}&{other}", width=320)
        await expect(page.get_by_text("Nothing was sent there.")).to_be_visible()
        assert await problems_of_looks(page) == []
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
        await client.redeem(gateway.url)

        await page.set_viewport_size({"width": 320, "height": 700})
        await page.goto(f"{gateway.url}/clients")
        row = page.get_by_role("listitem").filter(has_text='calls itself "Editor"')
        await expect(row).to_be_visible()
        assert await problems_of_looks(page) == []
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
        assert await problems_of_looks(page) == []
        await connect.click()
        await expect(connect).to_be_hidden()
        await expect(page).to_have_url(url)
        await page.get_by_role("button", name="Allow").click()
        await expect(page).to_have_title("Client")
        assert client.answers[0]["code"]


@asynccontextmanager
async def sending_on(folder: Path, url: str) -> AsyncIterator[str]:
    """Serve an https page that redirects to `url` with its query, as Claude.ai does to its app."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        query = urlsplit(request.split()[1]).query
        head = f"HTTP/1.1 302 Found\r\nLocation: {url}?{query}\r\nContent-Length: 0\r\n\r\n"
        writer.write(head.encode())
        await writer.drain()
        writer.close()

    tls = CertificateAuthority(folder).server("localhost")
    async with await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls) as server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"


async def opened_by_app(page: Page, home: Path) -> str:
    """Return the next URL that a browser hands over to an app."""
    if page.context.browser and page.context.browser.browser_type.name == "chromium":
        # This Chromium opens no apps, but it requests the URL as if it did.
        sent: asyncio.Queue[str] = asyncio.Queue()
        session = await page.context.new_cdp_session(page)
        session.on("Network.requestWillBeSent", lambda each: sent.put_nowait(each["documentURL"]))
        await session.send("Network.enable")
        while (url := await sent.get()).startswith("http"):
            pass
        return url
    opened = home / "opened"
    async with asyncio.timeout(PATIENCE / 1_000):
        while not opened.exists():  # noqa: ASYNC110 - a file has no event
            await asyncio.sleep(0.01)
    url = opened.read_text()
    opened.unlink()
    return url


@pytest.mark.parametrize("is_direct", [True, False], ids=["cursor", "https_to_claude"])
async def test_allow_reaches_an_app_directly_and_by_an_https_page(
    open_page: OpenPage, tmp_path: Path, watch: Watch, home: Path, *, is_direct: bool
):
    watch.expected += ["401", "400", "request to elsewhere: c"]
    async with (
        sending_on(tmp_path, "claude://claude.ai/mcp-auth-callback") as https,
        asking(tmp_path, open_page) as (gateway, client, _),
    ):
        client.url = CURSOR if is_direct else https
        url = await client.register(gateway.url, "An app")
        refused = url.replace("callback", "elsewhere")
        page = await open_page(refused, ignore_https_errors=True)
        await expect(page.get_by_text("Nothing was sent there.")).to_be_visible()
        await page.goto(url)
        await page.get_by_label("API key").fill(await gateway.key("anna"))
        await page.keyboard.press("Enter")
        place = "the app on this computer that opens cursor: links" if is_direct else "127.0.0.1"
        await expect(page.locator("#place")).to_contain_text(f"The answer goes to {place}.")
        opened = asyncio.create_task(opened_by_app(page, home))
        await press(page, "Allow")
        target, _, query = (await opened).partition("?")
        assert target == (CURSOR if is_direct else "claude://claude.ai/mcp-auth-callback")
        client.answers.append(dict(parse_qsl(query)))
        assert client.answers[0]["state"] == "s1"
        assert (await client.redeem(gateway.url))["access_token"]
