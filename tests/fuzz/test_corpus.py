"""Every input that was worth keeping, tried as fuzzing tries it."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from interlock.errors import ParseError
from interlock.protocol import envelope
from tests.fuzz import keeping, watch
from tests.fuzz.table import CORPUS, load, names
from tests.fuzz.watch import TooSlow, Watch


@pytest.mark.parametrize("name", names())
def test_no_input_that_is_kept_breaks_its_target(name: str):
    # What takes twenty times too long is broken, whoever else uses the processor.
    watched = Watch(load(name).target, limit=1.0)
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for path in inputs:
        try:
            watched(path.read_bytes())
        except BaseException as error:
            error.add_note(f"the input: {path.relative_to(CORPUS.parent)}")
            raise


def test_each_fuzz_corpus_folder_has_a_target():
    folders = {path.name for path in CORPUS.iterdir() if path.is_dir()}

    assert folders == set(names())


@pytest.mark.slow("works through much data")
def test_fuzz_input_is_too_slow_only_if_every_attempt_is_slow(monkeypatch: pytest.MonkeyPatch):
    seconds = iter([0, 1, 1, 1, *(0, 1, 1, 2, 2, 3)])
    monkeypatch.setattr(watch, "thread_time", lambda: next(seconds))
    watched = Watch(lambda data: None)

    watched(b"once")
    with pytest.raises(TooSlow, match="6 bytes take 1000 ms; the limit is 50 ms"):
        watched(b"always")


def test_inputs_are_kept_only_if_they_reach_new_code(tmp_path: Path):
    inputs = [b"[", b"{}", b'{"jsonrpc":"2.0","id":1,"result":{}}', b"[[", b"[[["]

    def target(data: bytes) -> None:
        with contextlib.suppress(ParseError):
            envelope.decode(data)

    chosen = keeping.choose(target, [*inputs, *inputs, b" " * 5000])
    assert b"[" in chosen
    assert inputs[2] in chosen
    assert b"[[[" not in chosen

    for name in ("0123456789ab", "crash-0123456789ab", "a name"):
        (tmp_path / name).touch()
    keeping.replace(tmp_path, chosen)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"crash-0123456789ab", "a name", *map(keeping.name_of, chosen)}
