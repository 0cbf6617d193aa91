"""Calls to one server: validated, sent over a connection for the caller, and recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from interlock.calls import Call, Caller, Entry, Outcome
from interlock.calls.endings import effect_of
from interlock.calls.fitting import check_arguments
from interlock.config import CONFIGURED, HttpServer, OpenApiConfig, ServerConfig
from interlock.errors import ConfigError, InterlockError, RemoteProtocolError
from interlock.protocol.decoding import CHECKS, repaired
from interlock.protocol.envelope import encode
from interlock.revisions import COMPLETION_CONTEXT, LEGACY, at_least
from interlock.text.redaction import Redactor, redact_error
from interlock.toolbox.client_factory import ClientFactory
from interlock.toolbox.failures import Failures
from interlock.toolbox.permitted import PermittedQuestions
from interlock.toolbox.pool import ConnectionPool, PooledClient
from interlock.toolbox.server_health import ServerHealth
from interlock.toolbox.tool_list import ToolList
from interlock.toolbox.unmet_schemas import with_warning
from interlock.toolbox.user_access import UserAccess
from interlock.transports import InProcessServer
from interlock.types import WARNING_KEY, ClientCapabilities, CompleteParams, JsonObject

DEFAULT_CONCURRENCY = 16  # concurrent calls to an in-process server
_NO_COMPLETIONS = Raw(b'{"completion":{"values":[]}}')


class ServerCalls:
    """Sends calls to one server.

    Args:
        server: The server's configuration, or the server itself.
        tools: The server's tools.
        access: The credentials that the server needs from its users.
        clients: Makes the clients, and gives access to an in-process server.
        pool: The server's connections.
        health: The server's state.
        failures: Called with each failed call.
        permitted: The questions that the server may ask; None for every question that the caller
            can answer.
        read_file: Returns the file argument for a resource's URI, for a call to an API.
        echo: Whether errors about arguments show the arguments' values.
    """

    def __init__(
        self,
        server: ServerConfig | InProcessServer,
        tools: ToolList,
        *,
        access: UserAccess,
        clients: ClientFactory,
        pool: ConnectionPool,
        health: ServerHealth,
        failures: Failures,
        permitted: PermittedQuestions | None,
        read_file: Callable[[str, Call], Awaitable[JsonObject]],
        echo: bool,
    ) -> None:
        self._server = server
        self._settings = server if isinstance(server, CONFIGURED) else None
        self._tools = tools
        self._access = access
        self._clients = clients
        self._pool = pool
        self._health = health
        self._failures = failures
        self._permitted = permitted
        self._read_file = read_file
        self._echo = echo
        self._has_files = isinstance(server, OpenApiConfig) or hasattr(server, "file_tools")
        settings = self._settings
        self._repeats = isinstance(settings, HttpServer)  # only HTTP requests are ever retried
        self._slots = asyncio.Semaphore(settings.concurrency if settings else DEFAULT_CONCURRENCY)

    def validate(self, call: Call) -> None:
        """Raise an error if a call's arguments do not match the tool's schema.

        Arguments that match it after a conversion are converted; see `schema.conversion`.

        Raises:
            InvalidArguments: The arguments are not valid; the text names each invalid argument.
            ConfigError: The call's headers are not valid, or the server has no URL.
        """
        if call.headers:
            self._check_headers(call)
        if not isinstance(call.entry, Entry):
            return
        tool = call.entry.tool.name
        validator = self._tools.validators.get(tool) or self._tools.validator(tool)
        if validator is None:
            return
        if validator.errors(call.arguments, echo=self._echo):
            api: Any = (self._clients.api or self._server) if self._has_files else None
            kept = () if api is None else api.null_arguments(tool)
            check_arguments(call, validator, kept, echo=self._echo)

    def _check_headers(self, call: Call) -> None:
        if not isinstance(self._server, HttpServer):
            server = call.entry.server
            raise ConfigError(f"server {server!r} has no URL, so its calls have no headers")
        from interlock.transports.http_headers import check_headers

        check_headers(call.headers)

    def check_caller(self, caller: Caller) -> None:
        """Raise an error if a caller lacks a claim or header that the server needs.

        Raises:
            CallRefused: One is missing, or cannot be sent.
        """
        if self._access.references:
            self._access.caller_values(caller)

    async def check_credentials(self, call: Call) -> None:
        """Raise an error if the caller lacks a user's credential that a call needs.

        An expired login is refreshed.

        Raises:
            LoginRequired: The user must log in, or store a credential.
            InterlockError: The credential cannot be checked.
        """
        owner = call.caller.owner
        if not owner or not self._access.needs:
            return
        api = self._clients.api
        if api is not None:
            await api.check_user(call.name, owner)
        else:
            await self._access.check(owner)

    async def send(self, call: Call) -> Outcome:
        """Send a call with validated arguments; start the server if it is down.

        Raises:
            ServerUnavailable: The server cannot be started, or its back-off has not passed.
            InterlockError: See `Client.call_tool`. The text contains no secrets.
        """
        # This is one long function, because each further function would slow down every call.
        await self._slots.acquire()
        release = self._slots.release
        if call.slots is not None:
            release = call.slots.hold(release)
        try:
            pooled = self._pool.acquire_open(call.caller) or await self._pool.acquire(call.caller)
            client, entry, counted = pooled.client, call.entry, call
            try:
                call.revision = client.revision
                is_tool, has_schema, name = False, False, ""
                if isinstance(entry, Entry):
                    is_tool, name = True, entry.tool.name
                    has_schema = entry.tool.output_schema is not None
                    if self._has_files:
                        api: Any = self._clients.api or self._server
                        if name in api.file_tools:
                            call = await self._with_files(api, call)
                else:
                    name = entry.name
                can = call.capabilities
                if can is not None and self._permitted is not None:
                    known, may = self._permitted.last  # cached: clients often pass the same object
                    can = may if known is can else self._permitted.of(can)
                try:
                    method = "tools/call" if is_tool else call.method
                    raw = await client.forward(
                        method,
                        call.params(),
                        name=name,
                        timeout=call.timeout,
                        progress=call.progress,
                        meta=call.meta,
                        idempotent=self._repeats and (call.idempotent or self._may_repeat(call)),
                        back=call.back,
                        capabilities=can,
                        log_level=call.log_level,
                        returns_questions=call.returns_questions,
                        counted=counted,
                        headers=call.headers,
                        trace=call.caller.trace_context,
                    )
                    # Decode the result here, so that a malformed result fails here. A gateway may
                    # forward it undecoded.
                    is_checked = is_tool and (
                        call.back is None or (has_schema and client.has_output_schema(name))
                    )
                    is_final = is_checked and not call.returns_questions
                    result = client.check_result(name, raw) if is_final else None
                    head = None
                    try:
                        head = CHECKS[method](raw)
                    except (msgspec.DecodeError, RecursionError):
                        raw = repaired(method, raw)
                    except MemoryError:
                        pass  # the client checks a large result itself
                    outcome = Outcome(raw, result, head=head)
                    if is_checked and not is_final and not outcome.is_task:
                        result = client.check_result(name, raw)
                        outcome = Outcome(raw, result, head=head)
                    if result is not None and result.meta and WARNING_KEY in result.meta:
                        self._tools.note_wrong_result(name, result.warning)
                        outcome = with_warning(call, raw, result)
                except InterlockError as error:
                    raise self._noted(pooled, error, call) from None
            finally:
                self._pool.release(pooled)
        finally:
            release()
        pooled.hangs = 0
        if self._health.state != "ok" and pooled is self._pool.shared:
            self._health.set("ok")
        return outcome

    def _noted(self, pooled: PooledClient, error: InterlockError, call: Call) -> InterlockError:
        """Update the server's state after a failure; return the error without secrets."""
        self._failures.note(pooled, error)
        clean = self._failures.redacted(pooled, error)
        if call.headers:
            clean = redact_error(clean, Redactor(call.headers.values()))
        if isinstance(error, RemoteProtocolError) and not pooled.is_dropped:
            self._tools.note_wrong_result(call.name, str(clean))
        if isinstance(call.entry, Entry) and call.messages and (effect := effect_of(error)):
            clean.args = (f"{clean}; {effect}", *clean.args[1:])
        return clean

    async def _with_files(self, api: Any, call: Call) -> Call:
        """Return an API call whose file arguments contain the resources that they named."""
        arguments = await api.with_files(
            call.name, call.arguments, lambda uri: self._read_file(uri, call)
        )
        return (
            call if arguments is call.arguments else replace(call, arguments=arguments, encoded=b"")
        )

    def permitted(self, can: ClientCapabilities) -> ClientCapabilities:
        """Return the part of a client's capabilities that the server may use."""
        return can if self._permitted is None else self._permitted.of(can)

    async def complete(self, caller: Caller, params: CompleteParams) -> Raw:
        """Request completions on behalf of a caller; return the encoded result.

        Raises:
            InterlockError: See `send`.
        """
        async with self._slots:
            pooled = await self._pool.acquire(caller)
            try:
                if pooled.client.capabilities.completions is None and _has_completions(pooled):
                    return _NO_COMPLETIONS
                if not at_least(pooled.client.revision, COMPLETION_CONTEXT):
                    params = replace(params, context=UNSET)
                return await pooled.client.forward(
                    "completion/complete", encode(params), trace=caller.trace_context
                )
            except InterlockError as error:
                self._failures.note(pooled, error)
                raise self._failures.redacted(pooled, error) from None
            finally:
                self._pool.release(pooled)

    async def ask_task(
        self, caller: Caller, method: str, params: bytes, task: str, can: ClientCapabilities
    ) -> Raw:
        """Send a request about a task of this server; return the encoded result.

        Args:
            caller: The caller whose call became the task.
            method: `tasks/get`, `tasks/update` or `tasks/cancel`.
            params: The encoded parameters.
            task: The task's id at the server.
            can: The capabilities that the caller's client declares.

        Raises:
            InterlockError: See `send`.
        """
        async with self._slots:
            pooled = await self._pool.acquire(caller)
            try:
                return await pooled.client.forward(
                    *(method, params),
                    name=task,
                    idempotent=True,
                    capabilities=self.permitted(can),
                    trace=caller.trace_context,
                )
            except InterlockError as error:
                self._failures.note(pooled, error)
                raise self._failures.redacted(pooled, error) from None
            finally:
                self._pool.release(pooled)

    def may_repeat(self, tool: str) -> bool:
        """Return whether the operator marked a tool as read-only or safe to repeat."""
        tools = self._settings.tools if self._settings is not None else None
        return tools is not None and (tools.may_repeat(tool) or tools.risk.of(tool) == "read")

    def _may_repeat(self, call: Call) -> bool:
        if not isinstance(call.entry, Entry):
            return True
        return self._settings is not None and self._settings.tools.may_repeat(call.name)


def _has_completions(pooled: PooledClient) -> bool:
    """Return whether the server's protocol revision has a capability for completions."""
    return pooled.client.revision != LEGACY[0]
