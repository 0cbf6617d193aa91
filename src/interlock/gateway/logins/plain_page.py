"""Self-contained HTML pages for logins, which need no other files."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from http.cookies import CookieError, SimpleCookie

from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header

HTML = b"text/html; charset=utf-8"
# Without an icon, browsers request /favicon.ico.
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 24 24' fill='none'"
    " stroke='%230a8096' stroke-width='2.5' stroke-linecap='round' stroke-linejoin='round'%3E"
    "%3Cpath d='M13 3H8a5 5 0 0 0-5 5v8a5 5 0 0 0 5 5h5"
    "M11 21h5a5 5 0 0 0 5-5V8a5 5 0 0 0-5-5M9 12h6'/%3E%3C/svg%3E"
)
_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.6 system-ui, sans-serif; margin: 0; padding: 1rem }
body { background: #f6f6f3; color: #1a1c1e }
main { max-width: 26rem; margin: 12vh auto 0; padding: 1.5rem; border-radius: 10px }
main { background: #fff; border: 1px solid #dfdfd9; overflow-wrap: anywhere }
h1 { font-size: 1.2rem; line-height: 1.3; margin: 0 0 1rem }
h1:focus { outline: none }
a { color: #0a5f70 }
label, output { display: block }
label, output, details { margin: 1rem 0 }
output:empty, p:empty { display: none }
.problem { border-left: 4px solid #b3261e; padding-left: .6rem }
input, button, .button { font: inherit; padding: .4rem .8rem; border-radius: 6px }
input { width: 100%; box-sizing: border-box; border: 1px solid #85897f }
input[type="checkbox"] { width: auto; flex: none; margin: .25rem 0 0 }
fieldset { border: 1px solid #85897f; border-radius: 6px; margin: 1rem 0; padding: 0 1rem }
summary { cursor: pointer }
ul { padding-left: 1.2rem }
.choice, .rows li, .buttons { display: flex; align-items: start; gap: .6rem }
.buttons, .rows li { flex-wrap: wrap; margin: 1rem 0 }
.rows { list-style: none; padding: 0 }
.rows span { flex: 1 12rem }
button, .button { border: 1px solid #0a5f70; background: #0a5f70; color: #fff }
button, .button { box-sizing: border-box; font-weight: 500; min-height: 44px }
.button { display: inline-flex; align-items: center; text-decoration: none }
button.other { background: none; color: inherit }
button:disabled { opacity: .5 }
@media (prefers-color-scheme: dark) {
  body { background: #121416; color: #e9eaeb }
  main { background: #191c1f; border-color: #2b2f33 }
  a { color: #63c9da }
  .problem { border-color: #f2857d }
  input { background: #0d0f10; border-color: #71777d }
  button, .button { background: #63c9da; border-color: #63c9da; color: #06252b }
  button.other { background: none; color: inherit }
}
"""


def plain_page(title: str, body: str, script: str = "") -> str:
    """Return an HTML page with the common style.

    Args:
        title: The title, as plain text.
        body: The content, as HTML.
        script: The page's script, which must also be passed to `headers_for`; "" for no script.
    """
    code = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><link rel="icon" href="{_ICON}">'
        f"<style>{_STYLE}</style>"
        f"<main><h1>{escape(title)}</h1>{body}</main>{code}</html>"
    )


def headers_for(script: str = "") -> tuple[Header, ...]:
    """Return the security headers for a page, which allow only its own style and script."""
    scripts = f"script-src {_hash(script)}; connect-src 'self'; " if script else ""
    policy = (
        f"default-src 'none'; {scripts}style-src {_hash(_STYLE)}; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return (
        (b"content-security-policy", policy.encode()),
        (b"referrer-policy", b"no-referrer"),
        (b"x-content-type-options", b"nosniff"),
        (b"cache-control", b"no-store"),
    )


def cookies_of(request: HttpRequest) -> dict[str, str]:
    """Return the cookies of a request."""
    try:
        found = SimpleCookie(request.header(b"cookie") or "")
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def path_here(wanted: str) -> str:
    """Return a path of these pages; "/" if the wanted URL is on another site."""
    is_path = wanted.startswith("/") and not wanted.startswith(("//", "/\\", "/login"))
    return wanted if is_path and wanted.isprintable() else "/"
