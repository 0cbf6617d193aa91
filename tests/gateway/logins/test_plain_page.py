"""Small pages: nothing that is shown becomes markup, and nothing but their own code runs."""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256

from interlock.gateway.logins.plain_page import headers_for, plain_page


def policy_of(script: str = "") -> str:
    return dict(headers_for(script))[b"content-security-policy"].decode()


def digest(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def test_a_title_is_text_and_never_markup():
    page = plain_page("<script>alert(1)</script>", "<p>done</p>")

    assert "<script>" not in page
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2
    assert "<p>done</p>" in page


def test_only_the_style_and_script_of_the_page_itself_are_allowed():
    page, script = plain_page("t", "", "go()"), "go()"
    style = re.search("<style>(.*)</style>", page, re.DOTALL)

    assert style is not None
    assert digest(style[1]) in policy_of()
    assert digest(script) in policy_of(script)
    assert "script-src" not in policy_of()
    assert "default-src 'none'" in policy_of()
    assert dict(headers_for())[b"cache-control"] == b"no-store"
