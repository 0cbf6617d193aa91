"""One decision for each tool call, no matter how often Claude Code asks for it.

Claude Code may ask about one call up to three times: with a hook, with a permission request, and
when it calls the tool. Rules:

1. The first request makes the decision, and later requests get the same decision. They are matched
   by the call's id, or by tool and arguments, because old programs send no id.
2. An allowed call runs once, and with exactly the arguments that were allowed.
3. There is always a decision. The call is denied if the decision raises an exception, is malformed,
   comes too late, or is withdrawn by Claude Code.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.calls import Caller, Entry
from interlock.config.gateway import BUILT_IN, OWN
from interlock.policy import Policy
from interlock.types import JsonObject

MAX_DECISIONS = 4_096  # decisions that are kept
ASK_USER = f"{BUILT_IN}:AskUserQuestion"
UNCHANGEABLE = (
    "the user allows this call with other arguments only, and this version of Claude Code would"
    " ignore them"
)
BROKEN = "the decision failed because of a bug in the host program"
_EXACT = 2**53  # larger integers lose digits in Claude Code, which is JavaScript

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode
_log = logging.getLogger("interlock.claude")


class PermissionRequest(Struct, frozen=True):
    """A tool call that needs a decision.

    Attributes:
        address: "server:tool"; Claude Code's own tools have the server "claude-built-in".
        arguments: JSON values by parameter name.
        id: The call's id; "" from versions of Claude Code before 2.1.
        agent: The subagent that makes the call; "" if Claude itself makes it.
        title: The text with which Claude Code itself would ask a person; often "".
        suggestions: Permission rules that Claude Code suggests, for display only.
        is_allowed: Whether the policy allows the call without asking anyone.
    """

    address: str
    arguments: JsonObject
    id: str = ""
    agent: str = ""
    title: str = ""
    suggestions: tuple[JsonObject, ...] = ()
    is_allowed: bool = False


class Allow(Struct, frozen=True):
    """Allow the call.

    Attributes:
        arguments: Arguments that replace the call's; None keeps them.
        remember: Whether to allow later calls of this tool until the session is closed.
    """

    arguments: JsonObject | None = None
    remember: bool = False


class Deny(Struct, frozen=True):
    """Deny the call. The model reads `message`; `interrupt` also ends the turn."""

    message: str = "denied by the user"
    interrupt: bool = False


Decide = Callable[[PermissionRequest], Awaitable[Allow | Deny]]
"""Decides about one tool call of Claude Code."""
Check = Callable[[PermissionRequest], Deny | Allow | None]
AnswerQuestions = Callable[[list[JsonObject]], Awaitable[Mapping[str, str] | None]]


async def allow_all(_: PermissionRequest) -> Allow:
    """Allow every call, for use where the layers around the calls decide."""
    return Allow()


def check_by(policy: Policy, find: Callable[[str], Entry], caller: Caller) -> Check:
    """Return a function that checks calls against a policy; `find` returns the tool at an address.

    The check returns None if a call needs an approval that the caller may give.
    """

    def check(request: PermissionRequest) -> Allow | Deny | None:
        decision = policy.decide(caller, find(request.address), request.arguments)
        if decision.effect == "allow":
            return Allow()
        if decision.effect == "ask" and "caller" in decision.approvers:
            return None
        by = f" by rule {decision.rule}" if decision.rule else ""
        return Deny(f"{request.address} is denied{by} ({decision.reason})")

    return check


class _Decision:
    """A decision about one call; until it is made, the verdict is a denial."""

    def __init__(self, request: PermissionRequest) -> None:
        self.request = request
        self.verdict: Allow | Deny = Deny("the decision was cancelled")
        self.made = asyncio.Event()
        self.is_used = False


class Decisions:
    """Decides about tool calls, and returns the same decision when a call is asked about again.

    Args:
        decide: Decides about a request; None allows only tools from our servers.
        timeout: Seconds for `decide`.
        check: Checks the policy before `decide`. A `Deny` is final; an `Allow` is the decision only
            if `decide` is None; None leaves the decision to `decide`.
        answer_questions: Answers Claude's questions to the user; they arrive as calls of a tool.
        can_change: Returns whether changed arguments of the tool at this address would take effect.
        on_deny: Called with each denied request and its denial.
        convert: Returns a request's arguments as the tool will get them.
        enter: Takes each allowed call of Claude Code's own tools through the layers, and makes the
            final decision.
    """

    def __init__(
        self,
        decide: Decide | None,
        timeout: float,
        *,
        check: Check | None = None,
        answer_questions: AnswerQuestions | None = None,
        can_change: Callable[[str], bool] = lambda _: True,
        on_deny: Callable[[PermissionRequest, Deny], None] = lambda *_: None,
        convert: Callable[[PermissionRequest], JsonObject] = lambda request: request.arguments,
        enter: Decide | None = None,
    ) -> None:
        self._decide = decide
        self._timeout = timeout
        self._check = check
        self._answer_questions = answer_questions
        self._can_change = can_change
        self._on_deny = on_deny
        self._convert = convert
        self._enter = enter
        self._decisions: dict[object, _Decision] = {}
        self._remembered: set[str] = set()

    def made(self, request: PermissionRequest) -> Allow | Deny | None:
        """Return the decision about a call; None if it has not been made yet."""
        decision = self._find(request)
        return decision.verdict if decision is not None and decision.made.is_set() else None

    async def of(self, request: PermissionRequest) -> Allow | Deny:
        """Return the decision about a call, making it if needed; an `Allow` has `arguments`."""
        return (await self._decided(request)).verdict

    async def use(self, request: PermissionRequest) -> Allow | Deny:
        """Return the decision about a call that is about to run; it can be used only once."""
        decision = await self._decided(request)
        verdict = decision.verdict
        if isinstance(verdict, Deny):
            return verdict
        if decision.is_used:
            return self._denied(request, "this call has run already")
        decision.is_used = True
        if request.address != decision.request.address or not (
            _is_same(request.arguments, decision.request.arguments)
            or _is_same(request.arguments, verdict.arguments)
        ):
            return self._denied(request, "this call differs from the one that was allowed")
        return verdict

    async def _decided(self, request: PermissionRequest) -> _Decision:
        """Make the decision in the first task that needs it; other tasks wait for it."""
        decision = self._find(request)
        if decision is not None:
            if not decision.made.is_set():
                await decision.made.wait()
            return decision
        decision = self._remember(request)
        try:
            decision.verdict = await self._make(request)
        except Exception:
            _log.exception("the decision about a tool call failed")
            decision.verdict = self._denied(request, BROKEN)
        finally:
            decision.made.set()
        return decision

    # Finding

    def _find(self, request: PermissionRequest) -> _Decision | None:
        if request.id:
            return self._decisions.get(request.id)
        matching = (
            each
            for each in reversed(self._decisions.values())
            if not each.is_used
            and each.request.address == request.address
            and _is_same(each.request.arguments, request.arguments)
        )
        return next(matching, None)

    def _remember(self, request: PermissionRequest) -> _Decision:
        if len(self._decisions) >= MAX_DECISIONS:
            self._decisions = dict([*self._decisions.items()][MAX_DECISIONS // 2 :])
        decision = self._decisions[request.id or object()] = _Decision(request)
        return decision

    # Deciding

    async def _make(self, request: PermissionRequest) -> Allow | Deny:
        asked = replace(request, arguments=self._convert(request))
        verdict = await self._ask(asked)
        if isinstance(verdict, Allow) and verdict.arguments is not None:
            verdict = self._changed(asked, verdict)
        if isinstance(verdict, Allow):
            if verdict.remember:
                self._remembered.add(request.address)
            if verdict.arguments is None:
                verdict = replace(verdict, arguments=request.arguments)
            if self._enter is not None and self._is_run_by_program(request):
                entering = replace(request, arguments=verdict.arguments)
                verdict = await self._bounded(self._enter(entering))
        if isinstance(verdict, Deny):
            self._on_deny(request, verdict)
        return verdict

    def _changed(self, request: PermissionRequest, verdict: Allow) -> Allow | Deny:
        arguments = verdict.arguments or {}
        if not (self._can_change(request.address) or _is_same(arguments, request.arguments)):
            return Deny(UNCHANGEABLE)
        if self._check is None:
            return verdict
        changed = replace(request, arguments=arguments)
        checked = self._check(replace(changed, arguments=self._convert(changed)))
        return checked if isinstance(checked, Deny) else verdict

    def _is_run_by_program(self, request: PermissionRequest) -> bool:
        """Return whether Claude Code itself runs the tool; we answer its tool for questions."""
        is_ours = request.address == ASK_USER and self._answer_questions is not None
        return request.address.startswith(f"{BUILT_IN}:") and not is_ours

    async def _ask(self, request: PermissionRequest) -> Allow | Deny:
        checked = self._check(request) if self._check is not None else None
        if isinstance(checked, Deny):
            return checked
        if request.address in self._remembered or request.address.startswith(f"{OWN}:"):
            return Allow()
        if request.address == ASK_USER and self._answer_questions is not None:
            return await self._bounded(self._questions_answered(request, self._answer_questions))
        if self._decide is not None:
            allowed = replace(request, is_allowed=True) if checked is not None else request
            return await self._bounded(self._decide(allowed))
        if checked is not None:
            return checked
        if self._check is not None or request.address.startswith(f"{BUILT_IN}:"):
            return Deny("this call needs a permission, and no person can be asked")
        return Allow()

    async def _bounded(self, deciding: Awaitable[Any]) -> Allow | Deny:
        """Wait for the caller's function; deny the call if it is late or returns a wrong value."""
        try:
            async with asyncio.timeout(self._timeout):
                verdict = await deciding
        except TimeoutError:
            return Deny(f"no decision within {self._timeout:g} s")
        if isinstance(verdict, Deny):
            return verdict
        if isinstance(verdict, Allow) and _is_usable(verdict.arguments):
            return verdict
        _log.error("the decision about a tool call is not Allow or Deny: %r", type(verdict))
        return Deny(BROKEN)

    async def _questions_answered(
        self, request: PermissionRequest, answer: AnswerQuestions
    ) -> Allow | Deny:
        asked = request.arguments.get("questions")
        answers = await answer(asked if isinstance(asked, list) else [])
        if answers is None:
            return Deny("the user did not answer")
        return Allow({**request.arguments, "answers": dict(answers)})

    def _denied(self, request: PermissionRequest, message: str) -> Deny:
        denial = Deny(message)
        self._on_deny(request, denial)
        return denial


def _is_usable(arguments: object) -> bool:
    if arguments is None:
        return True
    try:
        _encode(arguments)
    except (TypeError, ValueError, UnicodeEncodeError, msgspec.MsgspecError):
        return False
    return isinstance(arguments, dict)


def _is_same(one: JsonObject | None, other: JsonObject | None) -> bool:
    """Return whether two objects are equal once JavaScript has rounded their large integers."""
    if _encode(one) == _encode(other):
        return True
    return _encode_sorted(_as_javascript(one)) == _encode_sorted(_as_javascript(other))


def _as_javascript(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_javascript(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_as_javascript(each) for each in value]
    if isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, int) and abs(value) > _EXACT:
        return int(float(value))
    return value
