from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from interlock.messages import Attachment, Message, ToolMessage, UserMessage
from interlock.models import Notice
from interlock.models.vendors import IMAGES, call_id, call_name, unread_files, without_files
from tests.support.rows import each_row


@given(st.text())
def test_call_ids_and_names_are_converted_to_stable_valid_ones(text: str) -> None:
    assert 0 < len(call_id(text)) <= 40
    assert call_id(call_id(text)) == call_id(text) == call_id(text)
    assert 0 < len(call_name(text)) <= 64
    assert (call_id(text) + call_name(text)).replace("_", "").replace("-", "").isascii()


CAT, PDF = (
    Attachment("image/png", b"12345", "cat.png"),
    Attachment("application/pdf", b"1", "a.pdf"),
)
ASKING = UserMessage("What?", (CAT, PDF))


@each_row(
    ("messages", "keep", "largest", "unread"),
    [
        ([ASKING], IMAGES | {"application/pdf"}, 5, ""),
        ([ASKING], IMAGES, 0, "a.pdf"),
        ([ASKING], IMAGES, 4, "cat.png, a.pdf"),
        ([ASKING, UserMessage("And?")], frozenset(), 0, ""),
        ([ToolMessage("1", "", attachments=(CAT,))], frozenset(), 0, ""),
        ([], frozenset(), 0, ""),
    ],
)
def test_a_notice_names_the_files_of_the_last_message_that_the_model_cannot_read(
    messages: list[Message], keep: frozenset[str], largest: int, unread: str
) -> None:
    notices = unread_files("m", messages, keep, largest=largest)
    text = f"m cannot read {unread}; it gets the name but not the content"
    sent = without_files(messages, keep, largest=largest)

    assert notices == ([Notice(text)] if unread else [])
    if unread:
        assert isinstance(sent[-1], UserMessage)
        assert all(name in sent[-1].content for name in unread.split(", "))
