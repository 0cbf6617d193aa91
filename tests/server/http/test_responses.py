from __future__ import annotations

import json
from typing import Any

from interlock.server.http.responses import HttpRefusal, no_memory, refuse, reply_empty


async def sent_by(reply: Any) -> tuple[int, dict[bytes, bytes], bytes]:
    """Return the status, headers and body that a reply sends."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    await reply(send)
    start, body = messages
    return start["status"], dict(start["headers"]), body["body"]


async def test_refusal_is_a_json_rpc_error_with_its_length_and_headers():
    refusal = HttpRefusal(400, "no é", data={"a": 1}, headers=[(b"x-a", b"1")], id=7)
    status, headers, body = await sent_by(lambda send: refuse(send, refusal))

    error = json.loads(body)
    assert status == 400
    assert headers[b"content-type"] == b"application/json"
    assert headers[b"content-length"] == str(len(body)).encode()
    assert headers[b"x-a"] == b"1"
    assert error["id"] == 7
    assert error["error"] == {"code": -32600, "message": "no é", "data": {"a": 1}}


async def test_refusal_for_lack_of_memory_has_retry_after():
    status, headers, _ = await sent_by(lambda send: refuse(send, no_memory()))

    assert status == 503
    assert headers[b"retry-after"] == b"60"


async def test_response_204_has_no_content_length_and_other_empty_responses_have():
    for status, length in ((202, b"0"), (204, None)):
        _, headers, body = await sent_by(lambda send, status=status: reply_empty(send, status))
        assert headers.get(b"content-length") == length
        assert body == b""
