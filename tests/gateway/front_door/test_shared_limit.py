"""Limits on requests of callers who have not authenticated."""

from __future__ import annotations

from interlock.gateway.front_door.shared_limit import SharedLimit
from tests.support.rows import each_row


@each_row(
    ("flooding", "other", "is_admitted"),
    [
        ("192.0.2.1", "192.0.2.2", True),
        ("2001:db8::1", "2001:db8:0:1::1", True),
        ("2001:db8::1", "2001:db8::2", False),  # addresses of one caller
        ("", "", False),
        ("", "192.0.2.1", True),
    ],
)
def test_one_address_cannot_lock_out_another(flooding: str, other: str, is_admitted: bool):
    limit = SharedLimit(10)
    now = 1_000.0
    for _ in range(2):
        assert [limit.spend(flooding, now) for _ in range(20)].count(True) == 5
        assert limit.spend(other, now) is is_admitted
        now += 1


def test_all_addresses_together_have_one_limit():
    limit = SharedLimit(10)

    assert [limit.spend(f"192.0.2.{each}", 1_000.0) for each in range(20)].count(True) == 10
