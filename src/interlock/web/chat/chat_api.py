"""The JSON routes of the chat: conversations, search, models, tools, calls and files."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from interlock import schema
from interlock.auth import Principal
from interlock.calls import Call, Caller, Entry
from interlock.errors import InvalidArguments, UnknownConversation
from interlock.layers.kept_results import Reading
from interlock.layers.results import ResultBudget
from interlock.protocol.envelope import encode_lossy
from interlock.server.http.json_api import (
    ApiRequest,
    JsonReply,
    LineStream,
    Problem,
    Route,
    not_found,
)
from interlock.store import Conversation, ConversationStore
from interlock.store.chat import transcripts
from interlock.types import JsonObject
from interlock.web.app_documents import app_of
from interlock.web.chat import attachments
from interlock.web.chat.engines import AgentEngine
from interlock.web.chat.errors import TurnError
from interlock.web.chat.history import Cards, shown_page
from interlock.web.chat.turns import Turns

Limit = Annotated[int, Meta(ge=1, le=500)]
TOKEN = 4  # characters per token, on average
PART = 64 * 1024  # bytes of a kept result that one response returns


class ChatApiContext(Struct, frozen=True):
    """The objects that the chat's JSON routes use.

    Attributes:
        engine: The engine that answers.
        turns: The turns of all users.
        is_local: Whether every authenticated caller is the local user.
        results: Reads kept results; None if results are not kept.
    """

    engine: AgentEngine
    turns: Turns
    is_local: bool = False
    results: ResultBudget | None = None

    def caller(self, principal: Principal | None) -> Caller:
        return Caller(None if self.is_local else principal, surface="web")

    def store(self, request: ApiRequest) -> ConversationStore:
        return self.engine.store.owned_by(self.caller(request.principal).owner)

    async def conversation(self, request: ApiRequest) -> Conversation:
        try:
            found = await self.store(request).resolve(request.path["id"])
        except UnknownConversation:
            raise not_found("no such conversation") from None
        if found.id != request.path["id"]:
            raise not_found("no such conversation")
        return found

    def visible(self, caller: Caller) -> list[Entry]:
        toolbox, may_use = self.engine.toolbox, self.engine.may_use
        if toolbox is None:
            return []
        return [each for each in toolbox.tools if may_use is None or may_use(caller, each)]


# Conversations


class ListQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a list of conversations."""

    limit: Limit = 50
    after: str = ""


async def list_conversations(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """List conversations, the most recently changed first."""
    page: ListQuery = request.query
    store = context.store(request)
    before = None
    if page.after:
        try:
            before = await store.resolve(page.after)
        except UnknownConversation:
            raise not_found("no such conversation") from None
    found = await store.list(page.limit + 1, before)
    items = found[: page.limit]
    return _listed(context, items, len(found) > page.limit, "no_conversations", request)


def _listed(
    context: ChatApiContext,
    items: list[Conversation],
    has_more: bool,
    why: str,
    request: ApiRequest,
) -> JsonObject:
    owner = context.caller(request.principal).owner
    listed: JsonObject = {
        "items": [_shown(context, each, owner) for each in items],
        "after": items[-1].id if has_more else None,
    }
    return listed if items else listed | {"reason": why}


def _shown(context: ChatApiContext, conversation: Conversation, owner: str) -> JsonObject:
    turn = context.turns.find(owner, conversation.id)
    shown: JsonObject = {
        "id": conversation.id,
        "title": conversation.title,
        "model": conversation.model,
        "created": conversation.created,
        "updated": conversation.updated,
        "messages": conversation.message_count,
        "state": turn.state if turn is not None else "ended",
    }
    if conversation.hit is not None:
        shown["hit"] = conversation.hit
    return shown


class NewConversation(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to create a conversation."""

    title: str = ""
    model: str = ""


async def create_conversation(context: ChatApiContext, request: ApiRequest) -> JsonReply:
    """Create an empty conversation."""
    given: NewConversation = request.body
    model = context.engine.models.pick(given.model)
    made = await context.store(request).create(given.title[:200], model)
    return JsonReply(_shown(context, made, made.owner), 201)


async def get_conversation(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Return a conversation with its settings and branches."""
    found = await context.conversation(request)
    branches = [
        {"id": each.id, "parent": each.parent or None, "at": each.forked_at}
        for each in await context.store(request).branches(found.id)
    ]
    turn = context.turns.find(found.owner, found.id)
    is_live = turn is not None and not turn.has_ended
    answers, calls = await context.store(request).counts(
        found.id, before=turn.first if turn is not None and is_live else None
    )
    return _shown(context, found, found.owner) | {
        "settings": found.settings,
        "parent": found.parent or None,
        "at": found.forked_at,
        "branches": branches,
        "answers": answers,
        "calls": calls,
        "usage": context.engine.models.settings.costs(await context.store(request).usage(found)),
    }


class ConversationSettings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a conversation: "on", "ask" or "off" by a tool's address or a server's name."""

    tools: dict[str, Literal["on", "ask", "off"]] = {}


class ChangeBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a change to a conversation; what is absent stays unchanged."""

    title: str | None = None
    model: str | None = None
    settings: ConversationSettings | None = None


async def change_conversation(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Change a conversation's title, model or settings."""
    change: ChangeBody = request.body
    found = await context.conversation(request)
    try:
        model = None if change.model is None else context.engine.models.check(change.model)
    except TurnError as error:
        raise Problem(422, "not_offered", str(error)) from None
    await context.store(request).update(
        found.id,
        title=None if change.title is None else " ".join(change.title.split())[:200],
        model=model,
        settings=None if change.settings is None else msgspec.to_builtins(change.settings),
    )
    turn = context.turns.find(found.owner, found.id)
    if turn is not None and change.settings is not None:
        turn.tool_states = dict(change.settings.tools)
    return await get_conversation(context, request)


async def delete_conversation(context: ChatApiContext, request: ApiRequest) -> None:
    """Stop the conversation's turn and delete the conversation."""
    found = await context.conversation(request)
    turn = context.turns.find(found.owner, found.id)
    if turn is not None:
        await turn.stop()
    await context.store(request).delete(found.id)


class Fork(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a request to copy a conversation: the number of messages, or null for all."""

    messages: Annotated[int, Meta(ge=0)] | None = None


async def fork_conversation(context: ChatApiContext, request: ApiRequest) -> JsonReply:
    """Copy a conversation, or its first messages."""
    found = await context.conversation(request)
    copy = await context.store(request).fork(found.id, request.body.messages)
    return JsonReply(_shown(context, copy, copy.owner), 201)


class MessageQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query for one page of messages: the page before a position, or after it."""

    before: int | None = None
    after: Annotated[int, Meta(ge=0)] | None = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 60


async def list_messages(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Return one page of messages with the cards of their calls; by default the last page."""
    query: MessageQuery = request.query
    found = await context.conversation(request)
    store = context.store(request)
    turn = context.turns.find(found.owner, found.id)
    before = query.before
    is_live = turn is not None and not turn.has_ended
    if turn is not None and turn.has_ended:
        await turn.settled()
    if before is None and is_live and turn is not None:
        before = turn.first
    stored = await store.page(found.id, before=before, after=query.after, limit=query.limit)
    items = shown_page(stored, await _cards(context, store, found.id, stored))
    first = stored[0].position if stored else 0
    answer: JsonObject = {"items": items, "before": first or None, "after": None, "turn": None}
    end = turn.first if is_live and turn is not None else None
    end = found.message_count if end is None else end
    if stored and stored[-1].position + 1 < end:
        answer["after"] = stored[-1].position + 1
    if is_live and turn is not None:
        answer["turn"] = {"id": turn.id, "seq": turn.log.seq, "state": turn.state}
    elif items and answer["after"] is None and not _is_answered(items[-1]):
        answer["interrupted"] = True
    return answer if items or is_live else answer | {"reason": "no_messages"}


def _is_answered(last: JsonObject) -> bool:
    return last["role"] == "assistant" and not last["calls"]


async def _cards(
    context: ChatApiContext, store: ConversationStore, conversation: str, stored: list[Any]
) -> Cards:
    ids = {call.id for each in stored for call in getattr(each.message, "tool_calls", ())}
    calls = await store.calls.of(conversation, ids) if ids else []
    return Cards(calls, context.engine.toolbox)


class ExportAs(Struct, frozen=True, rename={"form": "as"}):
    """The query of an export."""

    form: Literal["json", "markdown"] = "json"


async def export_conversation(context: ChatApiContext, request: ApiRequest) -> LineStream:
    """Return a whole conversation in the format of `interlock conversations export`."""
    found = await context.conversation(request)
    messages = await context.store(request).messages(found.id)
    if request.query.form == "markdown":
        text = transcripts.as_markdown(found, messages)
        return LineStream(_once(text.encode()), b"text/markdown; charset=utf-8")
    body = msgspec.json.format(msgspec.json.encode(transcripts.as_json(found, messages)))
    return LineStream(_once(body + b"\n"), b"application/json")


async def _once(body: bytes) -> AsyncGenerator[bytes, None]:
    yield body


class Query(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a search."""

    q: Annotated[str, Meta(min_length=1, max_length=200)]
    limit: Limit = 50


async def search(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """List the conversations whose title or messages contain a text, with the newest hit."""
    found = await context.store(request).search(request.query.q, request.query.limit)
    return _listed(context, found, False, "nothing_found", request)


# Models, servers and tools


async def list_models(context: ChatApiContext, _request: ApiRequest) -> JsonObject:
    """List the models that users may choose, the default first."""
    return {"items": [{"name": name} for name in context.engine.models.names]}


async def list_servers(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """List the servers whose tools the caller may use, with their states and the reasons."""
    toolbox = context.engine.toolbox
    if toolbox is None:
        return {"items": [], "reason": "no_servers"}
    tools: dict[str, int] = {}
    for entry in context.visible(context.caller(request.principal)):
        tools[entry.server] = tools.get(entry.server, 0) + 1
    items = [
        {
            "name": each.name,
            "state": each.state,
            "reason": each.reason,
            "tools": tools.get(each.name, 0),
        }
        for each in toolbox.status.values()
        if each.state != "disabled" and (tools.get(each.name) or context.is_local)
    ]
    return {"items": items} if items else {"items": [], "reason": "no_servers"}


async def get_stderr(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Return the end of a server's stderr; only the local user may read it."""
    toolbox = context.engine.toolbox
    found = toolbox.upstreams.get(request.path["id"]) if toolbox is not None else None
    if found is None or not context.is_local:
        raise not_found("no such server")
    return {"text": found.stderr}


async def list_tools(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """List the tools that the caller may use."""
    items = [_tool(context, each) for each in context.visible(context.caller(request.principal))]
    return {"items": items} if items else {"items": [], "reason": "no_tools"}


def _tool(context: ChatApiContext, entry: Entry) -> JsonObject:
    annotations, toolbox = entry.tool.annotations, context.engine.toolbox
    is_read = bool(annotations is not None and annotations.read_only_hint)
    upstream = toolbox.upstreams.get(entry.server) if toolbox is not None else None
    may_repeat = upstream is not None and upstream.calls.may_repeat(entry.tool.name)
    text = entry.tool.description or ""
    return {
        "address": entry.address,
        "title": (annotations.title if annotations is not None else None) or entry.tool.name,
        "description": text,
        "tokens": (len(text) + len(entry.input_schema) + len(entry.wire_name)) // TOKEN,
        "readOnly": is_read,
        # For the local user, tools that only read run without a question anyway.
        "app": bool(app_of(entry).uri),
        "repeatable": may_repeat or (is_read and context.is_local),
    }


def _entry(context: ChatApiContext, request: ApiRequest) -> Entry:
    address = request.path["address"]
    for each in context.visible(context.caller(request.principal)):
        if each.address == address:
            return each
    raise not_found("no such tool")


async def get_tool(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Return one tool with its schema."""
    entry = _entry(context, request)
    return _tool(context, entry) | {"schema": msgspec.Raw(entry.input_schema)}


class CheckBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The body with the arguments to check."""

    arguments: JsonObject


async def check_arguments(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Check arguments against a tool's schema; return the problems that a call would report."""
    entry = _entry(context, request)
    call = Call(entry, request.body.arguments)
    if context.engine.toolbox is not None:
        context.engine.toolbox.convert_arguments(call)
    problems = schema.compile(entry.input_schema).errors(call.arguments)
    return {"problems": list(problems)}


# Calls and files


async def get_call(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Return one of the caller's calls with its whole result."""
    try:
        call = await context.store(request).calls.get(request.path["id"])
    except UnknownConversation:
        raise not_found("no such call") from None
    shown: JsonObject = {
        name: getattr(call, name) for name in call.__struct_fields__ if name != "result"
    }
    result = None if call.result is None else msgspec.Raw(call.result)
    return shown | {"result": result}


async def stop_call(context: ChatApiContext, request: ApiRequest) -> None:
    """Stop one running call; its turn continues."""
    owner = context.caller(request.principal).owner
    if not context.turns.stop_call(owner, request.path["id"]):
        raise not_found("no such call is running")


async def get_file(context: ChatApiContext, request: ApiRequest) -> LineStream:
    """Return the content of an attached file."""
    try:
        _, content = await context.store(request).files.get(request.path["id"])
    except UnknownConversation:
        raise not_found("no such file") from None
    return LineStream(_once(content), b"application/octet-stream")


async def list_files(context: ChatApiContext, request: ApiRequest) -> JsonObject:
    """Return the descriptions of the files whose ids the query lists."""
    ids = request.query.ids.split(",")[: attachments.MAX_FILES]
    found = await context.store(request).files.named(ids)
    return {"items": [attachments.described(each) for each in found]}


class PartQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query for a part of a kept result; it has the arguments of the tool `read_result`."""

    line: Annotated[int, Meta(ge=1)] | None = None
    offset: Annotated[int, Meta(ge=0)] | None = None
    limit: Annotated[int, Meta(ge=1)] | None = None
    find: str | None = None
    pointer: str | None = None


async def get_result(context: ChatApiContext, request: ApiRequest) -> msgspec.Raw:
    """Return a part of one of the caller's kept results, as the tool `read_result` does."""
    if context.results is None:
        raise not_found("no such result")
    reading = Reading(request.path["id"], **msgspec.structs.asdict(request.query))
    caller = context.caller(request.principal)
    try:
        found = await context.results.read(caller, reading, PART)
    except InvalidArguments as error:
        raise not_found(str(error)) from None
    return msgspec.Raw(encode_lossy(found))


class Ids(Struct, frozen=True, forbid_unknown_fields=True):
    """The query for several files, whose ids are separated by commas."""

    ids: str


_ONE = "/api/conversations/{id}"
ROUTES = (
    Route("GET", "/api/conversations", "mcp:", list_conversations, "own conversations", ListQuery),
    Route(
        "POST",
        "/api/conversations",
        "mcp:",
        create_conversation,
        "a new conversation",
        body=NewConversation,
    ),
    Route("GET", _ONE, "mcp:", get_conversation, "one conversation, its settings and branches"),
    Route("PATCH", _ONE, "mcp:", change_conversation, "title, model or settings", body=ChangeBody),
    Route("DELETE", _ONE, "mcp:", delete_conversation, "deletes it"),
    Route("GET", f"{_ONE}/messages", "mcp:", list_messages, "its messages and cards", MessageQuery),
    Route("POST", f"{_ONE}/fork", "mcp:", fork_conversation, "copies it", body=Fork),
    Route("GET", f"{_ONE}/export", "mcp:", export_conversation, "all of it", ExportAs),
    Route("GET", "/api/search", "mcp:", search, "conversations that contain a text", Query),
    Route("GET", "/api/models", "mcp:", list_models, "the models to choose from"),
    Route("GET", "/api/servers", "mcp:", list_servers, "servers with their state and why"),
    Route("GET", "/api/servers/{id}/stderr", "mcp:", get_stderr, "the end of its log"),
    Route("GET", "/api/tools", "mcp:", list_tools, "the tools of the chat"),
    Route("GET", "/api/tools/{address}", "mcp:", get_tool, "one tool with its schema"),
    Route(
        "POST",
        "/api/tools/{address}/check",
        "mcp:",
        check_arguments,
        "what is wrong with arguments",
        body=CheckBody,
    ),
    Route("POST", "/api/calls/{id}/stop", "mcp:", stop_call, "stops it"),
    Route("GET", "/api/results/{id}", "mcp:", get_result, "a part of a kept result", PartQuery),
    Route("GET", "/api/files", "mcp:", list_files, "what is known of files", Ids),
    Route("GET", "/api/files/{id}", "mcp:", get_file, "the content of a file"),
)
# Only without a gateway: a gateway has its own route for calls, because most are not chat calls.
LOCAL_ROUTES = (
    *ROUTES,
    Route("GET", "/api/calls/{id}", "mcp:", get_call, "one call with its whole result"),
)
