"""The gateway's secret key: created once, for its owner only, and never shown."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.auth.gateway_key import FILE_NAME, VARIABLE, GatewayKey
from interlock.errors import ConfigError
from tests.support.rows import each_row

SECRET = bytes(range(32))


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_key_file_is_created_on_first_use_and_read_later(tmp_path: Path):
    folder = tmp_path / "new"
    first = GatewayKey.load(folder)

    assert (folder / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert GatewayKey.load(folder).derive("seal") == first.derive("seal")
    assert [each.name for each in folder.iterdir()] == [FILE_NAME]


def test_processes_that_start_at_the_same_time_share_one_key(tmp_path: Path):
    with ThreadPoolExecutor(16) as pool:
        ids = set(pool.map(lambda _: GatewayKey.load(tmp_path).id, range(64)))

    assert len(ids) == 1


def test_variable_is_preferred_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, SECRET.hex() + "\n")

    assert GatewayKey.load(tmp_path).id == GatewayKey(SECRET).id
    assert [*tmp_path.iterdir()] == []


@each_row("text", ["changeme", "00" * 32, "ab" * 32, SECRET.hex()[:-2], "zz" * 32])
def test_weak_or_malformed_key_is_refused_without_showing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
):
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ConfigError) as raised:
        GatewayKey.load(tmp_path)
    assert text not in str(raised.value)


def test_file_that_others_can_read_is_refused(tmp_path: Path):
    GatewayKey.load(tmp_path)
    (tmp_path / FILE_NAME).chmod(0o640)

    with pytest.raises(ConfigError, match=r"mode 640\): run `chmod 600 "):
        GatewayKey.load(tmp_path)


def test_derived_keys_differ_by_purpose():
    key = GatewayKey(SECRET)

    assert len({key.derive("seal"), key.derive("arguments"), SECRET}) == 3
    assert len(key.derive("seal")) == 32


def test_only_the_same_key_and_message_match_a_signature():
    key = GatewayKey(SECRET)
    signature = key.sign(b"head")

    assert key.has_signed(b"head", signature)
    assert not key.has_signed(b"tail", signature)
    assert not GatewayKey.random().has_signed(b"head", signature)


def test_repr_does_not_show_the_secret():
    key = GatewayKey(SECRET)

    assert SECRET.hex()[:8] not in repr(key)
    assert repr(key) == f"GatewayKey({key.id})"
