"""The conversations that each model holds with each provider of the lab."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from interlock.errors import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelOverloaded,
    ModelRefused,
    ModelUnavailable,
)
from interlock.messages import (
    INTERRUPTED,
    SEARCH_TOOLS,
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    ToolCall,
    ToolMessage,
    UserMessage,
)
from interlock.models import ToolDefinition
from tests.providers.fake_provider import EVERY, Call, Fails, Says
from tests.providers.request_rules import REFUSED_TOOL


class Result(NamedTuple):
    """The result of a call."""

    content: str
    is_error: bool = False
    files: tuple[Attachment, ...] = ()
    loads: tuple[str, ...] = ()


class Turn(NamedTuple):
    """A request to the model.

    Attributes:
        asks: The user's message, or the results of the open calls; None to ask again.
        answer: What the provider answers; several, if it fails before it answers.
        model: Another model of the same provider, from here on.
    """

    asks: str | UserMessage | tuple[Result, ...] | None
    answer: Says | tuple[Says | Fails, ...]
    model: str = ""


class Conversation(NamedTuple):
    """A conversation.

    Attributes:
        learns: How many requests the provider may refuse, which teaches the model something.
        notice: What a notice to the user must say; "" for no notice.
        needs: The kind of failure that only some providers have; "" for a conversation with all.
    """

    name: str
    turns: tuple[Turn, ...]
    history: tuple[Message, ...] = ()
    tools: Sequence[ToolDefinition] = ()
    options: Mapping[str, Any] = {}
    learns: int = 0
    notice: str = ""
    needs: str = ""


def asked(turn: Turn, messages: Sequence[Message]) -> list[Message]:
    """Return the messages that a turn adds to a conversation."""
    if turn.asks is None:
        return []
    if isinstance(turn.asks, str):
        return [UserMessage(turn.asks)]
    if isinstance(turn.asks, UserMessage):
        return [turn.asks]
    calls = messages[-1].tool_calls  # type: ignore[union-attr]  # the model has called tools
    return [
        ToolMessage(call.id, each.content, call.name, each.is_error, each.files, each.loads)
        for call, each in zip(calls, turn.asks, strict=True)
    ]


FAILURES: Mapping[str, tuple[type[ModelError], str]] = {
    "key": (ModelRefused, r"\(401\)"),
    "rate": (ModelOverloaded, "Rate limit reached.*try again in 1800 s"),
    "overloaded": (ModelOverloaded, "(?i)overloaded"),
    "failure": (ModelUnavailable, r"\(500\).*error"),
    "model": (ModelUnavailable, r"\(404\).*does not exist"),
    "quota": (ModelRefused, r"\(402\).*Insufficient"),
    "context": (ContextTooLong, "(?i)token|context"),
    "large": (ContextTooLong, r"Limit 30000, Requested 37313"),
    "cut": (ModelInterrupted, "cut off: .*; continue it, or try again"),
    "ends": (ModelInterrupted, "cut off: the stream ended early; continue it"),
    "breaks": (ModelInterrupted, "cut off: .*had an error"),
}


def tool(name: str, description: str = "It works.", **properties: Any) -> ToolDefinition:
    schema = {"type": "object", "properties": properties}
    return ToolDefinition(f"srv__{name}", description, json.dumps(schema).encode())


def odd(name: str, schema: Any) -> ToolDefinition:
    return ToolDefinition(f"srv__{name}", "It is odd.", json.dumps(schema).encode())


TEXT = {"type": "string"}
READ = tool("read", path=TEXT, lines={"type": "integer"})
LIST = tool("list")
TOOLS = (READ, LIST)
SEARCH = ToolDefinition(SEARCH_TOOLS, "Find tools.", b'{"type":"object","properties":{"query":{}}}')
SEARCHED = (SEARCH, *(replace(each, deferred=True) for each in TOOLS))
FIND = Call(SEARCH_TOOLS, '{"query": "read a file"}')
FOUND = Result("srv__read", loads=("srv__read", "srv__gone"))
READ_IT = Call("srv__read", '{"path": "café 😀.txt", "lines": 3}')
DONE = Says("It is done.")
PNG = Attachment("image/png", b"\x89PNG\r\n\x1a\n0001", "cat.png")
JPEG = Attachment("image/jpeg", b"\xff\xd8\xff\xe00002", "dog.jpeg")
GIF = Attachment("image/gif", b"GIF89a 0005", "cow.gif")
WEBP = Attachment("image/webp", b"RIFF0006WEBP", "pig.webp")
PDF = Attachment("application/pdf", b"%PDF-1.7 0003", "bill.pdf")
WAV = Attachment("audio/wav", b"RIFF0004WAVE", "song.wav")
HALF = "\ud83d"


def chat(*pairs: tuple[str, str]) -> tuple[Message, ...]:
    return tuple(
        each for asked, said in pairs for each in (UserMessage(asked), AssistantMessage(said))
    )


def foreign(id: str, provider: str, **data: Any) -> tuple[Message, ...]:
    """Return a turn of another provider's model, with what that provider needs back."""
    call = ToolCall(id, "srv.read it", {"path": "a"})  # some servers accept such names
    kept = {"provider": provider, **data}
    return (
        UserMessage("Read a."),
        AssistantMessage("I read it.", (call,), kept),
        ToolMessage(id, "the text of a", "srv__read"),
        AssistantMessage("It says: the text of a.", (), kept),
    )


FOREIGN = (
    *foreign(
        "toolu_01A09q90qw90lq917835lq9",
        "anthropic:claude-opus-5-1",
        content=[
            {"type": "thinking", "thinking": "Hm.", "signature": "theirs"},
            {"type": "tool_use", "id": "toolu_01A09q90qw90lq917835lq9", "name": "srv__read"},
        ],
    ),
    *foreign(
        "function-call-13497834753849573845",
        "gemini:gemini-pro-latest",
        calls={
            "function-call-13497834753849573845": {
                "extra_content": {"google": {"thought_signature": "theirs"}}
            }
        },
    ),
    *foreign("call|with:odd characters", "deepseek:deepseek-pro", reasoning_content="Hm."),
    *foreign(
        "x" * 90,
        "openrouter:anthropic/claude-opus-5-1",
        reasoning_details=[{"type": "reasoning.encrypted", "data": "theirs", "index": 0}],
    ),
    *foreign(
        "call_9",
        "responses:openai:gpt-5-pro",
        items=[{"type": "reasoning", "id": "rs_1", "encrypted_content": "theirs", "summary": []}],
    ),
    *foreign("123456789", "mistral:magistral-medium-latest", thinking_parts="Hm."),
)


def results(*contents: str) -> tuple[Result, ...]:
    return tuple(map(Result, contents))


def fails(how: str, needs: str = "", **headers: str) -> Conversation:
    """Return a conversation with one failure, which goes on afterwards."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    failures = (Fails(how, named),) * 3  # two retries
    return Conversation(
        f"failure: {how}",
        (Turn("Hello", failures), Turn(None, Says("Hi again.")), Turn("More", DONE)),
        needs=needs,
    )


ODD_TOOLS = (
    odd("names", {"type": "object", "properties": {"a b": TEXT, "$top": TEXT, "ü" * 70: TEXT}}),
    odd("combined", {"anyOf": [{"type": "object", "properties": {"a": TEXT}, "required": ["a"]}]}),
    odd(
        "draft4",
        {
            "$schema": "http://json-schema.org/draft-04/schema#",
            "type": "object",
            "properties": {
                "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
                "pair": {"type": "array", "items": [TEXT, {"type": "number"}]},
                "at": {"type": "string", "format": "iri-reference", "pattern": "^(?!x)[a-z]+$"},
            },
            "definitions": {"Unused": {"type": "object"}},
        },
    ),
    odd("none", {}),
    odd("null", {"type": ["object", "null"], "properties": {"a": {"type": ["string", "null"]}}}),
    odd(
        "root", {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": TEXT}}}}
    ),
    odd("loose", {"type": "object", "properties": {"list": {"type": "array"}, "any": {}}}),
    odd("enums", {"type": "object", "properties": {"n": {"enum": [1, 2]}, "c": {"const": "x"}}}),
)

CONVERSATIONS = (
    # Text
    Conversation("one question", (Turn("Hello", Says("Hi there, 😀 and ünï.")),)),
    Conversation(
        "several turns", (Turn("One", Says("1")), Turn("Two", Says("2")), Turn("Three", Says("3")))
    ),
    Conversation("instructions", (Turn("Hello", DONE),), (SystemMessage("Be brief."),)),
    Conversation(
        "two instructions, of which one is empty",
        (Turn("Hello", DONE),),
        (SystemMessage("Be brief."), SystemMessage(" "), SystemMessage("Be kind.")),
    ),
    Conversation("long answer", (Turn("Write.", Says("wörd 😀 " * 400)),)),
    Conversation("long history", (Turn("And?", DONE),), chat(*[("Go on", "On.")] * 100)),
    Conversation(
        "characters in halves",
        (
            Turn(f"A half {HALF} here", Says("Fine.", (READ_IT,))),
            Turn(results(f"{HALF} and \udc00"), DONE),
            Turn("Again", DONE),
        ),
        tools=TOOLS,
    ),
    Conversation("empty message", (Turn("", Says("What?")), Turn("  \n", Says("Yes?")))),
    Conversation(
        "two messages of the user",
        (Turn("Are you there?", DONE),),
        (UserMessage("Hello"), UserMessage("Hello?")),
    ),
    Conversation(
        "empty answer in the history",
        (Turn("Hello?", DONE),),
        (UserMessage("Hello"), AssistantMessage(""), UserMessage("Hm"), AssistantMessage(" \n")),
    ),
    Conversation("answer that is cut by the limit", (Turn("Go", Says("Half of", stop="length")),)),
    Conversation("refused answer", (Turn("Go", Says("I cannot.", stop="refusal")),)),
    # Tools
    Conversation(
        "one call",
        (Turn("Read", Says("", (READ_IT,))), Turn(results("text"), DONE), Turn("More", DONE)),
        tools=TOOLS,
    ),
    Conversation(
        "text before a call",
        (Turn("Read", Says("I will read it.", (READ_IT,))), Turn(results("text"), DONE)),
        tools=TOOLS,
    ),
    Conversation(
        "two calls at once",
        (
            Turn("Both", Says("", (READ_IT, Call("srv__list")))),
            Turn(results("one", "two"), DONE),
        ),
        tools=TOOLS,
    ),
    Conversation(
        "the same tool three times at once",
        (
            Turn(
                "All",
                Says("", tuple(Call("srv__read", f'{{"path": "{each}"}}') for each in "abc")),
            ),
            Turn(results("1", "2", "3"), DONE),
        ),
        tools=TOOLS,
    ),
    Conversation(
        "call without arguments",
        (Turn("List", Says("", (Call("srv__list"),))), Turn(results("a, b"), DONE)),
        tools=TOOLS,
    ),
    Conversation(
        "five rounds of calls",
        (
            Turn("Go", Says("", (READ_IT,))),
            *(Turn(results(f"text {n}"), Says("", (READ_IT,))) for n in range(4)),
            Turn(results("the end"), DONE),
        ),
        tools=TOOLS,
    ),
    Conversation(
        "empty results",
        (
            Turn("All", Says("", (READ_IT, Call("srv__list"), READ_IT))),
            Turn((Result(""), Result(" \n"), Result("", is_error=True)), DONE),
        ),
        tools=TOOLS,
    ),
    Conversation(
        "failed and interrupted calls",
        (
            Turn("Both", Says("", (READ_IT, READ_IT))),
            Turn((Result("no such file", True), Result(INTERRUPTED, True)), DONE),
        ),
        tools=TOOLS,
    ),
    Conversation(
        "call whose arguments were malformed",
        (Turn("Go on", DONE),),
        (
            UserMessage("Read"),
            AssistantMessage("", (ToolCall("c1", "srv__read", malformed='{"path": "'),)),
            ToolMessage("c1", "the arguments are not JSON", "srv__read", is_error=True),
            AssistantMessage("Sorry."),
        ),
        TOOLS,
    ),
    Conversation(
        "calls of tools that are no longer offered",
        (Turn("Go on", DONE),),
        foreign("c1", "scripted:x"),
    ),
    Conversation(
        "tool with a long name and a long description",
        (
            Turn("Go", Says("", (Call(f"srv__{'n' * 59}", '{"a": "b"}'),))),
            Turn(results("ok"), DONE),
        ),
        tools=(tool("n" * 59, "It works. " * 500, a=TEXT), tool("silent", "")),
    ),
    Conversation(
        "odd schemas",
        (
            Turn("Go", Says("", (Call("srv__names", EVERY), Call("srv__none")))),
            Turn(results("ok", "ok"), DONE),
        ),
        tools=ODD_TOOLS,
    ),
    Conversation(
        "200 tools",
        (Turn("Go", Says("", (Call("srv__tool3"),))), Turn(results("ok"), DONE)),
        tools=tuple(tool(f"tool{n}", path=TEXT) for n in range(200)),
    ),
    Conversation(
        "tool that the provider refuses",
        (Turn("Go", Says("", (READ_IT,))), Turn(results("ok"), DONE)),
        tools=(READ, ToolDefinition(REFUSED_TOOL, "It is odd.", LIST.input_schema)),
        learns=1,
        notice="srv:refused",
    ),
    Conversation(
        "search for tools",
        (
            Turn("Go", Says("", (FIND,), "Which tools?")),
            Turn((FOUND,), Says("", (READ_IT,), "This one.")),
            Turn(results("text"), Says("Now list.", (FIND, FIND))),
            Turn(
                (Result("No tool matches."), Result("srv__list", loads=("srv__list", "srv__read"))),
                Says("", (Call("srv__list"), FIND)),
            ),
            Turn((Result("a, b"), Result("the query is empty", True)), DONE),
            Turn("More", DONE),
        ),
        tools=SEARCHED,
    ),
    Conversation(
        "search whose tools are all gone",
        (Turn("Go", Says("", (FIND,), "Which?")), Turn((Result("x", loads=("srv__x",)),), DONE)),
        tools=SEARCHED,
    ),
    Conversation(
        "search that is no longer offered",
        (Turn("Go on", DONE),),
        (
            UserMessage("Read"),
            AssistantMessage("", (ToolCall("c1", SEARCH_TOOLS, {"query": "read"}),)),
            ToolMessage("c1", "srv__read", SEARCH_TOOLS, loads=("srv__read",)),
        ),
        TOOLS,
    ),
    # Reasoning
    Conversation(
        "reasoning before text",
        (Turn("Think", Says("42", thought="Hm, 6 × 7 😀.")), Turn("Sure?", DONE)),
    ),
    Conversation(
        "reasoning before calls",
        (
            Turn("Go", Says("", (READ_IT, Call("srv__list")), "I must read.")),
            Turn(results("a", "b"), Says("", (READ_IT,), "Once more.")),
            Turn(results("c"), Says("Fine.", thought="Enough.")),
            Turn("And?", DONE),
        ),
        tools=TOOLS,
    ),
    # Files
    Conversation("image", (Turn(UserMessage("See", (PNG,)), Says("A cat.")), Turn("Sure?", DONE))),
    Conversation("images without text", (Turn(UserMessage("", (PNG, JPEG)), Says("A cat.")),)),
    Conversation(
        "images of all formats",
        (Turn(UserMessage("See", (PNG, GIF, WEBP)), Says("Pets.")), Turn("Sure?", DONE)),
    ),
    Conversation("PDF", (Turn(UserMessage("Read", (PDF,)), Says("A bill.")), Turn("Sure?", DONE))),
    Conversation("sound", (Turn(UserMessage("Hear", (WAV,)), Says("A song.")),)),
    Conversation(
        "images in results",
        (
            Turn("Look", Says("", (READ_IT, Call("srv__list")))),
            Turn((Result("[image]", files=(PNG,)), Result("two", files=(JPEG,))), Says("Pets.")),
            Turn("Sure?", DONE),
        ),
        tools=TOOLS,
    ),
    Conversation(
        "PDF as a result without text",
        (Turn("Look", Says("", (READ_IT,))), Turn((Result("", files=(PDF,)),), Says("A bill."))),
        tools=TOOLS,
    ),
    # Other models
    Conversation("conversation of other models", (Turn("And?", DONE),), FOREIGN, TOOLS),
    Conversation(
        "open turn of another model",
        (Turn(None, Says("", (READ_IT,), "Hm.")), Turn(results("text"), DONE)),
        FOREIGN[:3],
        TOOLS,
    ),
    Conversation(
        "changed model",
        (
            Turn("Go", Says("I go.", (READ_IT,), "I must read.")),
            Turn(results("text"), Says("", (READ_IT,), "Again."), model="another-model"),
            Turn(results("text"), Says("Fine.", thought="Enough.")),
            Turn("And?", DONE),
        ),
        tools=TOOLS,
    ),
    # Options
    Conversation(
        "options",
        (Turn("Hello", DONE), Turn("More", DONE)),
        options={"max_tokens": 4000, "temperature": 0.2},
        learns=1,
    ),
    # Failures
    Conversation(
        "rate limit that passes",
        (Turn("Hello", (Fails("rate", {"Retry-After": "0"}), Says("Hi."))), Turn("More", DONE)),
    ),
    Conversation(
        "failure that passes", (Turn("Hello", (Fails("failure"), Says("Hi."))), Turn("More", DONE))
    ),
    Conversation(
        "call that the model failed to write",
        (Turn("Go", (Fails("call"), Says("", (READ_IT,)))), Turn(results("ok"), DONE)),
        tools=TOOLS,
        needs="call",
    ),
    fails("rate", Retry_After="1800"),
    fails("overloaded"),
    fails("failure"),
    fails("key"),
    fails("model"),
    fails("quota"),
    fails("context"),
    fails("large", "large"),
    fails("cut"),
    fails("ends"),
    fails("breaks"),
)

# A conversation that one provider begins and another one continues, in a turn or after it.
TO_CONTINUE = Conversation(
    "to continue",
    (
        Turn("Go", Says("I search.", (FIND,), "Hm.")),
        Turn((FOUND,), Says("I read.", (READ_IT, Call("srv__list")), "I must read.")),
        Turn(
            (Result("text"), Result("no such folder", True)),
            Says("", (READ_IT, Call("srv__list")), "Once more."),
        ),
        Turn(results("text", "a, b"), Says("Fine.", thought="Enough.")),
    ),
    tools=SEARCHED,
)
CONTINUED = {
    "a turn": Conversation(
        "a turn",
        (Turn(results("text", "a, b"), DONE), Turn("More", DONE)),
        tools=SEARCHED,
    ),
    "a conversation": Conversation(
        "a conversation",
        (
            Turn("Again", Says("", (READ_IT,), "Once more.")),
            Turn(results("text"), Says("Good.", thought="Hm.")),
            Turn("More", DONE),
        ),
        tools=SEARCHED,
    ),
}
