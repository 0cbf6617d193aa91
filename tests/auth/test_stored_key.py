"""The state of a stored API key, and what commands show of it."""

from __future__ import annotations

from interlock.auth.stored_key import StoredKey

KEY = StoredKey("k1", b"secret hash", "anna", "laptop", created=1_000_000, expires=61_000_000)


def test_key_state_is_expired_or_rotated_after_its_end():
    rotated = StoredKey("k1", b"", "anna", expires=61_000_000, replaced_by="k2")

    assert [KEY.state(now) for now in (60_999_999, 61_000_000)] == ["active", "expired"]
    assert rotated.state(61_000_000) == "rotated"
    assert StoredKey("k1", b"", "anna").state(2**60) == "active"


def test_a_key_is_revoked_from_its_time_on_even_if_it_has_expired():
    key = StoredKey("k1", b"", "anna", expires=5, revoked=10)

    assert [key.state(now) for now in (4, 9, 10)] == ["active", "expired", "revoked"]


def test_json_of_a_key_has_no_hash_and_only_members_with_a_value():
    shown = KEY.as_json(2_000_000)

    assert shown == {
        "id": "k1",
        "user": "user:anna",
        "name": "laptop",
        "scopes": ["mcp:read"],
        "limits": {},
        "created": "1970-01-01T00:00:01.000Z",
        "expires": "1970-01-01T00:01:01.000Z",
        "state": "active",
    }
    assert KEY.as_json(2_000_000, "ik_once")["key"] == "ik_once"
    assert KEY.lifetime == 60
