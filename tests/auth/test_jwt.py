"""JSON Web Tokens: good ones, forged ones, and the issuer's keys coming and going."""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import hmac
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import jwt as pyjwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from interlock.auth import BearerAuth, jwt
from interlock.auth.jwt import JwtVerifier
from interlock.auth.principal import Principal
from interlock.errors import AuthError, AuthUnavailable, ConfigError, MissingExtra
from interlock.server.wire_errors import request_refusal
from tests.support.rows import each_row

ISSUER = "https://issuer.example/realms/one"
AUDIENCE = "https://api.example/mcp"

RSA = rsa.generate_private_key(65537, 2048)
OTHER_RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.generate()


def public(key: Any, kid: str | None = None, **members: Any) -> dict[str, Any]:
    kinds = {
        rsa.RSAPrivateKey: pyjwt.algorithms.RSAAlgorithm,
        ec.EllipticCurvePrivateKey: pyjwt.algorithms.ECAlgorithm,
        ed25519.Ed25519PrivateKey: pyjwt.algorithms.OKPAlgorithm,
    }
    algorithm = next(each for kind, each in kinds.items() if isinstance(key, kind))
    jwk = algorithm.to_jwk(key.public_key(), as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, **({} if kid is None else {"kid": kid}), **members}


KEYS = {"keys": [public(RSA, "rsa-1"), public(P256, "ec-1")]}


def claims(**changes: Any) -> dict[str, Any]:
    now = time.time()
    made = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 300, **changes}
    return {name: value for name, value in made.items() if value is not None}


def token(
    key: Any = RSA, algorithm: str = "RS256", kid: str | None = "rsa-1", /, **changes: Any
) -> str:
    header = changes.pop("header", {})
    if kid is not None:
        header = {"kid": kid, **header}
    return pyjwt.encode(claims(**changes), key, algorithm, header)


def forged(header: dict[str, Any], payload: dict[str, Any], secret: bytes | None = None) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(p).encode()) for p in (header, payload)]
    signed = b".".join(part.rstrip(b"=") for part in parts)
    mac = b"" if secret is None else hmac.digest(secret, signed, hashlib.sha256)
    return (signed + b"." + base64.urlsafe_b64encode(mac).rstrip(b"=")).decode()


def verifier(**options: Any) -> JwtVerifier:
    return JwtVerifier(**{"issuer": ISSUER, "audience": AUDIENCE, "jwks": KEYS, **options})


# Good tokens


@each_row(
    ("made", "algorithms"),
    [
        (lambda: token(), ["RS256"]),
        (lambda: token(P256, "ES256", "ec-1"), ["RS256", "ES256"]),
        (lambda: token(RSA, "PS384"), ["PS384"]),
        (lambda: token(P384, "ES384", "ec-2"), ["ES384"]),
        (lambda: token(ED, "EdDSA", "ed-1"), ["EdDSA"]),
        (lambda: token(RSA, "RS256", None), ["RS256"]),
        (lambda: token(aud=["https://other.example", AUDIENCE]), ["RS256"]),
        (lambda: token(exp=time.time() - 30), ["RS256"]),
        (lambda: token(nbf=time.time() + 30), ["RS256"]),
        (lambda: token(header={"typ": "at+jwt"}), ["RS256"]),
    ],
    ids=[
        "RS256",
        "ES256",
        "PS384",
        "ES384",
        "EdDSA",
        "no kid",
        "audiences",
        "leeway",
        "nbf",
        "at+jwt",
    ],
)
async def test_token_of_the_issuer_for_this_audience_is_accepted(made, algorithms):
    keys = {"keys": [*KEYS["keys"], public(P384, "ec-2"), public(ED, "ed-1")]}

    principal = await verifier(algorithms=algorithms, jwks=keys)(made())

    assert isinstance(principal, Principal)
    assert principal.id == f"{ISSUER}#ada"
    assert principal.claims["sub"] == "ada"


@each_row(
    ("told", "scopes"),
    [
        ({"scope": "notes:read notes:write"}, {"notes:read", "notes:write"}),
        ({"scp": ["notes:read", "notes:write"]}, {"notes:read", "notes:write"}),
        ({"scp": "notes:read"}, {"notes:read"}),
        ({"scope": "notes:read", "scp": ["admin"]}, set()),
        ({"scope": "notes:read admin", "scp": ["admin"]}, {"admin"}),
        ({"scope": ""}, set()),
        ({"scope": "", "scp": "admin"}, set()),
        ({"scope": {"admin": True}}, set()),
        ({"scope": ["notes:read", 7]}, {"notes:read"}),
        ({}, set()),
    ],
)
async def test_principal_has_the_scopes_in_the_token(told, scopes):
    principal = await verifier()(token(**told))

    assert principal is not None
    assert principal.scopes == scopes


async def test_one_of_several_audiences_is_enough():
    several = verifier(audience=["https://api.example", AUDIENCE])

    assert await several(token()) is not None
    assert await several(token(aud="https://elsewhere.example")) is None


# Bad tokens


def pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def der(key: rsa.RSAPrivateKey) -> bytes:
    return key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def cut(token: str, part: int, text: str) -> str:
    parts = token.split(".")
    parts[part] = text
    return ".".join(parts)


def swapped(token: str, **changes: Any) -> str:
    """Change the claims and keep the signature."""
    payload = base64.urlsafe_b64encode(json.dumps(claims(**changes)).encode()).rstrip(b"=")
    return cut(token, 1, payload.decode())


def signed_in_four_parts() -> str:
    """Sign what looks like two payloads, which some decoders take for one."""
    header, payload, _ = token().split(".")
    signed = f"{header}.{payload[:8]}.{payload[8:]}"
    signature = RSA.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


DEEP = b'{"alg": "RS256", "kid": "rsa-1", "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}"
DEEP_HEADER = base64.urlsafe_b64encode(DEEP).decode().rstrip("=")

ATTACKS = {
    "no algorithm": lambda: forged({"alg": "none", "kid": "rsa-1"}, claims()),
    "No algorithm": lambda: forged({"alg": "None", "kid": "rsa-1"}, claims()),
    "algorithm missing": lambda: forged({"kid": "rsa-1"}, claims()),
    "algorithm not text": lambda: forged({"alg": ["RS256"], "kid": "rsa-1"}, claims()),
    "public key as secret, PEM": lambda: forged({"alg": "HS256"}, claims(), pem(RSA)),
    "public key as secret, DER": lambda: forged({"alg": "HS256"}, claims(), der(RSA)),
    "public key as secret, JWK": lambda: forged(
        {"alg": "HS256", "kid": "rsa-1"}, claims(), json.dumps(public(RSA, "rsa-1")).encode()
    ),
    "empty secret": lambda: forged({"alg": "HS256", "kid": ""}, claims(), b""),
    "algorithm not pinned": lambda: token(RSA, "RS512"),
    "key of another algorithm": lambda: token(RSA, "RS256", "ec-1"),
    "signature removed": lambda: cut(token(), 2, ""),
    "signature of another token": lambda: swapped(token(), sub="root"),
    "another issuer's key": lambda: token(OTHER_RSA),
    "its own key": lambda: token(OTHER_RSA, header={"jwk": public(OTHER_RSA)}),
    "another kind of token": lambda: token(header={"typ": "logout+jwt"}),
    "kind not text": lambda: forged({"alg": "RS256", "kid": "rsa-1", "typ": 1}, claims(), b"x"),
    "critical extension": lambda: token(header={"crit": ["b64"], "b64": True}),
    "wrong audience": lambda: token(aud="https://other.example/mcp"),
    "audience longer": lambda: token(aud=AUDIENCE + "/"),
    "audience shorter": lambda: token(aud=AUDIENCE[:-1]),
    "audience empty": lambda: token(aud=[]),
    "audience missing": lambda: token(aud=None),
    "audience an object": lambda: token(aud={AUDIENCE: 1}),
    "wrong issuer": lambda: token(iss="https://issuer.example/realms/two"),
    "issuer shorter": lambda: token(iss=ISSUER[:-1]),
    "issuer longer": lambda: token(iss=ISSUER + "/"),
    "issuer missing": lambda: token(iss=None),
    "expired": lambda: token(exp=time.time() - 90),
    "expiry missing": lambda: token(exp=None),
    "expiry not a number": lambda: token(exp="never"),
    "expiry infinite": lambda: token(exp=float("inf")),
    "expiry not a date": lambda: token(exp=float("nan")),
    "not yet": lambda: token(nbf=time.time() + 90),
    "issued in the future": lambda: token(iat=time.time() + 90),
    "subject missing": lambda: token(sub=None),
    "subject empty": lambda: token(sub=""),
    "kid of a file": lambda: token(OTHER_RSA, "RS256", "../../../../dev/null"),
    "kid of a query": lambda: token(OTHER_RSA, "RS256", "x' UNION SELECT 'key"),
    "kid of a URL": lambda: token(OTHER_RSA, "RS256", "https://evil.example/keys"),
    "kid not text": lambda: forged({"alg": "RS256", "kid": {"a": 1}}, claims(), b"x"),
    "kid empty": lambda: token(OTHER_RSA, "RS256", ""),
    "nothing": lambda: "",
    "dots": lambda: "..",
    "four parts": lambda: token() + ".x",
    "critical extensions, none": lambda: token(header={"crit": []}),
    "critical extensions, no list": lambda: token(header={"crit": False}),
    "four parts, signed as three": lambda: signed_in_four_parts(),
    "five parts, encrypted": lambda: "a.b.c.d.e",
    "header not base64": lambda: cut(token(), 0, "$$$"),
    "header not an object": lambda: cut(token(), 0, "W10"),
    "payload not JSON": lambda: cut(token(), 1, "AAAA"),
    "header deep": lambda: cut(token(), 0, base64.urlsafe_b64encode(b"[" * 9_000).decode()),
    "header with a deep member": lambda: cut(token(), 0, DEEP_HEADER),
    "huge": lambda: token(padding="x" * 16_384),
    "not ASCII": lambda: cut(token(), 0, "é" * 10),
}


@each_row("attack", ATTACKS.values(), ids=ATTACKS)
async def test_invalid_token_has_no_principal(attack):
    assert await verifier()(attack()) is None


async def test_required_claim_that_is_missing_refuses_the_token():
    strict = verifier(required_claims=["tenant"])

    assert await strict(token()) is None
    assert await strict(token(tenant="one")) is not None


async def test_a_token_without_kid_is_refused_when_several_keys_could_be_meant():
    keys = {"keys": [public(RSA, "rsa-1"), public(OTHER_RSA, "rsa-2")]}

    assert await verifier(jwks=keys)(token(RSA, "RS256", None)) is None


# Keys that are not used


@each_row(
    "key",
    [
        {"kty": "oct", "kid": "k", "k": "c2VjcmV0"},
        public(RSA, "k", use="enc"),
        public(RSA, "k", key_ops=["encrypt"]),
        public(RSA, "k", key_ops=7),
        public(RSA, "k", alg="RS512"),
        {**pyjwt.algorithms.RSAAlgorithm.to_jwk(RSA, as_dict=True), "key_ops": ["verify"]},
        public(rsa.generate_private_key(65537, 1024), "k"),
        public(P384, "k"),
        {"kty": "RSA", "kid": "k", "n": "not a number", "e": "AQAB"},
        {"kty": "RSA", "kid": "k"},
        {"kty": ["RSA"]},
        {},
    ],
)
def test_key_not_meant_for_signatures_is_ignored(key):
    with pytest.raises(ConfigError, match="no usable key"):
        verifier(jwks={"keys": [key]})


@each_row(
    ("options", "words"),
    [
        ({"algorithms": ["HS256"]}, "HS256"),
        ({"algorithms": ["RS256", "none"]}, "none"),
        ({"algorithms": []}, "algorithms"),
        ({"audience": ""}, "audience"),
        ({"audience": []}, "audience"),
        ({"issuer": "http://issuer.example"}, "issuer"),
        ({"issuer": "https://issuer.example/#a"}, "issuer"),
        ({"jwks_url": "https://issuer.example/keys"}, "jwks_url"),
        ({"jwks": None, "jwks_url": "http://issuer.example/keys"}, "https"),
        ({"jwks": None, "jwks_url": "file:///etc/passwd"}, "jwks_url"),
        ({"jwks": {"keys": {}}}, "JWKS"),
        ({"jwks": {"keys": [{}] * 101}}, "101"),
    ],
)
def test_a_wrong_setting_is_named(options, words):
    with pytest.raises(ConfigError, match=words):
        verifier(**options)


def test_missing_library_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jwt", None)

    with pytest.raises(MissingExtra, match="serve"):
        verifier()


# Keys by HTTP


class Issuer:
    """A server of keys on loopback."""

    def __init__(self) -> None:
        self.keys: Any = KEYS
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        self.arrived = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        self.arrived.set()
        await self.gate.wait()
        body = self.keys if isinstance(self.keys, bytes) else json.dumps(self.keys).encode()
        return web.Response(status=self.status, body=body, headers=self.headers)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    app = web.Application()
    app.router.add_get("/keys", issuer.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
    yield issuer
    issuer.gate.set()
    await runner.cleanup()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1_000.0]
    monkeypatch.setattr(jwt, "monotonic", lambda: now[0])
    return now


def fetching(issuer: Issuer) -> JwtVerifier:
    return verifier(jwks=None, jwks_url=issuer.url)


async def fetched(verify: JwtVerifier) -> None:
    """Wait for a fetch that runs in the background."""
    task = verify._statements._keys._fetching
    if task is not None:
        await task


async def test_keys_are_fetched_once_for_many_tokens(issuer):
    verify = fetching(issuer)

    principals = await asyncio.gather(*(verify(token()) for _ in range(10)))

    assert None not in principals
    assert issuer.asked == 1


async def test_an_unknown_key_id_fetches_again_but_not_more_often_than_allowed(issuer, clock):
    verify = fetching(issuer)
    await verify(token())
    for number in range(10):
        assert await verify(token(OTHER_RSA, "RS256", f"guess-{number}")) is None
    assert issuer.asked == 1

    clock[0] += jwt.FETCH_EVERY
    for number in range(10):
        assert await verify(token(OTHER_RSA, "RS256", f"guess-{number}")) is None
    assert issuer.asked == 2


async def test_token_of_another_algorithm_fetches_no_keys(issuer):
    assert await fetching(issuer)(token(P384, "ES384", "ec-2")) is None
    assert issuer.asked == 0


async def test_a_rotated_key_is_found(issuer, clock):
    verify = fetching(issuer)
    assert await verify(token()) is not None
    issuer.keys = {"keys": [public(RSA, "rsa-1"), public(OTHER_RSA, "rsa-2")]}
    clock[0] += jwt.FETCH_EVERY

    assert await verify(token(OTHER_RSA, "RS256", "rsa-2")) is not None
    assert await verify(token()) is not None


async def test_removed_key_is_refused_after_the_next_fetch(issuer, clock):
    verify = fetching(issuer)
    assert await verify(token()) is not None
    issuer.keys = {"keys": [public(OTHER_RSA, "rsa-2")]}
    clock[0] += jwt.KEYS_FRESH + 1

    await verify(token())  # has its key still; keys are fetched meanwhile
    await fetched(verify)

    assert await verify(token()) is None


async def test_removed_key_is_refused_after_a_pause(issuer, clock):
    verify = fetching(issuer)
    assert await verify(token()) is not None
    issuer.keys = {"keys": [public(OTHER_RSA, "rsa-2")]}
    clock[0] += jwt.KEYS_USABLE + 1

    assert await verify(token()) is None


async def test_known_keys_are_used_during_a_short_outage_of_the_issuer(issuer, clock):
    verify = fetching(issuer)
    await verify(token())
    issuer.status = 500
    clock[0] += jwt.KEYS_FRESH + 1

    assert await verify(token()) is not None
    await fetched(verify)
    assert await verify(token()) is not None
    assert issuer.asked == 2


async def test_long_outage_of_the_issuer_refuses_every_token(issuer, clock):
    verify = fetching(issuer)
    await verify(token())
    issuer.status = 500
    clock[0] += jwt.KEYS_USABLE + 1

    for _ in range(3):
        with pytest.raises(AuthUnavailable):
            await verify(token())
    assert issuer.asked == 2

    issuer.status = 200
    clock[0] += jwt.FETCH_EVERY
    assert await verify(token()) is not None


async def test_unknown_key_id_is_unavailable_not_refused_while_the_issuer_is_down(issuer, clock):
    verify = fetching(issuer)
    await verify(token())
    issuer.status = 500
    clock[0] += jwt.FETCH_EVERY

    for pause in (0.0, 1.0, jwt.FETCH_EVERY - 2):  # the first one fetches, the others may not
        clock[0] += pause
        with pytest.raises(AuthUnavailable):
            await verify(token(OTHER_RSA, "RS256", "rsa-2"))
        assert await verify(token()) is not None
    assert issuer.asked == 2


async def test_unknown_key_id_is_refused_again_once_the_issuer_answers(issuer, clock):
    verify = fetching(issuer)
    await verify(token())
    issuer.status = 500
    clock[0] += jwt.FETCH_EVERY
    with pytest.raises(AuthUnavailable):
        await verify(token(OTHER_RSA, "RS256", "rsa-2"))

    issuer.status = 200
    clock[0] += jwt.FETCH_EVERY
    for _ in range(2):
        assert await verify(token(OTHER_RSA, "RS256", "rsa-2")) is None
    assert issuer.asked == 3


async def test_cancelled_request_does_not_cancel_the_fetch_of_keys(issuer):
    verify = fetching(issuer)
    issuer.gate.clear()
    gone = asyncio.create_task(verify(token()))
    await issuer.arrived.wait()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    issuer.gate.set()

    assert await verify(token()) is not None
    assert issuer.asked == 1


@pytest.mark.parametrize(
    "answer",
    [
        {"status": 404},
        {"status": 204},
        {"keys": b""},
        {"keys": b"<html>"},
        {"keys": b"[" * 10_000},
        {"keys": b'{"keys": []}'},
        {"keys": b" " * 262_144 + json.dumps(KEYS).encode()},
        {"keys": {"keys": KEYS["keys"] * 51}},
        {"headers": {"Content-Encoding": "gzip"}, "keys": gzip.compress(json.dumps(KEYS).encode())},
    ],
    ids=lambda answer: repr(answer)[:40],
)
async def test_response_that_is_not_a_key_set_refuses_every_token(issuer, answer):
    for name, value in answer.items():
        setattr(issuer, name, value)

    with pytest.raises(AuthUnavailable):
        await fetching(issuer)(token())
    assert issuer.asked == 1


async def test_an_unusable_key_of_a_set_costs_no_other(issuer):
    issuer.keys = {"keys": [None, "x", {"kty": 5}, *KEYS["keys"]]}

    assert await fetching(issuer)(token()) is not None


async def test_redirects_are_not_followed(issuer):
    issuer.status = 302
    issuer.headers = {"Location": issuer.url}

    with pytest.raises(AuthUnavailable):
        await fetching(issuer)(token())
    assert issuer.asked == 1


async def test_issuer_that_does_not_answer_times_out(issuer, monkeypatch):
    monkeypatch.setattr(jwt, "FETCH_TIMEOUT", 0.01)
    issuer.gate.clear()

    with pytest.raises(AuthUnavailable):
        await fetching(issuer)(token())


@pytest.mark.parametrize("name", ["jku", "x5u"])
async def test_key_location_in_a_token_is_ignored(issuer, name):
    issuer.keys = {"keys": [public(OTHER_RSA, "rsa-1")]}

    assert await verifier()(token(OTHER_RSA, header={name: issuer.url})) is None
    assert issuer.asked == 0


# With BearerAuth


async def test_bearer_auth_works_with_the_verifier(caplog):
    guard = BearerAuth(verify=verifier(), resource=AUDIENCE, required_scopes=["notes:read"])
    good, poor = token(scope="notes:read"), token(scope="notes:list")

    async def identify(text: str) -> Principal:
        return await guard.authenticate([(b"authorization", f"Bearer {text}".encode())], None)

    assert (await identify(good)).scopes == {"notes:read"}
    for refused, status in ((poor, 403), (token(exp=1), 401), ("a.b.c", 401)):
        with pytest.raises(AuthError) as error:
            await identify(refused)
        assert error.value.status == status
    assert good not in f"{guard!r} {caplog.text}"


async def test_outage_of_the_issuer_is_a_503_with_retry_after(issuer):
    issuer.status = 500
    guard = BearerAuth(verify=fetching(issuer), resource=AUDIENCE)

    with pytest.raises(AuthUnavailable) as error:
        await guard.authenticate([(b"authorization", f"Bearer {token()}".encode())], None)

    refusal = request_refusal(error.value)
    assert refusal is not None
    assert (refusal.status, refusal.reason, refusal.retry_after) == (503, "auth_unavailable", 5.0)


# The issuer's metadata


class Published:
    """An issuer with metadata at one of the well-known URLs."""

    def __init__(self) -> None:
        self.documents: dict[str, Any] = {}
        self.asked: list[str] = []
        self.home = ""

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.path)
        if request.path not in self.documents:
            return web.Response(status=404)
        return web.json_response(self.documents[request.path])


@pytest.fixture
async def published() -> AsyncIterator[Published]:
    published = Published()
    app = web.Application()
    app.router.add_get("/{path:.*}", published.answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    published.home = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield published
    await runner.cleanup()


WELL_KNOWN = "/.well-known"


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("", f"{WELL_KNOWN}/openid-configuration"),
        ("", f"{WELL_KNOWN}/oauth-authorization-server"),
        ("/", f"{WELL_KNOWN}/openid-configuration"),
        ("/realms/a", f"/realms/a{WELL_KNOWN}/openid-configuration"),
        ("/realms/a", f"{WELL_KNOWN}/oauth-authorization-server/realms/a"),
    ],
)
async def test_keys_are_found_by_the_metadata_of_the_issuer(published, path, place):
    issuer = published.home + path
    published.documents = {
        place: {"issuer": issuer, "jwks_uri": f"{published.home}/keys", "more": 1},
        "/keys": KEYS,
    }
    verify = JwtVerifier(issuer, AUDIENCE)

    principal = await verify(token(iss=issuer))
    assert principal is not None
    assert principal.id == f"{issuer}#ada"
    assert await verify(token()) is None
    assert published.asked.count("/keys") == 1


@each_row(
    ("changes", "says"),
    [
        ({"issuer": "https://other.example"}, "about the issuer 'https://other.example'"),
        ({"jwks_uri": "http://keys.example/"}, "must be https, or http on loopback"),
        ({"jwks_uri": 3}, "Expected `str`"),
        (None, "status 404"),
    ],
)
async def test_metadata_that_is_not_usable_is_named_in_the_log(published, caplog, changes, says):
    caplog.clear()
    document = {"issuer": published.home, "jwks_uri": f"{published.home}/keys"}
    place = f"{WELL_KNOWN}/openid-configuration"
    published.documents = {} if changes is None else {place: document | changes}

    with pytest.raises(AuthUnavailable):
        await JwtVerifier(published.home, AUDIENCE)(token(iss=published.home))
    assert says in caplog.text
    assert place in caplog.text
