"""A key can be changed into one with fewer rights, and never into one with more."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.auth.stored_key import StoredKey
from interlock.config.gateway import GatewaySettings
from interlock.errors import InvalidArguments
from interlock.gateway.admin.key_rights import covers, lifetime_of, narrowed, user_problem
from tests.support.rows import each_row

HOUR = 3_600_000_000
KEY = StoredKey(
    "k1", b"", "anna", scopes=("mcp:crm:*", "mcp:read"), limits={"perDay": 100}, expires=10 * HOUR
)


def change(**members: Any) -> StoredKey:
    return narrowed(KEY, members, GatewaySettings(), HOUR)


def test_reduced_key_has_fewer_rights_and_the_same_user():
    key = change(scopes=["mcp:crm:get"], expires="2h", perDay=10, name="laptop")

    assert (key.scopes, key.expires, key.limits) == (("mcp:crm:get",), 3 * HOUR, {"perDay": 10})
    assert (key.name, key.id, key.user) == ("laptop", "k1", "anna")


@each_row(
    ("members", "problem"),
    [
        ({"scopes": ["mcp:*"]}, "scope 'mcp:\\*' exceeds the scopes of the key"),
        ({"scopes": ["mcp:shop:get"]}, "exceeds the scopes of the key"),
        ({"scopes": []}, "a key needs a scope"),
        ({"expires": "never"}, "expires earlier"),
        ({"expires": "10h"}, "expires earlier"),
        ({"expires": "soon"}, "not a time such as 12h"),
        ({"perDay": 101}, r"perDay is above the limit that holds now \(100\)"),
        ({"view": "unknown"}, "no view 'unknown'"),
    ],
)
def test_change_that_adds_rights_to_a_key_is_refused(members: Any, problem: str):
    with pytest.raises(InvalidArguments, match=problem):
        change(**members)


@each_row(
    ("wide", "scope", "is_covered"),
    [
        ("mcp:*", "mcp:read", True),
        ("mcp:*", "mcp:crm:*", True),
        ("mcp:crm:*", "mcp:crm:get", True),
        ("mcp:crm:*", "mcp:crmx:get", False),
        ("mcp:crm:get", "mcp:crm:*", False),
        ("mcp:read", "mcp:crm:get", False),
    ],
)
def test_covers_is_true_only_if_a_scope_includes_the_other(wide: str, scope: str, is_covered: bool):
    assert covers(wide, scope) is is_covered


def test_user_names_and_lifetimes_are_validated():
    assert [user_problem(each) == "" for each in ("anna", "", "a b", "*", "a\0")] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert (lifetime_of("90d"), lifetime_of("never")) == (90 * 86_400, None)
