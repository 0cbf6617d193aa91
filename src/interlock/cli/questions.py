"""Asks the person at the terminal the questions that servers send during a call.

1. Each question names its server, and its text is made safe for the terminal.
2. The person can decline every question before answering it, and sees a form's answer before it is
   sent.
3. The model answers a server only if `asks` in the server's configuration lists sampling, and the
   person agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from interlock import schema
from interlock.cli.terminal import safe, safe_line, say
from interlock.cli.terminal_prompt import NoAnswer, TerminalPrompt
from interlock.client import ClientOptions
from interlock.config import Config
from interlock.errors import CapabilityError, RemoteError
from interlock.messages import AssistantMessage, Message, SystemMessage, UserMessage
from interlock.models import Model, complete
from interlock.protocol.envelope import encode
from interlock.text.quoting import asked, quoted, visible_json
from interlock.types import (
    CreateMessageParams,
    CreateMessageResult,
    ElicitParams,
    ElicitResult,
    SamplingMessage,
    TextContent,
    join_text,
)

MAX_SAMPLES = 10  # model answers that one server can get
REFUSED = -1  # error code when the person refuses, as in the specification's examples

_YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}


class TerminalQuestions:
    """Answers servers' questions by asking the person.

    Args:
        prompt: Asks the person on the terminal.
        config: The configuration, which lists what each server may ask.
        model: Returns the chat's model; None outside of a chat.
    """

    def __init__(
        self,
        prompt: TerminalPrompt,
        config: Config,
        model: Callable[[], Model] | None = None,
    ) -> None:
        self._prompt = prompt
        servers = config.servers
        self._asks = {each.namespace or name: each.asks for name, each in servers.items()}
        self._model = model
        self._samples: dict[str, int] = {}

    def handlers(self, server: str) -> ClientOptions:
        """Return handlers for the requests that a server's configuration allows."""
        asks = self._asks[server]
        handlers = ClientOptions()
        if "elicitation" in asks and self._prompt.is_available:
            handlers["elicitation"] = partial(self._elicit, server)
        if "sampling" in asks and self._prompt.is_available and self._model is not None:
            handlers["sampling"] = partial(self._sample, server, self._model)
        return handlers

    # Elicitation

    async def _elicit(self, server: str, question: ElicitParams) -> ElicitResult:
        async with self._prompt.turn():
            try:
                say(asked(f"server {safe_line(server)}", safe(question.message)))
                if question.mode == "url":
                    return await self._open(question.url or "")
                return await self._fill(question.requested_schema or {})
            except NoAnswer:
                return ElicitResult(action="cancel")

    async def _open(self, url: str) -> ElicitResult:
        from interlock.oauth.callback import open_browser  # takes 0.3 s to import

        say(f"it wants you to open {safe_line(url)}")
        if await self._prompt.choice("Open it? [y]es, [n]o: ", "yes", "no") == "no":
            return ElicitResult(action="decline")
        if not await open_browser(url):
            say("no browser could be opened: open the URL yourself")
        return ElicitResult(action="accept")

    async def _fill(self, form: Mapping[str, Any]) -> ElicitResult:
        fields = form.get("properties", {})
        first = "Answer it?" if fields else "Do you agree?"
        if await self._prompt.choice(f"{first} [y]es, [n]o: ", "yes", "no") == "no":
            return ElicitResult(action="decline")
        if not fields:  # nothing to confirm
            return ElicitResult(action="accept", content={})
        required = form.get("required", [])
        content: dict[str, Any] = {}
        for name, field in fields.items():
            value = await self._field(name, field, name in required)
            if value is not None:
                content[name] = value
        say(visible_json(content))
        send = await self._prompt.choice("Send this? [y]es, [n]o: ", "yes", "no")
        if send == "no":
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=content)

    async def _field(self, name: str, field: Mapping[str, Any], required: bool) -> Any:
        """Ask for a field's value until it is valid; return None if the person leaves it out."""
        say(_description(name, field, required))
        checks = schema.compile(encode({"properties": {name: field}}))
        while True:
            text = await self._prompt.line(f"{safe_line(name, 40)}: ")
            if not text:
                if "default" in field:
                    return field["default"]
                if not required:
                    return None
                say("a value is required; Ctrl-D cancels")
                continue
            value = _value(field, text)
            if problems := checks.errors({name: value}):
                say(f"not accepted: {safe_line('; '.join(problems))}")
                continue
            return value

    # Sampling

    async def _sample(
        self, server: str, model: Callable[[], Model], request: CreateMessageParams
    ) -> CreateMessageResult:
        messages = _messages(request)
        async with self._prompt.turn():
            used = self._samples.get(server, 0)
            if used >= MAX_SAMPLES:
                raise RemoteError(
                    REFUSED, f"the model answered this server {used} times (limit {MAX_SAMPLES})"
                )
            say(f"server {safe_line(server)} wants {model().name} to answer:")
            say(quoted(safe("\n".join(each.content for each in messages))))
            try:
                answer = await self._prompt.choice("Ask the model? [y]es, [n]o: ", "yes", "no")
            except NoAnswer:
                answer = "no"
            if answer == "no":
                raise RemoteError(REFUSED, "the user refused")
            self._samples[server] = used + 1
        reply = await complete(model(), messages)
        return CreateMessageResult(
            role="assistant",
            content=TextContent(reply.message.content),
            model=model().name,
            stop_reason="maxTokens" if reply.stop_reason == "length" else "endTurn",
        )


def _description(name: str, field: Mapping[str, Any], required: bool) -> str:
    title = safe_line(str(field.get("title") or name))
    notes = [safe_line(str(field["description"]))] if field.get("description") else []
    if choices := _choices(field):
        listed = ", ".join(f"{n} {safe_line(title)}" for n, (_, title) in enumerate(choices, 1))
        several = "several of, with commas" if field.get("type") == "array" else "one of"
        notes.append(f"{several}: {listed}")
    elif field.get("type") == "boolean":
        notes.append("yes or no")
    if "default" in field:
        notes.append(f"default {safe_line(encode(field['default']).decode())}")
    elif not required:
        notes.append("may be empty")
    return f"{title}{' (' if notes else ''}{'; '.join(notes)}{')' if notes else ''}"


def _choices(field: Mapping[str, Any]) -> list[tuple[Any, str]]:
    """Return a choice field's values with their titles; [] for other fields."""
    items = field.get("items")
    of = items if isinstance(items, Mapping) else field
    if titled := of.get("oneOf") or of.get("anyOf"):
        return [(each.get("const"), str(each.get("title", each.get("const")))) for each in titled]
    values = of.get("enum", [])
    names = of.get("enumNames", values)
    return [(value, str(name)) for value, name in zip(values, names, strict=False)]


def _value(field: Mapping[str, Any], text: str) -> Any:
    choices = _choices(field)
    if field.get("type") == "array":
        return [_chosen(choices, each.strip()) for each in text.split(",")]
    if choices:
        return _chosen(choices, text)
    match field.get("type"):
        case "boolean":
            return _YES.get(text.lower(), text)
        case "integer" | "number":
            try:
                return msgspec.json.decode(text)
            except msgspec.DecodeError:
                return text  # not valid; the form's check reports why
    return text


def _chosen(choices: list[tuple[Any, str]], text: str) -> Any:
    """Return the value that the person chose by typing its number, its title or the value."""
    for value, title in choices:
        if text in (str(value), title):
            return value
    if text.isdecimal() and 0 < int(text) <= len(choices):
        return choices[int(text) - 1][0]
    return text


def _messages(request: CreateMessageParams) -> list[Message]:
    if request.tools:
        raise CapabilityError("sampling with tools is not supported")
    found: list[Message] = []
    if request.system_prompt:
        found.append(SystemMessage(request.system_prompt))
    for each in request.messages:
        text = _text(each)
        found.append(UserMessage(text) if each.role == "user" else AssistantMessage(text))
    return found


def _text(message: SamplingMessage) -> str:
    blocks = message.content if isinstance(message.content, list) else [message.content]
    if not all(isinstance(block, TextContent) for block in blocks):
        raise CapabilityError("only text can be sampled here")
    return join_text(blocks)
