"""Other clients log in to our protected server at a real authorization server."""

from __future__ import annotations

import pytest

from tests.support.authorization import Protected


@pytest.mark.filterwarnings("ignore:Using in-memory token storage")
@pytest.mark.parametrize("peer", ["mcp2", "fastmcp4"])
async def test_a_peer_logs_in_again_when_its_token_is_refused(
    protected_server: Protected, peer: str
) -> None:
    from tests.interop.peers import logins  # takes a second, which only this file needs

    person = logins.Person(protected_server)
    async with getattr(logins, peer)(protected_server, person) as client:
        before = await client.call_tool("who", {})
        await client.call_tool("sign_out", {})
        after = await client.call_tool("who", {})

    assert [result.content[0].text for result in (before, after)] == ["ada: notes:read"] * 2
    assert person.logins == 2
    assert (await protected_server.done())["registrations"] == 1
