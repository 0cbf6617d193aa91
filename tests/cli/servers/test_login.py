"""`interlock servers login` and `logout` at a protected server."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock.oauth import UserTokenStore
from interlock.oauth.storage import Tokens
from tests.servers.ports import reserved
from tests.support.authorization import NATIVE_CLIENT, SERVERS, Protected
from tests.support.rows import each_row
from tests.support.served import serving

BROWSER = SERVERS / "browser.py"


class Guarded:
    """A protected server and its authorization server, for tests without an event loop."""

    def __init__(self, url: str, issuer: str) -> None:
        self.url = url
        self.issuer = issuer

    def reset(self) -> None:
        asyncio.run(self._do(lambda server: server.wish(reset=True, resource=self.url)))

    def done(self) -> dict[str, int]:
        return asyncio.run(self._do(lambda server: server.done()))

    def wish(self, **wishes: Any) -> None:
        asyncio.run(self._do(lambda server: server.wish(**wishes)))

    def register(self, **metadata: Any) -> dict[str, Any]:
        """Register a client, as an operator would."""
        return asyncio.run(self._do(lambda server: server.register(**metadata)))

    def browse(self, url: str, *, refuses: bool = False) -> str:
        """Log in with a browser; return the URL where it ends, which is not opened."""

        def browse(server: Protected) -> Any:
            server.browser.refuses = refuses
            return server.browser.callback(url)

        return asyncio.run(self._do(browse))

    async def _do(self, work: Callable[[Protected], Any]) -> Any:
        return await work(Protected(self.url, self.issuer))


@pytest.fixture
def protected(protected_addresses: tuple[str, str]) -> Guarded:
    server = Guarded(*protected_addresses)
    server.reset()
    return server


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a browser in which the user consents to everything."""
    command = shlex.join([sys.executable, str(BROWSER)])
    monkeypatch.setenv("BROWSER", f"{command} %s")


@pytest.fixture
def notes(servers: Callable[..., Path], protected: Guarded) -> str:
    """Add the protected server as "notes"; return its URL."""
    servers(notes={"url": protected.url})
    return protected.url


@pytest.fixture
def open_server(program: Callable[..., Any], tmp_path: Path) -> str:
    """The URL of a server without authentication."""
    path = tmp_path / "open.py"
    path.write_text(
        "from interlock import Server\nserver = Server('open')\n"
        "@server.tool\ndef hello() -> str:\n    return 'hello'\n"
    )
    running = program("run", path, "--http", "127.0.0.1:0")
    return str(running.stderr.readline()).split()[-1]


def store_login(url: str, **changes: Any) -> Tokens:
    """Store a login, as an earlier run would have."""
    given = {"access_token": "s3cr3t-token", "issuer": "https://as.example", **changes}
    tokens = Tokens(**given)
    asyncio.run(UserTokenStore().save_tokens(url, tokens))
    return tokens


def stored_tokens(url: str) -> Tokens | None:
    return asyncio.run(UserTokenStore().load_tokens(url))


def shown_url(text: str) -> str:
    found = re.search(r"^(https?://\S+)\r?$", text, re.MULTILINE)
    assert found, text
    return found[1]


# The whole story


def test_a_new_user_adds_a_server_logs_in_calls_a_tool_and_logs_out(
    interlock: Callable[..., Any], protected: Guarded, browser: None
):
    run = interlock
    code, out, err = run("servers", "add", "notes", protected.url)
    assert (code, out) == (0, "")
    assert err.endswith("try it with: interlock servers check notes\n")

    hint = "needs a login: interlock servers login notes\n"
    for words in (["tools"], ["servers", "check"], ["call", "notes:who"]):
        code, out, err = run(*words)
        assert code == 1
        assert err.endswith(hint)
    assert "needs login" in run("servers", "check")[1]

    code, out, err = run("servers", "login", "notes")
    issuer = protected.issuer
    assert code == 0
    assert err.startswith(f"log in to 'notes' at {issuer.removeprefix('http://')}, for notes:read")
    assert shown_url(err).startswith(f"{issuer}/auth?")
    assert err.endswith("logged in to 'notes'\n")
    assert out.startswith("notes  ok  2026-07-28")

    assert run("call", "notes:who") == (0, "ada: notes:read\n", "")
    code, out, err = run("tools")
    assert (code, err) == (0, "")
    assert re.match(r"notes:who +ok +Return the principal", out)
    assert f"{protected.url}    login kept\n" in run("servers", "list")[1]

    done = "logged out of 'notes': its login is deleted and revoked\n"
    assert run("servers", "logout", "notes") == (0, "", done)
    code, out, err = run("tools")
    assert code == 1
    assert err.endswith(hint)
    assert protected.done()["registrations"] == 1


# Logging in


def test_login_without_a_browser_only_shows_the_url(
    program: Callable[..., Any], protected: Guarded, notes: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BROWSER", "false")
    running = program("servers", "login", "notes", "--no-browser")
    assert running.stderr.readline().startswith("log in to 'notes' at 127.0.0.1:")
    address = running.stderr.readline().strip()
    back = protected.browse(address)
    with urllib.request.urlopen(back) as page:
        assert b"You can close this page" in page.read()
    out, err = running.communicate()

    assert (running.returncode, err) == (0, "logged in to 'notes'\n")
    assert out.startswith("notes  ok")


def test_the_url_where_another_browser_ended_can_be_pasted(
    terminal: Callable[..., Any], protected: Guarded, notes: str
):
    shown = terminal("servers", "login", "notes", "--no-browser")
    shown.expect("paste the URL of that page:")
    back = protected.browse(shown_url(shown.seen))
    shown.type("what?\n")
    shown.expect("that is not the URL")
    shown.type(f"  {back}\n")
    shown.expect("logged in to 'notes'")
    shown.expect("notes  ok")

    assert shown.leave() == 0
    assert stored_tokens(notes) is not None


def test_login_without_a_working_browser_accepts_a_pasted_url(
    terminal: Callable[..., Any], protected: Guarded, notes: str
):
    shown = terminal("servers", "login", "notes", BROWSER="/no/browser", PATH="/no/programs")
    shown.expect("no browser could be opened: open the URL yourself")
    shown.expect("paste the URL of that page:")
    shown.type("\x03")

    assert shown.leave() == 130
    assert stored_tokens(notes) is None


def test_ctrl_c_ends_the_wait(terminal: Callable[..., Any], notes: str):
    shown = terminal("servers", "login", "notes", "--no-browser")
    shown.expect("/auth?")
    shown.type("\x03")

    assert shown.leave() == 130
    assert "Traceback" not in shown.seen


def test_login_times_out(
    interlock: Callable[..., Any], notes: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("interlock.oauth.callback.LOGIN_TIMEOUT", 0.05)
    ran = interlock("servers", "login", "notes", "--no-browser")

    assert ran.code == 1
    assert "error: the login was not completed within 0 minutes\n" in ran.err
    assert ran.out == ""


def test_a_denied_login_is_an_error(program: Callable[..., Any], protected: Guarded, notes: str):
    running = program("servers", "login", "notes", "--no-browser")
    running.stderr.readline()
    back = protected.browse(running.stderr.readline().strip(), refuses=True)
    urllib.request.urlopen(back).close()
    out, err = running.communicate()

    assert (running.returncode, out) == (1, "")
    assert re.match(
        r"error: http://127.0.0.1:\d+ denied the login: access_denied\nin its own words: \w", err
    )
    assert stored_tokens(notes) is None


def test_a_second_login_replaces_the_first(
    interlock: Callable[..., Any], protected: Guarded, notes: str, browser: None
):
    store_login(notes, issuer=protected.issuer)

    assert interlock("servers", "login", "notes").code == 0
    tokens = stored_tokens(notes)
    assert tokens is not None
    assert tokens.access_token != "s3cr3t-token"


def test_tool_that_requires_more_scopes_fails_with_the_login_command(
    interlock: Callable[..., Any], notes: str, browser: None
):
    assert interlock("servers", "login", "notes").code == 0
    refused = interlock("call", "notes:write", "text=tea")
    assert (refused.code, refused.out) == (1, "")
    hint = "interlock servers login notes --scope notes:read --scope notes:write"
    assert refused.err.endswith(
        f"the key or token needs the scopes notes:read notes:write: {hint}\n"
    )

    ran = interlock("servers", "login", "notes", "--scope", "notes:write")
    assert ", for notes:read notes:write" in ran.err
    assert interlock("call", "notes:write", "text=tea") == (0, "wrote tea\n", "")


@each_row("scope", ["", "a b", "a\nb", 'a"b'])
def test_an_invalid_scope_is_refused(interlock: Callable[..., Any], notes: str, scope: str):
    ran = interlock("servers", "login", "notes", "--scope", scope)

    assert ran.code == 2
    assert "is not a valid scope; pass one at a time" in ran.err


def test_a_login_that_cannot_be_stored_is_an_error(
    interlock: Callable[..., Any], notes: str, browser: None, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("interlock.oauth.private_files.replace", fail)
    ran = interlock("servers", "login", "notes")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err.splitlines()[-1].startswith("error: ")
    assert "cannot be written: Permission denied" in ran.err


def test_login_fails_if_the_server_refuses_the_new_tokens(
    interlock: Callable[..., Any], protected: Guarded, notes: str, browser: None
):
    protected.wish(expired=1_000)
    ran = interlock("servers", "login", "notes")

    assert ran.code == 1
    lines = ran.err.splitlines()
    assert "logged in to 'notes'" in lines
    assert lines[-1] == "error: server 'notes' refuses the tokens of its own authorization server"


@pytest.mark.slow("works through much data")
@pytest.mark.parametrize("settings", [{}, {"auth": "oauth"}], ids=["auto", "oauth"])
def test_a_server_without_authentication_requires_no_login(
    interlock: Callable[..., Any],
    servers: Callable[..., Path],
    open_server: str,
    settings: dict[str, str],
):
    servers(open={"url": open_server, **settings})
    ran = interlock("servers", "login", "open")

    if settings:  # a login is configured, and none is published
        assert ran.code == 1
        assert ran.err.startswith("error: ")
    else:
        lead = "server 'open' requires no login and publishes no way to log in: a token"
        assert (ran.code, ran.err.startswith(lead)) == (0, True)
        assert ran.err.endswith("--auth bearer or --header 'Authorization: Bearer …'\n")
        assert ran.out.startswith("open  ok")


def test_login_works_for_a_server_that_requires_it_only_for_calls(
    interlock: Callable[..., Any],
    servers: Callable[..., Path],
    protected: Guarded,
    browser: None,
    tmp_path: Path,
):
    command = [sys.executable, str(SERVERS / "protected.py"), protected.issuer, "tools/call"]
    with serving(command, tmp_path / "log") as url:
        protected.wish(reset=True, resource=url)
        servers(notes={"url": url})
        assert interlock("servers", "check", "notes").code == 0
        hint = "needs a login: interlock servers login notes\n"
        assert interlock("call", "notes:who").err.endswith(hint)

        assert "logged in to 'notes'" in interlock("servers", "login", "notes").err
        assert interlock("call", "notes:who").out == "ada: notes:read notes:write\n"


@each_row("word", ["login", "logout"])
def test_login_to_a_program_is_an_error(
    interlock: Callable[..., Any], servers: Callable[..., Path], word: str
):
    servers()
    ran = interlock("servers", word, "e")

    message = "error: server 'e' is a program: only a server with a URL has a login\n"
    assert ran == (1, "", message)


@each_row(
    ("entry", "message"),
    [
        ({"auth": "none"}, 'server \'web\' does not use a login: it has "auth": "none"'),
        (
            {"headers": {"Authorization": "Bearer s3cr3t"}},
            "server 'web' does not use a login: its configuration has an Authorization header",
        ),
        (
            {"headers": {"X-Key": "${NOT_SET}"}},
            "headers.X-Key uses ${NOT_SET}, and the environment variable NOT_SET is not set: "
            "set it, or write ${NOT_SET:-default}",
        ),
    ],
)
def test_login_to_a_server_with_other_authentication_is_an_error(
    interlock: Callable[..., Any], servers: Callable[..., Path], entry: Any, message: str
):
    servers(web={"url": "https://host.example/mcp", **entry})

    assert interlock("servers", "login", "web") == (1, "", f"error: {message}\n")


def test_login_names_a_server_that_is_not_reachable(
    interlock: Callable[..., Any], servers: Callable[..., Path]
):
    servers(web={"url": "http://127.0.0.1:1/mcp"})

    ran = interlock("servers", "login", "web")
    assert ran.code == 1
    assert "error: http://127.0.0.1:1/mcp cannot be reached: Connect" in ran.err
    assert "did you mean web?" in interlock("servers", "login", "wbe").err


@pytest.fixture
def own_port() -> Iterator[int]:
    """A port that stays free until the program uses it."""
    with reserved() as reserving:
        yield reserving.getsockname()[1]


def test_a_registered_client_logs_in_refreshes_and_logs_out(
    interlock: Callable[..., Any],
    protected: Guarded,
    browser: None,
    monkeypatch: pytest.MonkeyPatch,
    own_port: int,
):
    client = protected.register(
        redirect_uris=[f"http://127.0.0.1:{own_port}/callback"],
        token_endpoint_auth_method="client_secret_basic",
    )
    monkeypatch.setenv("SECRET", client["client_secret"])
    secret = ["--client-id", client["client_id"], "--client-secret", "${SECRET}"]
    interlock("servers", "add", "n", protected.url, *secret, "--callback-port", own_port)
    before = protected.done()

    assert interlock("servers", "login", "n").code == 0
    tokens = stored_tokens(protected.url)
    assert tokens is not None
    assert tokens.client_id == client["client_id"]

    store_login(protected.url, **{**msgspec.structs.asdict(tokens), "expires_at": time.time() - 1})
    assert interlock("call", "n:who").out == "ada: notes:read\n"
    after = protected.done()
    assert after.get("registrations", 0) == before.get("registrations", 0)
    assert after["refresh_token"] == 1

    assert "deleted and revoked" in interlock("servers", "logout", "n").err


def test_a_client_with_a_metadata_document_logs_in_without_registration(
    interlock: Callable[..., Any],
    protected: Guarded,
    browser: None,
):
    url = "https://client.example.com/metadata.json"
    document = {**NATIVE_CLIENT, "client_id": url, "redirect_uris": ["http://127.0.0.1/callback"]}
    protected.wish(documents={url: document})
    interlock("servers", "add", "n", protected.url, "--client-metadata-url", url)
    before = protected.done()

    assert interlock("servers", "login", "n").code == 0
    tokens = stored_tokens(protected.url)
    assert tokens is not None
    assert tokens.client_id == url

    store_login(protected.url, **{**msgspec.structs.asdict(tokens), "expires_at": time.time() - 1})
    assert interlock("call", "n:who").out == "ada: notes:read\n"
    after = protected.done()
    assert after.get("registrations", 0) == before.get("registrations", 0)
    assert after["refresh_token"] == before.get("refresh_token", 0) + 1


PROMPT = "\x1b[?2004h"  # the line editor enables bracketed paste


def test_an_open_chat_has_the_tools_after_the_login(
    terminal: Callable[..., Any],
    interlock: Callable[..., Any],
    servers: Callable[..., Path],
    script: Callable[..., str],
    protected: Guarded,
    browser: None,
):
    servers(e={"url": protected.url})
    chat = terminal("chat", "--model", script(*["Hello."] * 50))
    chat.expect("warning: server 'e' needs login: ")
    chat.expect(PROMPT)
    chat.type("/tools\r")
    chat.expect("no tools")
    chat.expect("interlock servers login e")
    chat.expect(PROMPT)
    assert interlock("servers", "login", "e").code == 0

    for _ in range(50):  # each turn tries to reconnect, unless it is too early
        chat.type("Hello?\r")
        chat.expect("Hello.")
        chat.expect(PROMPT)
        chat.type("/tools\r")
        chat.expect(PROMPT)
        if "e:who" in chat.seen:
            break
    assert "e:who" in chat.seen


# Logging out


def test_logout_without_a_login_prints_a_notice(interlock: Callable[..., Any], notes: str):
    done = "'notes' has no stored login\n"

    assert interlock("servers", "logout", "notes") == (0, "", done)


def test_logout_deletes_a_login_that_cannot_be_revoked(interlock: Callable[..., Any], notes: str):
    store_login(notes, issuer="http://127.0.0.1:1", refresh_token="s3cr3t-refresh")
    ran = interlock("servers", "logout", "notes")

    assert ran.code == 0
    assert ran.err.startswith("logged out of 'notes': its login is deleted\nwarning: its tokens")
    assert "s3cr3t" not in ran.err
    assert stored_tokens(notes) is None


def test_removing_a_server_deletes_its_login(
    interlock: Callable[..., Any], servers: Callable[..., Path], notes: str
):
    store_login(notes)
    ran = interlock("servers", "remove", "notes")

    assert ran.code == 0
    assert "logged out of 'notes'" in ran.err
    assert stored_tokens(notes) is None

    store_login(notes)
    servers(one={"url": notes}, two={"url": notes})
    assert "logged out" not in interlock("servers", "remove", "one").err
    assert stored_tokens(notes) is not None


# The stored state is shown without a request


def test_list_shows_the_state_of_the_login(
    interlock: Callable[..., Any], servers: Callable[..., Path], home: Path
):
    urls = {name: f"https://{name}.example/mcp" for name in ("kept", "over", "renewable", "bad")}
    entries: dict[str, Any] = {name: {"url": url} for name, url in urls.items()}
    servers(
        **entries,
        asks={"url": "https://asks.example", "auth": "oauth"},
        open={"url": "https://open.example"},
        unset={"url": "https://${NOT_SET}"},
        token={"url": urls["kept"], "headers": {"Authorization": "Bearer s3cr3t"}},
    )
    past = time.time() - 10
    store_login(urls["kept"], expires_at=time.time() + 3600)
    store_login(urls["over"], expires_at=past)
    store_login(urls["renewable"], expires_at=past, refresh_token="s3cr3t-refresh")
    store_login(urls["bad"])
    (bad,) = home.rglob("bad.example-*.json")
    bad.write_text("{")
    table, data = interlock("servers", "list"), interlock("servers", "list", "--json")

    found = {line.split()[0]: line for line in table.out.splitlines()}
    ends = {name: re.sub(r".*(https://\S+)\s*", "", line) for name, line in found.items()}
    assert ends == {
        "e": found["e"],
        "kept": "login kept",
        "over": "login expired",
        "renewable": "login kept",
        "bad": "login unreadable",
        "asks": "no login",
        "open": "",
        "unset": "",
        "token": "Authorization=…",
    }
    assert "bad.example" in table.err
    assert "is damaged" in table.err
    assert "s3cr3t" not in table.out + table.err + data.out + data.err
    listed = {each["name"]: each.get("login") for each in data.json["servers"]}
    assert listed == {
        "e": None,
        "kept": "kept",
        "over": "expired",
        "renewable": "kept",
        "bad": "unreadable",
        "asks": "none",
        "open": "none",
        "unset": None,
        "token": None,
    }


def test_doctor_shows_logins_and_states(
    interlock: Callable[..., Any],
    servers: Callable[..., Path],
    script: Callable[..., str],
    protected: Guarded,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("interlock.cli.doctor.children", list)
    monkeypatch.setenv("INTERLOCK_MODEL", script())
    servers(notes={"url": protected.url})
    store_login(protected.url, expires_at=time.time() - 10, issuer=protected.issuer)
    ran, data = interlock("doctor"), interlock("doctor", "--json")

    assert ran.code == 1
    assert re.search(r"^login notes +expired$", ran.out, re.MULTILINE)
    assert re.search(r"^server notes +expired, ", ran.out, re.MULTILINE)
    assert re.search(
        r"^warning: server 'notes' expired: .* interlock servers login notes$", ran.err
    )
    assert "s3cr3t" not in ran.out + ran.err + data.out
    assert data.json["logins"] == {"notes": "expired"}
    assert [each["state"] for each in data.json["servers"]] == ["ok", "expired"]


def test_the_json_of_tools_has_the_state_and_the_remedy(
    interlock: Callable[..., Any], servers: Callable[..., Path], protected: Guarded
):
    servers(notes={"url": protected.url})
    ran = interlock("tools", "--json")

    assert ran.code == 0  # the other server works
    status = json.loads(ran.out)["servers"][1]
    assert status["state"] == "needs login"
    assert status["reason"].endswith("interlock servers login notes")
    assert ran.err.startswith("warning: server 'notes' needs login: ")


@pytest.mark.slow("starts a program")
def test_list_and_doctor_show_the_login_of_an_api_and_remove_deletes_it(
    interlock: Callable[..., Any], servers: Callable[..., Path], tmp_path: Path
):
    def api(host: str, auth: dict[str, Any]) -> dict[str, Any]:
        url = f"https://{host}.example/v1"
        return {"openapi": {"document": "api.json", "baseUrl": url, "auth": auth}}

    login = {"OAuth": {"login": True}}
    servers(shop=api("shop", login), bank=api("bank", login), open=api("open", {"Key": "abc"}))
    store_login("https://shop.example/v1")
    listed = {each["name"]: each for each in interlock("servers", "list", "--json").json["servers"]}
    table = interlock("servers", "list").out
    logins = interlock("doctor", "--json").json["logins"]

    assert [listed[name].get("login") for name in ("shop", "bank", "open")] == [
        "kept",
        "none",
        None,
    ]
    assert logins == {"shop": "kept", "bank": "none"}
    assert table.count("login kept") == table.count("no login") == 1
    assert "logged out of 'shop'" in interlock("servers", "remove", "shop").err
    assert stored_tokens("https://shop.example/v1") is None
