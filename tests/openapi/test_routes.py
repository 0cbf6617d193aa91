"""A path value reaches only its own route, whatever it is and however a server decodes it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit

import fastapi
import flask
import hypothesis.strategies as st
import pytest
import tornado.httputil
import tornado.web
from hypothesis import given, settings
from starlette.routing import Match
from werkzeug.exceptions import NotFound

from interlock.errors import InvalidArguments
from interlock.openapi import serialisation
from interlock.openapi.operations import Style
from interlock.openapi.routes import PathTemplate, check_value
from tests.support.rows import each_row

PATHS = ("/users/{id}", "/users/me", "/users/{id}/secrets", "/files/{path}", "/admin")
USER = PathTemplate("/users/{id}", PATHS)
FILE = PathTemplate("/files/{path}", PATHS, ["path"])


def target(template: PathTemplate, name: str, value: str, *, spans: bool = False) -> str:
    """Return the path for a value, as `Plan.request` makes it."""
    check_value(name, value, spans=spans)
    parts = value.split("/") if spans else [value]
    style = Style("simple")
    return template.fill({name: "/".join(serialisation.path(name, part, style) for part in parts)})


# Programs: each returns the route that a path reaches and the value of its variable


def fastapi_route(path: str) -> tuple[str, Any]:
    scope = {"type": "http", "method": "GET", "path": unquote(path), "root_path": ""}
    for route in FASTAPI.router.routes:
        match, child = route.matches(scope)
        if match is Match.FULL:
            return route.name, next(iter(child["path_params"].values()), None)
    return "", None


def flask_route(path: str) -> tuple[str, Any]:
    try:
        endpoint, values = FLASK.url_map.bind("localhost").match(unquote(path), method="GET")
    except NotFound:
        return "", None
    return endpoint, next(iter(values.values()), None)


def tornado_route(path: str) -> tuple[str, Any]:
    line = tornado.httputil.RequestStartLine("GET", path, "HTTP/1.0")
    request = tornado.httputil.HTTPServerRequest(start_line=line, connection=Connection())
    found = TORNADO.find_handler(request)
    kwargs = {key: value.decode() for key, value in (found.path_kwargs or {}).items()}
    return found.handler_class.__name__, next(iter(kwargs.values()), None)


class Connection:
    context = None

    def set_close_callback(self, _callback: Callable[[], None]) -> None: ...


def _programs() -> tuple[fastapi.FastAPI, flask.Flask, tornado.web.Application]:
    api, wsgi = fastapi.FastAPI(), flask.Flask("routes")
    handlers = []
    for name, starlette_path, werkzeug_path, expression in (
        ("me", "/users/me", "/users/me", "/users/me"),
        ("user", "/users/{id}", "/users/<id>", "/users/(?P<id>[^/]+)"),
        ("secrets", "/users/{id}/secrets", "/users/<id>/secrets", "/users/(?P<id>[^/]+)/secrets"),
        ("file", "/files/{path:path}", "/files/<path:path>", "/files/(?P<path>.+)"),
        ("admin", "/admin", "/admin", "/admin"),
    ):
        api.add_api_route(starlette_path, lambda: None, name=name)
        wsgi.add_url_rule(werkzeug_path, name, lambda **_: "")
        handlers.append((expression, type(name, (tornado.web.RequestHandler,), {})))
    return api, wsgi, tornado.web.Application(handlers)


FASTAPI, FLASK, TORNADO = _programs()
PROGRAMS = (fastapi_route, flask_route, tornado_route)
TRICKS = [
    "1/secrets", "1%2Fsecrets", "1%252Fsecrets", "1%25252Fsecrets", "..", ".", "%2e%2e", "%252e",
    "../admin", "..%2fadmin", "..\\admin", "..%5cadmin", "1?x=1", "1#x", "1;x", "me", "Me", "m%65",
    "\x00", "1\n", "a//b", "//evil.example", "é", "\u2215", "\uff0f", "..;", "%", "%zz", " ", "+",
]  # fmt: skip


def assert_own_route(value: str) -> None:
    try:
        path = target(USER, "id", value)
    except InvalidArguments:
        return
    assert path.count("/") == 2
    assert urlsplit("https://api.example" + path).netloc == "api.example"
    for program in PROGRAMS:
        assert program(path) == ("user", value)


def assert_own_prefix(value: str) -> None:
    try:
        path = target(FILE, "path", value, spans=True)
    except InvalidArguments:
        return
    assert path.startswith("/files/")
    for program in PROGRAMS:
        assert program(path) == ("file", value)


def test_known_tricks_reach_neither_another_route_nor_another_prefix():
    for value in (*TRICKS, "a/b", "a/../b", "a/%2e%2e/b", "/a", "a/"):
        assert_own_route(value)
        assert_own_prefix(value)


@pytest.mark.slow("tries many examples")
@settings(max_examples=200, deadline=None)
@given(st.text(min_size=1, max_size=12) | st.text("./\\%25efF#?;me", min_size=1, max_size=12))
def test_path_value_reaches_only_its_own_route_with_its_own_value(value: str):
    assert_own_route(value)


@pytest.mark.slow("tries many examples")
@settings(max_examples=200, deadline=None)
@given(st.text("ab./\\%25efF#?;", min_size=1, max_size=12))
def test_path_value_with_slashes_stays_below_its_own_prefix(value: str):
    assert_own_prefix(value)


@each_row(
    "value", ["1/secrets", "..", "%2e%2e", "a\\b", "a%252fb", "a\x00", "\x9b", "..;", ".%3b=1"]
)
def test_path_value_that_would_leave_its_segment_is_refused(value: str):
    with pytest.raises(InvalidArguments, match="argument 'id' has a separator"):
        check_value("id", value)


def test_path_value_that_names_another_operation_is_refused():
    with pytest.raises(InvalidArguments, match=r"another operation \(/users/me\)"):
        target(USER, "id", "me")


def test_path_that_names_another_operation_after_several_decodings_is_refused():
    template = PathTemplate("/{owner}/{name}", ["/{owner}/{name}", "/{owner}/settings"])

    for name in ("settings", "se%74tings", "se%2574tings", "%2573ettings"):
        with pytest.raises(InvalidArguments, match="another operation"):
            template.fill({"owner": "a", "name": name})
    assert template.fill({"owner": "a", "name": "set%2574ing"}) == "/a/set%2574ing"


def test_path_of_several_variables_is_refused_only_where_another_operation_matches():
    template = PathTemplate("/{owner}/{name}", ["/{owner}/{name}", "/{owner}/settings", "/x/{y}"])

    assert template.fill({"owner": "a", "name": "b"}) == "/a/b"
    for values in ({"owner": "a", "name": "settings"}, {"owner": "x", "name": "b"}):
        with pytest.raises(InvalidArguments, match="another operation"):
            template.fill(values)


def test_empty_path_value_is_refused_as_it_would_reach_another_route():
    with pytest.raises(InvalidArguments, match="empty"):
        target(USER, "id", "")


def test_dots_from_two_variables_of_one_segment_are_refused():
    with pytest.raises(InvalidArguments, match="another folder"):
        PathTemplate("/a/{x}{y}").fill({"x": ".", "y": "."})


@given(st.text("-.aB", max_size=12), st.sampled_from(["{x}-{y}", "a{x}", "{x}.{y}-{z}b", "{x}{y}"]))
def test_path_value_that_would_address_another_operation_is_refused(value: str, other: str):
    expression = "[^/]+".join(map(re.escape, re.split(r"\{.\}", other)))
    template = PathTemplate("/v/{id}", [f"/v/{other}"])
    if not value or value in (".", ".."):
        return
    try:
        template.fill({"id": value})
    except InvalidArguments:
        assert re.fullmatch(expression, value, re.IGNORECASE)
    else:
        assert not re.fullmatch(expression, value, re.IGNORECASE)


def test_path_with_many_variables_is_matched_in_linear_time():
    other = "/x/" + "-".join(f"{{{name}}}" for name in "abcdefghijklmnop") + "!"
    start = time.process_time()

    assert PathTemplate("/x/{id}", [other]).fill({"id": "-" * 200}) == "/x/" + "-" * 200
    assert time.process_time() - start < 1  # a regular expression would not come to an end
