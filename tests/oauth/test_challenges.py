"""Parsing of the `WWW-Authenticate` header."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.oauth.challenges import (
    MAX_CHALLENGE,
    Challenge,
    Dpop,
    challenges,
    split_scopes,
    token_challenge,
)
from tests.support.rows import each_row

METADATA = "https://mcp.example/.well-known/oauth-protected-resource"


@each_row(
    "header",
    [
        f'Bearer resource_metadata="{METADATA}", scope="a b", error="invalid_token"',
        f'Bearer error="invalid_token", scope="a b", resource_metadata="{METADATA}"',
        f'bearer RESOURCE_METADATA="{METADATA}",Scope="a b",error=invalid_token',
        f'BEARER  error = "invalid_token" ,, scope= "a b"\t, resource_metadata ="{METADATA}",',
        f'Bearer resource_metadata={METADATA}, scope="a b", error=invalid_token',
        f'Basic realm="x", Bearer resource_metadata="{METADATA}", scope="a b", error=invalid_token',
        f'Bearer resource_metadata="{METADATA}", scope="a b", error=invalid_token, Basic realm="x"',
        f'Bearer error=invalid_token, Negotiate aGk=, Bearer resource_metadata="{METADATA}", '
        'scope="a b"',
        f'Negotiate, DPoP algs="ES256 RS256", Bearer resource_metadata="{METADATA}", scope="a b", '
        "error=invalid_token",
        f'Bearer realm="a, Basic scope=c", resource_metadata="{METADATA}", scope="a b", '
        "error=invalid_token",
        f'Bearer realm="say \\"scope=c\\", then", resource_metadata="{METADATA}", scope="a b", '
        'error="invalid\\_token"',
    ],
    ids=[
        "usual",
        "other order",
        "other case, no blanks",
        "many blanks and commas",
        "unquoted URL",
        "after another scheme",
        "before another scheme",
        "two of its scheme, and a token between",
        "after schemes without parameters",
        "commas and names in quotes",
        "quotes in quotes",
    ],
)
def test_token_challenge_parses_every_spelling(header: str):
    found = token_challenge(header)

    assert (found.resource_metadata, found.scopes) == (METADATA, ("a", "b"))
    assert found.error == "invalid_token"


@each_row(
    "header",
    [
        "",
        "Basic realm=x",
        'Basic scope="a"',
        "Bearer",
        ", ,",
        "=",
        '"',
        "Bearer dG9rZW4=",
        "Bearer=",
    ],
)
def test_a_header_without_a_token_challenge_is_empty(header: str):
    assert token_challenge(header) == Challenge()


def test_repeated_challenge_parameter_uses_its_first_value():
    header = 'Bearer scope="a", scope="b", Bearer scope="c", error="x"'

    assert token_challenge(header) == Challenge("", ("a",), "x")


def test_challenge_parameters_belong_to_the_scheme_before_them():
    assert challenges('Basic realm="a", Bearer scope="b", Digest nonce="c"') == [
        ("basic", {"realm": "a"}),
        ("bearer", {"scope": "b"}),
        ("digest", {"nonce": "c"}),
    ]


def test_parsing_stops_at_an_unterminated_quote():
    assert token_challenge('Bearer error="x", realm="a, scope="b') == Challenge(error="x")
    assert challenges('Basic realm="a, Bearer scope=b') == [("basic", {}), ("realm", {})]


def test_empty_value_is_treated_as_missing():
    assert token_challenge('Bearer scope="", error=""') == Challenge()


def test_a_token68_after_a_scheme_is_not_a_scheme():
    assert challenges("Negotiate Bearer, scope=a") == [("negotiate", {"scope": "a"})]


def test_split_scopes_drops_invalid_scopes():
    assert split_scopes('a  b a c"d \x7f é mcp:*') == ("a", "b", "mcp:*")


@given(st.text(max_size=200) | st.text(alphabet='Bearer ="\\,\t', max_size=60))
def test_any_header_is_parsed_without_an_error(header: str):
    token_challenge(header)


@each_row("piece", ['a="', "a,", "a=b,", '"\\', "a" * 9 + " ", "=,"])
def test_only_the_beginning_of_a_long_header_is_parsed(piece: str):
    header = 'Bearer error="early", ' + piece * (MAX_CHALLENGE // len(piece))

    assert token_challenge(header + ', Bearer scope="late"') == Challenge(error="early")


@each_row(
    ("header", "dpop"),
    [
        ('Bearer scope="a"', Dpop.UNKNOWN),
        ('DPoP algs="ES256", Bearer', Dpop.OFFERED),
        ("Bearer, DPoP", Dpop.OFFERED),
        ("DPoP", Dpop.REQUIRED),
        ("Basic, dpop", Dpop.REQUIRED),
    ],
)
def test_dpop_is_required_when_the_header_has_no_bearer_challenge(header: str, dpop: Dpop):
    assert token_challenge(header).dpop is dpop


def test_a_dpop_challenge_names_metadata_and_scopes():
    header = f'DPoP error="use_dpop_nonce", scope="a b", resource_metadata="{METADATA}"'

    assert token_challenge(header) == Challenge(
        METADATA, ("a", "b"), "use_dpop_nonce", Dpop.REQUIRED
    )
