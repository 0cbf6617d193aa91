"""`ClaudeCode`: an agent that sends prompts to Claude Code and yields its events and answers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from contextvars import Context
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Self, Unpack
from uuid import uuid4

import msgspec
from msgspec import Raw, Struct

from interlock import observing
from interlock.aio import in_thread
from interlock.calls import Caller, Entry
from interlock.claude import program
from interlock.claude.built_in_calls import BuiltInCalls
from interlock.claude.conversation import ConversationState, PromptTurn, SystemInit
from interlock.claude.decisions import (
    AnswerQuestions,
    Decide,
    Decisions,
    Deny,
    PermissionRequest,
    check_by,
)
from interlock.claude.events import ClaudeAnswer, ClaudeDone, ClaudeEvent, ClaudeToolProgress
from interlock.claude.facade import FacadeHost
from interlock.claude.link import Link, object_of
from interlock.claude.program import ProgramOptions, checked_options, environment
from interlock.claude.questions import Questions
from interlock.claude.results import MAX_RESULT
from interlock.claude.servers import Server, Servers, direct_configuration
from interlock.claude.tool_lists import ToolLists
from interlock.client.features import Elicit, Sample
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
from interlock.layers.stack import AroundCalls
from interlock.policy import Policy
from interlock.protocol import Progress, ProgressHandler
from interlock.text.redaction import Redactor, redact_error
from interlock.toolbox import ServerStatus, Toolbox
from interlock.transports.stdio import StdioTransport
from interlock.types import JsonObject

CLAUDE = Caller(surface="claude")
SERVER_PATIENCE = 2.0  # seconds that `open` waits for servers that are still starting
DRAIN_TIMEOUT = 10.0  # seconds for an interrupted turn to end; then Claude Code is ended
INTERRUPT_PAUSE = 1.0  # seconds before an interrupt that had no effect is repeated
MAX_LINE_BYTES = 64 * 1024 * 1024
LIST_CHANGES = "sdk_mcp_tools_list_changed"  # capability: accepts notices of changed tools

_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL", re.IGNORECASE)
_NO_SESSION = "No conversation found with session ID"

Prompt = str | Sequence[JsonObject]


class ClaudeCode:
    """Runs Claude Code with our servers' tools. Use it as an async context manager.

    Args:
        servers: The servers by name, as for `Toolbox`, or an open toolbox, which is not closed.
        permissions: Decides about every tool call, Claude Code's own tools included. None allows
            tools from `servers`, and denies calls for which Claude Code would ask a person.
        elicitation: Asks the user when a server sends an elicitation.
        sampling: Asks a model when a server requests sampling.
        questions: Answers the questions that Claude itself asks the user. Returns the answers by
            question, or None if the user does not answer.
        policy: Decides before `permissions`; its denials are final.
        around: Layers around every call; see `Toolbox`. They apply to calls of `servers`, unless
            that is an open toolbox, and to Claude Code's own tools (server "claude-built-in"),
            once `policy` or `permissions` has allowed the call.
        direct: Names of servers to which Claude Code itself connects, without our policy.
        program: The path of Claude Code; see `find`.
        cwd: The working folder of Claude Code.
        env: Environment variables for Claude Code, in addition to the variables that it needs.
        inherit_env: Whether to pass on our whole environment.
        start_timeout: Seconds for Claude Code to start; if it fails, its version is asked for at
            most as long.
        tool_timeout: Seconds after which a tool call without progress fails.
        decision_timeout: Seconds that `permissions` may take; then the call is denied.
        max_line_bytes: The longest line that is accepted from Claude Code.
        max_result: The maximum bytes of a tool's result; with 0 only the toolbox limits results.
        always_load: Whether tools are in the model's prompt; None decides by their number.
        verbatim: Whether to send prompts unchanged. Otherwise Claude Code reads files that a prompt
            mentions as "@path", without a decision, and runs a prompt like "/compact" as a command.
        options: Claude Code's own options; see `ProgramOptions`.
    """

    _servers: Servers
    _draining: asyncio.Task[None] | None = None
    _stopping: asyncio.Task[None] | None = None
    _link: Link | None = None
    _transport: StdioTransport | None = None
    _version = ""
    _capabilities: frozenset[str] = frozenset()
    _closed = False

    def __init__(
        self,
        servers: Mapping[str, Server] | Toolbox | None = None,
        *,
        permissions: Decide | None = None,
        elicitation: Elicit | None = None,
        sampling: Sample | None = None,
        questions: AnswerQuestions | None = None,
        policy: Policy | None = None,
        around: AroundCalls = (),
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
        verbatim: bool = False,
        **options: Unpack[ProgramOptions],
    ) -> None:
        self._options = checked_options(options)
        self._program = program
        self._cwd = None if cwd is None else str(cwd)
        self._env = dict(env or {})
        self._inherit_env = inherit_env
        self._redactor = _redactor_of(environment(self._env, inherit=inherit_env))
        self._start_timeout = start_timeout
        self._max_line_bytes = max_line_bytes
        self._around = around
        self._verbatim = verbatim
        self._handlers = {"elicitation": elicitation, "sampling": sampling}
        self._turns = asyncio.Lock()

        decides = permissions is not None or policy is not None
        self._built_in = BuiltInCalls(around, CLAUDE, self._origin)
        decisions = self._make_decisions(permissions, policy, questions, decision_timeout)
        decided = decisions if decides else None
        host = self._make_host(max_result, decided, always_load, tool_timeout)
        self._servers = Servers(host, direct_configuration(servers, direct))
        self._lists = ToolLists(self._servers, lambda: self._link, self._running)
        self._conversation = self._make_conversation()
        self._questions = Questions(
            decisions, self._servers.address, self._conversation.agent_of, elicitation
        )
        self._hooks = self._questions.hooks() if decides else None
        self._add_given(servers, direct)

    def _make_decisions(
        self,
        permissions: Decide | None,
        policy: Policy | None,
        questions: AnswerQuestions | None,
        timeout: float,
    ) -> Decisions:
        return Decisions(
            permissions,
            timeout,
            check=None if policy is None else check_by(policy, self._entry, CLAUDE),
            answer_questions=questions,
            can_change=self._can_change,
            on_deny=self._note_denial,
            convert=self._converted,
            enter=self._built_in.enter if self._around else None,
        )

    def _make_host(
        self,
        max_result: int,
        decisions: Decisions | None,
        always_load: bool | None,
        tool_timeout: float,
    ) -> FacadeHost:
        return FacadeHost(
            max_result,
            None if decisions is None else decisions.use,
            self._progress,
            always_load,
            lambda: self._servers.tool_count,
            tool_timeout,
            CLAUDE,
            self._origin,
        )

    def _make_conversation(self) -> ConversationState:
        return ConversationState(
            self._servers.address,
            self._on_init,
            on_result=self._built_in.finish,
            on_end=lambda: self._built_in.cancel(with_agents=False),
            arguments=self._servers.arguments,
        )

    def _add_given(
        self, servers: Mapping[str, Server] | Toolbox | None, direct: Sequence[str]
    ) -> None:
        self._given = servers if isinstance(servers, Toolbox) else None  # closed by its owner
        ours = {name: each for name, each in self._configured(servers) if name not in direct}
        self._toolboxes: list[Toolbox] = []
        self._toolboxes.append(self._given or self._make_toolbox(ours))
        self._add_toolbox(self._toolboxes[0])

    def _can_change(self, address: str) -> bool:
        # Facades use the arguments that were allowed, whatever Claude Code sends. Other tools get
        # changed arguments only from newer versions of Claude Code.
        is_new = program.parse_version(self._version) >= program.SUPPORTED
        return is_new or self._servers.has_tool(address)

    def _entry(self, address: str) -> Entry:
        return self._servers.entry(address)

    def _converted(self, request: PermissionRequest) -> JsonObject:
        return self._servers.converted(request.address, request.arguments)

    @staticmethod
    def _configured(servers: Mapping[str, Server] | Toolbox | None) -> list[tuple[str, Server]]:
        return [] if servers is None or isinstance(servers, Toolbox) else [*servers.items()]

    # Opening and closing

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Start Claude Code and the servers.

        If a server needs more than `SERVER_PATIENCE` seconds to start, its tools are added later.

        Raises:
            SpawnError: Claude Code cannot be started.
            ClaudeTooOld: Claude Code is too old.
            UnknownSession: Claude Code has no session with the id in `resume`.
            InterlockError: Claude Code exited, or did not answer in time.
        """
        opening = asyncio.ensure_future(self._open_toolboxes())
        patience = asyncio.get_running_loop().time() + SERVER_PATIENCE
        try:
            await self._start(self._options)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(patience):
                    await asyncio.shield(opening)
            if self._servers.has_direct:
                await self._lists.set_servers()
                await self._lists.wait()
        except BaseException:
            await self.close()
            raise
        finally:
            if opening.done() and not opening.cancelled():
                opening.result()

    async def reopen(self) -> None:
        """Restart Claude Code and continue the session; the servers keep running."""
        if self._link is not None:
            await self._link.close()
        options = msgspec.structs.replace(self._options, session=None, fork=False)
        if self._conversation.session:
            options = msgspec.structs.replace(options, resume=self._conversation.session)
        await self._start(options)
        if self._servers.has_direct:
            await self._lists.set_servers()

    async def close(self) -> None:
        """End Claude Code and the servers. A turn that is running fails."""
        self._closed = True
        await self._lists.close()
        tasks = [self._draining, self._stopping]
        for task in tasks:
            if task is not None:
                task.cancel()
        if self._link is not None:
            await self._link.close()
        await self._built_in.close()
        self._conversation.fail(ConnectionClosed("Claude Code is closed"))
        for each in self._toolboxes:
            each.listeners.discard(self._lists.note_change)
            if each is not self._given:
                await each.close()
        for task in tasks:
            if task is not None:
                await asyncio.gather(task, return_exceptions=True)

    async def _open_toolboxes(self) -> None:
        ours = [each for each in self._toolboxes if each is not self._given]
        await asyncio.gather(*(each.open() for each in ours))

    async def _start(self, options: program.Options) -> None:
        found = program.find(self._program)
        self._transport = transport = StdioTransport(
            [*found.argv, *program.arguments(options)],
            env=environment(self._env, inherit=self._inherit_env),
            cwd=self._cwd,
            max_frame_bytes=self._max_line_bytes,
        )
        self._link = link = Link(transport, self)
        await link.open()
        try:
            raw = await link.control(
                "initialize",
                self._start_timeout,
                hooks=self._hooks,
                sdkMcpServers=self._servers.program_names,
            )
        except InterlockError as error:
            await link.close()
            why = await self._why_not_started(found, error, options)
            raise redact_error(why, self._redactor) from None
        said = msgspec.json.decode(raw, type=_Initialized)
        self._note_program(said.claude_code_version, said.capabilities)
        self._conversation.session = options.resume or options.session or ""

    async def _why_not_started(
        self, found: program.FoundProgram, error: InterlockError, options: program.Options
    ) -> InterlockError:
        said = f"{error} {self._conversation.last_error}"
        if _NO_SESSION in said:
            return UnknownSession(f"Claude Code has no session {options.resume}")
        try:
            timeout = min(self._start_timeout, program.VERSION_TIMEOUT)
            version = await in_thread(partial(program.version, found, timeout))
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
    def process_id(self) -> int | None:
        """The id of Claude Code's process; None before `open`."""
        return self._transport.process_id if self._transport is not None else None

    @property
    def version(self) -> str:
        """Claude Code's version; "" until it is known."""
        return self._version

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities that Claude Code reports."""
        return self._capabilities

    @property
    def status(self) -> dict[str, ServerStatus]:
        """The status of every server, by name."""
        return self._servers.status

    # Prompts

    async def ask(self, prompt: Prompt) -> ClaudeAnswer:
        """Send a prompt and return the answer. Cancelling this task interrupts Claude Code.

        Args:
            prompt: Text, or a list of content blocks (text, image) as in the Messages API.

        Raises:
            InterlockError: Claude Code has exited. If only the turn fails, no error is raised:
                the answer has `is_error`.
        """
        async with aclosing(self.stream(prompt)) as events:
            async for event in events:
                if isinstance(event, ClaudeDone):
                    return event.answer
        raise ModelInterrupted("the answer ended without its last event")

    def stream(self, prompt: Prompt) -> AsyncGenerator[ClaudeEvent, None]:
        """Send a prompt and yield each event as it happens; the last one is `ClaudeDone`.

        Closing the stream early interrupts Claude Code and drops the turn's later events.
        """
        events = self._stream(prompt)
        if observing.observer is not None:
            return observing.observer.answer("claude-code", events, lambda: self.session)
        return events

    async def _stream(self, prompt: Prompt) -> AsyncGenerator[ClaudeEvent, None]:
        await self._turns.acquire()
        turn: PromptTurn | None = None
        try:
            link = self._running()
            await self._lists.refresh()
            uuid = str(uuid4())
            turn = self._conversation.begin(uuid)
            content = prompt if isinstance(prompt, str) else list(prompt)
            link.prompt(content, uuid, verbatim=self._verbatim)
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
        """Yield events that belong to no prompt, for example from subagents in the background."""
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

    async def _interrupt(self, link: Link, turn: PromptTurn) -> None:
        raw = await link.control("interrupt")
        still_queued = msgspec.json.decode(raw, type=_Interrupted).still_queued
        if turn.uuid in still_queued:
            await link.control("cancel_async_message", message_uuid=turn.uuid)
            self._conversation.cancel(turn)

    async def _drain(self, turn: PromptTurn) -> None:
        """Interrupt a turn whose reader has left, and wait for its end."""
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
            raise redact_error(self._link.error, self._redactor)
        return self._link

    # Settings of the running program

    async def set_model(self, model: str | None) -> None:
        """Use another model from the next turn on; None selects the default model."""
        await self._running().control("set_model", model=model)

    async def set_mode(self, mode: str) -> None:
        """Use another permission mode from now on."""
        await self._running().control("set_permission_mode", mode=mode)

    async def context_usage(self) -> JsonObject:
        """Return the parts of the model's context and their tokens, as Claude Code reports them."""
        return object_of(await self._running().control("get_context_usage"))

    async def rewind(self, prompt_uuid: str) -> JsonObject:
        """Undo Claude Code's changes to files since a prompt.

        Claude Code must have been opened with
        `env={"CLAUDE_CODE_ENABLE_SDK_FILE_CHECKPOINTING": "true"}`.

        Args:
            prompt_uuid: The prompt's UUID: `prompt` in its `ClaudeAnswer`.
        """
        fields = {"user_message_id": prompt_uuid}
        return object_of(await self._running().control("rewind_files", 60.0, **fields))

    # Servers

    async def add_server(self, name: str, server: Server) -> None:
        """Add and start a server; Claude has its tools from the next turn on.

        Raises:
            ConfigError: The name is already in use or not valid.
        """
        if name in self._servers:
            raise ConfigError(f"there is a server {name!r} already; remove it first")
        toolbox = self._make_toolbox({name: server})
        self._toolboxes.append(toolbox)
        self._add_toolbox(toolbox)
        await toolbox.open(idle_timeout=SERVER_PATIENCE)
        await self._lists.set_servers()
        await self._lists.wait()

    async def remove_server(self, name: str) -> None:
        """Remove a server.

        Raises:
            ConfigError: No server has this name.
        """
        toolbox = self._servers.remove(name)
        await self._lists.set_servers()
        if toolbox is not None and toolbox is not self._toolboxes[0]:
            self._toolboxes.remove(toolbox)
            await toolbox.close()

    def _make_toolbox(self, servers: Mapping[str, Server]) -> Toolbox:
        handlers = {name: each for name, each in self._handlers.items() if each is not None}
        results = self._toolboxes[0].results if self._toolboxes else None
        return Toolbox(servers, around=self._around, results=results, **handlers)  # type: ignore[arg-type]

    def _add_toolbox(self, toolbox: Toolbox) -> None:
        toolbox.listeners.add(self._lists.note_change)
        self._servers.add(toolbox)

    # Implementation of `link.Answerer`

    @property
    def running_context(self) -> Context | None:
        turn = self._conversation.turn
        return None if turn is None else turn.context.copy()

    def answer_mcp(self, server: str, method: str, params: Raw) -> Coroutine[Any, Any, bytes]:
        return self._servers.answer(server, method, params)

    def answer_question(self, subtype: str, line: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        return self._questions.answer(subtype, line)

    def message_received(self, kind: str, line: bytes) -> None:
        self._conversation.receive(kind, line, now=monotonic())

    def program_ended(self, error: InterlockError) -> None:
        self._built_in.cancel()
        self._conversation.fail(redact_error(error, self._redactor))

    def _note_denial(self, request: PermissionRequest, denial: Deny) -> None:
        turn = self._conversation.turn
        if turn is not None:
            turn.denials.append(request.address)
            if denial.interrupt and not turn.is_interrupted:
                turn.is_interrupted = True
                self._stopping = asyncio.ensure_future(self._stop(turn))

    async def _stop(self, turn: PromptTurn) -> None:
        with suppress(InterlockError):
            await self._interrupt(self._running(), turn)

    # Events

    def _on_init(self, init: SystemInit) -> None:
        self._note_program(init.claude_code_version, init.capabilities)

    def _note_program(self, version: str, capabilities: Sequence[str]) -> None:
        self._version = version or self._version
        self._capabilities |= frozenset(capabilities)
        self._lists.hears_changes = LIST_CHANGES in self._capabilities

    def _origin(self, id: str, agent: str = "") -> JsonObject:
        agent = agent or self._conversation.agent_of(id)
        return {"session": self._conversation.session, "toolUse": id, "agent": agent}

    def _progress(self, id: str, entry: Entry) -> ProgressHandler:
        agent = self._conversation.agent_of(id)

        def report(progress: Progress) -> None:
            self._conversation.put(
                ClaudeToolProgress(
                    id, entry.address, progress.progress, progress.total, progress.message, agent
                )
            )

        return report


def _redactor_of(variables: Mapping[str, str]) -> Redactor:
    return Redactor([value for name, value in variables.items() if _SECRET_NAME.search(name)])


# Answers from Claude Code


class _Initialized(Struct):
    claude_code_version: str = ""
    capabilities: list[str] = []


class _Interrupted(Struct):
    still_queued: list[str] = []
