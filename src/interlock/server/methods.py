"""The handlers of MCP methods in every revision: (request, context) -> encoded result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from interlock import aio, revisions
from interlock.context import LEVELS, Context
from interlock.errors import (
    InputRequired,
    InvalidArguments,
    ParseError,
    RemoteError,
    UnknownResource,
    UnknownTool,
)
from interlock.protocol import Request
from interlock.protocol.envelope import encode, encode_lossy
from interlock.protocol.leniency import decode_params
from interlock.server import subscribers
from interlock.server.catalogue import Catalogue, Kind, ServedResource
from interlock.server.encoders import Encoder, implementation_for
from interlock.server.mrtr import Round, canonical
from interlock.server.request_context import AskingParams, CallParams
from interlock.server.sealing import Seal
from interlock.server.subscribers import Subscribers
from interlock.server.task_store import TaskStore
from interlock.server.tasks import TaskBegun, Tasks
from interlock.server.tool_options import require_scopes
from interlock.server.tools import FunctionTool, failed
from interlock.types import (
    CompleteParams,
    Completion,
    Implementation,
    InitializeParams,
    JsonObject,
    ListenParams,
    LogLevel,
    PromptReference,
    ServerCapabilities,
    SubscriptionFilter,
)

MAX_VALUES = 100  # completion values in one result
MAX_CACHED_PAGES = 1_024  # encoded pages of all lists, revisions and views together
MAX_CACHED_BYTES = 64 * 1024 * 1024  # of these pages

Handler = Callable[[Request, Context], Awaitable[bytes]]
"""Answers a request with an encoded result, or raises an error."""
_T = TypeVar("_T")
_log = logging.getLogger("interlock.server")


class _ReadParams(AskingParams, frozen=True, kw_only=True):
    uri: str


class _GetParams(AskingParams, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, str] | UnsetType | None = UNSET


class Relay(Protocol):
    """Passes clients' subscriptions and log levels on to the servers behind a gateway."""

    async def follow(self, uri: str, context: Context) -> bool:
        """Subscribe to a resource at its server; return False if the caller may not read it."""
        ...

    def unfollowed(self) -> None:
        """End the subscriptions at servers that no client needs any more."""
        ...

    async def set_log_level(self, level: LogLevel, context: Context) -> None:
        """Make the servers log at `level`, or at a lower level that another client has set."""
        ...


class Methods:
    """The handlers of a server's methods, keyed by the method's name in `table`.

    Args:
        info: The server's identity.
        instructions: Instructions for the model about how to use the tools, or a function that
            returns them for a given request's client.
        catalogue: The server's tools, resources, prompts and completions.
        subscribers: The clients that are notified of changes.
        seal: Protects the state that clients send back between rounds of questions.
        list_ttl_ms: Milliseconds for which clients may cache lists.
        task_store, task_ttl: The arguments of `Server`.
        relay: Passes on subscriptions and log levels; None if no servers are behind this server.
        on_unknown: Called with the kind and name of each tool, resource or prompt that a client
            requests, but that does not exist for the client.
        others: Handlers that replace the handlers of the same methods here.
    """

    def __init__(
        self,
        info: Implementation,
        instructions: str | Callable[[Context], str | None] | None,
        catalogue: Catalogue,
        subscribers: Subscribers,
        seal: Seal,
        list_ttl_ms: int,
        task_store: TaskStore | None,
        task_ttl: float,
        relay: Relay | None = None,
        on_unknown: Callable[[Kind, str, Context], None] = lambda *_: None,
        others: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        self._relay = relay
        self._on_unknown = on_unknown
        self._info = info
        self._instructions = instructions
        self._catalogue = catalogue
        self._subscribers = subscribers
        self._seal = seal
        self._list_ttl_ms = list_ttl_ms
        self._encoder = Encoder(info)
        self.tasks = Tasks(task_store, task_ttl, subscribers, self._encoder)
        self._pages: dict[tuple[Kind, str, Hashable, str], bytes] = {}
        self._pages_size = 0  # bytes of these
        self._offered: dict[str, Handler] = {}
        self._version = -1  # the catalogue's version from which the capabilities were derived
        self.table: dict[str, Handler] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "server/discover": self._discover,
            "logging/setLevel": self._set_level,
            "tools/list": partial(self._list, "tools"),
            "tools/call": self._call_tool,
            "resources/list": partial(self._list, "resources"),
            "resources/templates/list": partial(self._list, "resourceTemplates"),
            "resources/read": self._read_resource,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
            "prompts/list": partial(self._list, "prompts"),
            "prompts/get": self._get_prompt,
            "completion/complete": self._complete,
            "subscriptions/listen": self._listen,
            **self.tasks.table,
            **others,
        }

    def answer(self, request: Request, context: Context) -> Awaitable[bytes]:
        """Answer a request with its encoded result.

        Raises:
            RemoteError: -32601: the method is unknown, or the server lacks its capability.
            InterlockError: The method's handler failed.
        """
        if self._version != self._catalogue.version:
            self._renew()
        handler = self._offered.get(request.method)
        if handler is None:
            raise RemoteError(revisions.METHOD_NOT_FOUND, f"unknown method {request.method!r}")
        return handler(request, context)

    def _renew(self) -> None:
        """Derive the capabilities and handlers again, after the catalogue has changed."""
        self._version = self._catalogue.version
        self._forget_pages()
        has = self._catalogue.capabilities()
        self._offered = {
            method: handler for method, handler in self.table.items() if _offers(has, method)
        }

    # Handshake

    async def _initialize(self, request: Request, context: Context) -> bytes:
        params = _decode(InitializeParams, request)
        session = context.session
        if session is None:
            raise RemoteError(revisions.METHOD_NOT_FOUND, "unknown method 'initialize'")
        wanted = params.protocol_version
        session.revision = wanted if wanted in revisions.LEGACY else revisions.NEWEST_LEGACY
        session.client_capabilities = params.capabilities
        session.client_info = params.client_info
        capabilities = msgspec.to_builtins(self._catalogue.capabilities())
        capabilities.pop("extensions", None)
        if session.revision == revisions.LEGACY[0]:
            capabilities.pop("completions", None)
        result: JsonObject = {
            "protocolVersion": session.revision,
            "capabilities": capabilities,
            "serverInfo": implementation_for(self._info, session.revision),
        }
        instructions = self._instructions_for(context)
        if instructions is not None:
            result["instructions"] = instructions
        return encode(result)

    def _instructions_for(self, context: Context) -> str | None:
        given = self._instructions
        return given(context) if callable(given) else given

    async def _ping(self, _request: Request, _context: Context) -> bytes:
        return b"{}"

    async def _discover(self, _request: Request, context: Context) -> bytes:
        result: JsonObject = {
            "supportedVersions": list(revisions.MODERN),
            "capabilities": self._catalogue.capabilities(),
            "ttlMs": self._list_ttl_ms,
            "cacheScope": "private",
        }
        instructions = self._instructions_for(context)
        if instructions is not None:
            result["instructions"] = instructions
        return self._encoder.result(encode(result), context.revision)

    async def _set_level(self, request: Request, context: Context) -> bytes:
        level = _decode(dict[str, Any], request).get("level")
        if level not in LEVELS:
            raise InvalidArguments(f"log level {level!r} is not one of {', '.join(LEVELS)}")
        if context.session is not None:
            context.session.log_level = level
        if self._relay is not None:
            await self._relay.set_log_level(level, context)
        return b"{}"

    # Lists

    async def _list(self, kind: Kind, request: Request, context: Context) -> bytes:
        cursor = _decode(dict[str, Any], request).get("cursor")
        if cursor is None:
            cursor = ""
        if not isinstance(cursor, str):
            raise InvalidArguments("the cursor must be a string")
        key = (kind, context.revision, self._catalogue.view(context), cursor)
        page = self._pages.get(key)
        if page is None:
            version = self._catalogue.version
            page = await self._page(kind, cursor, context)
            # The list may have changed meanwhile, and a predicate may depend on the time
            if version == self._catalogue.version and self._catalogue.view(context) == key[2]:
                is_full = len(self._pages) >= MAX_CACHED_PAGES
                if is_full or self._pages_size + len(page) > MAX_CACHED_BYTES:
                    self._forget_pages()
                self._pages[key] = page
                self._pages_size += len(page)
        return page

    async def _page(self, kind: Kind, cursor: str, context: Context) -> bytes:
        """Encode a page of a list; other tasks run while many items are encoded."""
        items, next_cursor = self._catalogue.page(kind, cursor, context)
        meta = None if cursor else self._catalogue.list_meta(kind, context)
        encoded = []
        for count, item in enumerate(items, 1):
            encoded.append(self._encoder.item(item, context.revision))
            if count % aio.SLICE == 0:
                await asyncio.sleep(0)
        return self._encoder.listing(
            kind,
            encoded,
            context.revision,
            next_cursor=next_cursor,
            ttl_ms=self._list_ttl_ms,
            cache_scope="private",
            meta=meta,
        )

    def _forget_pages(self) -> None:
        self._pages.clear()
        self._pages_size = 0

    # Tools, resources, prompts

    async def _call_tool(self, request: Request, context: Context) -> bytes:
        params = context.call_params
        if not isinstance(params, CallParams):  # the code that made the context did not decode them
            params = _decode(CallParams, request)
        tool = context.tool or self._catalogue.find("tools", params.name, context)
        if tool is None:
            self._on_unknown("tools", params.name, context)
            raise UnknownTool(f"unknown tool {params.name!r}")
        arguments = params.arguments if isinstance(params.arguments, Raw) else None

        def subject() -> tuple[bytes, ...]:
            return params.name.encode(), b"" if arguments is None else canonical(arguments)

        round = None
        if params.request_state is not UNSET or params.input_responses is not UNSET:
            round = Round(params, request, context, subject, self._seal)
        try:
            if isinstance(tool, FunctionTool) and tool.scopes:
                require_scopes(params.name, tool.scopes, context)
            if isinstance(tool, FunctionTool) and tool.task:
                return await self.tasks.call(tool, arguments, context)
            result = await tool.call(arguments, context)
        except InputRequired as error:
            round = round or Round(params, request, context, subject, self._seal)
            return round.ask(error, self._encoder)
        except TaskBegun as begun:
            return self._encoder.task(begun.handle)
        except BaseException as error:
            answer = None if isinstance(tool, FunctionTool) else failed(tool, error)
            if answer is None:
                raise
            result = answer
        called = context.tool or tool  # a tool that calls another one has set the other one
        return self._encoder.call(result, context.revision, called.definition)

    async def _read_resource(self, request: Request, context: Context) -> bytes:
        params = _decode(_ReadParams, request)
        resource = self._find_resource(params.uri, context)
        round = Round(params, request, context, lambda: (params.uri.encode(),), self._seal)
        try:
            result = await resource.read(params.uri, context)
        except InputRequired as error:
            return round.ask(error, self._encoder)
        except UnknownResource as error:
            raise _not_found(error, context) from None
        return self._encoder.read(result, context.revision)

    def _find_resource(self, uri: str, context: Context) -> ServedResource:
        resource = self._catalogue.find("resources", uri, context)
        if resource is None:
            self._on_unknown("resources", uri, context)
            raise _not_found(UnknownResource(uri), context)
        return resource

    async def _get_prompt(self, request: Request, context: Context) -> bytes:
        params = _decode(_GetParams, request)
        prompt = self._catalogue.find("prompts", params.name, context)
        if prompt is None:
            self._on_unknown("prompts", params.name, context)
            raise InvalidArguments(f"unknown prompt {params.name!r}")
        arguments = params.arguments if isinstance(params.arguments, dict) else {}

        def subject() -> tuple[bytes, ...]:
            return params.name.encode(), encode(sorted(arguments.items()))

        round = Round(params, request, context, subject, self._seal)
        try:
            result = await prompt.get(arguments, context)
        except InputRequired as error:
            return round.ask(error, self._encoder)
        return self._encoder.prompt(result, context.revision)

    async def _complete(self, request: Request, context: Context) -> bytes:
        params = _decode(CompleteParams, request)
        try:
            found = self._catalogue.find_completion(params.ref, params.argument.name, context)
        except InvalidArguments:
            if isinstance(params.ref, PromptReference):
                self._on_unknown("prompts", params.ref.name, context)
            else:
                self._on_unknown("resourceTemplates", params.ref.uri, context)
            raise
        before = {} if params.context is UNSET else params.context.arguments
        typed = params.argument.value
        values = await found.complete(typed, before, context) if found else []
        if isinstance(values, Raw):
            return self._encoder.encoded(values, context.revision)
        completion = values if isinstance(values, Completion) else _completion(list(values))
        # msgspec would omit an empty `values`, but the specification requires the member.
        body = encode_lossy(
            {"completion": {"values": completion.values, **msgspec.to_builtins(completion)}}
        )
        return self._encoder.result(body, context.revision)

    # Subscriptions

    async def _subscribe(self, request: Request, context: Context) -> bytes:
        uri = _uri(request)
        if context.session is not None:
            if context.session.is_stateless:
                raise InvalidArguments("the server keeps no sessions, so it sends no updates")
            uris = context.session.subscriptions
            if len(uris) >= subscribers.MAX_URIS:
                raise InvalidArguments(
                    f"too many subscriptions (limit {subscribers.MAX_URIS}); unsubscribe first"
                )
            subscribers.check_size([uri])
            self._find_resource(uri, context)
            if self._relay is not None:
                await self._relay.follow(uri, context)
            uris.add(uri)
        return b"{}"

    async def _unsubscribe(self, request: Request, context: Context) -> bytes:
        if context.session is not None:
            context.session.subscriptions.discard(_uri(request))
            if self._relay is not None:
                self._relay.unfollowed()
        return b"{}"

    async def _listen(self, request: Request, context: Context) -> bytes:
        """Keep a subscription's stream open until the client ends it."""
        honoured = await self._honoured(request, context)
        subscriber = subscribers.for_stream(
            request.id, honoured, context.link.notify, context.principal
        )
        self._subscribers.add(subscriber)
        try:
            acknowledged = {
                "notifications": honoured,
                "_meta": {revisions.SUBSCRIPTION_KEY: request.id},
            }
            context.link.notify("notifications/subscriptions/acknowledged", encode(acknowledged))
            await asyncio.get_running_loop().create_future()  # wait until this task is cancelled
        finally:
            self._subscribers.remove(subscriber)
        raise AssertionError("unreachable")

    async def _honoured(self, request: Request, context: Context) -> SubscriptionFilter:
        wanted = _decode(ListenParams, request).notifications
        subscribers.check_size(wanted.resource_subscriptions)
        subscribers.check_size(wanted.task_ids)
        has = self._catalogue.capabilities()
        return SubscriptionFilter(
            tools_list_changed=wanted.tools_list_changed and has.tools is not None,
            prompts_list_changed=wanted.prompts_list_changed and has.prompts is not None,
            resources_list_changed=wanted.resources_list_changed and has.resources is not None,
            resource_subscriptions=await self._followable(wanted, context) if has.resources else [],
            task_ids=await self.tasks.listenable(wanted.task_ids, context),
        )

    async def _followable(self, wanted: SubscriptionFilter, context: Context) -> list[str]:
        uris = wanted.resource_subscriptions
        if self._relay is None:
            return uris
        followed = []
        for uri in uris:
            try:
                if await self._relay.follow(uri, context):
                    followed.append(uri)
            except RemoteError as error:  # not an error: the acknowledgement omits this URI
                _log.info("no subscription to %s: %s", uri, error)
        return followed


# Helpers


def _offers(has: ServerCapabilities, method: str) -> bool:
    if method.startswith("tasks/"):
        return has.extensions is not None
    known = revisions.CLIENT_METHODS.get(method)
    needed = known.capability.partition(".")[0] if known else ""
    return not needed or getattr(has, needed) is not None


def _decode(type: type[_T], request: Request) -> _T:
    try:
        return decode_params(type, request.params)
    except (msgspec.DecodeError, RecursionError) as error:
        text = f"params of {request.method}: {error}"
        raise ParseError(text, revisions.INVALID_PARAMS) from None


def _not_found(error: UnknownResource, context: Context) -> RemoteError:
    code = revisions.INVALID_PARAMS if context.is_modern else revisions.RESOURCE_NOT_FOUND
    return RemoteError(code, str(error), {"uri": error.uri})


def _completion(values: list[str]) -> Completion:
    return Completion(
        values=values[:MAX_VALUES], total=len(values), has_more=len(values) > MAX_VALUES
    )


def _uri(request: Request) -> str:
    uri = _decode(dict[str, Any], request).get("uri")
    if not isinstance(uri, str):
        raise InvalidArguments(f"params of {request.method}: uri is missing")
    return uri
