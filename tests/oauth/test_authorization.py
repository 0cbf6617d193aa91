"""The authorization request and the checks of its answer."""

from __future__ import annotations

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from interlock.errors import AuthError
from interlock.oauth.authorization import Pending, begin, check_browsable
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata
from tests.support.rows import each_row

ISSUER = "https://as.example/tenant"
RESOURCE = "https://mcp.example"


def found(resource: str = RESOURCE, **changed: Any) -> Discovery:
    members: dict[str, Any] = {
        "issuer": ISSUER,
        "authorization_endpoint": "https://as.example/authorize",
        "token_endpoint": "https://as.example/token",
        "code_challenge_methods_supported": ["S256"],
        **changed,
    }
    return Discovery(resource, None, ServerMetadata(**members))


def start(server: Discovery | None = None, scopes: tuple[str, ...] = ()) -> Pending:
    return begin(
        server or found(),
        server_url="https://mcp.example/mcp",
        client_id="me",
        redirect_uri="http://127.0.0.1:1/callback",
        scopes=scopes,
    )


def query(pending: Pending) -> dict[str, list[str]]:
    return parse_qs(urlsplit(pending.request.url).query, keep_blank_values=True)


# The request


def test_a_request_has_state_pkce_and_resource():
    pending = start(scopes=("a", "b"))

    digest = hashlib.sha256(pending.verifier.encode()).digest()
    assert pending.request.url.startswith("https://as.example/authorize?")
    assert query(pending) == {
        "response_type": ["code"],
        "client_id": ["me"],
        "redirect_uri": ["http://127.0.0.1:1/callback"],
        "state": [pending.request.state],
        "code_challenge": [base64.urlsafe_b64encode(digest).decode().rstrip("=")],
        "code_challenge_method": ["S256"],
        "resource": [RESOURCE],
        "scope": ["a b"],
    }
    assert pending.verifier not in pending.request.url
    assert pending.request.host == "as.example"


def test_two_requests_have_different_state_and_verifier():
    one, other = start(), start()

    assert one.request.state != other.request.state
    assert one.verifier != other.verifier
    assert len(one.request.state) >= 43
    assert 43 <= len(one.verifier) <= 128


def test_a_request_without_resource_and_scopes_omits_their_parameters():
    assert not query(start(found(resource=""))).keys() & {"resource", "scope", "prompt"}


def test_a_request_for_offline_access_prompts_for_consent():
    assert query(start(scopes=("a", "offline_access")))["prompt"] == ["consent"]


def test_the_query_of_an_endpoint_is_kept_but_cannot_replace_parameters():
    endpoint = "https://as.example/authorize?tenant=7&client_id=evil&resource=evil"

    asked = query(start(found(authorization_endpoint=endpoint)))

    assert asked["tenant"] == ["7"]
    assert asked["client_id"] == ["me"]
    assert asked["resource"] == [RESOURCE]


@each_row(
    "name", ["scope", "resource", "prompt", "request", "request_uri", "response_mode", "claims"]
)
def test_the_query_of_an_endpoint_cannot_add_reserved_parameters(name: str):
    endpoint = f"https://as.example/authorize?tenant=7&{name}=evil&{name}=twice"

    asked = query(start(found(resource="", authorization_endpoint=endpoint)))

    assert asked["tenant"] == ["7"]
    assert name not in asked


@each_row("methods", [None, [], ["plain"], ["s256"]])
def test_an_authorization_server_without_s256_is_refused(methods: object):
    with pytest.raises(AuthError, match=r"as.example/tenant does not declare support for PKCE"):
        start(found(code_challenge_methods_supported=methods))


@each_row("endpoint", ["authorization_endpoint", "token_endpoint"])
def test_an_authorization_server_without_endpoints_is_refused(endpoint: str):
    with pytest.raises(
        AuthError, match=r"as.example/tenant has no authorization endpoint or no token endpoint"
    ):
        start(found(**{endpoint: None}))


@each_row(
    "url",
    [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,hello",
        "-incognito",
        "--help",
        "$(touch /tmp/x)",
        "https://as.example/$(touch${IFS}x)",
        "https://as.example/`id`",
        "https://as.example/a b",
        'https://as.example/"',
        "https://as.example/'",
        "https://as.example/a|b",
        "https://as.example\\@evil.example/",
        "https://good.example@evil.example/",
        "https://as.example/\nx",
        "https://as.example/#fragment",
        "https://as.exämple/",
        "https://[as.example/",
        "https://as.example:none/",
        "http://as.example/",
        "http://localhost.evil.example/",
        "http://127.0.0.1.nip.io/",
        "HTTPS://as.example/",
        "https:as.example",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://0177.0.0.1/",
        "https://127.1/",
        "https://127.0.0.1./",
        "https:///path",
        "",
    ],
)
def test_a_url_that_is_not_safe_for_a_browser_is_refused(url: str):
    with pytest.raises(AuthError, match="the URL of the login is"):
        check_browsable(url)
    with pytest.raises(AuthError):
        start(found(authorization_endpoint=url))


@each_row(
    "url",
    [
        "https://as.example/a?b=c%20d&e=f",
        "http://127.0.0.1:8/a",
        "http://[::1]:8/",
        "http://localhost",
    ],
)
def test_https_and_loopback_urls_are_safe_for_a_browser(url: str):
    assert check_browsable(url) == url


def test_a_public_issuer_cannot_send_the_browser_to_this_machine():
    with pytest.raises(AuthError, match="sends the browser to this machine"):
        start(found(authorization_endpoint="http://localhost:8080/admin"))


@each_row(
    "url",
    [
        "https://127.0.0.2/",
        "https://localhost./",
        "https://router.localhost/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://192.168.1.1/apply",
        "https://10.0.0.1:8443/",
        "https://[fd00::1]/",
        "https://169.254.169.254/",
        "https://0.0.0.0/",
    ],
)
def test_a_public_issuer_cannot_send_the_browser_into_a_private_network(url: str):
    with pytest.raises(AuthError, match=r"sends the browser to (this machine|a private network)"):
        start(found(authorization_endpoint=url))


@each_row(
    ("issuer", "endpoint"),
    [
        ("https://192.168.1.2", "https://192.168.1.2/authorize"),
        ("https://10.0.0.1", "https://192.168.1.2/authorize"),
        ("http://localhost:8080", "http://127.0.0.1:8080/authorize"),
        ("http://127.0.0.1:8080", "https://as.example/authorize"),
    ],
)
def test_a_private_issuer_can_send_the_browser_to_its_own_network(issuer: str, endpoint: str):
    start(found(issuer=issuer, authorization_endpoint=endpoint))


# The answer


def test_code_returns_the_code_of_an_answer_with_the_right_state():
    pending = start()

    assert pending.code({"state": pending.request.state, "code": "c", "more": "x"}) == "c"
    assert pending.code({"state": pending.request.state, "code": "c", "iss": ISSUER}) == "c"


@each_row("state", [None, "", "other", "é"])
@each_row("more", [{"code": "CODE"}, {"error": "x", "error_description": "WORDS"}])
def test_an_answer_with_another_state_is_refused_without_its_text(
    state: str | None, more: dict[str, str]
):
    answer = more if state is None else {"state": state, **more}

    with pytest.raises(AuthError, match="is not for the login at") as raised:
        start().code(answer)

    assert "CODE" not in str(raised.value)
    assert "WORDS" not in str(raised.value)


@each_row(
    "iss",
    ["https://evil.example", ISSUER + "/", ISSUER.upper(), "https://as.example", "", " " + ISSUER],
)
@each_row("promised", [True, False, None])
@each_row("more", [{"code": "CODE"}, {"error": "x", "error_description": "WORDS"}])
def test_an_answer_with_another_issuer_is_refused_without_its_text(
    iss: str, promised: bool | None, more: dict[str, str]
):
    pending = start(found(authorization_response_iss_parameter_supported=promised))

    with pytest.raises(AuthError, match=r", not from https://as.example/tenant") as raised:
        pending.code({"state": pending.request.state, "iss": iss, **more})

    assert "WORDS" not in str(raised.value)
    assert "oauth.issuer" in str(raised.value)
    assert (f"from {iss!r}" in str(raised.value)) == iss.startswith("https:")


@each_row("more", [{"code": "CODE"}, {"error": "x", "error_description": "WORDS"}])
def test_an_answer_without_a_required_issuer_is_refused_without_its_text(more: dict[str, str]):
    pending = start(found(authorization_response_iss_parameter_supported=True))

    with pytest.raises(AuthError, match="does not name its issuer") as raised:
        pending.code({"state": pending.request.state, **more})

    assert "WORDS" not in str(raised.value)


def test_error_of_a_denied_login_has_the_servers_description_as_a_note():
    pending = start()

    with pytest.raises(AuthError, match=r"denied the login: access_denied\n") as raised:
        pending.code(
            {
                "state": pending.request.state,
                "error": "access_denied",
                "error_description": "Not\ntoday",
            }
        )

    assert raised.value.__notes__ == ["in its own words: Not today"]
    assert raised.value.status == 403


@each_row("secret", ["state", "verifier", "code"])
def test_error_of_a_denied_login_has_no_note_if_the_description_repeats_a_secret(secret: str):
    pending = start()
    state = pending.request.state
    words = {"state": state, "verifier": pending.verifier, "code": "c0de"}[secret]
    answer = {"state": state, "code": "c0de", "error": "access_denied"}

    with pytest.raises(AuthError, match=r"denied the login: access_denied$") as raised:
        pending.code({**answer, "error_description": f"not with {words}"})

    assert not hasattr(raised.value, "__notes__")


def test_an_unknown_error_code_is_not_shown():
    pending = start()

    with pytest.raises(AuthError, match=r"denied the login: an error without a known code$"):
        pending.code({"state": pending.request.state, "error": "SECRET"})


@each_row("code", [{}, {"code": ""}])
def test_an_answer_without_a_code_is_an_error(code: dict[str, str]):
    pending = start()

    with pytest.raises(AuthError, match=r"has no code from https://as.example/tenant"):
        pending.code({"state": pending.request.state, **code})


def test_the_repr_of_a_request_has_no_secret():
    pending = start()

    for text in (repr(pending), repr(pending.request), str(pending)):
        assert pending.request.state not in text
        assert pending.verifier not in text
        assert "?" not in text
