"""The common base of the encoders that translate turns for clients other than our page."""

from __future__ import annotations

from abc import ABC, abstractmethod

from interlock.types import JsonObject

_PROGRESS = ("tool_call_id", "progress", "total", "message")


class TurnEncoder(ABC):
    """Translates a turn's events to a client's protocol.

    It tracks the text block that is open, and the calls that the client knows.

    Args:
        announced: Ids of calls that the client already knows.
    """

    def __init__(self, announced: frozenset[str]) -> None:
        self._announced = set(announced)
        self._open = ""  # the kind of the open block: "text", "reasoning" or ""
        self._has_results = False  # whether any call of the current reply has a result

    def feed(self, event: JsonObject) -> list[JsonObject]:
        """Return the protocol's objects to send for one event of the turn."""
        match event["type"]:
            case "token" | "reasoning" if event["content"]:
                kind = "text" if event["type"] == "token" else "reasoning"
                opening = [] if self._open == kind else self._begin(kind)
                return [*opening, self._delta(kind, event["content"])]
            case "notice":  # these protocols have no remarks beside the answer
                opening = [] if self._open == "reasoning" else self._begin("reasoning")
                return [*opening, self._delta("reasoning", f"{event['content']}\n")]
            case "tool_start":
                return self._announce(event)
            case "tool_progress":
                return [self._progress({key: event[key] for key in _PROGRESS if key in event})]
            case "tool_complete":
                self._has_results = True
                return [*self._end(), self._result(event)]
            case "approval":
                return [*self._announce(event), *self._approval(event)]
            case "complete":
                return [*self._end(), *self._complete(event)]
            case "error":
                return [*self._end(), self._error(event)]
        return []

    def _begin(self, kind: str) -> list[JsonObject]:
        before = [*self._end(), *self._next_reply()]
        self._open = kind
        return [*before, *self._opened(kind)]

    def _end(self) -> list[JsonObject]:
        kind, self._open = self._open, ""
        return self._closed(kind) if kind else []

    def _next_reply(self) -> list[JsonObject]:
        """Begin the model's next reply, if calls of the current reply have results."""
        if not self._has_results:
            return []
        self._has_results = False
        return self._replied()

    def _announce(self, event: JsonObject) -> list[JsonObject]:
        if event["tool_call_id"] in self._announced:
            return []
        self._announced.add(event["tool_call_id"])
        return [*self._end(), *self._next_reply(), *self._call(event)]

    @abstractmethod
    def start(self) -> list[JsonObject]:
        """Return the objects that begin the answer."""

    @abstractmethod
    def interrupted(self) -> list[JsonObject]:
        """Return the objects that end the stream when the answer waits for an approval."""

    @abstractmethod
    def _opened(self, kind: str) -> list[JsonObject]: ...

    @abstractmethod
    def _delta(self, kind: str, text: str) -> JsonObject: ...

    @abstractmethod
    def _closed(self, kind: str) -> list[JsonObject]: ...

    @abstractmethod
    def _replied(self) -> list[JsonObject]: ...

    @abstractmethod
    def _call(self, event: JsonObject) -> list[JsonObject]: ...

    @abstractmethod
    def _progress(self, progress: JsonObject) -> JsonObject: ...

    @abstractmethod
    def _result(self, event: JsonObject) -> JsonObject: ...

    @abstractmethod
    def _approval(self, event: JsonObject) -> list[JsonObject]: ...

    @abstractmethod
    def _complete(self, event: JsonObject) -> list[JsonObject]: ...

    @abstractmethod
    def _error(self, event: JsonObject) -> JsonObject: ...
