"""The worker of a caller."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections import Counter

from interlock.gateway.serving.affinity import caller_of, is_enough, place_of
from tests.support.rows import each_row


def head(*headers: str) -> bytes:
    return "\r\n".join(("POST /mcp HTTP/1.1", "Host: a", *headers, "", "")).encode()


def jwt(claims: object, signature: str = "c2ln") -> str:
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    return f"eyJhIjoxfQ.{urlsafe_b64encode(payload).decode().rstrip('=')}.{signature}"


ANNA = {"iss": "https://login.example", "sub": "anna"}
DEEP = b'{"sub":"anna","more":' + b"[" * 20_000


@each_row(
    "headers, caller",
    [
        (["Authorization: Bearer ilk_1"], b"ilk_1"),
        (["AUTHORIZATION:bearer  ilk_1 "], b"ilk_1"),
        (["X-API-Key: ilk_1"], b"ilk_1"),
        (["x-api-key: ilk_2", "authorization: Bearer ilk_1"], b"ilk_1"),
        (["Cookie: a=b; interlock-8080=s1; c=d"], b"interlock-8080=s1"),
        (["cookie: __Host-interlock=s1", "Authorization: Bearer ilk_1"], b"__Host-interlock=s1"),
        (["Cookie: other=1; interlock-login-ab=2", "X-API-Key: ilk_1"], b"ilk_1"),
        ([f"Authorization: Bearer {jwt(ANNA | {'exp': 1})}"], b"https://login.example#anna"),
        ([f"Authorization: Bearer {jwt(ANNA | {'exp': 2}, 'b')}"], b"https://login.example#anna"),
        (["X-Authorization: Bearer ilk_1"], b""),
        (["Authorization:"], b""),
        ([], b""),
    ],
)
def test_caller_is_read_from_the_head(headers: list[str], caller: bytes):
    assert caller_of(head(*headers)) == caller
    assert caller_of(head(*headers) + b"Authorization: Bearer of-the-body\r\n\r\n") == caller


@each_row(
    "token",
    [
        jwt({"iss": "https://login.example"}),
        jwt({"sub": 1}),
        jwt(b"not json"),
        jwt(b'{"sub":"\xff"}'),
        jwt(DEEP),
        "a.b.c",
        "a.b.c.d",
    ],
)
def test_token_without_a_readable_subject_is_its_own_caller(token: str):
    assert caller_of(head(f"Authorization: Bearer {token}")) == token.encode()


def test_part_of_a_head_is_not_enough():
    whole = head("Authorization: Bearer ilk_1")

    assert not any(is_enough(whole[:size]) for size in range(len(whole)))
    assert is_enough(whole)


def test_callers_are_spread_and_only_those_of_a_lost_place_move():
    callers = [b"ilk_%d" % number for number in range(900)]

    before = {each: place_of(each, range(3)) for each in callers}
    after = {each: place_of(each, (0, 2)) for each in callers}

    assert all(250 < count < 350 for count in Counter(before.values()).values())
    assert {each for each in callers if before[each] != after[each]} == {
        each for each in callers if before[each] == 1
    }
