"""One inspection: a separate connection to a server, and the calls a person makes with it."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from interlock import aio, revisions, schema
from interlock.auth import Principal
from interlock.calls import Call, Caller, CallHandler, Entry, Item, Outcome
from interlock.calls.endings import ending_of, reason_of
from interlock.errors import (
    AskRefused,
    CallRefused,
    InterlockError,
    InvalidArguments,
    SchemaError,
    UnknownTool,
)
from interlock.layers import Layers
from interlock.policy import Policy
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode
from interlock.server.http.json_api import not_found
from interlock.text.redaction import redact_value
from interlock.text.timestamps import now_micros, rfc3339
from interlock.toolbox import Toolbox
from interlock.toolbox.user_credentials import UserCredentials
from interlock.transports import InProcessServer
from interlock.types import ElicitParams, JsonObject, ReadResourceResult
from interlock.web.app_documents import AppDocument, app_of, unavailable
from interlock.web.chat.questions import ASKABLE
from interlock.web.inspector.connection import InspectedConnection, kind_of
from interlock.web.inspector.remarks import Remark, WireRemarks, of_items
from interlock.web.inspector.result_parts import ResultPart
from interlock.web.inspector.wire import InspectedWire

if TYPE_CHECKING:
    from interlock.config import ServerConfig
    from interlock.store.approvals import Approval

HISTORY = 50  # ended calls that are kept
KEPT_RESULT = 256 * 1024  # bytes; a larger result is not kept with its call
# With a gateway, these methods are sent although no policy covers them, because they only read.
_READING = frozenset(
    {
        "ping",
        "server/discover",
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
        "completion/complete",
        "logging/setLevel",
    }
)


class Host(Struct, frozen=True):
    """The parts of the program that inspections use.

    Attributes:
        servers: Returns the servers by name, as for `Toolbox`.
        layers: Returns the layers around every call.
        policy: Returns the current policy.
        toolbox: The toolbox with the servers that all users share.
        checks_pins: Returns whether definitions must be accepted before they are called.
        environ: The environment variables that replace `${VAR}`.
        path: The configuration file; None without a file.
        credentials: The users' credentials; None if the local user is the only one.
        principal_of: Finds the owner of an API key by the key's id; None if there are no keys.
        is_local: Whether the person at this machine is the only user, and may start any program.
        has_gateway: Whether the policy is a gateway's, so that every request must pass it.
        on_stderr: Called with what the servers' programs write to stderr.
    """

    servers: Callable[[], Mapping[str, ServerConfig | InProcessServer]]
    layers: Callable[[], Layers]
    policy: Callable[[], Policy]
    toolbox: Toolbox
    checks_pins: Callable[[], bool]
    environ: Mapping[str, str]
    path: Path | None = None
    credentials: UserCredentials | None = None
    principal_of: Callable[[str], Awaitable[Principal]] | None = None
    is_local: bool = False
    has_gateway: bool = False
    on_stderr: Callable[[str], object] = lambda _: None


class Inspection:
    """One person's inspection of one server.

    Args:
        host: The parts of the program that the inspection uses.
        name: The server's name.
        server: The server's configuration.
        caller: The person, as the caller of tools.
        seen_as: The API key whose rights are shown, and its owner; None shows the rights of the
            person.

    Attributes:
        id: The inspection's id, which cannot be guessed.
        wire: Records the connection's messages.
        connection: The connection to the server.
        version: A number that changes when the state, a list, the history or a question changes.
        history: The calls that have ended, oldest first.
    """

    def __init__(
        self,
        host: Host,
        name: str,
        server: ServerConfig | InProcessServer,
        caller: Caller,
        seen_as: tuple[str, Caller] | None = None,
    ) -> None:
        self.id = f"i_{secrets.token_urlsafe(12)}"
        self.wire = InspectedWire(host.on_stderr)
        self.version = 1
        self.history: deque[JsonObject] = deque(maxlen=HISTORY)
        self.caller = caller
        self.seen_as = seen_as
        self.host = host
        self.connection = InspectedConnection(
            name,
            server,
            environ=host.environ,
            wire=self.wire,
            on_change=self._changed,
            owner=caller.owner,
            credentials=host.credentials,
        )
        self._running: dict[str, asyncio.Task[Outcome]] = {}
        self._asks: dict[str, tuple[JsonObject, asyncio.Future[JsonObject]]] = {}
        self._wire_remarks = WireRemarks()
        self._remarked_lists: tuple[str, dict[str, list[JsonObject]]] = "", {}
        self._remarks: list[Remark] = []
        self._raw: dict[str, Raw] = {}  # results that violate their schema, by call
        self._large: tuple[str, Any] = "", None  # the last call with a large result, and the result

    def _changed(self) -> None:
        self.version += 1
        self.wire.wake()

    async def close(self) -> None:
        running = [*self._running.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self.connection.close()
        self._changed()

    # State for the page

    def shown(self) -> JsonObject:
        """Return the inspection's state as JSON for the page, without secrets."""
        connection, client = self.connection, self.connection.client
        shown: JsonObject = {
            "id": self.id,
            "server": connection.name,
            "kind": kind_of(connection.server),
            "era": connection.era,
            "state": connection.state,
            "reason": connection.reason,
            "revision": "",
            "as": self.seen_as[0] if self.seen_as is not None else "",
            "version": self.version,
            "tools": [self._tool(each) for each in connection.tools.entries],
            "unusable": [
                {"name": each.name, "problem": each.detail} for each in connection.tools.unusable
            ],
            "problems": connection.problems,
            "remarks": msgspec.to_builtins(self._remarked()),
            "history": list(self.history),
            "running": list(self._running),
            "asks": [shown for shown, _ in self._asks.values()],
        }
        for kind, items in connection.items.items():
            shown[kind] = [self._item(kind, each) for each in items]
        if client is not None:
            info = client.server_info
            shown |= {
                "revision": client.revision,
                "serverInfo": f"{info.name} {info.version}".strip(),
                "instructions": client.instructions,
                "capabilities": msgspec.to_builtins(client.capabilities),
            }
        clean: JsonObject = redact_value(shown, connection.redactor)
        return clean

    def _remarked(self) -> list[Remark]:
        connection = self.connection
        revision = connection.client.revision if connection.client is not None else ""
        lists = {
            "tool": connection.tools.listing.definitions,
            "resource": connection.items["resources"],
            "template": connection.items["resourceTemplates"],
            "prompt": connection.items["prompts"],
        }
        if (revision, lists) != self._remarked_lists:
            self._remarked_lists = revision, lists
            self._remarks = [
                each
                for kind, items in lists.items()
                for each in of_items(kind, items, revision or revisions.NEWEST)
            ]
        return [*self._remarks, *self._wire_remarks.update(self.wire.entries(), revision)]

    def _tool(self, entry: Entry) -> JsonObject:
        definition: JsonObject = msgspec.json.decode(entry.definition)
        definition["name"] = entry.tool.name
        return {"definition": definition, **self._rights(entry)}

    def _item(self, kind: str, definition: JsonObject) -> JsonObject:
        if kind == "resourceTemplates":
            return {"definition": definition}
        name = definition["uri" if kind == "resources" else "name"]
        item = Item("resources" if kind == "resources" else "prompts", self.connection.name, name)
        return {"definition": definition, **self._rights(item)}

    def _rights(self, entry: Entry | Item) -> JsonObject:
        """Return the policy's decision about an item, and the reason, for the selected caller."""
        caller = self.seen_as[1] if self.seen_as is not None else self.caller
        decision = self.host.policy().decide(caller, entry)
        if decision.effect == "allow" or (decision.effect == "ask" and not self.host.has_gateway):
            return {"effect": "allow", "risk": decision.risk}
        reason = decision.reason or ""
        return {
            "effect": decision.effect,
            "risk": decision.risk,
            "reason": reason,
            "rule": decision.rule,
        }

    # Calling

    async def restart(self, era: str) -> None:
        """Reconnect, and clear the remarks on messages from the earlier connection."""
        self._wire_remarks.clear()
        await self.connection.restart(era)

    async def send(
        self, method: str, params: JsonObject, *, checks: bool = True, by_app: bool = False
    ) -> JsonObject:
        """Send a request; return its card, which states how it ended, and the result.

        Args:
            method: An MCP method.
            params: The request's params, without `_meta`.
            checks: Whether to refuse arguments that violate the tool's schema.
            by_app: Whether the server's app makes the call, instead of the person.
        """
        call = self._call(self._target(method, params), _arguments(params), by_app=by_app)
        card: JsonObject = {
            "call": call.id,
            "method": method,
            "address": call.entry.address,
            "name": call.name,
            "arguments": call.arguments,
            "params": params,
            "at": rfc3339(now_micros()),
        }
        began, first = monotonic(), self.wire.last
        try:
            outcome = await self._made(method, params, call, checks=checks)
        except InterlockError as error:
            card |= {"state": ending_of(error), "reason": reason_of(error), "text": str(error)}
            raw = self._raw.pop(call.id, None)
            if card["reason"] == "approval_pending":
                card["state"] = "asking"
        else:
            raw = outcome.raw
            is_failed = method == "tools/call" and outcome.is_error
            card |= {"state": "failed" if is_failed else "ran", "reason": "tool_error" * is_failed}
        card["ms"] = round((monotonic() - began) * 1000, 1)
        card["entries"] = [first + 1, self.wire.last]
        if raw is not None:
            card |= {"size": len(raw), "result": msgspec.json.decode(raw)}
            card["check"] = self._check(call, card["result"])
        clean: JsonObject = redact_value(card, self.connection.redactor)
        kept = dict(clean)
        if clean.get("size", 0) > KEPT_RESULT:
            kept["result"] = None
            self._large = call.id, clean["result"]
            part = ResultPart(clean["result"])
            clean |= {"result": part.value, "cuts": part.cuts}
        self.history.append(kept)
        self._changed()
        return clean

    def result(self, call: str) -> Any:
        """Return the whole result of the last call whose result was large.

        Raises:
            Problem: A later call has replaced it.
        """
        if call != self._large[0]:
            raise not_found("this result is no longer kept; call again")
        return self._large[1]

    def _call(self, target: Entry | Item, arguments: JsonObject, *, by_app: bool) -> Call:
        caller = self.caller
        if by_app:
            caller = Caller(caller.principal, surface="app", address=caller.address)
        back = _Back(self, by_app=by_app)
        return Call(target, arguments, caller, back=back, capabilities=ASKABLE)

    async def app(self, tool: str) -> JsonObject:
        """Return a tool's app: its document, and the data with which the page shows it.

        Raises:
            Problem: The tool has no app, or the app cannot be read.
        """
        entry = self.connection.entry(tool)
        uri = app_of(entry).uri if entry is not None else ""
        if entry is None or not uri:
            raise not_found("this tool has no app")
        item = Item("resources", self.connection.name, uri)
        try:
            call = self._call(item, {}, by_app=True)
            outcome = await self._made("resources/read", {"uri": uri}, call, checks=True)
            result = decode(ReadResourceResult, outcome.raw, "resources/read result")
        except InterlockError as error:
            raise unavailable(error) from None
        found = AppDocument.of(result, uri, self.connection.items["resources"])
        return {
            "document": found,
            "hasBorder": found.has_border,
            "server": self.connection.name,
            "tool": self._tool(entry)["definition"],
        }

    def is_for_apps(self, tool: str) -> bool:
        entry = self.connection.entry(tool)
        return entry is not None and "app" in app_of(entry).visibility

    def _target(self, method: str, params: JsonObject) -> Entry | Item:
        server = self.connection.name
        if method == "tools/call":
            name = _text(params, "name")
            return self.connection.entry(name) or Item("tools", server, name)
        if method == "resources/read":
            return Item("resources", server, _text(params, "uri"))
        if method == "prompts/get":
            return Item("prompts", server, _text(params, "name"))
        return Item("tools", server, method)

    async def _made(self, method: str, params: JsonObject, call: Call, *, checks: bool) -> Outcome:
        task = asyncio.ensure_future(self._passed(method, params, call, checks=checks))
        self._running[call.id] = task
        self._changed()
        try:
            return await task
        except asyncio.CancelledError:
            if task.cancelled() and not aio.is_cancelled():
                raise CallRefused("the user stopped this call", "cancelled") from None
            raise
        finally:
            del self._running[call.id]

    async def _passed(
        self, method: str, params: JsonObject, call: Call, *, checks: bool
    ) -> Outcome:
        if method not in ("tools/call", "resources/read", "prompts/get"):
            if self.host.has_gateway and method not in _READING:
                text = f"{method} is not sent: no policy covers it"
                raise CallRefused(text, "method_not_covered")
            return Outcome(Raw(await self.connection.request(method, params)))
        await self.connection.ready()  # the tools are unknown until then
        call = msgspec.structs.replace(call, entry=self._accepted(self._target(method, params)))
        if self.seen_as is not None:
            self._check_rights(call, *self.seen_as)
        validation = self._validation if checks else None
        return await self.host.layers().build(self._sent, validation)(call)

    def _validation(self, handle: CallHandler) -> CallHandler:
        async def validated(call: Call) -> Outcome:
            if isinstance(call.entry, Entry):
                errors = self.connection.tools.errors(call.name, call.arguments, echo=True)
                if errors:
                    raise InvalidArguments(f"{call.entry.address}: {'; '.join(errors)}")
            return await handle(call)

        return validated

    async def _sent(self, call: Call) -> Outcome:
        first, began = self.wire.last, monotonic()
        try:
            return await self.connection.send(call)
        except InterlockError:
            answer = self.wire.answer(call.method, call.name, first)
            if answer is not None:  # the result violates the tool's schema, but is shown
                self._raw[call.id] = Raw(msgspec.json.encode(_result_of(answer.text)))
            raise
        finally:
            if call.timing is not None:
                call.timing.at_server = monotonic() - began

    def _accepted(self, entry: Entry | Item) -> Entry | Item:
        """Return the tool or prompt with the definition that the operator accepted."""
        if isinstance(entry, Item):
            unusable = {each.name: each.detail for each in self.connection.tools.unusable}
            if entry.kind == "tools" and entry.name in unusable:
                raise UnknownTool(f"{entry.address} cannot be called: {unusable[entry.name]}")
        if not self.host.checks_pins() or entry.server not in self.host.toolbox.upstreams:
            return entry
        for each in self.host.toolbox.tools:
            if each.address == entry.address:
                if isinstance(entry, Entry) and each.definition == entry.definition:
                    return each
                break
        if isinstance(entry, Item) and entry.kind == "resources":
            return entry
        prompts = self.host.toolbox.upstreams[entry.server].items["prompts"]
        if isinstance(entry, Item) and entry.name in [each.name for each in prompts]:
            return entry
        text = f"{entry.address} is held: this definition is not accepted; see the pins"
        raise CallRefused(text, "tool_quarantined")

    def _check_rights(self, call: Call, key: str, caller: Caller) -> None:
        """Raise an error if the key whose rights are shown may not make a call."""
        decision = self.host.policy().decide(caller, call.entry, call.arguments)
        if decision.effect == "deny":
            by = f" by rule {decision.rule}" if decision.rule else ""
            text = f"{call.entry.address} is denied for key {key}{by} ({decision.reason})"
            raise CallRefused(text, decision.reason)
        if decision.effect == "ask":
            text = f"a call of {call.entry.address} by key {key} waits for approval by "
            raise CallRefused(text + " or ".join(decision.approvers), "approval_required")

    def stop(self, call: str) -> bool:
        """Stop the call with an id; return whether it was running."""
        task = self._running.get(call)
        return task is not None and task.cancel()

    def problems(self, tool: str, arguments: JsonObject) -> list[str]:
        """Check arguments against a tool's schema; return the problems that a call would report."""
        return self.connection.tools.errors(tool, arguments, echo=True)

    def _check(self, call: Call, result: Any) -> list[str] | None:
        """Return where a result violates its output schema; None if the tool has no such schema."""
        entry = self.connection.entry(call.name) if call.method == "tools/call" else None
        if entry is None or entry.tool.output_schema is None:
            return None
        if not isinstance(result, dict) or "structuredContent" not in result:
            return ["the tool has an outputSchema, but the result has no structuredContent"]
        try:
            validator = schema.compile(encode(entry.tool.output_schema), member="member")
        except SchemaError as error:
            return [f"outputSchema: {error}"]
        return validator.errors(result["structuredContent"], 20)

    # Questions

    async def ask(self, shown: JsonObject, timeout: float) -> JsonObject:
        """Ask the person, and return the answer; its action is "cancel" after `timeout` seconds."""
        id = f"q_{secrets.token_urlsafe(9)}"
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._asks[id] = {"id": id, **shown}, answer
        self._changed()
        try:
            async with asyncio.timeout(timeout):
                return await answer
        except TimeoutError:
            return {"action": "cancel"}
        finally:
            del self._asks[id]
            self._changed()

    def answer(self, id: str, answer: JsonObject) -> bool:
        """Answer the open question with this id; return False if no such question is open."""
        found = self._asks.get(id)
        if found is None or found[1].done():
            return False
        found[1].set_result(answer)
        return True


class _Back:
    """The `BackChannel` of a manual call: the page shows the server's questions."""

    def __init__(self, inspection: Inspection, *, by_app: bool = False) -> None:
        self._inspection = inspection
        self._by_app = by_app

    @property
    def caller(self) -> Hashable:
        return self._inspection.id

    def notify(self, method: str, params: bytes) -> None:
        """Do nothing: the page shows notifications in the list of messages."""

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        if method != "elicitation/create":
            raise AskRefused(f"the inspector does not support {method}", "cannot_ask")
        given: JsonObject = msgspec.json.decode(params)
        msgspec.convert(given, ElicitParams)
        answer = await self._inspection.ask({"kind": "question", "params": given}, timeout)
        return Raw(encode(answer))

    def close_stream(self, retry_ms: int) -> None:
        """Do nothing: the page uses no stream for a call."""

    async def approve(self, call: Call, approval: Approval | None) -> bool | None:
        """Ask the person whether the call may run; without a gateway, calls by the person may."""
        if not self._inspection.host.has_gateway and not self._by_app:
            return True  # the person has just specified the exact call
        shown: JsonObject = {
            "kind": "approval",
            "byApp": self._by_app,
            "approval": approval.id if approval is not None else "",
            "address": call.entry.address,
            "arguments": call.arguments,
            "rule": call.decision.rule if call.decision is not None else "",
        }
        answer = await self._inspection.ask(shown, 600.0)
        return None if answer["action"] == "cancel" else bool(answer["action"] == "accept")


def _text(params: JsonObject, name: str) -> str:
    value = params.get(name)
    if not isinstance(value, str) or not value:
        raise InvalidArguments(f"params has no text {name!r}")
    return value


def _arguments(params: JsonObject) -> JsonObject:
    given = params.get("arguments")
    return given if isinstance(given, dict) else {}


def _result_of(text: str) -> Any:
    try:
        return msgspec.json.decode(text)["result"]
    except (msgspec.DecodeError, KeyError):
        return None
