"""Requests to a model's API, and the forms of its answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from interlock.errors import ModelError, ModelInterrupted, ModelUnavailable
from interlock.models.http import ApiRefusal, ModelApi, ModelEndpoint, model_api
from tests.models.wire_http import Answer, WireServer, failure, page
from tests.support.rows import each_row

EVENTS = b'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_api, "_FIRST_PAUSE", 0.001)


@pytest.fixture
async def server() -> AsyncIterator[WireServer]:
    server = WireServer("/v1/answer", lambda _: None, "/elsewhere")
    await server.start()
    yield server
    await server.stop()


def api_of(server: WireServer, url: str = "", **headers: str) -> ModelApi:
    endpoint = ModelEndpoint("openai:m", "m", server.root.removeprefix("http://"), "", "")
    return ModelApi(endpoint, url or f"{server.root}/v1", headers)


async def answered(server: WireServer, *script: Answer) -> tuple[Any, list[Any]]:
    """Post a request; return the document and the events of its answer."""
    server.script = [*script]
    server.asked.clear()
    api = api_of(server)
    try:
        async with await api.post("/answer", {}) as answer:
            return answer.whole, [event async for event in answer]
    finally:
        await api.close()


@each_row(
    "kind",
    ["text/event-stream", "application/json", "text/html", "text/plain", "", "text/event-stream;x"],
)
async def test_first_bytes_decide_whether_an_answer_is_a_stream(
    server: WireServer, kind: str
) -> None:
    headers = {"content-type": kind}

    assert await answered(server, Answer(EVENTS, headers=headers)) == (None, [{"n": 1}, {"n": 2}])
    assert await answered(server, Answer(b' {"n": 1}', headers=headers)) == ({"n": 1}, [])
    assert await answered(server, Answer(b"", headers=headers)) == (None, [])


@each_row(
    ("body", "events"),
    [
        (b": hello\n\n" + EVENTS, [{"n": 1}, {"n": 2}]),
        (EVENTS.replace(b"\n", b"\r\n"), [{"n": 1}, {"n": 2}]),
        (b'\xef\xbb\xbfdata:{"n": 1}\n\n', [{"n": 1}]),
        (b'data: {"n": "\\ud83d"}\n\n', [{"n": "\ud83d"}]),
        (b'data: {"n": "\xed\xa0\xbd\xed\xb8\x80"}\n\n', [{"n": "\ud83d\ude00"}]),
        (b'data: {"n": "a\xf0\x9f"}\n\n', [{"n": "a\ufffd"}]),
        (b'data: {"n":\ndata: 1}\n\n', [{"n": 1}]),
        # Heartbeats of proxies, and fields that are written twice
        (b"data: ping\n\ndata: null\n\ndata: : keep-alive\n\n" + EVENTS, [{"n": 1}, {"n": 2}]),
        (EVENTS.replace(b"data: ", b"data: data: "), [{"n": 1}, {"n": 2}]),
        (b'data: {"n": 1}\n\ndata: "[DONE]"\n\n', [{"n": 1}]),
        (b'data: {"id": 1}{"id": 2}\n\n', [{"id": 1}, {"id": 2}]),
        (b'{"n": 1}\n{"n": 2}\n', [{"n": 1}, {"n": 2}]),
        # Events without empty lines between them, or after the last one
        (b'data: {"n": 1}\ndata: {"n": 2}\ndata: [DONE]\n', [{"n": 1}, {"n": 2}]),
        (b'data: {"n": 1}\n\ndata: {"n": 2}', [{"n": 1}, {"n": 2}]),
    ],
)
async def test_events_are_decoded(server: WireServer, body: bytes, events: list[Any]) -> None:
    assert await answered(server, Answer(body)) == (None, events)


@each_row(
    ("answer", "status", "reason"),
    [
        (failure(400, {"error": {"message": "No."}}), 400, "No."),
        (failure(200, {"error": {"message": "No.", "code": 400}}), 400, "No."),
        (Answer(b'data: {"error": {"message": "No.", "code": 404}}\n\n'), 404, "No."),
        (failure(200, {"error": "No."}), 200, "No."),
        (failure(200, {"code": "limit", "message": "No."}), 200, "No."),
        (Answer(b'event: error\ndata: {"message": "No."}\n\n'), 200, "No."),
        (Answer(b"event: error\ndata: No.\n\n"), 200, "No."),
        (page(413), 413, "Welcome to nginx"),
        (
            Answer(b"upstream says no\n", 422, {"content-type": "text/plain"}),
            422,
            "upstream says no",
        ),
    ],
)
async def test_refusal_has_its_status_and_its_reason(
    server: WireServer, answer: Answer, status: int, reason: str
) -> None:
    with pytest.raises(ApiRefusal) as caught:
        await answered(server, answer)

    assert (caught.value.status, caught.value.reason) == (status, reason)
    assert len(server.asked) == 1


@each_row(
    ("answer", "expected", "words"),
    [
        (page(200), ModelUnavailable, "web page (Welcome to nginx)"),
        (Answer(b"{nonsense", 200), ModelInterrupted, "not JSON"),
        (Answer(b'data: {"n": 1}\n\ndata: {"error": "No GPU"}\n\n'), ModelInterrupted, "No GPU"),
        (Answer(b"data: Internal error\n\n"), ModelInterrupted, "ended with 'Internal error'"),
        (Answer(EVENTS, cut=True, slice=10), ModelInterrupted, "cut off"),
        (Answer(b"data: {nonsense\n\n"), ModelInterrupted, "not JSON"),
        (Answer(b"data: " + b"[" * 5_000), ModelInterrupted, "not JSON"),
    ],
)
async def test_broken_answer_is_an_error_that_says_why(
    server: WireServer, answer: Answer, expected: type[ModelError], words: str
) -> None:
    if answer.body.endswith(b"["):
        answer = answer._replace(body=answer.body + b"\n\n")
    if answer.cut:
        answer = answer._replace(body=EVENTS[:20])

    with pytest.raises(expected) as caught:
        await answered(server, answer)

    assert words in str(caught.value)


@each_row(
    ("status", "headers", "requests"),
    [
        (500, {}, 3),
        (409, {}, 3),
        (408, {}, 3),
        (429, {"retry_after": "0"}, 3),
        (429, {"retry_after": "61"}, 1),
        (429, {"retry_after": "Fri, 01 Jan 2100 00:00:00 GMT"}, 1),
        (500, {"x_should_retry": "false"}, 1),
        (400, {}, 1),
        (401, {}, 1),
    ],
)
async def test_only_failures_that_may_pass_are_retried(
    server: WireServer, status: int, headers: dict[str, str], requests: int
) -> None:
    with pytest.raises(ApiRefusal):
        await answered(server, *[failure(status, {}, **headers)] * 3)

    assert len(server.asked) == requests


@each_row(
    ("error", "requests"),
    [
        ({"code": 503, "message": "busy"}, 3),
        ({"type": "overloaded_error", "message": "Overloaded"}, 3),
        # https://github.com/anomalyco/opencode/issues/1018
        ({"code": "tool_use_failed", "status_code": 400, "message": "no call"}, 3),
        ({"code": 400, "message": "bad"}, 1),
    ],
)
async def test_stream_that_begins_with_an_error_is_retried_like_a_refusal(
    server: WireServer, error: dict[str, Any], requests: int
) -> None:
    body = f"data: {json.dumps({'error': error})}\n\n".encode()

    with pytest.raises(ApiRefusal):
        await answered(server, *[Answer(body)] * 3)

    assert len(server.asked) == requests


async def test_user_of_a_url_and_its_query_are_sent(server: WireServer) -> None:
    server.script = [Answer(EVENTS)]
    root = server.root.replace("http://", "http://me:p%40ss@")
    api = api_of(server, f"{root}/v1/?version=2")

    await api.post("/answer", {})
    await api.close()

    assert server.asked[0].headers["Authorization"] == "Basic bWU6cEBzcw=="


async def test_redirect_to_another_host_is_not_followed(server: WireServer) -> None:
    moved = Answer(b"", 307, {"location": "http://localhost:9/v1/answer"})

    with pytest.raises(ModelUnavailable, match="redirects to http://localhost:9/v1/answer"):
        await answered(server, moved)


async def test_connection_is_used_again_after_a_stream(server: WireServer) -> None:
    ports = []

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.append(request.transport.get_extra_info("peername")[1])
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        await response.write(EVENTS)
        return response

    app = web.Application()
    app.router.add_post("/v1/answer", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    api = api_of(server, f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    for _ in range(2):
        async with await api.post("/answer", {}) as events:
            assert len([event async for event in events]) == 2
    await api.close()
    await runner.cleanup()

    assert ports[0] == ports[1]


async def test_request_with_half_a_character_is_sent(server: WireServer) -> None:
    server.script = [Answer(EVENTS)]
    api = api_of(server)

    await api.post("/answer", {"text": "a\ud83d"})
    await api.close()

    assert json.dumps(server.asked[0].body) == json.dumps({"text": "a\ufffd"})
