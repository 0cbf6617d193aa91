from __future__ import annotations

from interlock.auth.authenticator import values_of


def test_repeated_header_has_all_its_values_in_order():
    headers = [(b"authorization", b"Bearer a"), (b"host", b"x"), (b"authorization", b" Bearer b\t")]

    assert values_of(headers, b"authorization") == [b"Bearer a", b"Bearer b"]


def test_missing_header_has_no_values():
    assert values_of([(b"host", b"x")], b"authorization") == []
