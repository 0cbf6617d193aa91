"""Each route of the table, for each role and each way to be somebody."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from msgspec.structs import fields

from interlock.config.gateway import Address
from interlock.gateway.admin import login
from interlock.gateway.admin.routes import ADMIN_ROUTES, USER_ROUTES
from interlock.server.http.json_api import Route
from interlock.web.inspector import inspector_api as inspect_api
from interlock.web.inspector.inspector import Wanted
from tests.gateway.admin.test_login import log_in, session_of
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.server.http.conftest import Http, Reply

KEY = "x-interlock-key"
# Members of servers in a configuration.
OF_SERVERS = {
    *("args", "baseUrl", "command", "cwd", "document", "env"),
    *("file", "headers", "mcpServers", "object", "path", "url"),
}
ROLES = {
    "user": ("mcp:*",),
    "auditor": ("admin:read",),
    "operator": ("admin:read", "admin:approve"),
    "admin": ("admin:read", "admin:approve", "admin:write"),
}
INSPECTOR_ROUTES = inspect_api.routes("admin:write")
TABLE = (*ADMIN_ROUTES, *USER_ROUTES, *login.ROUTES, *INSPECTOR_ROUTES)
ROUTES = [each for each in TABLE if each.scope]
PLACES = sorted({route.path for route in ROUTES})


def concrete(path: str) -> str:
    """Return the path of something that does not exist."""
    return path.replace("{", "").replace("}", "").replace("*", "")


def is_open_to(route: Route, scopes: tuple[str, ...]) -> bool:
    if route.scope.endswith(":"):
        return any(each.startswith(route.scope) for each in scopes)
    return route.scope == "any" or route.scope in scopes


async def send(gateway: RunningGateway, route: Route, headers: dict[str, str]) -> Reply:
    headers = {"content-type": "application/json", **headers}
    return await gateway.http.request(route.method, concrete(route.path), b"{}", headers)


@pytest.mark.slow("fills a database")
async def test_every_route_is_open_to_exactly_the_roles_with_its_scope(running):
    async with running({}, crm=offering("x")) as gateway:
        for role, scopes in ROLES.items():
            key = await gateway.key(role, *scopes)
            page = session_of(await log_in(gateway, key=key))
            for route in ROUTES:
                what = f"{role} {route.method} {route.path}"
                by_key = await send(gateway, route, bearer(key))
                if route.path == "/api/logout":  # with the session it would end that
                    assert by_key.code == 204, what
                    continue
                by_session = await send(gateway, route, page)
                assert by_key.code == by_session.code, what
                assert by_key.code != 401, what
                assert (by_key.code != 403) == is_open_to(route, scopes), what
                assert by_key.code < 500, what


@pytest.mark.slow("fills a database")
async def test_no_route_is_open_without_a_whole_credential(running):
    async with running({}, crm=offering("x")) as gateway:
        key = await gateway.key("admin", *ROLES["admin"], "mcp:*")
        page = session_of(await log_in(gateway, key=key))
        cookie = {name: page[name] for name in ("cookie", "origin")}
        page_key = {name: page[name] for name in (KEY, "origin")}
        others = page | {KEY: session_of(await log_in(gateway, key=key))[KEY]}
        for route in ROUTES:
            replies = [
                await send(gateway, route, headers)
                for headers in (
                    *({}, bearer(f"{key}x"), bearer("a.b.c")),
                    *(cookie, page_key, others),
                )
            ]
            assert {each.code for each in replies} == {401}, route
            # The text tells apart only whether a credential was sent at all.
            assert len({each.body for each in replies}) <= 2, route


@pytest.mark.slow("fills a database")
async def test_no_route_starts_a_program_or_opens_an_address_of_a_request(running, tmp_path: Path):
    kinds = {kind for each in TABLE for kind in (each.query, each.body) if kind is not None}
    members = {each.encode_name: kind for kind in kinds for each in fields(kind)}
    assert all(kind.__struct_config__.forbid_unknown_fields for kind in kinds)
    assert {name: members[name] for name in OF_SERVERS & members.keys()} == {
        "command": Wanted,  # of the inspector, for the local user of `interlock web`
        "url": Wanted,
    }

    async with running({}, crm=offering("x")) as gateway:
        headers = bearer(await gateway.key("admin", *ROLES["admin"], "mcp:*"))
        headers |= {"content-type": "application/json"}
        with socket.create_server(("127.0.0.1", 0)) as listener:
            url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            for body in ({"command": f"touch {tmp_path}/made"}, {"url": url}):
                content = json.dumps(body).encode()
                reply = await gateway.http.request("POST", "/api/inspect", content, headers)
                assert reply.code == 422, reply.body
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):  # no connection was made
                listener.accept()
    assert not (tmp_path / "made").exists()


@pytest.mark.slow("fills a database")
async def test_no_route_is_open_to_another_site(running):
    async with running({}, crm=offering("x")) as gateway:
        key = bearer(await gateway.key("admin", *ROLES["admin"], "mcp:*"))
        for route in ROUTES:
            for change in (
                {"origin": "https://evil.example"},
                {"origin": "http://127.0.0.1:9999"},
                {"host": "evil.example"},
                {"sec-fetch-site": "cross-site"},
            ):
                reply = await send(gateway, route, key | change)
                assert reply.code == 403, (route, change)
                assert reply.header("access-control-allow-origin") is None
            if route.method in ("POST", "PUT", "PATCH"):
                for kind in ("text/plain", "multipart/form-data", "-"):
                    reply = await send(gateway, route, key | {"content-type": kind})
                    assert reply.code == 415, (route, kind)


@pytest.mark.slow("fills a database")
async def test_unsupported_method_is_refused_only_after_authentication(running):
    async with running({}, crm=offering("x")) as gateway:
        key = bearer(await gateway.key("admin", *ROLES["admin"], "mcp:*"))
        for place in PLACES:
            anonymous = await gateway.http.request("OPTIONS", concrete(place))
            known = await gateway.http.request("OPTIONS", concrete(place), headers=key)
            assert (anonymous.code, known.code) == (401, 405), place


@pytest.mark.slow("fills a database")
async def test_admin_routes_are_served_on_their_own_listener_only(running):
    async with running({"admin": {"listen": "127.0.0.1:0"}}, crm=offering("x")) as gateway:
        admin = Http(gateway.endpoint.admin_app(Address("127.0.0.1", 8001)))
        headers = bearer(await gateway.key("admin", *ROLES["admin"])) | {
            "content-type": "application/json"
        }
        absent = await gateway.http.request("GET", "/absent", headers=headers)
        for route in ADMIN_ROUTES:
            path = concrete(route.path)
            public = await gateway.http.request(route.method, path, b"{}", headers)
            assert (public.code, public.body) == (404, absent.body), route
            reply = await admin.request(route.method, path, b"{}", headers)
            assert reply.code not in (401, 403), route


@pytest.mark.slow("fills a database")
async def test_admin_routes_are_off_behind_a_proxy_and_for_other_machines(running):
    proxied = {"publicUrl": "https://tools.example.com/mcp"}
    async with running(proxied, crm=offering("x")) as gateway:
        headers = bearer(await gateway.key("admin", *ROLES["admin"]))
        for path, code in (("/admin/api/v1/status", 404), ("/me", 200)):
            assert (await gateway.http.request("GET", path, headers=headers)).code == code


@pytest.mark.slow("fills a database")
async def test_answers_of_the_admin_api_have_cache_control_no_store(running):
    async with running({}, crm=offering("x")) as gateway:
        key = bearer(await gateway.key("admin", *ROLES["admin"], "mcp:*"))
        for route in ROUTES:
            reply = await send(gateway, route, key)
            assert reply.header("cache-control") == "no-store", route
            assert reply.header("x-content-type-options") == "nosniff", route


@pytest.mark.slow("fills a database")
async def test_error_has_a_reason_and_a_reference_and_no_internals(running):
    async with running({}, crm=offering("x")) as gateway:
        key = await gateway.key("admin", *ROLES["admin"])
        await gateway.assembly.services.database.close()
        reply = await gateway.http.request("GET", "/admin/api/v1/keys", headers=bearer(key))

    problem = json.loads(reply.body)
    assert reply.code == problem["status"] == 503
    assert problem["reason"] == "store_unavailable"
    assert problem["reference"]
    assert reply.header("retry-after") == "5"
    assert "gateway.db" not in reply.body.decode()
