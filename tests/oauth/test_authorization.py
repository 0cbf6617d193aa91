"""The authorization request, and what is believed of what comes back."""

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


def test_a_request_has_all_that_makes_it_safe():
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


def test_no_two_requests_are_alike():
    one, other = start(), start()

    assert one.request.state != other.request.state
    assert one.verifier != other.verifier
    assert len(one.request.state) >= 43
    assert 43 <= len(one.verifier) <= 128


def test_what_is_unknown_is_left_out():
    assert not query(start(found(resource=""))).keys() & {"resource", "scope", "prompt"}


def test_offline_access_needs_consent():
    assert query(start(scopes=("a", "offline_access")))["prompt"] == ["consent"]


def test_the_endpoint_keeps_its_own_query_but_decides_nothing():
    endpoint = "https://as.example/authorize?tenant=7&client_id=evil&resource=evil"

    asked = query(start(found(authorization_endpoint=endpoint)))

    assert asked["tenant"] == ["7"]
    assert asked["client_id"] == ["me"]
    assert asked["resource"] == [RESOURCE]


@pytest.mark.parametrize(
    "name", ["scope", "resource", "prompt", "request", "request_uri", "response_mode", "claims"]
)
def test_the_endpoint_does_not_decide_what_we_leave_open(name: str):
    endpoint = f"https://as.example/authorize?tenant=7&{name}=evil&{name}=twice"

    asked = query(start(found(resource="", authorization_endpoint=endpoint)))

    assert asked["tenant"] == ["7"]
    assert name not in asked


@pytest.mark.parametrize("methods", [None, [], ["plain"], ["s256"]])
def test_an_authorization_server_without_s256_is_refused(methods: object):
    with pytest.raises(AuthError, match=r"as.example/tenant does not declare support for PKCE"):
        start(found(code_challenge_methods_supported=methods))


@pytest.mark.parametrize("endpoint", ["authorization_endpoint", "token_endpoint"])
def test_an_authorization_server_without_endpoints_is_refused(endpoint: str):
    with pytest.raises(
        AuthError, match=r"as.example/tenant has no authorization endpoint or no token endpoint"
    ):
        start(found(**{endpoint: None}))


@pytest.mark.parametrize(
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
def test_a_browser_is_sent_nowhere_else(url: str):
    with pytest.raises(AuthError, match="the URL of the login is"):
        check_browsable(url)
    with pytest.raises(AuthError):
        start(found(authorization_endpoint=url))


@pytest.mark.parametrize(
    "url",
    [
        "https://as.example/a?b=c%20d&e=f",
        "http://127.0.0.1:8/a",
        "http://[::1]:8/",
        "http://localhost",
    ],
)
def test_a_browser_is_sent_to_the_web_and_to_this_machine(url: str):
    assert check_browsable(url) == url


def test_a_distant_authorization_server_does_not_send_the_browser_to_this_machine():
    with pytest.raises(AuthError, match="sends the browser to this machine"):
        start(found(authorization_endpoint="http://localhost:8080/admin"))


@pytest.mark.parametrize(
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
def test_a_distant_authorization_server_does_not_send_the_browser_to_what_is_near(url: str):
    with pytest.raises(AuthError, match=r"sends the browser to (this machine|a private network)"):
        start(found(authorization_endpoint=url))


@pytest.mark.parametrize(
    ("issuer", "endpoint"),
    [
        ("https://192.168.1.2", "https://192.168.1.2/authorize"),
        ("https://10.0.0.1", "https://192.168.1.2/authorize"),
        ("http://localhost:8080", "http://127.0.0.1:8080/authorize"),
        ("http://127.0.0.1:8080", "https://as.example/authorize"),
    ],
)
def test_a_near_authorization_server_may(issuer: str, endpoint: str):
    start(found(issuer=issuer, authorization_endpoint=endpoint))


# What comes back


def test_a_code_is_taken_from_the_answer_to_the_request():
    pending = start()

    assert pending.code({"state": pending.request.state, "code": "c", "more": "x"}) == "c"
    assert pending.code({"state": pending.request.state, "code": "c", "iss": ISSUER}) == "c"


@pytest.mark.parametrize("state", [None, "", "other", "é"])
@pytest.mark.parametrize("more", [{"code": "CODE"}, {"error": "x", "error_description": "WORDS"}])
def test_an_answer_to_another_request_is_not_read(state: str | None, more: dict[str, str]):
    answer = more if state is None else {"state": state, **more}

    with pytest.raises(AuthError, match="is not for the login at") as raised:
        start().code(answer)

    assert "CODE" not in str(raised.value)
    assert "WORDS" not in str(raised.value)


@pytest.mark.parametrize(
    "iss",
    ["https://evil.example", ISSUER + "/", ISSUER.upper(), "https://as.example", "", " " + ISSUER],
)
@pytest.mark.parametrize("promised", [True, False, None])
@pytest.mark.parametrize("more", [{"code": "CODE"}, {"error": "x", "error_description": "WORDS"}])
def test_an_answer_of_another_issuer_is_not_read(
    iss: str, promised: bool | None, more: dict[str, str]
):
    pending = start(found(authorization_response_iss_parameter_supported=promised))

    with pytest.raises(AuthError, match=r"is not from https://as.example/tenant") as raised:
        pending.code({"state": pending.request.state, "iss": iss, **more})

    assert "WORDS" not in str(raised.value)


@pytest.mark.parametrize("more", [{"code": "CODE"}, {"error": "x", "error_description": "WORDS"}])
def test_an_answer_without_the_issuer_that_was_promised_is_not_read(more: dict[str, str]):
    pending = start(found(authorization_response_iss_parameter_supported=True))

    with pytest.raises(AuthError, match="does not name its issuer") as raised:
        pending.code({"state": pending.request.state, **more})

    assert "WORDS" not in str(raised.value)


def test_a_refusal_is_told_with_its_words():
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


@pytest.mark.parametrize("secret", ["state", "verifier", "code"])
def test_a_refusal_that_repeats_a_secret_is_told_without_its_words(secret: str):
    pending = start()
    state = pending.request.state
    words = {"state": state, "verifier": pending.verifier, "code": "c0de"}[secret]
    answer = {"state": state, "code": "c0de", "error": "access_denied"}

    with pytest.raises(AuthError, match=r"denied the login: access_denied$") as raised:
        pending.code({**answer, "error_description": f"not with {words}"})

    assert not hasattr(raised.value, "__notes__")


def test_a_refusal_with_a_code_of_its_own_is_told_without_it():
    pending = start()

    with pytest.raises(AuthError, match=r"denied the login: an error without a known code$"):
        pending.code({"state": pending.request.state, "error": "SECRET"})


@pytest.mark.parametrize("code", [{}, {"code": ""}])
def test_an_answer_without_a_code_is_an_error(code: dict[str, str]):
    pending = start()

    with pytest.raises(AuthError, match=r"has no code from https://as.example/tenant"):
        pending.code({"state": pending.request.state, **code})


def test_what_is_shown_of_a_request_has_no_secret_in_it():
    pending = start()

    for text in (repr(pending), repr(pending.request), str(pending)):
        assert pending.request.state not in text
        assert pending.verifier not in text
        assert "?" not in text
