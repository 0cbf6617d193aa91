"""The client features that a server may use during a request: roots, sampling, elicitation.

Legacy servers send such questions as requests, modern servers inside "input_required" results.
Without a handler a question is refused, and the number of questions is limited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from interlock import revisions, schema
from interlock.errors import CapabilityError, LocalProtocolError, RemoteProtocolError
from interlock.protocol.envelope import encode
from interlock.protocol.leniency import decode_params
from interlock.schema.elicitation import with_fitting_defaults
from interlock.types import (
    ClientCapabilities,
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    InputRequest,
    JsonObject,
    ListRootsResult,
    Result,
    Root,
)

Sample = Callable[[CreateMessageParams], Awaitable[CreateMessageResult]]
Elicit = Callable[[ElicitParams], Awaitable[ElicitResult]]

# The most questions within the window; further ones are refused.
MAX_ASKS = 30
ASKS_WINDOW = 60.0  # seconds


class Answers(Protocol):
    """The interface of objects that answer a server's questions."""

    async def answer(self, method: str, params: Raw, revision: str) -> bytes:
        """Answer one question; the result is encoded.

        Raises:
            CapabilityError: The question cannot be answered.
            RemoteProtocolError: The question is malformed.
        """
        ...


class ClientFeatures:
    """The client's own handlers for a server's questions.

    Args:
        roots: file:// URIs or paths; None to declare no roots.
        sample: Answers sampling requests with the client's model.
        elicit: Answers elicitation requests by asking the user.
        extensions: Further extensions to declare, each with its settings.
    """

    def __init__(
        self,
        roots: Sequence[str] | None,
        sample: Sample | None,
        elicit: Elicit | None,
        extensions: Mapping[str, JsonObject] | None = None,
    ) -> None:
        self._roots = None if roots is None else [_root(each) for each in roots]
        self._sample = sample
        self._elicit = elicit
        self._extensions = dict(extensions or {})
        self._recent: deque[float] = deque()

    def set_roots(self, roots: Sequence[str]) -> None:
        if self._roots is None:
            raise LocalProtocolError("the client was created without roots: pass roots=[] to it")
        self._roots = [_root(each) for each in roots]

    def capabilities(self, revision: str, *, tasks: bool = False) -> ClientCapabilities:
        """Return the capabilities to declare to a server: the features that have a handler.

        Args:
            revision: The protocol revision.
            tasks: Whether to declare the tasks extension as well.
        """
        modern = revisions.is_modern(revision)
        extensions = self._extensions | ({revisions.TASKS_EXTENSION: {}} if tasks else {})
        if not modern:  # older revisions have an incompatible kind of tasks
            extensions.pop(revisions.TASKS_EXTENSION, None)
        forms: dict[str, Any] = {}
        if revisions.at_least(revision, revisions.URL_ELICITATION):
            forms = {"form": {}, "url": {}}
        can_elicit = self._elicit and revisions.at_least(revision, revisions.ELICITATION)
        return ClientCapabilities(
            roots=None if self._roots is None else {} if modern else {"listChanged": True},
            sampling={} if self._sample else None,
            elicitation=forms if can_elicit else None,
            extensions=extensions or None,
        )

    async def answer(self, method: str, params: Raw, revision: str) -> bytes:
        """Answer one question; the result is encoded.

        Raises:
            CapabilityError: The question has no handler, or does not exist in the revision.
            RemoteProtocolError: The question is malformed, or the server asks too often.
        """
        check_method(method, revision)
        self.count()
        if method == "roots/list" and self._roots is not None:
            return encode(ListRootsResult(roots=self._roots))
        if method == "sampling/createMessage" and self._sample is not None:
            return encode(await self._sample(_decode(CreateMessageParams, params, method)))
        if method == "elicitation/create" and self._elicit is not None:
            question = _decode(ElicitParams, with_fitting_defaults(method, params), method)
            form = _form(question)  # raises an error before the user sees an unusable form
            return encode(_fill(question, form, await self._elicit(question)))
        raise CapabilityError(f"this client has no handler for {method!r}")

    def count(self) -> None:
        """Count a question against the limit.

        Raises:
            RemoteProtocolError: The server asked too many questions within a minute.
        """
        now = monotonic()
        while self._recent and self._recent[0] <= now - ASKS_WINDOW:
            self._recent.popleft()
        if len(self._recent) >= MAX_ASKS:
            raise RemoteProtocolError(
                f"the server asks too often (limit {MAX_ASKS} questions in {ASKS_WINDOW:g} s)"
            )
        self._recent.append(now)


async def answer_all(answers: Answers, result: Result, revision: str) -> dict[str, Raw]:
    """Answer all questions in an "input_required" result, at the same time.

    Raises:
        RemoteProtocolError: The result has neither questions nor state, or too many questions.
        CapabilityError: A question cannot be answered.
    """
    questions = result.input_requests or {}
    if not questions and result.request_state is None:
        raise RemoteProtocolError(
            "the answer input_required has neither inputRequests nor requestState"
        )
    if len(questions) > MAX_ASKS:  # otherwise starting the answers could take seconds
        raise RemoteProtocolError(f"the server asks too many questions at once (limit {MAX_ASKS})")

    async def answer(question: InputRequest) -> Raw:
        return Raw(await answers.answer(question.method, question.params, revision))

    tasks = [asyncio.ensure_future(answer(each)) for each in questions.values()]
    try:
        found = await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
    return dict(zip(questions, found, strict=True))


def check_method(method: str, revision: str) -> None:
    """Check that a protocol revision has a question.

    Raises:
        CapabilityError: The revision has no such question; the text names the method.
    """
    if not revisions.has_method(revisions.SERVER_METHODS, method, revision):
        raise CapabilityError(f"unknown method {method!r}")


def _form(question: ElicitParams) -> schema.Validator | None:
    if question.mode != "form" or question.requested_schema is None:
        return None
    return schema.compile(encode(question.requested_schema))


def _fill(
    question: ElicitParams, form: schema.Validator | None, answer: ElicitResult
) -> ElicitResult:
    """Fill in the form's defaults for fields that the user left out, and validate the answer."""
    if answer.action != "accept" or form is None:
        return answer
    properties = (question.requested_schema or {}).get("properties")
    content = dict(answer.content or {})
    for name, property in properties.items() if isinstance(properties, Mapping) else ():
        if name not in content and isinstance(property, Mapping) and "default" in property:
            content[name] = property["default"]
    errors = form.errors(content)
    if errors:
        raise LocalProtocolError(f"the answer is not valid for the form: {'; '.join(errors)}")
    return ElicitResult(action="accept", content=content)


def _root(text: str) -> Root:
    if text.startswith("file://"):
        return Root(uri=text)
    if "://" in text:
        raise LocalProtocolError(f"root {text!r} is neither a path nor a file:// URI")
    path = Path(text).resolve()
    return Root(uri=path.as_uri(), name=path.name or None)


def _decode(type: type[Any], params: Raw, method: str) -> Any:
    try:
        return decode_params(type, params)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {method}: {error}") from None
