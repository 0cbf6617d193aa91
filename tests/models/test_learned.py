from __future__ import annotations

from pathlib import Path

import pytest

from interlock.models import learned
from interlock.models.learned import Lesson, described
from tests.support.rows import each_row


def in_another_process() -> None:
    learned._read.clear()


RESPONSES = Lesson("responses")


def kinds(model: str) -> list[str]:
    return [each.kind for each in learned.lessons(model)]


def test_lessons_of_a_model_are_merged_and_stored_for_the_next_process() -> None:
    learned.note("openai:a", RESPONSES, Lesson("output", limit=200))
    learned.note("anthropic:b", Lesson("tool", "digest", "s:t", reason="No."))
    learned.note("openai:a", Lesson("output", limit=100))
    in_another_process()

    assert kinds("openai:a") == ["responses", "output"]
    assert learned.lessons("openai:a")[1].limit == 100
    assert learned.lessons("anthropic:b")[0].name == "s:t"
    assert learned.lessons("openai:other") == []
    assert learned.everything().keys() == {"openai:a", "anthropic:b"}


def test_a_lesson_expires_after_its_lifetime(monkeypatch: pytest.MonkeyPatch) -> None:
    learned.note("openai:a", RESPONSES)
    today = learned._today()
    monkeypatch.setattr(learned, "_today", lambda: today + learned.KEPT)
    in_another_process()
    learned.note("openai:a", Lesson("output", limit=100))
    assert kinds("openai:a") == ["responses", "output"]

    in_another_process()
    monkeypatch.setattr(learned, "_today", lambda: today + learned.KEPT + 1)
    assert kinds("openai:a") == ["output"]


def test_only_the_latest_models_and_lessons_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned, "MOST", 2)
    monkeypatch.setattr(learned, "MOST_LESSONS", 2)
    for name in "abac":
        learned.note(name, RESPONSES)
    learned.note("c", Lesson("member", "one"), Lesson("member", "two"))

    assert [len(learned.lessons(each)) for each in "abc"] == [1, 0, 2]
    assert [each.what for each in learned.lessons("c")] == ["one", "two"]


def test_forgotten_lessons_are_gone_for_every_process() -> None:
    learned.note("a", RESPONSES)

    assert [learned.forget(each) for each in ("b", "a", "a")] == [False, True, False]
    in_another_process()
    assert learned.lessons("a") == []


@pytest.mark.parametrize("content", [b"", b"[]", b'{"a": 1}', b'{"a": {"day": 1}}', b"\xff"])
def test_a_damaged_file_is_read_as_empty(learned_file: Path, content: bytes) -> None:
    learned_file.parent.mkdir()
    learned_file.write_bytes(content)
    assert learned.lessons("a") == []

    learned.note("a", RESPONSES)
    in_another_process()

    assert kinds("a") == ["responses"]


def test_a_file_that_cannot_be_written_is_remembered_by_the_process(learned_file: Path) -> None:
    learned_file.parent.write_text("a file in place of the folder")
    learned.note("a", RESPONSES)

    assert kinds("a") == ["responses"]


@each_row(
    ("lesson", "text"),
    [
        (Lesson("tool", "d", "s:t", reason="No."), "the tool s:t is left out: No."),
        (Lesson("tools", limit=128, reason="Too many"), "at most 128 tools: Too many"),
        (Lesson("tool_bytes", limit=9000), "at most 9,000 bytes of tools"),
        (Lesson("member", "store", reason="No."), "store is left out: No."),
        (Lesson("member", "max_tokens", "most"), "max_tokens is sent as most"),
        (Lesson("output", limit=8192), "at most 8,192 tokens of an answer"),
        (RESPONSES, "the Responses API is used"),
    ],
)
def test_lesson_is_described_in_words(lesson: Lesson, text: str) -> None:
    assert described(lesson) == text
