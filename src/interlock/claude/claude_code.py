"""Claude Code as an agent: prompts in, events and answers out."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from time import monotonic
from typing import Self, TypedDict, Unpack
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from interlock import config
from interlock.calls import Around, Caller, Entry
from interlock.claude import names, program
from interlock.claude.conversation import Conversation, SystemInit, Turn
from interlock.claude.decisions import Allow, Decide, Decisions, Deny, Request
from interlock.claude.events import Answer, ClaudeEvent, Done, ToolProgress
from interlock.claude.facade import Facade, RpcError
from interlock.claude.facade import Host as FacadeHost
from interlock.claude.link import Link, UnsupportedQuestion
from interlock.claude.results import MAX_RESULT, Results
from interlock.client.features import Elicit, Sample
from interlock.config import HttpServer, ServerConfig, StdioServer
from interlock.errors import (
    ClaudeTooOld,
    ConfigError,
    ConnectionClosed,
    InterlockError,
    LocalProtocolError,
    ModelInterrupted,
    RequestTimeout,
    UnknownSession,
)
from interlock.policy import Policy
from interlock.protocol import Progress, ProgressHandler
from interlock.protocol.envelope import encode, encode_lossy
from interlock.toolbox import ServerStatus, Toolbox
from interlock.transports import InProcessServer
from interlock.transports.stdio import StdioTransport
from interlock.types import ElicitParams, JsonObject, Tool

CLAUDE = Caller(surface="claude")
SERVER_PATIENCE = 2.0  # seconds that `open` waits for servers that are still starting
DRAIN_TIMEOUT = 10.0  # seconds for an interrupted turn to end; then the program is ended
INTERRUPT_PAUSE = 1.0  # seconds until an interrupt that had no effect is sent again
MAX_LINE_BYTES = 64 * 1024 * 1024
HOOK_TIMEOUT = 3_600  # seconds that the program waits for a decision; ours comes first
LIST_CHANGES = "sdk_mcp_tools_list_changed"  # the capability to hear of changed tools

_HOOK = "decide"
_NO_SESSION = "No conversation found with session ID"
_log = logging.getLogger("interlock.claude")

Server = ServerConfig | InProcessServer
Ask = Callable[[list[JsonObject]], Awaitable[Mapping[str, str] | None]]
Prompt = str | Sequence[JsonObject]


class ProgramOptions(TypedDict, total=False):
    """Claude Code's own options. What is not given is as Claude Code has it by default."""

    mode: str  # of permissions: "default", "acceptEdits", "plan", "bypassPermissions"
    model: str | None
    fallback_model: str | None
    max_turns: int | None
    max_cost: float | None  # US dollars
    output_schema: JsonObject | None  # for `Answer.structured`
    instructions: str | None  # appended to the system prompt
    system_prompt: str | None  # replaces it
    agents: JsonObject | None  # subagents by name: description, prompt, tools, model
    add_dirs: Sequence[str | Path]
    thinking: int | str | None  # tokens, "adaptive" or "disabled"
    built_in: Sequence[str] | None  # names of its own tools; () for none, None for all
    settings: Sequence[str]  # of "user", "project", "local"; what they contain is trusted
    session: str | None  # the id of a new session, a UUID
    resume: str | None  # the id of a session to continue
    fork: bool  # continue a copy of it
    arguments: Sequence[str]  # further ones, as on its command line


class ClaudeCode:
    """A Claude Code program that uses our servers. Use it as an async context manager.

    Args:
        servers: By name, as for a `Toolbox`; or an open toolbox, which stays open.
        permissions: Decides about every tool call, Claude Code's own tools included. None allows
            the tools of `servers`, and denies what Claude Code would ask a person.
        elicitation: Asks the user, for servers.
        sampling: Asks a model, for servers.
        questions: Answers Claude's own questions to the user: the answers by question, or None.
        policy: Decides before `permissions`; what it denies stays denied.
        around: Layers around every call of our servers; see `Toolbox`.
        direct: Names of servers to which Claude Code itself connects, without our policy.
        program: The path of Claude Code; see `find`.
        cwd: The folder in which it works.
        env: Variables for it, besides those that it needs.
        inherit_env: Pass on our whole environment.
        start_timeout: Seconds.
        tool_timeout: Seconds of a tool call without progress.
        decision_timeout: Seconds for `permissions`; then the call is denied.
        max_line_bytes: The longest line accepted from it.
        max_result: Characters of a tool's result that the model gets at once; 0 for no limit.
        always_load: Whether tools are in the model's prompt; None decides by their number.
        options: Claude Code's own; see `ProgramOptions`.
    """

    def __init__(
        self,
        servers: Mapping[str, Server] | Toolbox | None = None,
        *,
        permissions: Decide | None = None,
        elicitation: Elicit | None = None,
        sampling: Sample | None = None,
        questions: Ask | None = None,
        policy: Policy | None = None,
        around: Sequence[Around] = (),
        direct: Sequence[str] = (),
        program: str | Path | None = None,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        start_timeout: float = 60.0,
        tool_timeout: float = 120.0,
        decision_timeout: float = 600.0,
        max_line_bytes: int = MAX_LINE_BYTES,
        max_result: int = MAX_RESULT,
        always_load: bool | None = None,
        **options: Unpack[ProgramOptions],
    ) -> None:
        self._options = _program_options(options)
        self._program = program
        self._cwd = None if cwd is None else str(cwd)
        self._env = dict(env or {})
        self._inherit_env = inherit_env
        self._start_timeout = start_timeout
        self._max_line_bytes = max_line_bytes
        self._elicitation = elicitation
        self._questions = questions
        self._policy = policy
        self._around = around
        self._handlers = {"elicitation": elicitation, "sampling": sampling}
        self._direct = _direct(servers, direct)
        self._toolboxes: list[Toolbox] = []
        self._facades: dict[str, Facade] = {}  # by the name for the program
        self._decisions = Decisions(
            permissions,
            decision_timeout,
            check=self._check if policy is not None else None,
            on_deny=self._note_denial,
        )
        self._decides = permissions is not None or policy is not None
        self._conversation = Conversation(self._address, self._on_init)
        self._turns = asyncio.Lock()
        self._draining: asyncio.Task[None] | None = None
        self._link: Link | None = None
        self._version = ""
        self._capabilities: frozenset[str] = frozenset()
        self._problems: dict[str, str] = {}  # of direct servers
        self._outdated: set[str] = set()  # program names of servers whose list it must read again
        self._announcing: asyncio.Task[None] | None = None
        self._closed = False
        self._host = FacadeHost(
            Results(max_result),
            self._decisions.use if self._decides else None,
            self._progress,
            always_load,
            lambda: sum(len(each.entries) for each in self._facades.values()),
            tool_timeout,
            CLAUDE,
        )
        self._owned = not isinstance(servers, Toolbox)
        own = (
            servers
            if isinstance(servers, Toolbox)
            else self._make_toolbox(
                {name: each for name, each in (servers or {}).items() if name not in direct}
            )
        )
        self._add_toolbox(own)

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start Claude Code and the servers.

        Servers that are still starting after `SERVER_PATIENCE` seconds get their tools later.

        Raises:
            SpawnError: Claude Code cannot be started.
            ClaudeTooOld: It is too old.
            UnknownSession: `resume` names no session.
            InterlockError: It ended, or did not answer in time.
        """
        opening = asyncio.ensure_future(self._open_toolboxes())
        try:
            await self._start(self._options)
            with suppress(TimeoutError):
                async with asyncio.timeout(SERVER_PATIENCE):
                    await asyncio.shield(opening)
            if self._direct:
                await self._set_servers()
        except BaseException:
            await self.close()
            raise
        finally:
            if opening.done() and not opening.cancelled():
                opening.result()

    async def reopen(self) -> None:
        """Start Claude Code again, and continue the session; the servers stay as they are."""
        if self._link is not None:
            await self._link.close()
        options = msgspec.structs.replace(self._options, session=None, fork=False)
        if self._conversation.session:
            options = msgspec.structs.replace(options, resume=self._conversation.session)
        await self._start(options)
        if self._direct:
            await self._set_servers()

    async def close(self) -> None:
        """End Claude Code and the servers. A turn that is running fails."""
        self._closed = True
        for task in (self._announcing, self._draining):
            if task is not None:
                task.cancel()
        if self._link is not None:
            await self._link.close()
        self._conversation.fail(ConnectionClosed("Claude Code is closed"))
        for each in self._toolboxes:
            each.on_change = None
            if self._owned or each is not self._toolboxes[0]:
                await each.close()
        for task in (self._announcing, self._draining):
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)

    async def _open_toolboxes(self) -> None:
        if self._owned:
            await asyncio.gather(*(each.open() for each in self._toolboxes))

    async def _start(self, options: program.Options) -> None:
        found = program.find(self._program)
        transport = StdioTransport(
            [*found.argv, *program.arguments(options)],
            env=program.environment(self._env, inherit=self._inherit_env),
            cwd=self._cwd,
            max_frame_bytes=self._max_line_bytes,
        )
        self._link = link = Link(transport, self)
        await link.open()
        try:
            raw = await link.control("initialize", self._start_timeout, **self._introduction())
        except InterlockError as error:
            await link.close()
            raise await self._why_not_started(found, error, options) from error
        said = msgspec.json.decode(raw, type=_Initialized)
        self._version = said.claude_code_version or self._version
        self._capabilities |= frozenset(said.capabilities)
        self._conversation.session = options.resume or options.session or ""

    def _introduction(self) -> JsonObject:
        hook = {"matcher": None, "hookCallbackIds": [_HOOK], "timeout": HOOK_TIMEOUT}
        hooks = {"PreToolUse": [{**hook, "onFailure": "block"}]} if self._decides else None
        return {"hooks": hooks, "sdkMcpServers": [*self._facades]}

    async def _why_not_started(
        self, found: program.Found, error: InterlockError, options: program.Options
    ) -> InterlockError:
        if _NO_SESSION in str(error):
            return UnknownSession(f"Claude Code has no session {options.resume}: {error}")
        try:
            version = await asyncio.to_thread(program.version, found)
        except InterlockError as broken:
            return broken
        if program.parse_version(version) < program.OLDEST:
            oldest = ".".join(map(str, program.OLDEST))
            return ClaudeTooOld(f"Claude Code {version} is too old (at least {oldest}); update it")
        if isinstance(error, RequestTimeout):
            return RequestTimeout(
                f"Claude Code did not start in time ({self._start_timeout:g} s);"
                " raise start_timeout"
            )
        return error

    # The session

    @property
    def session(self) -> str:
        """The id of the session; "" until it is known."""
        return self._conversation.session

    @property
    def version(self) -> str:
        """Claude Code's version; "" until it is known."""
        return self._version

    @property
    def capabilities(self) -> frozenset[str]:
        """What Claude Code says it can do."""
        return self._capabilities

    @property
    def status(self) -> dict[str, ServerStatus]:
        """Every server by name, with its state and what is missing."""
        found: dict[str, ServerStatus] = {}
        for facade in self._facades.values():
            status = facade.toolbox.status.get(facade.name)
            if status is not None:
                found[facade.name] = status
        for name in self._direct:
            reason = self._problems.get(names.server_name(name), "")
            found[name] = ServerStatus(name, "failed" if reason else "ok", reason)
        return found

    # Prompts

    async def ask(self, prompt: Prompt) -> Answer:
        """Send a prompt and return the answer. Cancelling interrupts Claude Code.

        Args:
            prompt: Text, or a list of content blocks (text, image) as in the Messages API.

        Raises:
            InterlockError: Claude Code has ended. That a turn failed is in the answer.
        """
        async with aclosing(self.stream(prompt)) as events:
            async for event in events:
                if isinstance(event, Done):
                    return event.answer
        raise ModelInterrupted("the answer ended without its last event")

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ClaudeEvent, None]:
        """As `ask`, but yield each event as it happens; `Done` comes last.

        Leaving the stream early interrupts Claude Code. What still comes of the turn is dropped.
        """
        await self._turns.acquire()
        turn: Turn | None = None
        try:
            link = self._running()
            await self._refresh_lists()
            uuid = str(uuid4())
            turn = self._conversation.begin(uuid)
            link.prompt(prompt if isinstance(prompt, str) else list(prompt), uuid)
            while True:
                while (event := turn.events.pop()) is not None:
                    yield event
                if turn.answer is not None:
                    return
                if turn.error is not None:
                    raise turn.error
                await turn.events.wait()
        finally:
            if turn is None or turn.is_over or self._closed:
                self._turns.release()
            else:
                self._draining = asyncio.ensure_future(self._drain(turn))

    async def events(self) -> AsyncGenerator[ClaudeEvent, None]:
        """Yield what belongs to no prompt, such as the work of subagents in the background."""
        events = self._conversation.background
        while True:
            while (event := events.pop()) is not None:
                yield event
            if self._closed or (self._link is not None and self._link.error is not None):
                return
            await events.wait()

    async def interrupt(self) -> None:
        """Stop the turn that is running; its answer has the stop reason "interrupted"."""
        turn = self._conversation.turn
        if turn is not None:
            turn.is_interrupted = True
            await self._interrupt(self._running(), turn)

    async def _interrupt(self, link: Link, turn: Turn) -> None:
        raw = await link.control("interrupt")
        still_queued = msgspec.json.decode(raw, type=_Interrupted).still_queued
        if turn.uuid in still_queued:
            await link.control("cancel_async_message", message_uuid=turn.uuid)
            self._conversation.cancel(turn)

    async def _drain(self, turn: Turn) -> None:
        """Interrupt a turn that nobody reads any more, and wait for its end."""
        turn.is_interrupted = True
        link = self._link
        deadline = monotonic() + DRAIN_TIMEOUT
        try:
            while link is not None and not turn.is_over:
                if monotonic() > deadline:
                    link.abort(RequestTimeout("Claude Code did not stop after an interrupt"))
                    return
                with suppress(InterlockError, TimeoutError):
                    await self._interrupt(link, turn)
                    async with asyncio.timeout(INTERRUPT_PAUSE):
                        while not turn.is_over:
                            turn.events.clear()
                            await turn.events.wait()
        finally:
            self._turns.release()

    def _running(self) -> Link:
        if self._link is None or self._closed:
            raise LocalProtocolError("Claude Code is not open; use `async with ClaudeCode(...)`")
        if self._link.error is not None:
            raise self._link.error
        return self._link

    # Settings of the running program

    async def set_model(self, model: str | None) -> None:
        """Use another model from the next turn on; None for the default one."""
        await self._running().control("set_model", model=model)

    async def set_mode(self, mode: str) -> None:
        """Use another permission mode from now on."""
        await self._running().control("set_permission_mode", mode=mode)

    async def context_usage(self) -> JsonObject:
        """Return what fills the model's context, in Claude Code's own words."""
        return _object(await self._running().control("get_context_usage"))

    async def rewind(self, prompt_uuid: str) -> JsonObject:
        """Restore the files to what they were before a prompt."""
        fields = {"user_message_id": prompt_uuid}
        return _object(await self._running().control("rewind_files", 60.0, **fields))

    # Servers

    async def add_server(self, name: str, server: Server) -> None:
        """Add a server, which is started now; Claude has its tools from the next turn on.

        Raises:
            ConfigError: The name is taken or not valid.
        """
        if names.server_name(name) in self._facades or name in self._direct:
            raise ConfigError(f"there is a server {name!r} already; remove it first")
        toolbox = self._make_toolbox({name: server})
        self._add_toolbox(toolbox)
        await toolbox.open(idle_timeout=SERVER_PATIENCE)
        await self._set_servers()

    async def remove_server(self, name: str) -> None:
        """Remove a server.

        Raises:
            ConfigError: There is none of this name.
        """
        facade = self._facades.pop(names.server_name(name), None)
        if facade is None and name not in self._direct:
            raise ConfigError(f"no server {name!r}; the servers are {', '.join(self.status)}")
        self._direct.pop(name, None)
        await self._set_servers()
        if facade is not None and facade.toolbox is not self._toolboxes[0]:
            self._toolboxes.remove(facade.toolbox)
            await facade.toolbox.close()

    def _make_toolbox(self, servers: Mapping[str, Server]) -> Toolbox:
        handlers = {name: each for name, each in self._handlers.items() if each is not None}
        return Toolbox(servers, around=self._around, **handlers)  # type: ignore[arg-type]

    def _add_toolbox(self, toolbox: Toolbox) -> None:
        self._toolboxes.append(toolbox)
        toolbox.on_change = self._lists_changed
        for name in toolbox.status:
            facade = Facade(name, toolbox, self._host)
            self._facades[facade.program_name] = facade

    async def _set_servers(self) -> None:
        """Replace the program's servers by ours: it forgets those that are not named."""
        ours: JsonObject = {name: {"type": "sdk", "name": name} for name in self._facades}
        dialed = {names.server_name(name): each for name, each in self._direct.items()}
        link = self._running()
        raw = await link.control("mcp_set_servers", self._start_timeout, servers={**ours, **dialed})
        errors = _object(raw).get("errors")
        self._problems = errors if isinstance(errors, dict) else {}

    def _lists_changed(self) -> None:
        if self._announcing is None and self._link is not None and not self._closed:
            self._announcing = asyncio.ensure_future(self._announce())

    async def _announce(self) -> None:
        """Let the program list the tools of servers whose tools have changed."""
        await asyncio.sleep(0)  # a toolbox reports each server by itself
        self._announcing = None
        link = self._link
        if link is None or link.error is not None:
            return
        for name, facade in self._facades.items():
            if facade.is_current:
                continue
            if LIST_CHANGES not in self._capabilities:
                self._outdated.add(name)
                continue
            message = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
            with suppress(InterlockError):
                await link.control("mcp_message", server_name=name, message=message)

    async def _refresh_lists(self) -> None:
        """Make a program that ignores changes list the tools again, between two turns."""
        outdated = {name for name in self._outdated if name in self._facades}
        self._outdated.clear()
        if not outdated or LIST_CHANGES in self._capabilities:
            return
        facades = self._facades
        with suppress(InterlockError):
            self._facades = {name: each for name, each in facades.items() if name not in outdated}
            try:
                await self._set_servers()
            finally:
                self._facades = facades
            await self._set_servers()

    # What the program asks; see `link.Host`

    async def answer_mcp(self, server: str, method: str, params: Raw) -> bytes:
        """Answer a JSON-RPC request to one of our servers."""
        facade = self._facades.get(server)
        if facade is None:
            raise RpcError(-32600, f"no server {server!r}")
        return await facade.answer(method, params)

    async def answer_question(self, subtype: str, line: bytes) -> bytes:
        """Answer another control request."""
        if subtype == "can_use_tool":
            return await self._answer_permission(_decode_permission(line).request)
        if subtype == "hook_callback":
            return await self._answer_hook(_decode_hook(line).request)
        if subtype == "elicitation" and self._elicitation is not None:
            return await self._answer_elicitation(_decode_elicitation(line).request)
        raise UnsupportedQuestion(subtype)

    def message_received(self, kind: str, line: bytes) -> None:
        """Take in a line of the conversation."""
        self._conversation.receive(kind, line, now=monotonic())

    def program_ended(self, error: InterlockError) -> None:
        """Fail the turn that is running."""
        self._conversation.fail(error)

    async def _answer_permission(self, asked: _Permission) -> bytes:
        request = self._request(
            asked.tool_name,
            asked.input,
            asked.tool_use_id or "",
            title=asked.title or asked.description or "",
            suggestions=tuple(asked.permission_suggestions or ()),
        )
        verdict = await self._decide(request)
        if isinstance(verdict, Allow):
            arguments = asked.input if verdict.arguments is None else verdict.arguments
            return encode_lossy({"behavior": "allow", "updatedInput": arguments})
        denied = {"behavior": "deny", "message": verdict.message}
        return encode_lossy({**denied, "interrupt": True} if verdict.interrupt else denied)

    async def _answer_hook(self, asked: _Hook) -> bytes:
        hook = asked.input
        if asked.callback_id != _HOOK or hook.hook_event_name != "PreToolUse":
            return b"{}"
        id = asked.tool_use_id or hook.tool_use_id or ""
        request = self._request(hook.tool_name, hook.tool_input, id)
        verdict = await self._decide(request)
        output: JsonObject = {"hookEventName": "PreToolUse"}
        if isinstance(verdict, Allow):
            output["permissionDecision"] = "allow"
            output["updatedInput"] = verdict.arguments
            return encode_lossy({"hookSpecificOutput": output})
        output["permissionDecision"] = "deny"
        output["permissionDecisionReason"] = verdict.message
        if verdict.interrupt:
            stop = {"continue": False, "stopReason": verdict.message}
            return encode_lossy({"hookSpecificOutput": output, **stop})
        return encode_lossy({"hookSpecificOutput": output})

    async def _answer_elicitation(self, asked: _Elicitation) -> bytes:
        if self._elicitation is None:
            raise UnsupportedQuestion("elicitation")
        params = ElicitParams(
            message=asked.message,
            mode="url" if asked.mode == "url" else "form",
            requested_schema=asked.requested_schema,
            url=asked.url,
        )
        return encode(await self._elicitation(params))

    # Decisions

    async def _decide(self, request: Request) -> Allow | Deny:
        if request.address == f"{names.BUILT_IN}:AskUserQuestion" and self._questions is not None:
            return await self._ask_user(request)
        return await self._decisions.of(request)

    async def _ask_user(self, request: Request) -> Allow | Deny:
        assert self._questions is not None  # noqa: S101 - checked by the caller
        asked = request.arguments.get("questions")
        try:
            answers = await self._questions(asked if isinstance(asked, list) else [])
        except Exception:
            _log.exception("the function `questions` failed")
            answers = None
        if answers is None:
            return Deny("the user did not answer")
        return Allow({**request.arguments, "answers": dict(answers)})

    def _request(
        self,
        tool: str,
        arguments: JsonObject,
        id: str,
        *,
        title: str = "",
        suggestions: tuple[JsonObject, ...] = (),
    ) -> Request:
        agent = self._conversation.agent_of(id)
        return Request(self._address(tool), arguments, id, agent, title, suggestions)

    def _address(self, tool: str) -> str:
        """Return the address of a tool, by the program's name for it."""
        parts = names.split(tool)
        if parts is None:
            return f"{names.BUILT_IN}:{tool}"
        server, name = parts
        facade = self._facades.get(server)
        if facade is None:
            direct = {names.server_name(each): each for each in self._direct}
            return f"{direct.get(server, server)}:{name}"
        entry = facade.entries.get(name)
        return entry.address if entry is not None else f"{facade.name}:{name}"

    def _check(self, request: Request) -> Allow | Deny | None:
        """Decide by the policy; None if it wants the caller's approval."""
        assert self._policy is not None  # noqa: S101 - checked by the caller
        decision = self._policy.decide(CLAUDE, self._entry(request.address), request.arguments)
        if decision.effect == "allow":
            return Allow()
        if decision.effect == "ask" and "caller" in decision.approvers:
            return None
        by = f" by rule {decision.rule}" if decision.rule else ""
        return Deny(f"{request.address} is denied{by} ({decision.reason})")

    def _entry(self, address: str) -> Entry:
        server, _, tool = address.partition(":")
        facade = self._facades.get(names.server_name(server))
        for entry in facade.entries.values() if facade is not None else ():
            if entry.address == address:
                return entry
        return built_in_entry(server, tool)

    def _note_denial(self, request: Request) -> None:
        if self._conversation.turn is not None:
            self._conversation.turn.denials.append(request.address)

    # Events

    def _on_init(self, init: SystemInit) -> None:
        self._version = init.claude_code_version or self._version
        self._capabilities |= frozenset(init.capabilities)

    def _progress(self, id: str, entry: Entry) -> ProgressHandler:
        agent = self._conversation.agent_of(id)

        def report(progress: Progress) -> None:
            self._conversation.put(
                ToolProgress(
                    id, entry.address, progress.progress, progress.total, progress.message, agent
                )
            )

        return report


# What the program sends


class _Initialized(Struct):
    claude_code_version: str = ""
    capabilities: list[str] = []


class _Interrupted(Struct):
    still_queued: list[str] = []


class _Permission(Struct):
    tool_name: str
    input: JsonObject
    tool_use_id: str | None = None
    title: str | None = None
    description: str | None = None
    permission_suggestions: list[JsonObject] | None = None


class _HookInput(Struct, frozen=True):
    hook_event_name: str = ""
    tool_name: str = ""
    tool_input: JsonObject = {}
    tool_use_id: str | None = None


class _Hook(Struct):
    callback_id: str = ""
    input: _HookInput = _HookInput()
    tool_use_id: str | None = None


class _Elicitation(Struct):
    message: str = ""
    mode: str | None = None
    requested_schema: JsonObject | None = None
    url: str | None = None


class _PermissionLine(Struct):
    request: _Permission


class _HookLine(Struct):
    request: _Hook


class _ElicitationLine(Struct):
    request: _Elicitation


_decode_permission = msgspec.json.Decoder(_PermissionLine).decode
_decode_hook = msgspec.json.Decoder(_HookLine).decode
_decode_elicitation = msgspec.json.Decoder(_ElicitationLine).decode


def _object(raw: Raw) -> JsonObject:
    value = msgspec.json.decode(raw)
    return value if isinstance(value, dict) else {}


def _program_options(options: ProgramOptions) -> program.Options:
    try:
        return program.Options(**options)
    except TypeError as error:
        known = ", ".join(ProgramOptions.__annotations__)
        raise LocalProtocolError(f"{error}; the options of Claude Code are {known}") from None


def _direct(
    servers: Mapping[str, Server] | Toolbox | None, direct: Sequence[str]
) -> dict[str, JsonObject]:
    """Return the configuration of the servers to which the program connects by itself."""
    found: dict[str, JsonObject] = {}
    for name in direct:
        server = None if isinstance(servers, Toolbox) or servers is None else servers.get(name)
        if isinstance(server, StdioServer):
            program_ = config.resolve(server, os.environ)
            if program_.cwd is not None:
                raise ConfigError(f"direct server {name!r} has a cwd, which Claude Code lacks")
            args = [*program_.args]
            found[name] = {"command": program_.command, "args": args, "env": {**program_.env}}
        elif isinstance(server, HttpServer):
            url = config.resolve(server, os.environ)
            found[name] = {"type": url.type, "url": url.url, "headers": {**url.headers}}
        else:
            raise ConfigError(f"direct server {name!r} is not a configured server")
    return found


def built_in_entry(server: str, tool: str) -> Entry:
    """Return an entry for a tool that is in no toolbox, so that a policy can decide about it."""
    definition = Tool(name=tool, input_schema={"type": "object"})
    return Entry(server, definition, f"{server}:{tool}", tool, b'{"type":"object"}')
