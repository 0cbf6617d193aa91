"""HTTP+SSE, the transport of 2024-11-05."""

from __future__ import annotations

import json

import pytest

from interlock import Context
from interlock.auth.principal import Principal
from tests.support.rows import each_row


async def connect(http, capabilities=None, headers=None):
    """Open a session; give its stream, and a function that posts to it."""
    stream = http.start("GET", "/sse", headers=headers)
    first = dict(line.split(": ", 1) for line in (await stream.part()).splitlines())
    assert first["event"] == "endpoint"
    path, _, query = first["data"].removeprefix(http.root).partition("?")

    async def post(method, params=None, **more):
        body = http.rpc(method, params, **more) if isinstance(method, str) else method
        return await http.request("POST", path, body=body, query=query, headers=headers)

    params = {
        "protocolVersion": "2024-11-05",
        "capabilities": capabilities or {},
        "clientInfo": {"name": "old", "version": "1"},
    }
    assert (await post("initialize", params, id=0)).code == 202
    assert (await stream.message())["result"]["protocolVersion"] == "2024-11-05"
    await post("notifications/initialized")
    return stream, post


@pytest.fixture
def oldest(make):
    return make(sse=True)


async def test_sse_endpoints_are_off_by_default(http):
    assert (await http.request("GET", "/sse")).code == 404
    assert (await http.request("POST", "/messages")).code == 404


async def test_all_messages_are_sent_on_the_single_stream(server, oldest):
    stream, post = await connect(oldest)
    call = {"name": "count", "arguments": {"to": 1}, "_meta": {"progressToken": 1}}
    reply = await post("tools/call", call, id=1)
    assert (reply.code, reply.body) == (202, b"")
    assert (await stream.message())["method"] == "notifications/progress"
    assert (await stream.message())["result"]["content"][0]["text"] == "counted to 1"

    server.remove_tool("add")
    assert (await stream.message())["method"] == "notifications/tools/list_changed"
    assert not stream.ended
    assert b"id: " not in stream.body


async def test_sent_answers_of_a_single_stream_are_forgotten(oldest):
    """R-118."""
    _, post = await connect(oldest)
    for number in range(50):
        await post("ping", id=number)
    (session,) = oldest.app.sessions._open.values()

    assert len(session.standalone._answers) <= 1


async def test_message_url_includes_the_mount_prefix(make):
    http = make(sse=True, root="/tools")
    stream = http.start("GET", "/sse")

    assert "data: /tools/message?session_id=" in await stream.part()


async def test_client_answers_a_question_of_the_server(oldest):
    stream, post = await connect(oldest, {"sampling": {}})
    await post("tools/call", {"name": "sample"}, id=1)
    question = await stream.message()
    answer = {"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}}
    body = json.dumps({"jsonrpc": "2.0", "id": question["id"], "result": answer}).encode()
    assert (await post(body)).code == 202

    assert (await stream.message())["result"]["content"][0]["text"] == "the model said hi"


async def test_the_session_ends_with_its_stream(oldest, gate):
    stream, post = await connect(oldest)
    await post("tools/call", {"name": "hold"}, id=1)
    await gate.entered.wait()
    stream.disconnect()
    await stream.finished()
    await gate.cancelled.wait()

    assert (await post("ping", id=2)).code == 404
    assert len(oldest.app.sessions) == 0


async def test_sent_messages_of_a_single_stream_are_not_kept(oldest):
    stream, post = await connect(oldest)
    kept = oldest.app._legacy._budget.bytes
    for id in range(20):
        await post("ping", id=id)
        await stream.message()

    assert oldest.app._legacy._budget.bytes == kept


async def test_session_of_one_http_transport_is_not_found_by_the_other(oldest):
    client = await oldest.initialize()
    body = oldest.rpc("ping", id=1)
    query = f"session_id={client.id}"
    assert (await oldest.request("POST", "/messages", body=body, query=query)).code == 404

    await connect(oldest)
    [client.headers["mcp-session-id"]] = set(oldest.app.sessions._open) - {client.id}
    assert (await client.ask("ping")).code == 404


@each_row(
    ("query", "code"),
    [("", 400), ("session_id=", 400), ("session_id=x", 404), ("session_id=x&session_id=y", 400)],
)
async def test_message_without_a_session_is_refused(oldest, query, code):
    body = oldest.rpc("ping", id=1)

    assert (await oldest.request("POST", "/messages", body=body, query=query)).code == code


@pytest.mark.parametrize("method", ["POST", "DELETE", "PUT"])
async def test_stream_path_accepts_get_only(oldest, method):
    reply = await oldest.request(method, "/sse")

    assert (reply.code, reply.header("allow")) == (405, "GET")


async def test_message_path_accepts_post_only(oldest):
    assert (await oldest.request("GET", "/messages")).code == 405
    assert (await oldest.request("GET", "/sse", headers={"accept": "text/html"})).code == 406


async def test_bad_messages_are_refused_and_the_session_continues(oldest):
    stream, post = await connect(oldest)
    for body in (b"", b"{", b"[]", b'{"jsonrpc":"2.0","id":null,"method":"ping"}'):
        assert (await post(body)).code == 400
    await post("ping", id=1)

    assert (await stream.message())["id"] == 1


async def test_request_body_of_another_type_than_json_is_refused(oldest):
    await connect(oldest)
    [session] = oldest.app.sessions._open
    body, query = oldest.rpc("ping", id=1), f"session_id={session}"
    headers = {"content-type": "text/plain"}
    reply = await oldest.request("POST", "/messages", body=body, query=query, headers=headers)

    assert reply.code == 415


async def test_call_sends_no_notification_after_its_answer(server, oldest):
    kept = []

    @server.tool
    async def keep(context: Context) -> str:
        kept.append(context)
        return "kept"

    stream, post = await connect(oldest)
    await post("tools/call", {"name": "keep", "_meta": {"progressToken": 1}}, id=1)
    assert (await stream.message())["id"] == 1
    kept[0].progress(1)
    await post("ping", id=2)

    assert (await stream.message())["id"] == 2


async def test_an_id_in_use_is_refused(oldest, gate):
    _, post = await connect(oldest)
    await post("tools/call", {"name": "hold"}, id=1)
    await gate.entered.wait()

    assert (await post("ping", id=1)).code == 400


async def test_streams_are_limited(make):
    oldest = make(sse=True, max_streams=1)
    await connect(oldest)
    reply = await oldest.request("GET", "/sse")

    assert (reply.code, reply.header("retry-after")) == (503, "60")


async def test_sessions_count_and_have_owners(make):
    async def verify(token):
        return Principal(token)

    http = make(sse=True, max_sessions=1, verify_token=verify, resource="http://127.0.0.1/mcp")
    headers = {"authorization": "Bearer user-a"}
    await connect(http, headers=headers)
    assert (await http.request("GET", "/sse", headers=headers)).code == 503

    [id] = http.app.sessions._open
    other = {"authorization": "Bearer user-b"}
    body = http.rpc("ping", id=1)
    reply = await http.request(
        "POST", "/messages", body=body, query=f"session_id={id}", headers=other
    )
    assert reply.code == 404
