"""WWW-Authenticate: any header is parsed without an error, and a valid one correctly."""

from __future__ import annotations

import re

from interlock.oauth.challenges import MAX_CHALLENGE, challenges, split_scopes, token_challenge
from interlock.text.urls import HTTP_TOKEN
from tests.fuzz.choices import Choices

TOKENS = [
    *(b"Bearer ", b"Basic YWI=", b"realm=", b'"', b"\\", b", ", b"scope=", b"error=", b"=", b"=="),
    *(b'resource_metadata="https://x/y"', b'scope="a b"', b"Digest qop=auth", b"\t", b"Negotiate"),
]

_URLS = ["https://x/y", "https://x/y?a=b,c", 'https://x/"', "x\\y", "", "a, Bearer b=c"]
_SCHEMES = ["Bearer", "bearer", "Basic", "Digest", "DPoP"]
_NAMES = ["realm", "scope", "error", "resource_metadata", "Error", "x"]


def target(data: bytes) -> None:
    choices = Choices(data)
    if choices.flag():
        anything(choices.rest().decode("latin-1"))
    else:
        well_formed(choices)


def anything(header: str) -> None:
    for scheme, parameters in challenges(header):
        assert scheme == scheme.lower()
        assert HTTP_TOKEN.fullmatch(scheme)
        assert all(name == name.lower() and HTTP_TOKEN.fullmatch(name) for name in parameters)
    told = token_challenge(header)
    assert len(told.resource_metadata) <= MAX_CHALLENGE
    assert split_scopes(" ".join(told.scopes)) == told.scopes


def well_formed(choices: Choices) -> None:
    """Write challenges by the grammar, and check that they are parsed as written."""
    meant: list[tuple[str, dict[str, str]]] = []
    written = []
    for scheme in choices.some_of(_SCHEMES, 3):
        names = list(dict.fromkeys(choices.some_of(_NAMES, 3)))
        values = {name: choices.one_of([*_URLS, choices.text()]) for name in names}
        lower = {}
        for name, value in values.items():
            lower.setdefault(name.lower(), value)
        meant.append((scheme.lower(), lower))
        blanks = choices.one_of(["", " ", "\t "])
        told = (f"{name}{blanks}={blanks}{quoted(value)}" for name, value in values.items())
        written.append(f"{scheme} " + choices.one_of([", ", ",", " , ,"]).join(told))
    header = choices.one_of([", ", ",", ", ,"]).join(written)
    if len(header) <= MAX_CHALLENGE and "\n" not in header:
        assert challenges(header) == meant


def quoted(value: str) -> str:
    return '"' + re.sub(r'(["\\])', r"\\\1", value) + '"'
