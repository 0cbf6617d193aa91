"""The pages where a user's login to a server begins and ends."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from urllib.parse import parse_qsl

from interlock.errors import InterlockError, InvalidArguments
from interlock.gateway.logins.connect import CALLBACK_PATH, Logins
from interlock.gateway.logins.plain_page import HTML, cookies_of, headers_for, plain_page
from interlock.gateway.logins.vault import CONNECT_PATH
from interlock.server.http.guard import Guard
from interlock.server.http.http_options import AsgiApp
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header, HttpRefusal, Receive, Scope, Send, refuse, reply
from interlock.text.quoting import clip

MAX_QUERY = 16_384  # bytes of a callback's query
_SCRIPT = """
const form = document.querySelector("form");
const said = document.querySelector("output");
const base = location.pathname.slice(0, location.pathname.indexOf("/connect/"));
const stored = "interlock-key" + base;

async function post(path, body) {
  const headers = {"Content-Type": "application/json"};
  const pageKey = localStorage.getItem(stored);
  if (pageKey && path !== "/api/login") headers["X-Interlock-Key"] = pageKey;
  const reply = await fetch(base + path, {method: "POST", headers, body: JSON.stringify(body)});
  return [reply, await reply.json()];
}

async function connect() {
  const key = form.elements.key.value.trim();
  if (key) {
    const [reply, session] = await post("/api/login", {key});
    if (!reply.ok) return session.detail;
    localStorage.setItem(stored, session.pageKey);
  }
  const values = {};
  for (const field of form.querySelectorAll("[data-name]")) {
    if (field.value) values[field.dataset.name] = field.value;
  }
  const to = new URLSearchParams(location.search).get("to") || "";
  const [reply, answer] = await post(location.pathname.slice(base.length), {values, to});
  if (!reply.ok) return answer.detail;
  form.reset();
  const next = answer.location || answer.to;
  if (next) location.assign(next);
  return next ? "" : "Connected. You can close this page.";
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  said.textContent = "";
  try {
    said.textContent = await connect();
  } catch {
    said.textContent = "The gateway cannot be reached; try again.";
  }
});
"""


class ConnectPages:
    """An ASGI application that serves the pages and JSON routes of logins to servers.

    Args:
        logins: Begins and completes the users' logins.
        api: The application that serves the JSON routes.
        hosts: The allowed values of the `Host` header; see `Guard`.
    """

    def __init__(self, logins: Logins, api: AsgiApp, hosts: Sequence[str] | None) -> None:
        self._logins = logins
        self._api = api
        # Not `PageGuard`: the callback comes from another site, which `PageGuard` would refuse.
        self._guard = Guard(hosts, (), ())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        is_callback = path == CALLBACK_PATH or path.startswith(f"{CALLBACK_PATH}/")
        is_page = scope["type"] == "http" and scope["method"] == "GET"
        if not is_page or not (is_callback or path.startswith(CONNECT_PATH)):
            await self._api(scope, receive, send)
            return
        request = HttpRequest(scope, receive, send)
        try:
            self._guard.check(request)
            await (self._end(request) if is_callback else self._begin(request))
        except HttpRefusal as refusal:
            await refuse(send, refusal)

    async def _begin(self, request: HttpRequest) -> None:
        id = request.scope["path"].removeprefix(CONNECT_PATH)
        try:
            _, server = self._logins.vault.opened_link(id)
        except InvalidArguments:
            text = "This link is no longer valid. Call the tool again for a new one."
            await _answer(request, 404, plain_page("Connect", f"<p>{text}</p>"))
            return
        page = plain_page(f"Connect {server}", self._form(server), _SCRIPT)
        await _answer(request, 200, page)

    def _form(self, server: str) -> str:
        needs = self._logins.needs(server)
        after = " Next you log in at the server's own page." if needs.login else ""
        fields = "".join(
            f'<label>{escape(name)}<input type="password" data-name="{escape(name)}"'
            ' autocomplete="off" required></label>'
            for name in sorted(needs.names)
        )
        return (
            f"<p>The server <b>{escape(server)}</b> needs your account there. "
            "Your key for this gateway shows that you are the user who called it; the server "
            f"never gets it.{after}</p><form><label>Your key, unless you are signed in here"
            f'<input type="password" name="key" autocomplete="off"></label>{fields}'
            "<button>Connect</button></form><output></output>"
        )

    async def _end(self, request: HttpRequest) -> None:
        raw: bytes = request.scope.get("query_string", b"")
        query = dict(parse_qsl(raw[:MAX_QUERY].decode("latin-1"), keep_blank_values=True))
        over = self._logins.ended(query.get("state", ""))
        try:
            server, to = await self._logins.finish(
                request.scope["path"], query, cookies_of(request)
            )
        except InterlockError as error:
            page = plain_page("Not connected", f"<p>{escape(clip(str(error)))}</p>")
            await _answer(request, 400, page, over)
            return
        if to:
            headers = [*headers_for(), over, (b"location", to.encode("latin-1", "replace"))]
            await reply(request.send, 302, b"", headers, kind=HTML)
            return
        text = f"<p>You are connected to <b>{escape(server)}</b>. You can close this page.</p>"
        await _answer(request, 200, plain_page("Connected", text), over)


async def _answer(request: HttpRequest, status: int, page: str, *headers: Header) -> None:
    every = [*headers_for(_SCRIPT), *headers]
    await reply(request.send, status, page.encode(), every, kind=HTML)
