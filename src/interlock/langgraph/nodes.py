"""The nodes of a chat graph."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from time import monotonic
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.tools import BaseTool
from langgraph.errors import GraphBubbleUp
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.runtime import Runtime
from langgraph.types import interrupt

from interlock import aio
from interlock.agent import ToolFinished, ToolStarted
from interlock.agent.events import approval_hash
from interlock.agent.tool_calls import MAX_CALLS, TOO_MANY_CALLS
from interlock.calls import Call, Caller, Entry
from interlock.calls.call import new_call_id
from interlock.config import ToolSearch
from interlock.errors import InterlockError, StepLimit
from interlock.langchain.history import INTERRUPTED, closed, fitted, last_calls, open_calls
from interlock.langchain.messages import Finished, message
from interlock.langchain.tool import LANGCHAIN, LangChainTool, need_reader, reporter, run, tools
from interlock.langchain.tool_search import as_tools, free_rounds, searched
from interlock.langchain.user_images import with_user_images
from interlock.langgraph.answers import ask, normalized
from interlock.langgraph.state import (
    Approve,
    ChatContext,
    ChatState,
    InvalidInput,
    ModelSource,
    ToolSource,
)
from interlock.schema.portable import portable
from interlock.toolbox import Tools

MAX_ROUNDS = 10
MAX_INPUT = 32 * 1024  # characters of a user's message
MAX_BOUND = 32  # bound models that are cached
APPROVAL_SECONDS = 86_400
REFUSALS = {
    "approval_denied": "a person denied it",
    "approval_expired": "the time to allow it was over",
    "approval_changed": "it was not allowed with these arguments",
}
_log = logging.getLogger("interlock.langgraph")


def about_call(message: AnyMessage) -> dict[str, Any]:
    """Return the data that interlock stores with a LangChain message."""
    found: dict[str, Any] = message.additional_kwargs.get("interlock", {})
    return found


def too_many(messages: Sequence[AnyMessage]) -> set[str]:
    """Return the ids of the last answer's calls that exceed the limit and do not run."""
    calls, _ = last_calls(messages)
    return {each["id"] for each in calls[MAX_CALLS:]}


class Nodes:
    """The node functions of a chat graph, with the options of `chat_graph`."""

    def __init__(
        self,
        model: ModelSource,
        toolbox: ToolSource,
        *,
        system: str | None,
        max_rounds: int,
        max_input: int,
        approve: Approve | None,
        local_tools: Sequence[BaseTool],
        images: int,
        bind_options: dict[str, Any],
        search: ToolSearch,
    ) -> None:
        self._model = _named_model(model) if isinstance(model, str) else model
        self._toolbox = toolbox
        self._system = [SystemMessage(system)] if system else []
        self._max_rounds = max_rounds
        self._max_input = max_input
        self._approve = approve
        self._local = {each.name: each for each in local_tools}
        self._images = images
        self._bind_options = bind_options
        self._search = search
        self._bound: dict[tuple[int, int, bool], tuple[Any, Tools | None, int, Any]] = {}
        self._warned: set[str] = set()

    # Nodes

    async def validate(self, state: ChatState, runtime: Runtime[ChatContext]) -> dict[str, Any]:
        """Check the user's message, and add an answer to each call that lacks one."""
        messages = state["messages"]
        if runtime.context is None or runtime.context.begins_at is None:
            self._check_input(messages[-1] if messages else None)
        repaired = closed(messages)
        # `add_messages` can only append, so replace the whole list to insert answers.
        if repaired is None:
            return {}
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *repaired]}

    def _check_input(self, message: AnyMessage | None) -> None:
        if not isinstance(message, HumanMessage):
            raise InvalidInput("the last message is not a message of the user")
        size = len(message.text)
        if not message.text.strip() and isinstance(message.content, str):
            raise InvalidInput("the message is empty")
        if size > self._max_input:
            raise InvalidInput(
                f"the message is too long ({size:,} characters, limit {self._max_input:,})"
            )

    async def ask_model(self, state: ChatState, runtime: Runtime[ChatContext]) -> dict[str, Any]:
        """Send the conversation to the model, with the current tools."""
        context = runtime.context or ChatContext()
        messages = state["messages"]
        if _rounds(messages[context.begins_at or 0 :]) >= self._max_rounds:
            raise StepLimit(self._max_rounds)
        toolbox = self._toolbox_of(context)
        if toolbox is not None:
            await aio.run_in(toolbox.loop, toolbox.refresh)
        model: Any = self._model if isinstance(self._model, BaseChatModel) else self._model(context)
        request = [*self._system, *with_user_images(model, fitted(messages))]
        write = runtime.stream_writer if context.streams else None
        bound = self._with_tools(model, toolbox, context.caller, messages)
        answer = await ask(bound, request, write)
        answer = normalized(answer, _ids(messages))
        if self._approve is not None and answer.tool_calls:
            about = {**about_call(answer), "at": datetime.now(UTC).isoformat(timespec="seconds")}
            extra = {**answer.additional_kwargs, "interlock": about}
            answer = answer.model_copy(update={"additional_kwargs": extra})
        return {"messages": [answer], "live": {}}

    async def ask_approval(self, state: ChatState, runtime: Runtime[ChatContext]) -> dict[str, Any]:
        """Interrupt the run until a person has decided about the calls that need it.

        LangGraph runs this node again from its first line when the run is resumed.
        """
        context = runtime.context or ChatContext()
        waiting = self._approvals(state, context)
        if not waiting:
            return {"live": {}}
        decisions = interrupt({"approvals": waiting})
        refused = {
            each["tool_call_id"]: why for each in waiting if (why := refusal(each, decisions))
        }
        return {"live": refused}

    async def run_tool(self, task: dict[str, Any], runtime: Runtime[ChatContext]) -> dict[str, Any]:
        """Run one call; return exactly one message for it, even if the call fails."""
        context = runtime.context or ChatContext()
        call, write = task["call"], runtime.stream_writer
        toolbox = self._toolbox_of(context)
        entry = _find(toolbox, call["name"], context.caller)
        address = entry.address if entry is not None else call["name"]
        arguments = _arguments(entry, call)
        id, started = new_call_id(), monotonic()
        write(ToolStarted(call["id"], address, arguments, call_id=id))
        answer: ToolMessage | None = None
        if (refusal := self._why_not(task, entry, toolbox, runtime)) is not None:
            done = refusal
        elif call["name"] in self._local:
            done, answer = await _run_local(self._local[call["name"]], call)
        elif toolbox is None:
            done = Finished(f"error: no tool {call['name']!r}", True, "failed")
        else:
            report = reporter(call["id"], write)
            done = await aio.run_in(
                toolbox.loop,
                lambda: run(
                    toolbox,
                    call["name"],
                    arguments,
                    caller=context.caller,
                    progress=report,
                    images=self._images,
                    id=id,
                    tool_call_id=call["id"],
                    around=context.around,
                    explains=task.get("unread", False),
                ),
            )
        seconds = monotonic() - started
        write(
            ToolFinished(
                *(call["id"], address, arguments, done.text, done.is_error, seconds),
                call_id=id,
                ending=done.ending,
                reason=done.reason,
            )
        )
        facts = {"address": address, "call_id": id, "seconds": round(seconds, 6)}
        return {"messages": [answer or message(done, call, facts)]}

    # Helpers

    def _toolbox_of(self, context: ChatContext) -> Tools | None:
        found: Any = self._toolbox  # a function, or any `Tools`
        return found if found is None or hasattr(found, "handle") else found(context)

    def _with_tools(
        self, model: Any, toolbox: Tools | None, caller: Caller, messages: Sequence[AnyMessage]
    ) -> Any:
        """Return the model with the tools of a request."""
        selects = getattr(model, "selects_tools", False)  # as `Model` describes
        if toolbox is None or selects or self._search.mode == "off":
            return self._with_all_tools(model, toolbox, need_reader(messages))
        defers = getattr(model, "defers_tools", False)
        entries = toolbox.tools
        found = searched(toolbox, entries, caller, messages, self._search, defers=defers)
        if found is None:
            return self._with_all_tools(model, toolbox, need_reader(messages))
        options = dict(self._bind_options)
        if defers:
            options["deferred"] = {each.entry.wire_name for each in found if each.deferred}
        offered = self._with_local(as_tools(toolbox, found, LANGCHAIN, 0))
        return model.bind_tools(offered, **options)

    def _with_local(self, found: Sequence[LangChainTool]) -> list[BaseTool]:
        for name in self._local.keys() & {each.name for each in found} - self._warned:
            self._warned.add(name)
            _log.warning("local tool %r hides the one of the toolbox", name)
        return [*self._local.values(), *(each for each in found if each.name not in self._local)]

    def _with_all_tools(self, model: Any, toolbox: Tools | None, reader: bool) -> Any:
        """Return the model with all tools; bind them again only if they have changed."""
        key = id(model), id(toolbox), reader
        version = 0 if toolbox is None else toolbox.version
        known = self._bound.get(key)
        if known is not None and known[:3] == (model, toolbox, version):
            return known[3]
        found = [] if toolbox is None else [t.renamed() for t in tools(toolbox, reader=reader)]
        offered = self._with_local(found)
        bound = model.bind_tools(offered, **self._bind_options) if offered else model
        if len(self._bound) >= MAX_BOUND:
            del self._bound[next(iter(self._bound))]
        self._bound[key] = model, toolbox, version, bound
        return bound

    def _why_not(
        self,
        task: dict[str, Any],
        entry: Entry | None,
        toolbox: Tools | None,
        runtime: Runtime[ChatContext],
    ) -> Finished | None:
        if task.get("malformed") is not None:
            text = f"error: the arguments are not a JSON object: {task['malformed']}"
            return Finished(text, True, "failed")
        if task.get("too_many"):
            return Finished(TOO_MANY_CALLS, True, "refused")
        if (refused := task.get("refused")) is not None:
            text = "error: the call was not made: " + REFUSALS[refused]
            return Finished(text, True, "refused", refused)
        if task.get("live") or (toolbox and entry and toolbox.may_repeat(entry)):
            return None
        if task["call"]["name"] in self._local and _is_resumed(runtime):
            return None
        return Finished(INTERRUPTED, True, "stopped")

    def _approvals(self, state: ChatState, context: ChatContext) -> list[dict[str, Any]]:
        if self._approve is None:
            return []
        about = about_call(state["messages"][-1])
        at = about.get("at")
        asked = datetime.fromisoformat(at) if at else datetime.now(UTC)
        expires = (asked + timedelta(seconds=APPROVAL_SECONDS)).isoformat().replace("+00:00", "Z")
        found = []
        skipped = {*about.get("malformed", ()), *too_many(state["messages"])}
        for call in open_calls(state["messages"]):
            toolbox = self._toolbox_of(context)
            entry = _find(toolbox, call["name"], context.caller)
            if toolbox is None or entry is None or call["name"] in self._local:
                continue
            if call["id"] in skipped:
                continue
            made = Call(entry, _arguments(entry, call), context.caller)
            toolbox.convert_arguments(made)
            reason = self._approve(context, entry, made.arguments)
            if reason is not None:
                sent = {**call, "args": made.arguments}
                found.append(approval_of(sent, entry, reason, expires))
        return found


def _rounds(messages: Sequence[AnyMessage]) -> int:
    turn: list[AIMessage] = []
    for each in reversed(messages):
        if isinstance(each, HumanMessage):
            break
        if isinstance(each, AIMessage) and each.tool_calls:
            turn.append(each)
    return len(turn) - free_rounds(turn)


def _ids(messages: Sequence[AnyMessage]) -> list[str]:
    return [
        str(call["id"])
        for each in messages
        if isinstance(each, AIMessage)
        for call in each.tool_calls
    ]


def _is_resumed(runtime: Runtime[ChatContext]) -> bool:
    """Return whether an interrupt ended an earlier run of this task."""
    context, info = runtime.context or ChatContext(), runtime.execution_info
    return info is not None and info.task_id in context.resumed


def _find(toolbox: Tools | None, name: str, caller: Caller) -> Entry | None:
    if toolbox is None:
        return None
    try:
        return toolbox.find(name, caller)
    except InterlockError:
        return None


def _arguments(entry: Entry | None, call: Any) -> dict[str, Any]:
    """Return a call's arguments with the server's names."""
    given: dict[str, Any] = call["args"]
    return given if entry is None else portable(entry.input_schema).to_server(given)


def _named_model(name: str) -> BaseChatModel:
    try:
        from langchain.chat_models import init_chat_model
    except ModuleNotFoundError:
        text = f"model {name!r} is given by name: pip install 'langchain>=1.4,<2'"
        raise ImportError(text) from None
    return init_chat_model(name)


async def _run_local(tool: BaseTool, call: Any) -> tuple[Finished, ToolMessage | None]:
    try:
        result = await tool.ainvoke({**call, "type": "tool_call"})
    except GraphBubbleUp:  # an interrupt, for example
        raise
    except Exception as error:
        _log.warning("local tool %s failed", tool.name, exc_info=True)
        return Finished(f"error: {error}", True, "failed"), None
    if not isinstance(result, ToolMessage):
        return Finished(str(result)), None
    is_error = result.status == "error"
    return Finished(str(result.text), is_error, "failed" if is_error else "ran"), result


# Approvals


def approval_of(call: Any, entry: Entry, reason: str, expires: str) -> dict[str, Any]:
    """Describe a call for the person who decides. The approval's id depends on the arguments."""
    hash = approval_hash(entry.address, call["args"])
    return {
        "id": "a_" + hashlib.sha256(f"{call['id']} {hash}".encode()).hexdigest()[:24],
        "tool_call_id": call["id"],
        "address": entry.address,
        "arguments": call["args"],
        "reason": reason,
        "expires": expires,
        "hash": hash,
    }


def refusal(approval: dict[str, Any], decisions: Any) -> str | None:
    """Return the code for why a call is not allowed; None if it is allowed."""
    given = decisions.get(approval["id"]) if isinstance(decisions, dict) else None
    if given is None:
        return "approval_changed"
    if isinstance(given, str):
        given = {"decision": given}
    if given.get("hash", approval["hash"]) != approval["hash"]:
        return "approval_changed"
    if datetime.fromisoformat(approval["expires"]) < datetime.now(UTC):
        return "approval_expired"
    return None if given.get("decision") == "allow" else "approval_denied"
