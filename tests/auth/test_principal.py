"""What is kept apart between callers."""

from __future__ import annotations

from interlock.auth import Principal
from tests.support.rows import each_row

ADA = Principal("ada")


@each_row("member", ["id", "tenant", "key_id", "view"])
def test_identity_depends_on_the_credential_and_its_view(member):
    assert Principal(**{"id": "ada", member: "other"}).identity != ADA.identity


@each_row("member", ["scopes", "groups"])
def test_the_identity_does_not_depend_on_rights(member):
    assert Principal(**{"id": "ada", member: frozenset({"x"})}).identity == ADA.identity


def test_all_keys_of_a_caller_have_one_owner():
    assert Principal("ada", key_id="1").owner == Principal("ada", key_id="2").owner


def test_no_two_tenants_share_an_owner():
    owners = [
        Principal(id, tenant=tenant).owner
        for id in ("a", "/a", "a/b", "%2F")
        for tenant in ("", "a", "a/", "/", "%2F")
    ]

    assert len(set(owners)) == len(owners)
