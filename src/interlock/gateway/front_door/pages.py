"""The page on which a person signs in and decides, and the page of a refused request.

The page holds no state: its script reads the query of its own address, and asks the JSON routes of
`consent` what to show. Names of clients are set as text, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from interlock.gateway.logins.plain_page import plain_page
from interlock.text.quoting import visible
from interlock.types import JsonObject

DELAY = 500  # milliseconds after which Allow can be pressed
SCRIPT = """
const data = JSON.parse(document.getElementById("data").textContent);
const query = location.search.slice(1);
const said = document.getElementById("said");
const signIn = document.getElementById("sign-in");
const decision = document.getElementById("decision");
const form = signIn.querySelector("form");
let shown;

async function post(path, body) {
  const headers = {"Content-Type": "application/json"};
  const pageKey = localStorage.getItem("interlock-key");
  if (pageKey && path !== "/api/login") headers["X-Interlock-Key"] = pageKey;
  const reply = await fetch(path, {method: "POST", headers, body: JSON.stringify(body)});
  return [reply, await reply.json()];
}

function say(text) { said.textContent = text; }

function part(id, text) { document.getElementById(id).textContent = text; }

function list(id, names) {
  const place = document.getElementById(id);
  place.replaceChildren(...names.map((name) => {
    const item = document.createElement("li");
    item.textContent = name;
    return item;
  }));
}

function show(asked) {
  shown = asked;
  const {client, tools} = asked;
  const who = client.verified || `A program that calls itself "${client.name}"`;
  const names = asked.names.length ? ` (${asked.names.join(", ")})` : "";
  document.title = `Allow ${client.verified || client.name}?`;
  part("title", `${who} wants to use ${location.host} as ${asked.user}${names}`);
  part("place", client.local
    ? "The answer goes to a program on this computer: allow only what you have just started."
    : `The answer goes to ${client.redirect}.`);
  part("before", asked.before ? "You have allowed this client before." : "");
  part("count", `It can use ${tools.all} tools; ${tools.write} of them can change something.`);
  list("writes", tools.writes);
  list("names", tools.names.filter((name) => !tools.writes.includes(name)));
  const missing = document.getElementById("connect");
  missing.hidden = !asked.connect.length;
  missing.querySelector("div").replaceChildren(...asked.connect.map((each) => {
    const button = document.createElement("button");
    Object.assign(button, {type: "button", textContent: `Connect ${each.server}`});
    button.addEventListener("click", () => attempt(() => connect(each)));
    return button;
  }));
  const place = document.getElementById("scopes");
  place.replaceChildren(...asked.scopes.map((scope) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, {type: "checkbox", checked: true, value: scope});
    label.append(box, ` ${scope}`);
    return label;
  }));
  signIn.hidden = true;
  decision.hidden = false;
  document.getElementById("title").focus();
  setTimeout(() => { document.getElementById("allow").disabled = false; }, data.delay);
}

async function load() {
  const [reply, answer] = await post("/api/authorize", {query});
  if (reply.ok) return show(answer);
  decision.hidden = true;
  if (reply.status === 401) {
    signIn.hidden = false;
    return;
  }
  say(answer.detail);
}

async function decide(allow) {
  const boxes = [...document.querySelectorAll("#scopes input")];
  const scopes = boxes.filter((box) => box.checked).map((box) => box.value);
  const body = {query, seen: shown.seen, allow, scopes};
  const [reply, answer] = await post("/api/authorize/decide", body);
  if (reply.ok) {
    say(allow ? "Allowed. You can close this page." : "Denied. You can close this page.");
    decision.hidden = true;
    location.assign(answer.location);
    return;
  }
  say(answer.detail);
  if (reply.status === 409 || reply.status === 401) await load();
}

async function connect({url, values}) {
  const {pathname} = new URL(url);
  const to = location.pathname + location.search;
  if (values) return location.assign(`${pathname}?to=${encodeURIComponent(to)}`);
  const [reply, answer] = await post(pathname, {to});
  if (reply.ok) return location.assign(answer.location);
  say(answer.detail);
}

async function attempt(work) {
  say("");
  try { await work(); } catch { say("The gateway cannot be reached; try again."); }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const [reply, session] = await post("/api/login", {key: form.elements.key.value.trim()});
    if (!reply.ok) return say(session.detail);
    localStorage.setItem("interlock-key", session.pageKey);
    form.reset();
    await load();
  });
});
document.getElementById("allow").addEventListener("click", () => attempt(() => decide(true)));
document.getElementById("deny").addEventListener("click", () => attempt(() => decide(false)));
attempt(load);
"""


OWN_SCRIPT = """
const said = document.getElementById("said");
const form = document.querySelector("form");
const place = document.getElementById("clients");

async function send(method, path, body) {
  const headers = {"Content-Type": "application/json"};
  const pageKey = localStorage.getItem("interlock-key");
  if (pageKey && path !== "/api/login") headers["X-Interlock-Key"] = pageKey;
  return fetch(path, {method, headers, body: body && JSON.stringify(body)});
}

async function load() {
  const reply = await send("GET", "/me/clients");
  form.hidden = reply.status !== 401;
  if (!reply.ok) return;
  const {clients} = await reply.json();
  said.textContent = clients.length ? "" : "You have not allowed any client.";
  place.replaceChildren(...clients.map((each) => {
    const item = document.createElement("li");
    const name = each.verified || `A program that calls itself "${each.name}"`;
    const button = document.createElement("button");
    button.textContent = "Disconnect";
    button.setAttribute("aria-label", `Disconnect ${each.verified || each.name}`);
    button.addEventListener("click", () => attempt(async () => {
      await send("DELETE", `/me/clients/${each.id}`);
      await load();
    }));
    item.append(`${name}, last used ${each.lastUsed.slice(0, 10)} `, button);
    return item;
  }));
}

async function attempt(work) {
  try { await work(); } catch { said.textContent = "The gateway cannot be reached; try again."; }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const reply = await send("POST", "/api/login", {key: form.elements.key.value.trim()});
    const session = await reply.json();
    if (!reply.ok) { said.textContent = session.detail; return; }
    localStorage.setItem("interlock-key", session.pageKey);
    form.reset();
    await load();
  });
});
attempt(load);
"""


def own_page(issuers: Sequence[str], begin: Sequence[str]) -> bytes:
    """Return the page of what a person has allowed, where the person can end it.

    Args:
        issuers: The names of the issuers that people can sign in at.
        begin: The address at which the login of each issuer begins.
    """
    body = f"""
<p>These clients can use the tools of this gateway for you.</p>
<output id="said" role="alert"></output>
<ul id="clients"></ul>
<form hidden>{_sign_in(issuers, begin)}</form>
"""
    return plain_page("Clients you have allowed", body, OWN_SCRIPT).encode()


def _sign_in(issuers: Sequence[str], begin: Sequence[str]) -> str:
    """Return the links to the issuers, and the field for a key."""
    links = "".join(
        f'<p><a class="button" href="{escape(url)}">Sign in with {escape(each)}</a></p>'
        for each, url in zip(issuers, begin, strict=True)
    )
    return (
        f'{links}<label>API key <input name="key" type="password" autocomplete="off" required>'
        "</label><button>Sign in with this key</button>"
    )


def consent_page(client: JsonObject, issuers: Sequence[str], begin: Sequence[str]) -> bytes:
    """Return the page for a checked request.

    Args:
        client: The client, as `Consent.preview` returns it.
        issuers: The names of the issuers that people can sign in at.
        begin: The address at which the login of each issuer begins.
    """
    name = client["verified"] or f'A program that calls itself "{client["name"]}"'
    place = "a program on this computer" if client["local"] else client["redirect"]
    data = json.dumps({"delay": DELAY}).replace("<", "\\u003c")
    body = f"""
<noscript><p>This page needs JavaScript to show what you would allow.</p></noscript>
<output id="said" role="alert"></output>
<section id="sign-in" hidden>
<p><b>{escape(name)}</b> asks for access. Its answer goes to {escape(str(place))}.
First sign in; then you decide.</p>
<form>{_sign_in(issuers, begin)}</form>
</section>
<section id="decision" hidden>
<h2 id="title" tabindex="-1"></h2>
<p id="place"></p><p id="before"></p><p id="count"></p>
<details><summary>Tools that can change something</summary><ul id="writes"></ul></details>
<details><summary>Tools that only read</summary><ul id="names"></ul></details>
<section id="connect" hidden><p>These servers need your own account. You can connect them now, or
later, when a tool asks for it.</p><div></div></section>
<fieldset><legend>Allowed scopes</legend><div id="scopes"></div></fieldset>
<p><button id="allow" type="button" disabled>Allow</button>
<button id="deny" type="button">Deny</button></p>
</section>
<script type="application/json" id="data">{data}</script>
"""
    return plain_page("Access to your tools", body, SCRIPT).encode()


def refused_page(text: str) -> bytes:
    """Return the page for a request that is refused, and that redirects nowhere."""
    body = (
        f"<p>{escape(visible(text))}</p>"
        "<p>Go back to the program that sent you here, and connect it again. If this page came"
        " unasked, close it: nothing was allowed.</p>"
    )
    return plain_page("This request cannot be granted", body).encode()
