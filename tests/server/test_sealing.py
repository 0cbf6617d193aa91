"""Sealed text is valid unchanged, in time and for the same purpose only."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import InvalidArguments
from interlock.server import sealing
from interlock.server.sealing import EncryptingSeal, Seal, SigningSeal, digest

KEY = b"0123456789abcdef0123456789abcdef"
both = pytest.mark.parametrize("kind", [SigningSeal, EncryptingSeal])


@both
@given(content=st.binary(), bound_to=st.binary())
def test_open_returns_the_sealed_content(kind: type[Seal], content: bytes, bound_to: bytes):
    assert kind(KEY).open(kind(KEY).close(content, bound_to), bound_to) == content


@given(content=st.binary(min_size=4), bound_to=st.binary(min_size=4))
def test_encrypted_text_shows_nothing_of_its_content(content: bytes, bound_to: bytes):
    raw = base64.urlsafe_b64decode(EncryptingSeal(KEY).close(content, bound_to))

    assert content not in raw
    assert bound_to not in raw


def test_equal_content_is_encrypted_differently_each_time():
    assert EncryptingSeal(KEY).close(b"content", b"") != EncryptingSeal(KEY).close(b"content", b"")


def test_moving_bytes_from_the_purpose_to_the_content_is_refused():
    raw = base64.urlsafe_b64decode(SigningSeal(KEY).close(b"content", b"purpose"))
    moved = base64.urlsafe_b64encode(raw[:32] + b"e" + raw[32:]).decode()

    with pytest.raises(InvalidArguments, match="was changed"):
        SigningSeal(KEY).open(moved, b"purpos")


@both
def test_text_sealed_with_another_random_key_is_refused(kind: type[Seal]):
    with pytest.raises(InvalidArguments, match="was changed"):
        kind().open(kind().close(b"content", b"purpose"), b"purpose")


@both
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_any_changed_bit_is_refused(kind: type[Seal], place: int, bit: int):
    raw = bytearray(base64.urlsafe_b64decode(kind(KEY).close(b"content", b"purpose")))
    raw[place % len(raw)] ^= 1 << bit

    with pytest.raises(InvalidArguments, match="was changed"):
        kind(KEY).open(base64.urlsafe_b64encode(raw).decode(), b"purpose")


@both
@given(text=st.text())
def test_any_other_text_is_refused(kind: type[Seal], text: str):
    with pytest.raises(InvalidArguments, match="requestState"):
        kind(KEY).open(text, b"")


@both
def test_sealed_text_is_valid_for_one_purpose_key_and_time(
    kind: type[Seal], monkeypatch: pytest.MonkeyPatch
):
    sealed = kind(KEY, ttl=10).close(b"x", b"purpose")
    now = sealing.time.time()

    with pytest.raises(InvalidArguments, match="belongs to another request"):
        kind(KEY).open(sealed, b"other purpose")
    with pytest.raises(InvalidArguments, match="belongs to another request"):
        kind().open(sealed, b"purpose")
    monkeypatch.setattr(sealing.time, "time", lambda: now + 11)
    with pytest.raises(InvalidArguments, match="has expired; start the request again"):
        kind(KEY).open(sealed, b"purpose")


@both
def test_short_key_is_refused(kind: type[Seal]):
    with pytest.raises(
        ValueError, match=r"sealing key too short \(31 bytes, at least 32 are required\)"
    ):
        kind(b"x" * 31)


def test_different_lists_of_parts_have_different_digests():
    lists = [(), (b"",), (b"", b""), (b"ab",), (b"a", b"b"), (b"", b"ab"), (b"ab", b"")]

    assert len({digest(*parts) for parts in lists}) == len(lists)
