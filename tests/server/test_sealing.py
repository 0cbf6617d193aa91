"""Sealed text is valid unchanged, in time and for the same purpose only."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import InvalidArguments
from interlock.server import sealing
from interlock.server.sealing import Seal, digest

KEY = b"0123456789abcdef0123456789abcdef"


@given(content=st.binary(), bound_to=st.binary())
def test_open_returns_what_was_sealed(content, bound_to):
    assert Seal(KEY).open(Seal(KEY).close(content, bound_to), bound_to) == content


def test_moving_bytes_from_the_purpose_to_the_content_is_refused():
    raw = base64.urlsafe_b64decode(Seal(KEY).close(b"content", b"purpose"))
    moved = base64.urlsafe_b64encode(raw[:32] + b"e" + raw[32:]).decode()

    with pytest.raises(InvalidArguments, match="was changed"):
        Seal(KEY).open(moved, b"purpos")


def test_text_sealed_with_another_random_key_is_refused():
    with pytest.raises(InvalidArguments, match="was changed"):
        Seal().open(Seal().close(b"content", b"purpose"), b"purpose")


@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_any_changed_bit_is_refused(place, bit):
    raw = bytearray(base64.urlsafe_b64decode(Seal(KEY).close(b"content", b"purpose")))
    raw[place % len(raw)] ^= 1 << bit

    with pytest.raises(InvalidArguments, match="was changed"):
        Seal(KEY).open(base64.urlsafe_b64encode(raw).decode(), b"purpose")


@given(text=st.text())
def test_any_other_text_is_refused(text):
    with pytest.raises(InvalidArguments, match="requestState"):
        Seal(KEY).open(text, b"")


def test_sealed_text_is_valid_for_one_purpose_key_and_time(monkeypatch):
    sealed = Seal(KEY, ttl=10).close(b"x", b"purpose")
    now = sealing.time.time()

    with pytest.raises(InvalidArguments, match="belongs to another request"):
        Seal(KEY).open(sealed, b"other purpose")
    with pytest.raises(InvalidArguments, match="belongs to another request"):
        Seal().open(sealed, b"purpose")
    monkeypatch.setattr(sealing.time, "time", lambda: now + 11)
    with pytest.raises(InvalidArguments, match="has expired; start the request again"):
        Seal(KEY).open(sealed, b"purpose")


def test_a_short_key_is_refused():
    with pytest.raises(
        ValueError, match=r"sealing key too short \(31 bytes, at least 32 are required\)"
    ):
        Seal(b"x" * 31)


def test_different_lists_of_parts_have_different_digests():
    lists = [(), (b"",), (b"", b""), (b"ab",), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")]

    assert len({digest(*parts) for parts in lists}) == len(lists)
