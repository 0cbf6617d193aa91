"""URLs, odd ones above all: two of the functions decide where credentials are sent."""

from __future__ import annotations

import pytest

from interlock.text import urls
from tests.support.rows import each_row


@each_row(
    ("url", "origin", "display"),
    [
        ("https://a.example/x", "https://a.example", "https://a.example/x"),
        ("HTTPS://A.Example/X", "https://a.example", "https://A.Example/X"),
        ("https://a.example:443/", "https://a.example", "https://a.example:443/"),
        ("http://a.example:443", "http://a.example:443", "http://a.example:443"),
        ("http://a.example:80", "http://a.example", "http://a.example:80"),
        ("https://a.example:/x", "https://a.example", "https://a.example:/x"),
        ("https://a.example./", "https://a.example.", "https://a.example./"),
        (
            "https://[2001:DB8::1]:8443/",
            "https://[2001:db8::1]:8443",
            "https://[2001:DB8::1]:8443/",
        ),
        ("https://me:secret@a.example/", "https://a.example", "https://a.example/"),
        ("https://b.example@a.example/", "https://a.example", "https://a.example/"),
        ("https://a.example/@me?key=secret#x", "https://a.example", "https://a.example/@me"),
        ("https://ä.example/", "https://ä.example", "https://ä.example/"),
        ("https://a.example:0/", "https://a.example:0", "https://a.example:0/"),
        ("//a.example/x", "://a.example", "://a.example/x"),
        ("https://a.example/\n\tx", "https://a.example", "https://a.example/x"),
    ],
)
def test_origin_and_display_of_a_url_with_a_host(url: str, origin: str, display: str):
    assert (urls.origin(url), urls.display(url)) == (origin, display)
    assert urls.split(url).hostname


@each_row(
    ("url", "display"),
    [
        ("", "''"),
        ("/x?key=secret", "'/x'"),
        ("a.example:443#secret", "'a.example:443'"),
        ("https:///x", "'https:///x'"),
        ("https://", "'https://'"),
        ("https://[::1/x", "'https://[::1/x'"),
        ("https://a.example:99999/", "'https://a.example:99999/'"),
        ("https://a.example:b/", "'https://a.example:b/'"),
        ("https://a..example/", "'https://a..example/'"),
        (f"https://{'a' * 80}.example/", f"'https://{'a' * 72}…'"),
        ("https://me:secret@[::1/", "a URL that cannot be read"),
        ("https://a.example\\@b.example/", "a URL that cannot be read"),
        ("mailto:me@a.example", "a URL that cannot be read"),
        ("https://a.example:1\x002/", "'https://a.example:1\ufffd2/'"),
    ],
)
def test_display_of_an_invalid_url_has_no_secret(url: str, display: str):
    with pytest.raises(ValueError):
        urls.split(url)
    assert urls.display(url) == display


@each_row(
    "host", ["localhost", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"]
)
def test_is_loopback_is_true_for_addresses_that_are_never_routed(host: str):
    assert urls.is_loopback(host)


@each_row(
    "host",
    [
        *("", "localhost.", "a.localhost", "localhost.example", "LOCALHOST", "127.0.0.1.example"),
        *("2130706433", "127.1", "0x7f.0.0.1", "0177.0.0.1", "10.0.0.1", "0.0.0.0", "::", "[::1]"),
        *("::ffff:10.0.0.1", "::127.0.0.1", "128.0.0.1"),
    ],
)
def test_is_loopback_is_false_for_names_that_a_resolver_decides(host: str):
    assert not urls.is_loopback(host)


@each_row(
    ("text", "is_token"),
    [("X-Api-Key", True), ("a!#$%&'*+.^_`|~-9", True), ("", False), ("a b", False), ("a:", False)]
    + [(f"a{char}", False) for char in '\r\n\t\0\x7fä"(),/;<=>?@[\\]{}'],
)
def test_http_token_matches_the_characters_of_rfc_9110(text: str, is_token: bool):
    assert bool(urls.HTTP_TOKEN.fullmatch(text)) == is_token
