"""Assembles tool calls from the fragments of the chat completions API.

Servers stream calls in fragments or whole, without ids, without indexes, all with index 0, or
again at the end of the answer.

Rule 1: A fragment belongs to the call with its index. If it has another call's id, it belongs to
    that call.
Rule 2: A fragment without a known index belongs to the call with its id, else to the last call.
Rule 3: A fragment with another name than that call's, or with a name and a new id, starts a call.
    So does a fragment with a name that has a new index, or neither an index nor a known id.
Rule 4: The id and the name come from the first fragment that has them.
Rule 5: At the end, a call with several different objects as arguments is several calls of its tool,
    and a call that another one with the same id repeats is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from interlock.messages import ToolCall
from interlock.models.answer_size import AnswerSize
from interlock.models.call_arguments import tool_calls, unique_ids
from interlock.models.openai.chat_chunks import Fragment, Function
from interlock.protocol.envelope import encode_lossy

_ATTACHED = ("extra_content", "provider_specific_fields")


class _OpenCall(Struct):
    """A call whose arguments are still arriving."""

    id: str = ""
    name: str = ""
    arguments: list[str] = []
    objects: dict[str, Any] | None = None  # the arguments, if they come as objects
    attached: dict[str, Any] = {}

    @property
    def text(self) -> str:
        written = "".join(self.arguments)
        return written if self.objects is None else encode_lossy(self.objects).decode() + written


class CallFragments:
    """The calls of one answer."""

    def __init__(self, size: AnswerSize) -> None:
        self._size = size
        self._calls: list[_OpenCall] = []
        self._by_index: dict[int, _OpenCall] = {}  # the last call with each index
        self._by_id: dict[str, _OpenCall] = {}

    @property
    def last_arguments(self) -> str | None:
        """The text of the last call's arguments so far; None without calls."""
        return self._calls[-1].text if self._calls else None

    def add(self, fragment: Fragment) -> None:
        function = fragment.function or Function(fragment.name, fragment.arguments)
        call = self._find(fragment, function.name or "")
        if call is None:
            self._size.add_call()
            call = _OpenCall()
            self._calls.append(call)
        if fragment.index is not None:
            self._by_index[fragment.index] = call
        if fragment.id and not call.id:
            self._size.add(fragment.id)
            self._by_id.setdefault(fragment.id, call)
            call.id = fragment.id
        if function.name and not call.name:
            self._size.add(function.name)
            call.name = function.name
        if function.arguments:
            self._extend(call, function.arguments)
        if fragment.extra_content or fragment.provider_specific_fields:
            self._attach(call, fragment)

    def _find(self, fragment: Fragment, name: str) -> _OpenCall | None:
        id = fragment.id or ""
        call = None if fragment.index is None else self._by_index.get(fragment.index)
        if not (id or name):
            return call or (self._calls[-1] if self._calls else None)
        if call is not None:
            if id and call.id and id != call.id:
                other = self._by_id.get(id)
                if other is not None and name in ("", other.name):
                    return other
                return None if name else call
        elif fragment.index is not None and name:
            return None
        else:
            call = self._by_id.get(id)
            if call is None:
                return self._calls[-1] if self._calls and not name else None
        return None if name and call.name not in ("", name) else call

    def _attach(self, call: _OpenCall, fragment: Fragment) -> None:
        for name in _ATTACHED:
            if attached := getattr(fragment, name):
                self._size.add_json(attached)
                call.attached[name] = attached

    def _extend(self, call: _OpenCall, arguments: str | dict[str, Any]) -> None:
        if isinstance(arguments, str):
            self._size.add(arguments)
            call.arguments.append(arguments)
            return
        self._size.add_json(arguments)
        known = call.objects or {}
        if all(known.get(key, value) == value for key, value in arguments.items()):
            call.objects = known | arguments  # an object in two parts, or the same one again
        else:
            call.arguments.append(encode_lossy(arguments).decode())

    def finish(self, *, cut: bool) -> tuple[tuple[ToolCall, ...], dict[str, dict[str, Any]]]:
        """Return the calls in order, and what the provider attached to each, by id.

        Args:
            cut: Whether the last call may be incomplete.
        """
        if cut and self._calls and not self._calls[-1].text.strip():
            self._calls.pop()  # the token limit came before the first argument
        calls: list[ToolCall] = []
        attached: list[dict[str, Any]] = []
        seen: set[bytes] = set()
        for call, extra in _joined(self._calls):
            key = msgspec.json.encode(call, order="sorted")
            if not call.id or key not in seen:
                calls.append(call)
                attached.append(extra)
            seen.add(key)
        unique = unique_ids(calls)
        return unique, {
            call.id: extra for call, extra in zip(unique, attached, strict=True) if extra
        }


def _joined(calls: Sequence[_OpenCall]) -> Iterator[tuple[ToolCall, dict[str, Any]]]:
    """Yield each call with what is attached to it; join a call that came in two halves."""
    place = 0
    while place < len(calls):
        call, text = calls[place], calls[place].text
        found = tool_calls(call.id, call.name, text)
        if found[0].malformed is not None and place + 1 < len(calls):
            other = calls[place + 1]
            if other.name == call.name:
                whole = tool_calls(call.id, call.name, text + other.text)
                if whole[0].malformed is None:
                    found, place = whole, place + 1
        place += 1
        for number, each in enumerate(found):
            yield each, call.attached if number == 0 else {}
