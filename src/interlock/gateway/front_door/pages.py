"""The page on which a person signs in and decides, and the page of a refused request.

The page holds no state: its script reads the query of its own address, and asks the JSON routes of
`consent` what to show. Names of clients are set as text, never as markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape

from interlock.gateway.logins.plain_page import plain_page
from interlock.text.quoting import visible
from interlock.text.urls import split
from interlock.types import JsonObject

TITLE = "Access to your tools"
# Milliseconds after which Allow can be pressed on a page that comes to the front: another page may
# have a person double-click, and disappear with the first click.
DELAY = 500
# Both pages have a form for signing in with a key. `load` shows the page again.
_COMMON = """
const said = document.getElementById("said");
const form = document.querySelector("form");

async function send(method, path, body) {
  const headers = {"Content-Type": "application/json"};
  const pageKey = localStorage.getItem("interlock-key");
  if (pageKey && path !== "/api/login") headers["X-Interlock-Key"] = pageKey;
  return fetch(path, {method, headers, body: body && JSON.stringify(body)});
}

function say(text, kind = "problem") {
  said.className = kind;
  said.textContent = text && text[0].toUpperCase() + text.slice(1).replace(/[^.?!]$/, "$&.");
}

async function attempt(work) {
  say("");
  try { await work(); } catch { say("The gateway cannot be reached; try again."); }
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  attempt(async () => {
    const reply = await send("POST", "/api/login", {key: form.elements.key.value.trim()});
    const session = await reply.json();
    if (!reply.ok) return say(session.detail);
    localStorage.setItem("interlock-key", session.pageKey);
    form.reset();
    await load();
  });
});
"""
SCRIPT = (
    _COMMON
    + """
const data = JSON.parse(document.getElementById("data").textContent);
const query = location.search.slice(1);
const title = document.querySelector("h1");
const signIn = document.getElementById("sign-in");
const decision = document.getElementById("decision");
const allow = document.getElementById("allow");
let shown, locked;

function lock() {
  allow.disabled = true;
  clearTimeout(locked);
  locked = setTimeout(() => { allow.disabled = false; }, data.delay);
}

async function post(path, body) {
  const reply = await send("POST", path, body);
  return [reply, await reply.json()];
}

function part(id, text) { document.getElementById(id).textContent = text; }

// Some of the names are not listed if there are very many.
function list(id, what, names, count) {
  const place = document.getElementById(id);
  place.hidden = !count;
  place.querySelector("summary").textContent = `${what}: ${count}`;
  const rest = count - names.length;
  place.querySelector("ul").replaceChildren(...names.concat(rest ? `and ${rest} more` : []).map(
    (name) => {
      const item = document.createElement("li");
      item.textContent = name;
      return item;
    },
  ));
}

const MEANINGS = {"mcp:*": "all tools", "mcp:read": "all tools that only read"};

function show(asked) {
  shown = asked;
  const {client, tools} = asked;
  const who = client.verified || `A program that calls itself "${client.name}"`;
  const names = asked.names.length ? ` (${asked.names.join(", ")})` : "";
  document.title = `Allow ${client.verified || client.name}?`;
  title.textContent = `${who} wants to use ${location.host} as ${asked.user}${names}`;
  const care = client.local ? " Allow only what you have just started." : "";
  part("place", `The answer goes to ${client.place}.${care}`);
  part("before", asked.before ? "You have allowed this client before." : "");
  part("count", tools.all ? "" : "It can use no tools at present.");
  list("writes", "Tools that can change something", tools.writes, tools.write);
  const reads = tools.names.filter((name) => !tools.writes.includes(name));
  list("reads", "Tools that only read", reads, tools.all - tools.write);
  const missing = document.getElementById("connect");
  missing.hidden = !asked.connect.length;
  missing.querySelector("div").replaceChildren(...asked.connect.map((each) => {
    const button = document.createElement("button");
    const textContent = `Connect ${each.server}`;
    Object.assign(button, {type: "button", className: "other", textContent});
    button.addEventListener("click", () => attempt(() => connect(each)));
    return button;
  }));
  const place = document.getElementById("scopes");
  place.replaceChildren(...asked.scopes.map((scope) => {
    const label = document.createElement("label");
    const box = document.createElement("input");
    Object.assign(box, {type: "checkbox", checked: true, value: scope});
    const text = document.createElement("span");
    const meaning = MEANINGS[scope];
    text.textContent = meaning ? `${meaning} (${scope})` : scope;
    label.className = "choice";
    label.append(box, text);
    return label;
  }));
  signIn.hidden = true;
  decision.hidden = false;
  title.tabIndex = -1;
  title.focus();
  lock();
}

async function load() {
  const [reply, answer] = await post("/api/authorize", {query});
  if (reply.ok) return show(answer);
  // A person who may use nothing can sign in with another account.
  askWho(reply.status === 401 || reply.status === 403);
  if (reply.status !== 401) say(answer.detail);
}

function askWho(isAsked) {
  title.textContent = data.title;
  decision.hidden = true;
  signIn.hidden = !isAsked;
}

async function decide(isAllowed) {
  const boxes = [...document.querySelectorAll("#scopes input")];
  const scopes = boxes.filter((box) => box.checked).map((box) => box.value);
  const body = {query, seen: shown.seen, allow: isAllowed, scopes};
  const [reply, answer] = await post("/api/authorize/decide", body);
  if (reply.ok) {
    title.textContent = isAllowed ? "Allowed" : "Denied";
    say("You can close this page.", "");
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

document.getElementById("other").addEventListener("click", () => {
  askWho(true);
  signIn.querySelector("a, input").focus();
});
window.addEventListener("focus", lock);
allow.addEventListener("click", () => attempt(() => decide(true)));
document.getElementById("deny").addEventListener("click", () => attempt(() => decide(false)));
attempt(load);
"""
)


OWN_SCRIPT = (
    _COMMON
    + """
const place = document.getElementById("clients");

function day(time) {
  return new Date(time).toLocaleString([], {dateStyle: "medium", timeStyle: "short"});
}

async function load() {
  const reply = await send("GET", "/me/clients");
  form.hidden = reply.status !== 401;
  if (!form.hidden) return say("Sign in to see the clients that you have allowed.", "");
  if (!reply.ok) return say((await reply.json()).detail);
  const {clients} = await reply.json();
  const text = "These clients can use the tools of this gateway for you.";
  say(clients.length ? text : "You have not allowed any client.", "");
  place.replaceChildren(...clients.map((each) => {
    const item = document.createElement("li");
    const name = each.verified || `A program that calls itself "${each.name}"`;
    const button = document.createElement("button");
    button.textContent = "Disconnect";
    button.className = "other";
    button.setAttribute("aria-label", `Disconnect ${each.verified || each.name}`);
    button.addEventListener("click", () => attempt(async () => {
      await send("DELETE", `/me/clients/${each.id}`);
      await load();
    }));
    const text = document.createElement("span");
    text.textContent = `${name}: allowed ${day(each.created)}, last used ${day(each.lastUsed)}`;
    item.append(text, button);
    return item;
  }));
}

attempt(load);
"""
)


def own_page(logins: Mapping[str, str]) -> bytes:
    """Return the page of what a person has allowed, where the person can end it.

    Args:
        logins: The addresses that begin a login, by issuer.
    """
    body = f"""
<output id="said" role="alert"></output>
<ul id="clients" class="rows"></ul>
<form hidden>{_sign_in(logins)}</form>
"""
    return plain_page("Clients you have allowed", body, OWN_SCRIPT).encode()


def _sign_in(logins: Mapping[str, str]) -> str:
    """Return the links to the issuers, and the field for a key."""
    links = "".join(
        f'<p><a class="button" href="{escape(url)}">Sign in with '
        f"{escape(split(issuer).netloc)}</a></p>"
        for issuer, url in logins.items()
    )
    return (
        f'{links}<label>API key <input name="key" type="password" autocomplete="off" required>'
        "</label><button>Sign in with this key</button>"
    )


def consent_page(client: JsonObject, logins: Mapping[str, str]) -> bytes:
    """Return the page for a checked request.

    Args:
        client: The client, as `consent.described` returns it.
        logins: The addresses that begin a login, by issuer.
    """
    name = client["verified"] or f'A program that calls itself "{client["name"]}"'
    data = json.dumps({"delay": DELAY, "title": TITLE})
    body = f"""
<noscript><p>This page needs JavaScript to show what you would allow.</p></noscript>
<output id="said" role="alert"></output>
<section id="sign-in" hidden>
<p><b>{escape(name)}</b> asks for access. The answer goes to {escape(client["place"])}.
First sign in; then you decide.</p>
<form>{_sign_in(logins)}</form>
</section>
<section id="decision" hidden>
<p id="place"></p><p id="before"></p><p id="count"></p>
<details id="writes"><summary></summary><ul></ul></details>
<details id="reads"><summary></summary><ul></ul></details>
<section id="connect" hidden><p>These servers need your own account. You can connect them now, or
later, when a tool asks for it.</p><div class="buttons"></div></section>
<fieldset><legend>It may use</legend><div id="scopes"></div></fieldset>
<div class="buttons"><button id="allow" type="button" disabled>Allow</button>
<button id="deny" type="button" class="other">Deny</button>
<button id="other" type="button" class="other">Use another account</button></div>
</section>
<script type="application/json" id="data">{data}</script>
"""
    return plain_page(TITLE, body, SCRIPT).encode()


def refused_page(text: str) -> bytes:
    """Return the page for a request that is refused, and that redirects nowhere."""
    sentence = f"{text[:1].upper()}{text[1:]}".rstrip(".")
    body = (
        f"<p>{escape(visible(sentence))}.</p>"
        "<p>Go back to the program that sent you here, and connect it again. If this page came"
        " unasked, close it: nothing was allowed.</p>"
    )
    return plain_page("This request cannot be granted", body).encode()
