"""Files that a user adds to a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from interlock import attachments
from interlock.errors import AttachmentError
from interlock.messages import Attachment
from tests.support.rows import each_row

PNG = b"\x89PNG\r\n\x1a\n\0\0"


@each_row(
    ("content", "type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\1\0\0\0WEBPVP8 ", "image/webp"),
        (b"%PDF-1.7\n", "application/pdf"),
        ("grüezi".encode(), "text/plain"),
        (b"<html><script>alert(1)</script>", "text/plain"),
        (b"a\0b", "application/octet-stream"),
        (b"gr\xfcezi", "application/octet-stream"),
    ],
)
def test_the_type_of_a_file_is_found_in_its_content(content: bytes, type: str) -> None:
    assert attachments.sniff(content) == type


def test_a_loaded_file_has_its_name_and_type(tmp_path: Path) -> None:
    path = tmp_path / "not-a-text.txt"
    path.write_bytes(PNG)

    assert attachments.load(path) == Attachment("image/png", PNG, "not-a-text.txt")


def test_a_file_that_cannot_be_attached_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "MAX_FILE", 4)
    (tmp_path / "large").write_bytes(b"12345")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "zip").write_bytes(b"PK\3\4"[:3] + b"\0")
    os.mkfifo(tmp_path / "pipe")
    problems = {
        "large": "too large",
        "empty": "is empty",
        "zip": "neither text in UTF-8",
        "pipe": "it is not a file",
        "missing": "No such file",
        ".": "it is not a file",
    }

    for name, problem in problems.items():
        with pytest.raises(AttachmentError, match=problem):
            attachments.load(tmp_path / name)


def test_files_of_one_message_are_limited_in_number_and_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = Attachment("text/plain", b"x" * 10, "a")
    with pytest.raises(AttachmentError, match=r"too many files .*\(11, limit 10\)"):
        attachments.check_all([file] * 11)
    monkeypatch.setattr(attachments, "MAX_ALL", 19)

    with pytest.raises(AttachmentError, match="too large"):
        attachments.check_all([file] * 2)


def test_the_end_of_a_long_text_is_cut_off_with_a_note() -> None:
    long = "x" * (attachments.MAX_TEXT + 5)

    assert "[cut: 5 more characters]" in attachments.block("f_1", "text/plain", 9, "a", long)
