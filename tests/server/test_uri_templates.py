"""URI templates: which URIs match, and how long that takes."""

from __future__ import annotations

import re
from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Client, Server
from interlock.errors import RemoteError, SignatureError
from interlock.server.uri_templates import MAX_URI, UriTemplate
from tests.support.rows import each_row


@each_row(
    ("template", "uri", "values"),
    [
        ("notes://{name}", "notes://a", {"name": "a"}),
        ("notes://{name}", "notes://a%20b%2Fc", {"name": "a b/c"}),
        ("notes://{name}", "notes://", None),
        ("notes://{name}", "notes://a/b", None),
        ("notes://{name}", "other://a", None),
        ("notes://{+path}", "notes://a/b", {"path": "a/b"}),
        ("notes://{folder}/{name}", "notes://f/n", {"folder": "f", "name": "n"}),
        ("notes://{folder}/{name}", "notes://f", None),
        ("notes://{folder}/{name}", "notes://f/g/n", None),
        ("notes://{+folder}/-/{name}", "notes://f/g/-/n", {"folder": "f/g", "name": "n"}),
        ("notes://{name}.md", "notes://a.b.md", {"name": "a.b"}),
        ("notes://{name}.md", "notes://a.txt", None),
        ("notes://{name}.md", "notes://.md", None),
        ("{kind}://x", "a://x", {"kind": "a"}),
        ("docs://{+path}", "docs://a/b..c/.d/...", {"path": "a/b..c/.d/..."}),
        ("docs://{+path}", "docs://a/../b", None),
        ("docs://{+path}", "docs://..", None),
        ("docs://{+path}", "docs://a/..", None),
        ("docs://{+path}", "docs://%2e%2e/x", None),
        ("docs://{+path}", "docs://a%5C..%5Cb", None),
        ("docs://{+path}", "docs:///x", None),
        ("docs://{+path}", "docs://%5C%5Chost/x", None),
        ("docs://{+path}", "docs://C:/x", None),
        ("docs://{+path}", "docs://x%00", None),
        ("docs://{+path}", "docs://%252e%252e/x", {"path": "%2e%2e/x"}),
        ("docs:///{+path}", "docs:///x", {"path": "x"}),
        ("docs://{name}.md", "docs://a%2F..%2Fb.md", None),
        ("docs://{name}", "docs://%2Fetc", None),
        ("at://{zone}", "at://C:x", {"zone": "C:x"}),
        ("notes://all", "notes://all", {}),
        ("notes://all", "notes://all/", None),
        ("notes://all", "notes://al", None),
        ("x://{k}{?n,m}", "x://a", {"k": "a"}),
        ("x://{k}{?n,m}", "x://a?m=%26b&n=1", {"k": "a", "m": "&b", "n": "1"}),
        ("x://{k}{?n,m}", "x://a?n=", {"k": "a", "n": ""}),
        ("x://{k}{?n,m}", "x://a?n=1&n=2", None),
        ("x://{k}{?n,m}", "x://a?other=1", None),
        ("x://{k}{?n,m}", "x://?n=1", None),
        ("x://all{?n}", "x://all", {}),
    ],
)
def test_match_returns_the_variables_of_a_uri(template, uri, values):
    assert UriTemplate(template).match(uri) == values


@each_row(
    ("text", "says"),
    [
        ("notes://{a}{b}", "two variables need text between them"),
        ("notes://{?a}/b", "at the end, {?name,name}"),
        ("notes://{?a*}", "at the end, {?name,name}"),
        ("notes://{?a,}", "at the end, {?name,name}"),
        ("notes://{a", "only {name}, {+name} and"),
        ("notes://{a*}", "{a*} is not supported; write {+a}"),
        ("notes://{1a}", "only {name}, {+name} and"),
        ("notes://{a}{?b,b}", "the variable 'b' twice"),
        ("notes://{a}{?a}", "the variable 'a' twice"),
        ("notes://{a}/{a}", "the variable 'a' twice"),
    ],
)
def test_an_ambiguous_template_is_refused(text, says):
    with pytest.raises(SignatureError) as raised:
        UriTemplate(text)

    assert says in str(raised.value)
    assert text in str(raised.value)


_texts = st.text(min_size=1, max_size=20)


@given(folder=_texts, path=_texts, name=_texts)
def test_match_returns_the_values_that_fill_inserted(folder, path, name):
    values = {"folder": folder, "path": path, "name": name}
    template = UriTemplate("notes://{folder}:{+path}.md{?page,name}")

    try:
        uri = template.fill(values)
    except UnicodeEncodeError:  # a URI cannot have a lone surrogate
        return
    unsafe = any(re.search(r"\0|^[/\\]|\.\.|^\w:[/\\]", each) for each in values.values())
    assert unsafe or template.match(uri) == values


@each_row(
    "uri",
    [
        "x://" + "/a" * 25_000,
        "x://" + "a/" * 25_000,
        "x://" + "a" * 50_000,
        "x://" + "%2F" * 16_000,
        "x://" + "a/-/" * 12_500,
        "x://" + "-" * 50_000,
    ],
)
def test_a_hostile_uri_is_matched_in_linear_time(uri):
    templates = [
        UriTemplate("x://{+a}/{+b}/{+c}/{+d}/-/{e}"),
        UriTemplate("x://{a}-{b}-{c}-{d}"),
        UriTemplate("x://{+a}//{+b}!"),
    ]
    start = thread_time()
    for template in templates:
        template.match(uri)

    assert thread_time() - start < 0.5  # with backtracking, it would be minutes


def test_a_uri_over_the_length_limit_does_not_match():
    template = UriTemplate("x://{a}")

    assert template.match("x://" + "a" * (MAX_URI - 4)) is not None
    assert template.match("x://" + "a" * (MAX_URI - 3)) is None


def test_resource_function_must_have_the_parameters_of_its_uri_template():
    server = Server("s")

    with pytest.raises(SignatureError, match=r"variable 'name', which is not a parameter"):
        server.resource("notes://{name}")(by_title)
    with pytest.raises(SignatureError, match=r"no value for the parameter 'title'; add \{title\}"):
        server.resource("notes://all")(by_title)


def by_title(title: str) -> str:
    return title


async def test_variables_are_converted_and_an_exact_uri_takes_precedence():
    server = Server("s")

    @server.resource("sum://{a}/{b}")
    def total(a: int, b: int) -> int:
        return a + b

    @server.resource("sum://1/1")
    def known() -> str:
        return "two"

    @server.resource("raw://{name}", mime_type="image/png")
    async def raw(name: str) -> bytes:
        return name.encode()

    async with Client.memory(server) as client:
        assert (await client.read_resource("sum://1/2")).text == "3"
        assert (await client.read_resource("sum://1/1")).text == "two"
        (blob,) = (await client.read_resource("raw://a")).contents
        with pytest.raises(RemoteError, match="a: expected `int`, got `str`"):
            await client.read_resource("sum://x/2")

    assert (blob.blob, blob.mime_type) == ("YQ==", "image/png")
