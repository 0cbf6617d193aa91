"""Requests to URLs that servers name: which are allowed, and which answers are accepted."""

from __future__ import annotations

import asyncio
import datetime
import gzip
import ipaddress
import ssl
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from interlock.errors import (
    AuthError,
    HttpError,
    MessageTooLarge,
    RedirectRefused,
    RemoteProtocolError,
    RequestTimeout,
    StreamEnded,
    Unreachable,
)
from interlock.oauth import fetcher
from interlock.oauth.fetcher import FetchedResponse, Fetcher
from tests.support.rows import each_row

HERE = "http://127.0.0.1/mcp"
AWAY = "https://mcp.example/mcp"

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(autouse=True)
def no_proxy_and_no_own_ca(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)


class Server:
    """Sends the same bytes on each connection, and records what it receives."""

    def __init__(self) -> None:
        self.port = 0
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.answers: list[bytes] = []
        self.by_connection: list[list[bytes]] = []  # the answers to the next connections
        self.connections = 0
        self.is_mute = False
        self.is_hasty = False
        self.asked = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def will_answer(
        self, body: bytes = b"{}", *, status: str = "200 OK", headers: str = ""
    ) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
        self.answers = [head.encode() + body]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self.by_connection:
            self.answers = self.by_connection.pop(0)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.is_hasty:
                writer.write(self.answers[0])
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            length = next(
                (
                    int(line.split(":")[1])
                    for line in head.splitlines()
                    if line.lower().startswith("content-length")
                ),
                0,
            )
            self.bodies.append(await reader.readexactly(length))
            self.asked.set()
            if self.is_mute:
                await reader.read()
            for part in self.answers:
                writer.write(part)
                await writer.drain()
        writer.close()


Start = Callable[..., Awaitable[Server]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[asyncio.Server] = []
    served: set[asyncio.Task[None]] = set()

    async def start(context: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Server:
        server = Server()
        server.will_answer()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            served.add(task)
            await server.serve(reader, writer)
            with suppress(OSError):
                await writer.wait_closed()

        listening = await asyncio.start_server(serve, host, 0, ssl=context)
        running.append(listening)
        server.port = listening.sockets[0].getsockname()[1]
        return server

    yield start
    for each in running:
        each.close()
    await asyncio.gather(*served)
    for each in running:
        await each.wait_closed()


@pytest.fixture
async def server(start: Start) -> Server:
    return await start()


class Names:
    """A name server: successive answers for each name; the last one is repeated."""

    def __init__(self, **answers: list[str] | str) -> None:
        self.asked: list[str] = []
        self._answers = {
            name.replace("_", "."): [answer] if isinstance(answer, str) else list(answer)
            for name, answer in answers.items()
        }

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        answers = self._answers.get(host)
        if not answers:
            raise OSError("no such name")
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        return answer.split()


def near(server: Server) -> Fetcher:
    return Fetcher(server.url)


# Certificates


@pytest.fixture(scope="module")
def authority() -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    return certificate("authority", key, None), key


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    *,
    days: int = 1,
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    by, by_key = (issuer[0].subject, issuer[1]) if issuer else (subject, key)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(by_key.public_key()), False
        )
    )
    if issuer is None:
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        builder = builder.add_extension(x509.BasicConstraints(True, None), True)
        builder = builder.add_extension(usage, True)
    else:
        names: list[x509.GeneralName] = [x509.DNSName(name)]
        with suppress(ValueError):
            names = [x509.IPAddress(ipaddress.ip_address(name))]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), False)
    return builder.sign(by_key, hashes.SHA256())


@pytest.fixture
def identity(
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., ssl.SSLContext]:
    """Return a server's TLS context for a name, from a CA that the environment trusts."""
    pem = serialization.Encoding.PEM
    (tmp_path / "ca.pem").write_bytes(authority[0].public_bytes(pem))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))

    def identity(name: str, *, days: int = 1) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        plain = serialization.NoEncryption()
        pkcs8 = serialization.PrivateFormat.PKCS8
        (tmp_path / "key.pem").write_bytes(key.private_bytes(pem, pkcs8, plain))
        own = certificate(name, key, authority, days=days)
        (tmp_path / "own.pem").write_bytes(own.public_bytes(pem))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "own.pem", tmp_path / "key.pem")
        return context

    return identity


# Which addresses are asked

REFUSED = [
    "https://10.0.0.1/",
    "https://100.64.0.1/",
    "https://127.0.0.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://172.16.0.1/",
    "https://192.168.1.1/",
    "https://0.0.0.0/",
    "https://192.0.2.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    "https://[::]/",
    "https://[::1]/",
    "https://[fc00::1]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:a9fe:a9fe]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/",
    "https://[64:ff9b::127.0.0.1]/",
    "https://[64:ff9b:1::8.8.8.8]/",
    "https://[2001:db8::1]/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://017700000001/",
    "https://127.1/",
    "https://0177.0.0.1/",
    "https://0x7f.0.0.1/",
    "https://127.0.0.1./",
    "https://127%2e0%2e0%2e1/",
    "https://①②⑦.⓪.⓪.①/",
    "https://localhost/",
    "https://localhost./",
    "http://8.8.8.8/",
    "ftp://8.8.8.8/",
    "file:///etc/passwd",
    "//8.8.8.8/",
    "8.8.8.8",
    "",
    "https://",
    "https:///path",
    "https://8.8.8.8:0/",
    "https://8.8.8.8:99999/",
    "https://[::1",
    "https://user@8.8.8.8/",
    "https://user:SECRET@8.8.8.8/",
    "https://8.8.8.8\\@as.example/",
    "https://8.8.8.8/a b",
    "https://8.8.8.8/a\nb",
    "https://8.8.8.8/ä",
    "https://8.8.8.8/" + 9_000 * "a",
    "http://[::1]@",  # on which yarl raises IndexError
]


async def test_a_url_may_have_8192_characters(server: Server):
    url = server.url + "/" + (fetcher.MAX_URL - len(server.url) - 1) * "a"

    assert (await near(server).get(url)).status == 200
    with pytest.raises(AuthError, match="or more than 8192"):
        await near(server).get(url + "a")


@each_row("url", REFUSED)
async def test_an_address_that_is_not_public_is_refused(url: str):
    names = Names(mcp_example="8.8.8.8", localhost="127.0.0.1", **{"localhost.": "127.0.0.1"})

    with pytest.raises(AuthError, match="is refused") as raised:
        await Fetcher(AWAY, resolve=names).get(url)

    assert "SECRET" not in str(raised.value)
    assert len(str(raised.value)) < 250
    assert str(raised.value).isprintable()


@each_row(
    "found",
    ["10.0.0.1", "8.8.8.8 127.0.0.1", "2606:4700::1 fe80::1%eth0", "8.8.8.8 ::ffff:10.0.0.1"],
)
async def test_a_name_with_one_address_that_is_not_public_is_refused(found: str):
    names = Names(as_example=found)

    with pytest.raises(AuthError, match=r"^https://as\.example/x is refused: ") as raised:
        await Fetcher(resolve=names).get("https://as.example/x?code=SECRET")

    assert names.asked == ["as.example"]
    assert not any(address in str(raised.value) for address in found.split())
    assert "SECRET" not in str(raised.value)


@each_row(
    ("address", "reason"),
    [
        ("127.0.0.1", "it is on this machine, but the server that refers to it is not"),
        ("10.0.0.1", "it is in a private network, but the server that refers to it is not"),
        ("169.254.169.254", "its IP address is in a reserved range, which no server uses"),
    ],
)
async def test_error_states_why_an_address_is_refused(address: str, reason: str):
    names = Names(as_example=address)

    with pytest.raises(AuthError) as raised:
        await Fetcher(resolve=names).get("https://as.example/x")

    assert str(raised.value) == f"https://as.example/x is refused: {reason}"


NEARNESS = [
    ("http://127.0.0.1:8000/mcp", "127.0.0.1", True),
    ("http://[::1]:8000/mcp", "127.0.0.1", True),
    ("http://[::1]:8000/mcp", "::1", True),
    ("http://localhost:8000/mcp", "127.0.0.1", True),
    ("http://127.0.0.1:8000/mcp", "10.0.0.1", False),
    ("http://127.0.0.1:8000/mcp", "169.254.169.254", False),
    ("https://10.1.1.1/mcp", "10.0.0.1", True),
    ("https://10.1.1.1/mcp", "100.64.0.1", True),
    ("https://intra.example/mcp", "192.168.0.1", True),
    ("https://intra.example/mcp", "fd12::1", True),
    ("https://intra.example/mcp", "127.0.0.1", False),
    ("https://intra.example/mcp", "169.254.169.254", False),
    ("https://intra.example/mcp", "fe80::1", False),
    ("https://away.example/mcp", "127.0.0.1", False),
    ("https://both.example/mcp", "10.0.0.1", False),
    ("https://mixed.example/mcp", "10.0.0.1", False),
    ("https://mixed.example/mcp", "127.0.0.1", False),
    ("https://meta.example/mcp", "169.254.169.254", False),
    ("https://mcp.example/mcp", "10.0.0.1", False),
    ("https://[broken/mcp", "10.0.0.1", False),
    ("", "127.0.0.1", False),
]


@each_row(("server_url", "address", "asked"), NEARNESS)
async def test_addresses_in_the_network_of_the_users_server_are_allowed(
    server_url: str, address: str, asked: bool
):
    names = Names(
        as_example=address,
        mcp_example="8.8.8.8",
        intra_example="10.2.3.4 fd00::1",
        away_example="127.0.0.1",
        both_example="10.2.3.4 8.8.8.8",
        mixed_example="10.2.3.4 127.0.0.1",
        meta_example="169.254.169.254",
        localhost="127.0.0.1 ::1",
    )
    fetch = Fetcher(server_url, resolve=with_literals(names))
    target = fetcher.parse_allowed("https://as.example/")

    if asked:
        assert await fetch._checked(target, None) == [address]
    else:
        with pytest.raises(AuthError, match="is refused"):
            await fetch._checked(target, None)


def with_literals(names: Names) -> fetcher.Resolver:
    """Resolve a literal to itself, as real resolvers do."""

    async def resolve(host: str, port: int) -> list[str]:
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            return await names(host, port)

    return resolve


async def test_later_dns_answer_for_the_users_server_allows_no_more_addresses():
    names = Names(mcp_example=["8.8.8.8", "10.0.0.1"], as_example="10.0.0.1")
    fetch = Fetcher(AWAY, resolve=names)

    for _ in range(2):
        with pytest.raises(AuthError, match="in a private network"):
            await fetch.get("https://as.example/")

    assert names.asked.count("mcp.example") == 1


async def test_http_is_refused_except_on_this_machine(server: Server):
    names = Names(as_example="8.8.8.8", home_example="127.0.0.1", intra_example="10.0.0.1")

    with pytest.raises(AuthError, match="must be https"):
        await Fetcher(HERE, resolve=with_literals(names)).get("http://as.example/")
    with pytest.raises(AuthError, match="must be https"):
        await Fetcher("https://10.1.1.1/mcp", resolve=with_literals(names)).get(
            "http://intra.example/"
        )
    reply = await Fetcher(HERE, resolve=with_literals(names)).get(
        f"http://home.example:{server.port}/"
    )

    assert reply.status == 200


# Where the request goes


async def test_the_connection_uses_the_address_that_was_checked(
    start: Start, identity: Callable[..., ssl.SSLContext]
):
    server = await start(identity("as.example"))
    names = Names(as_example=["127.0.0.1", "10.0.0.1"])
    fetch = Fetcher(HERE, resolve=with_literals(names))

    reply = await fetch.get(f"https://as.example:{server.port}/x")

    assert reply.json() == {}
    assert names.asked == ["as.example"]
    assert f"Host: as.example:{server.port}" in server.heads[0]
    with pytest.raises(AuthError, match="in a private network"):
        await fetch.get(f"https://as.example:{server.port}/x")
    assert server.connections == 1


async def test_the_next_address_is_tried_when_one_does_not_answer(start: Start):
    server = await start(host="127.0.0.1")
    names = Names(as_example="::1 127.0.0.1")

    reply = await Fetcher(HERE, resolve=with_literals(names)).get(
        f"http://as.example:{server.port}/"
    )

    assert reply.status == 200


async def test_names_are_looked_up_in_the_system(server: Server):
    fetch = Fetcher("http://localhost/mcp")

    assert (await fetch.get(f"http://localhost:{server.port}/")).status == 200


@pytest.mark.parametrize("scheme", ["ws", "ftp"])
async def test_urls_that_are_not_https_are_refused_even_on_loopback(server: Server, scheme: str):
    with pytest.raises(AuthError, match="it is not a valid https URL"):
        await near(server).get(f"{scheme}://127.0.0.1:{server.port}/")


async def test_a_request_has_the_given_headers_and_no_credentials(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login user password SECRET\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    server.will_answer(headers="Set-Cookie: a=b\r\n")
    fetch = near(server)

    await fetch.get(f"{server.url}/a?b=c", {"MCP-Protocol-Version": "2025-11-25"})
    await fetch.get(f"{server.url}/a")

    assert server.heads[0].splitlines()[:-1] == [
        "GET /a?b=c HTTP/1.1",
        f"Host: 127.0.0.1:{server.port}",
        "User-Agent: interlock",
        "Accept: application/json",
        "Accept-Encoding: gzip, deflate",
        "MCP-Protocol-Version: 2025-11-25",
        "Connection: close",
    ]
    assert "Cookie" not in server.heads[1]
    assert "SECRET" not in "".join(server.heads)


async def test_cookies_are_ignored(server: Server, caplog: pytest.LogCaptureFixture):
    server.will_answer(headers="Set-Cookie: SECRET that is no name=b\r\n")
    fetch = Fetcher(HERE, resolve=Names(home_example="127.0.0.1"))

    await fetch.get(f"http://home.example:{server.port}/")

    assert not caplog.records


async def test_form_is_sent_urlencoded_with_the_given_headers(server: Server):
    await near(server).post(
        f"{server.url}/token",
        form={"code": "a b&c=d", "x": "ä"},
        headers={"Authorization": "Basic eA=="},
    )

    assert server.bodies == [b"code=a+b%26c%3Dd&x=%C3%A4"]
    assert "Content-Type: application/x-www-form-urlencoded\r\n" in server.heads[0]
    assert "Authorization: Basic eA==\r\n" in server.heads[0]


async def test_json_document_is_sent_with_its_content_type(server: Server):
    await near(server).post(f"{server.url}/register", json={"client_name": "interlock"})

    assert server.bodies == [b'{"client_name":"interlock"}']
    assert "Content-Type: application/json\r\n" in server.heads[0]


@each_row("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
async def test_a_redirect_is_not_followed(start: Start, status: str):
    server, other = await start(), await start()
    server.will_answer(status=status, headers=f"Location: {other.url}/x?token=SECRET\r\n")

    with pytest.raises(RedirectRefused) as raised:
        await near(server).post(f"{server.url}/a?code=SECRET", form={"refresh_token": "CANARY"})

    assert str(raised.value) == (f"{server.url}/a redirects to {other.url}, which is not followed")
    assert raised.value.status == int(status.split()[0])
    assert other.connections == 0
    assert server.connections == 1


@each_row(
    ("status", "location", "is_followed"),
    [
        # https://github.com/django-oauth/django-oauth-toolkit/issues/1851
        ("308 P", "/token/", True),
        ("307 T", "token/", True),
        ("301 M", "/token/", False),  # clients may turn it into a GET without the form
        ("308 P", "http://me@127.0.0.1:{port}/token/", False),
        ("308 P", "http://localhost:{port}/token/", False),
        ("308 P", "https://127.0.0.1:{port}/token/", False),
    ],
)
async def test_post_follows_one_redirect_within_its_origin(
    start: Start, status: str, location: str, is_followed: bool
):
    server = await start()
    moved = f"HTTP/1.1 {status}\r\nLocation: {location.format(port=server.port)}\r\n\r\n".encode()
    server.will_answer(b'{"a":1}')
    server.by_connection = [[moved], server.answers]

    async def post() -> FetchedResponse:
        return await near(server).post(
            f"{server.url}/token", form={"code": "x"}, headers={"Authorization": "Basic eA=="}
        )

    if is_followed:
        reply = await post()
        assert (reply.json(), reply.url) == ({"a": 1}, f"{server.url}/token/")
        assert server.bodies == [b"code=x"] * 2
        assert "Authorization: Basic eA==" in server.heads[1]
        server.by_connection = [[moved], [moved]]
    with pytest.raises(RedirectRefused):  # also the second one in a row
        await post()
    assert server.connections == (4 if is_followed else 1)


@each_row("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
async def test_get_follows_one_redirect_within_its_origin_if_it_may(start: Start, status: str):
    server, other = await start(), await start()
    moved, away = (
        f"HTTP/1.1 {status}\r\nLocation: {to}\r\n\r\n".encode() for to in ("/b", f"{other.url}/b")
    )
    server.will_answer(b'{"a":1}')
    server.by_connection = [[moved], server.answers, [moved], [moved], [away], [moved]]

    reply = await near(server).get(f"{server.url}/a", may_move=True)

    assert (reply.json(), reply.url) == ({"a": 1}, f"{server.url}/b")
    for may_move in (True, True, False):  # a second redirect, another origin
        with pytest.raises(RedirectRefused):
            await near(server).get(f"{server.url}/a", may_move=may_move)
    assert (server.connections, other.connections) == (6, 0)


@each_row("location", ["", "javascript:alert(1)", "http://[", "/inside", "//x:y/"])
async def test_the_error_of_a_redirect_is_one_line_with_its_origin(server: Server, location: str):
    server.will_answer(status="302 Found", headers=f"Location: {location}\r\n")

    with pytest.raises(RedirectRefused, match=r"/a redirects .*, which is not followed"):
        await near(server).get(f"{server.url}/a")


# Proxies


async def test_a_proxy_resolves_the_name(start: Start, monkeypatch: pytest.MonkeyPatch):
    proxy = await start()
    proxy.answers = [b"HTTP/1.1 403 Forbidden\r\n\r\n"]
    monkeypatch.setenv("HTTPS_PROXY", f"http://user:SECRET@127.0.0.1:{proxy.port}")

    with pytest.raises(Unreachable) as raised:
        await Fetcher(AWAY, resolve=with_literals(Names())).get("https://as.example/x")

    assert str(raised.value) == ("https://as.example/x cannot be reached: the proxy answers 403")
    assert proxy.heads[0].startswith("CONNECT as.example:443 HTTP/1.1\r\n")


@pytest.mark.parametrize("url", ["https://10.0.0.1/", "https://169.254.169.254/", "https://127.1/"])
async def test_an_address_that_is_not_public_is_refused_before_the_proxy(
    server: Server, monkeypatch: pytest.MonkeyPatch, url: str
):
    monkeypatch.setenv("HTTPS_PROXY", server.url)

    with pytest.raises(AuthError, match="is refused"):
        await Fetcher(AWAY, resolve=with_literals(Names(mcp_example="8.8.8.8"))).get(url)

    assert server.connections == 0


async def test_http_is_refused_before_the_proxy(server: Server, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", server.url)

    with pytest.raises(AuthError, match="must be https"):
        await Fetcher(AWAY).get("http://as.example/")

    assert server.connections == 0


async def test_a_request_to_this_machine_does_not_use_the_proxy(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    for host in ("127.0.0.1", "localhost"):
        assert (await near(server).get(f"http://{host}:{server.port}/")).status == 200


@pytest.mark.parametrize("exception", [".example", "as.example", "as.example:{port}"])
async def test_a_request_to_a_no_proxy_host_does_not_use_the_proxy(
    start: Start,
    identity: Callable[..., ssl.SSLContext],
    monkeypatch: pytest.MonkeyPatch,
    exception: str,
):
    server = await start(identity("as.example"))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", f"other.example,{exception.format(port=server.port)}")
    names = Names(as_example="127.0.0.1")

    reply = await Fetcher(HERE, resolve=with_literals(names)).get(
        f"https://as.example:{server.port}/"
    )

    assert reply.status == 200


async def test_the_error_of_an_unreachable_proxy_names_the_proxy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTPS_PROXY", "user:SECRET@127.0.0.1:1")

    with pytest.raises(Unreachable) as raised:
        await Fetcher(AWAY, resolve=with_literals(Names())).get("https://as.example/x")

    assert str(raised.value) == (
        "https://as.example/x cannot be reached: the proxy fails, Connection refused"
    )


async def test_socks_proxy_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("ALL_PROXY", "socks5://user:SECRET@127.0.0.1:1")

    with pytest.raises(AuthError, match=r"uses 'socks5'.* set HTTPS_PROXY") as raised:
        await Fetcher(AWAY).get("https://as.example/x")

    assert "SECRET" not in str(raised.value)


# TLS


async def test_a_ca_in_ssl_cert_file_is_trusted(
    start: Start, identity: Callable[..., ssl.SSLContext]
):
    server = await start(identity("127.0.0.1"))

    assert (await near(server).get(f"https://127.0.0.1:{server.port}/")).status == 200


async def test_a_ca_in_ssl_cert_dir_is_trusted(
    start: Start,
    identity: Callable[..., ssl.SSLContext],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    authority: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
):
    server = await start(identity("127.0.0.1"))
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "authorities"))
    (tmp_path / "authorities").mkdir()
    # OpenSSL finds a CA by the hash of its name.
    hashed = ssl_name_hash(authority[0])
    (tmp_path / "authorities" / f"{hashed}.0").write_bytes((tmp_path / "ca.pem").read_bytes())

    assert (await near(server).get(f"https://127.0.0.1:{server.port}/")).status == 200


def ssl_name_hash(certificate: x509.Certificate) -> str:
    import hashlib

    # The canonical form of a name: its parts without the enclosing sequence, in lower case and as
    # UTF8String, which these certificates use.
    content = certificate.subject.public_bytes()[2:]
    return f"{int.from_bytes(hashlib.sha1(content).digest()[:4], 'little'):08x}"


@pytest.mark.parametrize(
    ("name", "days", "reason"),
    [
        ("other.example", 1, "Hostname mismatch, certificate is not valid for 'as.example'."),
        ("as.example", -1, "certificate has expired"),
    ],
)
async def test_a_certificate_for_another_name_or_time_is_an_error(
    start: Start, identity: Callable[..., ssl.SSLContext], name: str, days: int, reason: str
):
    server = await start(identity(name, days=days))
    fetch = Fetcher(HERE, resolve=with_literals(Names(as_example="127.0.0.1")))

    with pytest.raises(Unreachable) as raised:
        await fetch.post(f"https://as.example:{server.port}/x", form={"code": "SECRET"})

    assert str(raised.value) == (
        f"https://as.example:{server.port}/x cannot be reached: its certificate is not valid: "
        f"{reason}"
    )
    assert server.bodies == []


async def test_a_certificate_of_an_unknown_ca_is_an_error_that_names_the_variable(
    start: Start, identity: Callable[..., ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
):
    server = await start(identity("127.0.0.1"))
    monkeypatch.delenv("SSL_CERT_FILE")

    with pytest.raises(
        Unreachable,
        match="local issuer certificate; if it comes from a private CA, set SSL_CERT_FILE",
    ):
        await near(server).get(f"https://127.0.0.1:{server.port}/")


async def test_client_uses_http_1_1_with_a_server_that_offers_http_2(
    start: Start, identity: Callable[..., ssl.SSLContext]
):
    context = identity("127.0.0.1")
    context.set_alpn_protocols(["h2", "http/1.1"])
    chosen = []
    context.sni_callback = lambda connection, *_: chosen.append(connection)
    server = await start(context)

    await near(server).get(f"https://127.0.0.1:{server.port}/")

    assert [each.selected_alpn_protocol() for each in chosen] == ["http/1.1"]


async def test_server_without_tls_at_an_https_url_is_named_in_the_error(server: Server):
    server.is_hasty = True

    with pytest.raises(Unreachable, match=r"cannot be reached: no TLS: [A-Z_]+$"):
        await near(server).get(f"https://127.0.0.1:{server.port}/")


# What goes wrong


async def test_a_name_without_address_is_an_error():
    with pytest.raises(Unreachable) as raised:
        await Fetcher(resolve=Names()).get("https://as.example/x?code=SECRET")

    assert str(raised.value) == "as.example cannot be reached: its name has no address"


@each_row("host", ["a..example", "x" * 64 + ".example", "-.invalid"])
async def test_an_invalid_name_is_an_error(host: str):
    with pytest.raises(Unreachable, match="its name has no address"):
        await Fetcher(AWAY).get(f"https://{host}/")


async def test_a_refused_connection_is_an_error():
    with pytest.raises(Unreachable) as raised:
        await Fetcher(HERE).get("http://127.0.0.1:1/x?code=SECRET")

    assert str(raised.value) == "http://127.0.0.1:1/x cannot be reached: Connection refused"


async def test_two_refused_addresses_are_one_error():
    names = Names(localhost="127.0.0.1 ::1")

    with pytest.raises(Unreachable, match=r"Connection refused|no connection"):
        await Fetcher(HERE, resolve=with_literals(names)).get("http://localhost:1/x")


async def test_a_server_that_does_not_answer_times_out(
    server: Server, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetcher, "TIMEOUT", 0.05)
    server.is_mute = True

    with pytest.raises(RequestTimeout, match=r"/x has not answered within 0\.05 s"):
        await near(server).get(f"{server.url}/x?code=SECRET")


async def test_a_name_server_that_does_not_answer_times_out(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(fetcher, "TIMEOUT", 0.05)

    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(RequestTimeout, match=r"https://as\.example/x has not answered"):
        await Fetcher(resolve=resolve).get("https://as.example/x")


BROKEN = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-",
    "half a body": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
    "half a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{",
    "half a gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n" + gzip.compress(b"{}")[:9],
}
WRONG = {
    "another protocol": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a bad header": b"HTTP/1.1 200 OK\r\nA\x00: b\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
    "a long header": b"HTTP/1.1 200 OK\r\nA: " + 70_000 * b"a" + b"\r\n\r\n",
    "no gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x00{}",
    "unknown packing": b"HTTP/1.1 200 OK\r\nContent-Encoding: br\r\n\r\n{}",
}


@each_row("answer", BROKEN)
async def test_an_answer_that_is_cut_off_is_an_error(server: Server, answer: str):
    server.answers = [BROKEN[answer]]

    with pytest.raises(StreamEnded, match=r"^http://127\.0\.0\.1:\d+/x "):
        await near(server).get(f"{server.url}/x?code=SECRET")


@each_row("answer", WRONG)
async def test_an_answer_that_is_not_http_is_an_error(server: Server, answer: str):
    server.answers = [WRONG[answer]]

    with pytest.raises(RemoteProtocolError, match=r"^http://127\.0\.0\.1:\d+/x "):
        await near(server).get(f"{server.url}/x?code=SECRET")


@cache
def bombs() -> dict[str, bytes]:
    plain = b"HTTP/1.1 200 OK\r\n"
    big = bytes(2**20 + 1)
    packed = gzip.compress(bytes(50 * 2**20))
    chunk = b"10000\r\n" + bytes(2**16) + b"\r\n"
    return {
        "plain": plain + b"\r\n" + big,
        "announced": plain + b"Content-Length: 1048577\r\n\r\n" + big,
        "gzip": plain + b"Content-Encoding: gzip\r\n\r\n" + packed,
        "deflate": plain + b"Content-Encoding: deflate\r\n\r\n" + zlib.compress(big),
        "chunked": plain + b"Transfer-Encoding: chunked\r\n\r\n" + 17 * chunk + b"0\r\n\r\n",
    }


@pytest.mark.slow("works through much data")
@each_row("kind", ["plain", "announced", "gzip", "deflate", "chunked"])
async def test_a_body_over_the_limit_is_an_error(server: Server, kind: str):
    server.answers = [bombs()[kind]]

    with pytest.raises(MessageTooLarge, match=r"over the limit \(1 MiB\)"):
        await near(server).get(f"{server.url}/x")


@each_row("encoding", ["gzip", "deflate", "identity"])
async def test_a_body_at_the_limit_is_read(server: Server, encoding: str):
    whole = bytes(2**20)
    packed = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}[encoding](whole)
    server.will_answer(packed, headers=f"Content-Encoding: {encoding}\r\n")

    assert (await near(server).get(f"{server.url}/x")).body == whole


async def test_a_cancelled_request_closes_its_connection(server: Server):
    server.is_mute = True
    task = asyncio.create_task(near(server).get(f"{server.url}/x"))
    await server.asked.wait()

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


# Replies


class Document(msgspec.Struct):
    issuer: str


def reply(body: bytes, status: int = 200) -> FetchedResponse:
    return FetchedResponse(status, {}, body, "https://user:SECRET@as.example/x?code=SECRET#SECRET")


def test_a_reply_is_decoded_as_the_given_type():
    body = b'{"issuer":"https://as.example","more":1}'

    assert reply(body).json(Document) == Document("https://as.example")
    assert reply(b"\xef\xbb\xbf" + body).json(Document) == Document("https://as.example")
    assert reply(body).json() == {"issuer": "https://as.example", "more": 1}
    assert reply(rb'{"name":"x\ud83d"}').json() == {"name": "x\ufffd"}


NO_DOCUMENTS = {
    "empty": b"",
    "html": b"<html>",
    "list": b"[]",
    "string": b'"SECRET"',
    "member missing": b"{}",
    "wrong type": b'{"issuer":1}',
    "bad utf-8": b'{"issuer":"\xff"}',
    "nan": b'{"issuer":"","a":NaN}',
    "trailing": b'{"issuer":""}{}',
    "deep": b'{"issuer":"","a":' + 65 * b"[" + 65 * b"]" + b"}",
    "very deep": b'{"issuer":"","a":' + 100_000 * b"[" + 100_000 * b"]" + b"}",
    "long number": b'{"issuer":"","a":' + 21 * b"1" + b"}",
}


@each_row("body", NO_DOCUMENTS)
def test_a_body_of_another_type_is_an_error_that_names_the_url(body: str):
    with pytest.raises(HttpError, match=r"^https://as\.example/x cannot be used: ") as raised:
        reply(NO_DOCUMENTS[body], 418).json(Document)

    assert raised.value.status == 418
    assert "SECRET" not in str(raised.value)
    assert len(str(raised.value)) < 200


def test_the_repr_of_a_reply_has_neither_body_nor_query():
    assert repr(reply(b"SECRET")) == "FetchedResponse(status=200, url='https://as.example/x')"
