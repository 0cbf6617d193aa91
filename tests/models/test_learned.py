from __future__ import annotations

from pathlib import Path

import pytest

from interlock.models import learned
from interlock.models.learned import Fact


def in_another_process() -> None:
    learned._read.clear()


def test_learned_facts_about_a_model_are_merged_and_stored() -> None:
    learned.note("openai:a", responses=True)
    learned.note("anthropic:b", output_limit=8192)
    learned.note("openai:a", output_limit=100)
    in_another_process()

    known = learned.fact("openai:a")
    assert (known.responses, known.output_limit) == (True, 100)
    assert learned.fact("anthropic:b").output_limit == 8192
    assert learned.fact("openai:other") == Fact()


def test_a_fact_expires_after_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    learned.note("openai:a", responses=True)
    today = learned._today()
    in_another_process()
    monkeypatch.setattr(learned, "_today", lambda: today + learned.KEPT)
    assert learned.fact("openai:a").responses

    in_another_process()
    monkeypatch.setattr(learned, "_today", lambda: today + learned.KEPT + 1)
    assert not learned.fact("openai:a").responses


def test_only_the_latest_models_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MOST", 2)
    for name in "abac":
        learned.note(name, responses=True)

    assert [learned.fact(each).responses for each in "abc"] == [True, False, True]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b"\xff"])
def test_a_damaged_file_is_read_as_empty(learned_file: Path, content: bytes) -> None:
    learned_file.parent.mkdir()
    learned_file.write_bytes(content)
    assert learned.fact("a") == Fact()

    learned.note("a", responses=True)
    in_another_process()

    assert learned.fact("a").responses


def test_a_file_that_cannot_be_written_is_remembered_by_the_process(learned_file: Path) -> None:
    learned_file.parent.write_text("a file in place of the folder")
    learned.note("a", responses=True)

    assert learned.fact("a").responses
