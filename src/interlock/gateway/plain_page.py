"""Small pages that need no files: where a login begins, ends or fails."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from http.cookies import CookieError, SimpleCookie

from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header

HTML = b"text/html; charset=utf-8"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 32rem; margin: 4rem auto; padding: 0 1rem }
body { background: #f6f6f3; color: #1a1c1e }
a { color: #0a5f70 }
label, output { display: block; margin: 1rem 0 }
input, button { font: inherit; padding: .4rem .8rem }
input { width: 100%; box-sizing: border-box }
@media (prefers-color-scheme: dark) {
  body { background: #121416; color: #e9eaeb }
  a { color: #63c9da }
}
"""


def plain_page(title: str, body: str, script: str = "") -> str:
    """Return a page.

    Args:
        title: As text.
        body: As HTML.
        script: Its script, which `headers_for` must allow; "" for none.
    """
    code = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style>'
        f"<main><h1>{escape(title)}</h1>{body}</main>{code}</html>"
    )


def headers_for(script: str = "") -> tuple[Header, ...]:
    """Return the headers of a page: only its own style and script may be used."""
    scripts = f"script-src {_hash(script)}; connect-src 'self'; " if script else ""
    policy = (
        f"default-src 'none'; {scripts}style-src {_hash(_STYLE)}; "
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


__all__ = ["HTML", "cookies_of", "headers_for", "plain_page"]
