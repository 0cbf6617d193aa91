"""Every model holds the same conversations with strict fakes of the providers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from interlock.errors import ModelError
from interlock.messages import Attachment, Message, ToolMessage, UserMessage
from interlock.models import Model, Notice, ReasoningDelta, Reply, TextDelta, learned
from interlock.models.http import model_api
from interlock.models.vendors import kind_of
from tests.providers.answer_forms import USED, input_of
from tests.providers.conversations import (
    CONTINUED,
    CONVERSATIONS,
    FAILURES,
    GIF,
    TO_CONTINUE,
    WEBP,
    Conversation,
    Turn,
    asked,
)
from tests.providers.fake_provider import KEY, Fails, Fake, Says
from tests.providers.fake_providers import FAKES
from tests.providers.lab import Lab, lab_of


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(learned, "file", lambda: tmp_path / "models.json")
    monkeypatch.setattr(model_api, "_FIRST_PAUSE", 0.0)


@pytest.mark.slow("holds fifty conversations")
@pytest.mark.parametrize("fake", FAKES, ids=[each.name for each in FAKES])
async def test_every_conversation_with_a_provider_is_valid(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = []
    async with lab_of(fake, monkeypatch) as lab:
        for conversation in CONVERSATIONS:
            if conversation.needs and conversation.needs not in fake.refusals:
                continue
            with _collected(failed, f"{fake.name}: {conversation.name}"):
                await _hold(lab, conversation)
            await lab.close()
    if failed:
        raise ExceptionGroup(f"{len(failed)} conversations with {fake.name}", failed)


@pytest.mark.slow("holds two hundred conversations")
async def test_every_provider_continues_the_conversation_of_every_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: dict[str, list[Message]] = {}
    for fake in FAKES:
        async with lab_of(fake, monkeypatch) as lab:
            begun[fake.name] = await _hold(lab, TO_CONTINUE)
    failed: list[Exception] = []
    for fake in FAKES:
        async with lab_of(fake, monkeypatch) as lab:
            others = [each for each in begun.items() if each[0] != fake.name]
            for first, messages in others:
                for name, going_on in CONTINUED.items():
                    end = 7 if name == "a turn" else None  # after the third calls
                    going_on = going_on._replace(history=tuple(messages[:end]))
                    with _collected(failed, f"{fake.name} continues {name} of {first}"):
                        await _hold(lab, going_on)
                    await lab.close()
    if failed:
        raise ExceptionGroup(f"{len(failed)} conversations", failed)


@contextmanager
def _collected(failed: list[Exception], what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(what)
        failed.append(error)


async def _hold(lab: Lab, conversation: Conversation) -> list[Message]:
    """Hold a conversation; return its messages."""
    model = await lab.choose(lab.fake.model, conversation.options)
    messages = list(conversation.history)
    notices: list[str] = []
    for number, turn in enumerate(conversation.turns):
        if turn.model:
            model = await lab.choose(f"{lab.fake.model}-{turn.model}", conversation.options)
        messages += asked(turn, messages)
        answers = (turn.answer,) if isinstance(turn.answer, Says) else turn.answer
        lab.server.script = list(answers)
        try:
            if isinstance(answers[-1], Fails):
                await _fail(model, messages, conversation, answers[-1])
            else:
                messages.append(await _answer(lab, model, messages, conversation, turn, notices))
        except Exception as error:
            error.add_note(f"turn {number}; refused: {lab.server.refused}")
            raise
    _check_refusals(lab, conversation, notices, messages)
    assert re.search(conversation.notice, "\n".join(notices))
    return messages


async def _fail(
    model: Model, messages: list[Message], conversation: Conversation, failure: Fails
) -> None:
    kind, text = FAILURES[failure.how]
    with pytest.raises(ModelError) as caught:
        async for _ in model.stream(messages, conversation.tools):
            pass
    assert type(caught.value) is kind, caught.value
    assert re.search(text, str(caught.value))
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


async def _answer(
    lab: Lab,
    model: Model,
    messages: list[Message],
    conversation: Conversation,
    turn: Turn,
    notices: list[str],
) -> Message:
    events = [each async for each in model.stream(messages, conversation.tools)]
    notices += [each.text for each in events if isinstance(each, Notice)]
    reply = events[-1]
    assert isinstance(reply, Reply)
    says = turn.answer if isinstance(turn.answer, Says) else turn.answer[-1]
    assert isinstance(says, Says)
    assert reply.message.content == says.text
    pieces = [each.text for each in events if isinstance(each, TextDelta)]
    assert "".join(pieces) == says.text
    assert len(pieces) >= len(says.text) // 10  # they are shown as they arrive
    thought = "".join(each.text for each in events if isinstance(each, ReasoningDelta))
    assert thought == (says.thought if lab.fake.reasons else "")
    called = [(each.name, each.input, each.malformed) for each in reply.message.tool_calls]
    assert called == [(each.name, input_of(each, conversation.tools), None) for each in says.calls]
    stop = "tool_calls" if says.calls and says.stop == "end" else says.stop
    assert reply.stop_reason == stop
    used = reply.usage
    read, written, cached = USED
    assert (used.input_tokens, used.output_tokens) == (read, written)
    assert used.cached_tokens == (cached if lab.fake.cached else 0)
    return msgspec.json.decode(msgspec.json.encode(reply.message), type=type(reply.message))


def _check_refusals(
    lab: Lab, conversation: Conversation, notices: list[str], messages: list[Message]
) -> None:
    """Check that only those requests were refused of which a provider is the cause."""
    files = [each for message in messages for each in _files(message)]
    unread = {kind_of(each.media_type) for each in files} - lab.fake.takes
    formats = {each.media_type for each in files} & lab.fake.unread
    limit = lab.fake.most_tools
    is_over = bool(limit) and len(conversation.tools) > limit
    allowed = lab.fake.teaches + conversation.learns + len(unread) * 3 + len(formats) + is_over
    assert len(lab.server.refused) <= allowed, lab.server.refused
    if is_over:
        assert f"takes at most {limit} tools" in "\n".join(notices)
    last = lab.server.asked[-1].raw
    for each in files:
        is_read = base64.b64encode(each.data) in last
        if formats and each in (GIF, WEBP):
            assert not is_read  # the refusal does not say which of them
        else:
            assert is_read == (kind_of(each.media_type) in lab.fake.takes), each.name


def _files(message: Message) -> tuple[Attachment, ...]:
    return message.attachments if isinstance(message, UserMessage | ToolMessage) else ()


def test_page_of_models_states_what_was_tried_on_each_provider() -> None:
    page = Path(__file__).parents[2] / "docs" / "use" / "models.md"
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in page.read_text().splitlines()
    ]
    stated = {row[0]: row[1:] for row in rows if len(row) == 8}
    for fake in FAKES:
        *files, reasoning, cached, most, model = stated[fake.name]
        kinds = ("images", "documents", "sounds")
        assert files == ["yes" if each in fake.takes else "no" for each in kinds], fake.name
        assert reasoning.startswith("yes") == fake.reasons, fake.name
        assert cached == ("yes" if fake.cached else "no"), fake.name
        assert most == (str(fake.most_tools) if fake.most_tools else ""), fake.name
        assert model == f"`{fake.model.partition(':')[2]}`"
