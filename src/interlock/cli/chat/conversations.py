"""`interlock conversations`: list, show, delete and export stored conversations."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import click

from interlock import attachments
from interlock.cli import completion, config_option
from interlock.cli.chat import settings
from interlock.cli.signals import run
from interlock.cli.terminal import emit, emit_json, emit_list, is_terminal, safe_line, say
from interlock.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from interlock.store.chat import transcripts

if TYPE_CHECKING:
    from interlock.store import Conversation, ConversationStore

_T = TypeVar("_T")
_id = click.argument("id", metavar="ID", shell_complete=completion.conversations)


@click.group()
def conversations() -> None:
    """List, search, show, rename, copy, delete and export conversations.

    They are stored in the file or PostgreSQL database that INTERLOCK_DATABASE names, else in
    your data folder. The beginning of an ID is enough if only one conversation has it.

    \b
    Example:
      interlock conversations list
      interlock conversations show k3f
    """


@conversations.command("list")
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Longest list."
)
@config_option.json_option
def list_(limit: int, as_json: bool) -> None:
    """List conversations, most recently used first.

    \b
    Example:
      interlock conversations list --limit 10
    """
    found = _with_store(lambda store: store.list(limit))
    emit_list(
        found, _row, none="no conversations yet; start one with `interlock chat`", as_json=as_json
    )


@conversations.command()
@click.argument("text")
@click.option(
    "--limit", default=50, show_default=True, type=click.IntRange(min=1), help="Longest list."
)
@config_option.json_option
def search(text: str, limit: int, as_json: bool) -> None:
    """List the conversations that have all words of TEXT in a title or a message.

    Each word of TEXT matches the beginning of a word; words in double quotes must be adjacent.

    \b
    Example:
      interlock conversations search 'time tok'
      interlock conversations search '"time in Tokyo"'
    """
    found = _with_store(lambda store: store.search(text, limit))
    emit_list(found, _row, none="no conversation has these words", as_json=as_json)


def _row(found: Conversation) -> tuple[str, ...]:
    return (
        found.id,
        f"{found.updated.astimezone():%Y-%m-%d %H:%M}",
        f"{found.message_count:4} {'message ' if found.message_count == 1 else 'messages'}",
        found.model,
        found.title,
    )


@conversations.command()
@_id
@config_option.json_option
def show(id: str, as_json: bool) -> None:
    """Print a conversation; tool results are marked [TOOL].

    \b
    Example:
      interlock conversations show k3f
    """
    conversation, messages, used = _with_store(lambda store: _read_used(store, id))
    costs = settings.load().costs(used)
    if as_json:
        emit_json({**transcripts.as_json(conversation, messages), "usage": costs})
        return
    for message, label in zip(messages, _labels(messages), strict=True):
        emit(_transcript(message, label))
    from interlock.cli.chat.output import usage_line  # imports the agent

    for each in costs:
        say(f"{each.model}: {usage_line(each.usage, each.cost)}")


@conversations.command()
@_id
@click.argument("title")
def rename(id: str, title: str) -> None:
    """Change the title of a conversation.

    \b
    Example:
      interlock conversations rename k3f 'Trip to Tokyo'
    """

    async def work(store: ConversationStore) -> str:
        found = await store.resolve(id)
        await store.update(found.id, title=title)
        return found.id

    say(f"renamed {_with_store(work)}")


@conversations.command()
@_id
@click.option(
    "--messages", metavar="N", type=click.IntRange(min=1), help="Copy only the first N messages."
)
def fork(id: str, messages: int | None) -> None:
    """Copy a conversation and print the id of the copy, which can be continued on its own.

    \b
    Example:
      interlock chat --conversation "$(interlock conversations fork k3f --messages 4)"
    """
    emit(_with_store(lambda store: store.fork(id, messages)).id)


@conversations.command()
@_id
@click.option("--yes", is_flag=True, help="Delete without asking.")
def delete(id: str, yes: bool) -> None:
    """Delete a conversation. This cannot be undone.

    \b
    Example:
      interlock conversations delete k3f
    """
    found = _with_store(lambda store: store.resolve(id))
    if not yes:
        if not is_terminal(sys.stdin):
            raise click.UsageError("cannot ask for confirmation without a terminal; add --yes")
        title = safe_line(found.title, 60)
        click.confirm(f"Delete {found.id}, {title!r}?", abort=True, err=True)
    _with_store(lambda store: store.delete(found.id))
    say(f"deleted {found.id}")


@conversations.command()
@_id
@click.option(
    "--format",
    "form",
    type=click.Choice(["json", "markdown"]),
    default="json",
    show_default=True,
    help="Output format.",
)
def export(id: str, form: str) -> None:
    """Print a whole conversation for other programs.

    \b
    Example:
      interlock conversations export k3f > conversation.json
      interlock conversations export k3f --format markdown
    """
    conversation, messages = _with_store(lambda store: _read(store, id))
    if form == "json":
        emit_json(transcripts.as_json(conversation, messages))
    else:
        emit(transcripts.as_markdown(conversation, messages))


# Reading


def _with_store(work: Callable[[ConversationStore], Awaitable[_T]]) -> _T:
    async def opened() -> _T:
        from interlock.store import ConversationStore

        async with ConversationStore.open() as store:
            return await work(store)

    return run(opened())


async def _read(store: ConversationStore, id: str) -> tuple[Conversation, list[Message]]:
    conversation = await store.resolve(id)
    return conversation, await store.messages(conversation.id)


async def _read_used(
    store: ConversationStore, id: str
) -> tuple[Conversation, list[Message], dict[str, Usage]]:
    conversation, messages = await _read(store, id)
    return conversation, messages, await store.usage(conversation)


# Writing


def _labels(messages: Sequence[Message]) -> list[str]:
    """Return a label for each message; repeated calls of a tool in an answer are numbered "#2"."""
    labels = []
    seen: Counter[str] = Counter()
    for message in messages:
        label = ""
        if isinstance(message, ToolMessage):
            seen[message.name] += 1
            if seen[message.name] > 1:
                label = f"#{seen[message.name]}"
        else:
            seen.clear()
        labels.append(label)
    return labels


def _transcript(message: Message, label: str) -> str:
    match message:
        case ToolMessage():
            failed = " failed" if message.is_error else ""
            return f"[TOOL] {message.name}{label}{failed}: {message.content}"
        case AssistantMessage():
            lines = [f"[ASSISTANT] {message.content}"] if message.content else []
            seen: Counter[str] = Counter()
            for call in message.tool_calls:
                seen[call.name] += 1
                label = f"#{seen[call.name]}" if seen[call.name] > 1 else ""
                lines.append(f"[CALL] {call.name}{label} {transcripts.encoded(call.input)}")
            if message.unfinished is not None:
                lines.append(f"[UNFINISHED] {transcripts.unfinished(message.unfinished)}")
            return "\n".join(lines or ["[ASSISTANT]"])
        case UserMessage(attachments=files) if files:
            lines = [f"[FILE] {attachments.described(each)}" for each in files]
            return "\n".join([*lines, f"[USER] {message.content}"])
    return f"[{transcripts.role_of(message).upper()}] {message.content}"
