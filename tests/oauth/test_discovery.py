"""Discovery: which URLs are requested, in which order, and which answers are accepted."""

from __future__ import annotations

import json

import pytest

from interlock.errors import (
    AuthError,
    HttpError,
    InterlockError,
    MessageTooLarge,
    RequestTimeout,
    Unreachable,
)
from interlock.oauth import Fetcher, fetcher
from interlock.oauth.discovery import Discovery, covers, discover, same_issuer, server_metadata
from tests.oauth.conftest import Build, World
from tests.servers.authorization_server import (
    OPENID,
    RESOURCE_METADATA,
    SERVER_METADATA,
    Handler,
    Site,
    always,
    endless,
    html,
    mute,
)
from tests.support.rows import each_row


async def find(world: World, advertised: str = "", issuer: str = "") -> Discovery:
    near = Fetcher(world.server.url)
    return await discover(near, world.server.url, advertised, issuer)


# The protected server


async def test_only_the_advertised_metadata_url_is_requested(world: World):
    world.server.documents["/custom/metadata.json"] = world.server.metadata

    found = await find(world, f"{world.server.origin}/custom/metadata.json")

    assert world.server.paths == ["/custom/metadata.json"]
    assert found.resource == world.server.url


@each_row(
    ("reply", "text"),
    [
        (always(status=404), "/custom, which returned status 404"),
        (always(status=503), "/custom, which returned status 503"),
        (always(status=401), "/custom, which returned status 401"),
        (always(status=302, Location="https://login.example/"), "which is not followed"),
        (always('{"error": "not_found"}'), 'it has no member "resource"'),
        (always('{"resource": "https://evil.example/mcp"}'), "is about another resource"),
        (html, "it is not JSON"),
    ],
    ids=["404", "503", "401", "redirect", "error", "another resource", "a page for people"],
)
async def test_an_unusable_advertised_document_falls_back_to_the_well_known_ones(
    build: Build, reply: Handler, text: str
):
    """As from servers behind proxies: https://github.com/modelcontextprotocol/python-sdk/issues/1052"""
    world = await build()
    world.server.replies["/custom"] = reply

    assert (await find(world, f"{world.server.origin}/custom")).resource == world.server.url
    assert world.server.paths == ["/custom", world.server.metadata_path]

    world.server.documents.clear()
    with pytest.raises(InterlockError, match=text):  # a document was promised, so do not guess
        await find(world, f"{world.server.origin}/custom")
    world.server.replies[RESOURCE_METADATA] = always('{"resource": "https://evil.example/mcp"}')
    with pytest.raises(InterlockError, match=text):
        await find(world, f"{world.server.origin}/custom")


@each_row(
    "advertised",
    [
        f"{RESOURCE_METADATA}/mcp",
        "'https://mcp.example/metadata'",
        "https://",
        "urn:metadata",
        "https://user@mcp.example/metadata",
    ],
)
async def test_an_invalid_advertised_url_falls_back_to_the_well_known_ones(
    build: Build, advertised: str
):
    world = await build()
    found = await find(world, advertised)

    assert world.server.paths == [world.server.metadata_path]
    assert found.resource == world.server.url


async def test_an_invalid_advertised_url_without_fallback_is_an_error(world: World):
    world.server.documents.clear()

    text = rf"the resource_metadata that {world.server.origin} names cannot be used: '/metadata' is"
    with pytest.raises(AuthError, match=text) as raised:
        await find(world, "/metadata?secret=SECRET")

    assert "SECRET" not in str(raised.value)


@each_row("advertised", ["https://10.0.0.1/metadata", "http://backend.invalid:9000/metadata"])
async def test_an_advertised_url_inside_another_network_falls_back_to_the_well_known_ones(
    build: Build, advertised: str
):
    world = await build()
    assert (await find(world, advertised)).resource == world.server.url

    world.server.documents.clear()
    with pytest.raises(InterlockError, match=r"it is in a private network|cannot be reached"):
        await find(world, advertised)


async def test_the_well_known_url_with_the_path_is_tried_first(world: World):
    await find(world)

    assert world.server.paths == [f"{RESOURCE_METADATA}/mcp"]


async def test_the_well_known_url_of_the_root_is_tried_last(world: World):
    del world.server.documents[world.server.metadata_path]
    world.server.documents[RESOURCE_METADATA] = world.server.metadata

    await find(world)

    assert world.server.paths == [f"{RESOURCE_METADATA}/mcp", RESOURCE_METADATA]


async def test_well_known_url_drops_the_trailing_slash_of_the_path(build: Build):
    world = await build(path="/mcp/", issuer_path="/tenant/")
    world.server.documents = {f"{RESOURCE_METADATA}/mcp": world.server.metadata}
    world.authorization.documents = {f"{SERVER_METADATA}/tenant": world.authorization.metadata}

    found = await find(world)

    assert found.resource == world.server.url
    assert found.issuer == world.authorization.issuer


async def test_whitespace_before_a_metadata_document_is_ignored(world: World):
    text = "\r\n " + json.dumps(world.server.metadata)
    world.server.replies[world.server.metadata_path] = always(text)

    assert (await find(world)).resource == world.server.url


@pytest.mark.parametrize("path", ["", "/"])
async def test_a_server_at_the_root_has_one_well_known_url(build: Build, path: str):
    world = await build(path)
    world.server.documents = {RESOURCE_METADATA: world.server.metadata}

    found = await find(world)

    assert world.server.paths == [RESOURCE_METADATA]
    assert found.resource == world.server.url  # verbatim, with or without a slash


@each_row(
    "reply",
    [
        always("{}", status=202),
        always(status=401),
        always(status=302, Location="https://login.example/"),
        html,
    ],
    ids=["202", "401", "redirect", "a page for people"],
)
async def test_an_answer_that_is_not_metadata_is_skipped(build: Build, reply: object):
    world = await build()
    world.server.replies[world.server.metadata_path] = reply  # type: ignore[assignment]
    world.server.documents[RESOURCE_METADATA] = world.server.metadata

    assert (await find(world)).resource == world.server.url


@each_row("status", [500, 503, 429])
async def test_a_failing_server_is_an_error_and_not_one_without_metadata(build: Build, status: int):
    world = await build()
    world.server.replies[world.server.metadata_path] = always(status=status)

    with pytest.raises(
        AuthError, match=rf"oauth-protected-resource/mcp answers {status}$"
    ) as raised:
        await find(world)

    assert raised.value.status == status
    assert world.server.paths == [world.server.metadata_path, RESOURCE_METADATA]

    world.server.documents[RESOURCE_METADATA] = world.server.metadata
    assert (await find(world)).resource == world.server.url


@each_row(
    ("resource", "server"),
    [
        ("https://mcp.example/mcp", "https://mcp.example/mcp"),
        ("https://mcp.example", "https://mcp.example/mcp"),
        ("https://mcp.example/", "https://mcp.example/mcp"),
        ("https://mcp.example", "https://mcp.example"),
        ("https://mcp.example/", "https://mcp.example"),
        ("https://MCP.example:443/a", "https://mcp.example/a/b"),
        ("https://mcp.example/a/", "https://mcp.example/a"),
        ("https://mcp.example/a", "https://mcp.example/a/"),
        ("https://mcp.example", "https://mcp.example/"),
        ("https://mcp.example/a", "https://mcp.example/a?tenant=1"),
        ("https://mcp.example/a?tenant=1", "https://mcp.example/a?tenant=1"),
    ],
)
def test_resource_covers_its_own_url_and_all_urls_below_it(resource: str, server: str):
    assert covers(resource, server)


@each_row(
    "resource",
    [
        "https://evil.example/mcp",
        "https://mcp.example.evil.example/mcp",
        "http://mcp.example/mcp",
        "https://mcp.example:8443/mcp",
        "https://mcp.example/mc",
        "https://mcp.example/mcp/more",
        "https://mcp.example/other",
        "https://mcp.example/mcp?a=b",
        "https://mcp.example/mcp#a",
        "https://mcp.example:none/mcp",
        "https://[mcp/mcp",
        "mcp.example/mcp",
        "urn:mcp",
        "",
    ],
)
def test_a_resource_does_not_cover_other_urls(resource: str):
    assert not covers(resource, "https://mcp.example/mcp")


async def test_metadata_of_another_resource_is_an_error(world: World):
    world.server.metadata["resource"] = "https://evil.example/mcp"

    with pytest.raises(AuthError, match=r"is about another resource than http://127.*evil.example"):
        await find(world)

    assert world.authorization.requests == []


@each_row("resource", [None, 7, ["https://mcp.example/mcp"], {}])
async def test_metadata_without_a_usable_resource_is_an_error(build: Build, resource: object):
    world = await build()
    world.server.metadata["resource"] = resource

    with pytest.raises(HttpError, match=r'cannot be used: its member "resource" is .*, not a str'):
        await find(world)


@each_row("named", [[], None, 7, {}, [None], ""])
async def test_metadata_without_authorization_server_is_an_error(build: Build, named: object):
    world = await build()
    world.server.metadata["authorization_servers"] = named

    with pytest.raises(AuthError, match=r"names no authorization server; .*set oauth\.issuer"):
        await find(world)


async def test_authorization_servers_are_read_one_by_one(world: World):
    issuer = world.authorization.issuer
    for named in (issuer, [None, issuer], [{"issuer": "x"}, issuer, 7]):
        world.server.metadata["authorization_servers"] = named

        assert (await find(world)).issuer == issuer


# The authorization server


async def test_an_issuer_without_a_path_has_two_well_known_urls(world: World):
    world.authorization.documents = {OPENID: world.authorization.metadata}

    await find(world)

    assert world.authorization.paths == [SERVER_METADATA, OPENID]


async def test_an_issuer_with_a_path_has_three_well_known_urls(build: Build):
    world = await build(issuer_path="/tenant")
    world.authorization.documents = {f"/tenant{OPENID}": world.authorization.metadata}

    await find(world)

    forms = [f"{SERVER_METADATA}/tenant", f"{OPENID}/tenant", f"/tenant{OPENID}"]
    assert world.authorization.paths == forms

    world.authorization.documents = {SERVER_METADATA: world.authorization.metadata}
    world.authorization.requests.clear()
    await find(world)  # only there, though it is about the issuer with the path
    assert world.authorization.paths == [*forms, SERVER_METADATA]

    world.authorization.metadata["issuer"] = world.authorization.origin
    with pytest.raises(AuthError, match="names another issuer"):
        await find(world)


@each_row(
    "reply",
    [
        always(status=500),
        always(status=503),
        always("{}"),
        always('{"issuer": 7}'),
        always('{"issuer": "https://evil.example"}'),
    ],
)
async def test_an_unusable_form_of_metadata_is_skipped_if_another_is_usable(
    build: Build, reply: Handler
):
    world = await build()
    world.authorization.replies[SERVER_METADATA] = reply
    with pytest.raises(InterlockError, match=rf"{SERVER_METADATA} "):
        await find(world)

    world.authorization.documents[OPENID] = world.authorization.metadata
    assert (await find(world)).issuer == world.authorization.issuer


async def test_an_authorization_server_without_metadata_is_an_error(world: World):
    world.authorization.documents.clear()
    world.authorization.replies[OPENID] = html

    with pytest.raises(AuthError, match=r"has no metadata of an authorization .*server: 404\); if"):
        await find(world)

    assert world.authorization.paths == [SERVER_METADATA, OPENID]
    world.authorization.replies[SERVER_METADATA] = html
    with pytest.raises(AuthError, match=r"server: not JSON\); .*set oauth\.issuer"):
        await find(world)


async def test_an_authorization_server_that_redirects_is_an_error(world: World):
    login = always(status=302, Location="https://login.example/?a=SECRET")
    world.authorization.documents = {OPENID: world.authorization.metadata}
    world.authorization.replies[SERVER_METADATA] = login

    assert (await find(world)).server.token_endpoint

    world.authorization.replies[OPENID] = login
    text = rf"{SERVER_METADATA} redirects to https://login.example, which is not followed\);"
    with pytest.raises(AuthError, match=text):
        await find(world)


async def test_the_first_of_several_issuers_is_used(world: World):
    world.server.metadata["authorization_servers"] += ["https://other.example"]

    assert (await find(world)).issuer == world.authorization.issuer


async def test_the_known_one_of_several_issuers_is_used(world: World):
    world.server.metadata["authorization_servers"].insert(0, "https://other.example")

    assert (await find(world, issuer=world.authorization.issuer)).issuer == (
        world.authorization.issuer
    )


async def test_the_known_issuer_is_found_without_its_slash(world: World):
    known = world.authorization.issuer
    world.server.metadata["authorization_servers"].insert(0, "https://as.example")

    assert (await find(world, issuer=f"{known}/")).issuer == known


async def test_issuer_that_differs_by_a_final_slash_is_used_as_its_document_writes_it(world: World):
    world.authorization.metadata["issuer"] += "/"

    assert (await find(world)).issuer == f"{world.authorization.origin}/"


def test_same_issuer_compares_exactly_except_for_the_form_of_an_origin():
    for same in ("https://as.example/", "https://AS.example", "HTTPS://as.example:443/"):
        assert same_issuer("https://as.example", same)
        assert same_issuer(same, "https://as.example")
    assert same_issuer("https://as.example/a", "https://AS.example/a")
    for other in (
        "https://as.example//",
        "https://as.example:8443",
        "http://as.example",
        "https://as.example/a",
        "https://as.example?a=/",
        "",
    ):
        assert not same_issuer("https://as.example", other)
    for other in ("https://as.example/a/", "https://as.example/A"):
        assert not same_issuer("https://as.example/a", other)
    assert not same_issuer("https://as.example?a", "https://as.example?a/")


@each_row("issuer", ["https://evil.example", "", "https://[as", "https://[as/"])
async def test_metadata_of_another_issuer_is_an_error(build: Build, issuer: str):
    world = await build()
    world.authorization.metadata["issuer"] = issuer

    with pytest.raises(AuthError, match=r"names another issuer: .*, not .*set oauth.issuer"):
        await find(world)

    assert world.authorization.paths == [SERVER_METADATA, OPENID]


@each_row(
    "issuer",
    [
        "{}?a=SECRET",
        "{}#SECRET",
        "http://u:SECRET@as.example",
        "https://[as",
        "https://as.example:99999",
        "file:///etc/passwd",
        "",
    ],
)
async def test_an_invalid_issuer_is_an_error(build: Build, issuer: str):
    world = await build()
    world.server.metadata["authorization_servers"] = [issuer.format(world.authorization.issuer)]

    with pytest.raises(AuthError, match="is not a valid issuer") as raised:
        await find(world)

    assert "SECRET" not in str(raised.value)
    assert world.authorization.requests == []


@each_row(
    ("reply", "kind", "text"),
    [
        (always("{}"), HttpError, 'it has no member "issuer"'),
        (always("{"), HttpError, "it is not JSON"),
        (always('{"a":' * 100_000), HttpError, "cannot be used"),
        (always(status=500), AuthError, "answers 500"),
        (endless, MessageTooLarge, r"limit \(1 MiB\)"),
        (mute, RequestTimeout, "has not answered within"),
    ],
    ids=["empty object", "cut", "deep", "500", "endless", "mute"],
)
async def test_a_misbehaving_authorization_server_is_an_error_that_names_it(
    build: Build,
    monkeypatch: pytest.MonkeyPatch,
    reply: object,
    kind: type[InterlockError],
    text: str,
):
    world = await build()
    if reply is mute:
        monkeypatch.setattr(fetcher, "TIMEOUT", 0.2)
    world.authorization.replies[SERVER_METADATA] = reply  # type: ignore[assignment]

    with pytest.raises(kind, match=text) as raised:
        await server_metadata(Fetcher(world.server.url), world.authorization.issuer)

    assert SERVER_METADATA in str(raised.value)
    assert "SECRET" not in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(world.authorization.paths) <= 2


async def test_an_unreachable_authorization_server_is_an_error_that_names_it(world: World):
    gone = Site()
    await gone.open()
    await gone.close()
    world.server.metadata["authorization_servers"] = [gone.origin]

    with pytest.raises(Unreachable, match=rf"{gone.origin}{SERVER_METADATA} cannot be reached"):
        await find(world)


@each_row(
    "address",
    [
        "http://169.254.169.254",
        "https://169.254.169.254",
        "https://10.0.0.1",
        "https://[fd00::1]",
        "https://[64:ff9b:1::1]",
        "http://as.example",
        "gopher://127.0.0.1",
        "https://2852039166",
    ],
)
async def test_an_issuer_at_a_private_address_is_not_requested(build: Build, address: str):
    world = await build()
    world.server.metadata["authorization_servers"] = [address]

    with pytest.raises(AuthError) as raised:
        await discover(Fetcher(world.server.url, resolve=_public), world.server.url)

    assert "is refused" in str(raised.value)


async def _public(host: str, port: int) -> list[str]:
    return ["2000::1"] if host == "as.example" else ["127.0.0.1"]


# Servers of 2025-03-26


async def test_a_server_without_metadata_is_its_own_authorization_server(world: World):
    world.server.documents.clear()
    world.server.documents[SERVER_METADATA] = {
        "issuer": world.server.origin,
        "authorization_endpoint": f"{world.server.origin}/oauth/authorize",
    }

    found = await find(world)

    assert world.server.paths == [
        f"{RESOURCE_METADATA}/mcp",
        RESOURCE_METADATA,
        SERVER_METADATA,
    ]
    assert found.resource == ""
    assert not found.is_guessed
    assert found.server.authorization_endpoint == f"{world.server.origin}/oauth/authorize"


@each_row(
    "reply",
    [always(status=404), always(status=301, Location="/login"), html],
    ids=["404", "redirect", "a page for people"],
)
async def test_without_any_metadata_the_default_endpoints_are_used(build: Build, reply: Handler):
    world = await build()
    world.server.documents.clear()
    world.server.replies[SERVER_METADATA] = reply

    found = await find(world)

    assert found.is_guessed
    assert found.issuer == world.server.origin
    assert found.server.authorization_endpoint == f"{world.server.origin}/authorize"
    assert found.server.token_endpoint == f"{world.server.origin}/token"
    assert found.server.registration_endpoint == f"{world.server.origin}/register"


async def test_a_server_without_resource_metadata_cannot_name_another_issuer(world: World):
    world.server.documents = {SERVER_METADATA: world.authorization.metadata}

    with pytest.raises(AuthError, match="names another issuer"):
        await find(world)
