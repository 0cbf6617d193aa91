"""What refusals of providers teach. Each wording has its source beside it, where one is public."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from interlock.models.http.api_refusal import ApiRefusal, decoded, reason_in
from interlock.models.http.model_limits import digest, shown, size_of
from interlock.models.http.refusal_lessons import SentRequest, lessons_in
from interlock.models.learned import Lesson
from interlock.models.model import ToolDefinition
from tests.support.rows import each_row

NAMES = ("srv__good", "srv__bad", "t", "interlock__read_result")
TOOLS = [ToolDefinition(name, "It works.", b'{"type":"object"}') for name in NAMES]


def refusal(body: Any, status: int = 400) -> ApiRefusal:
    body = decoded(json.dumps(body).encode())
    return ApiRefusal(status, reason_in(body), body)


def openai(message: str, status: int = 400, **fields: Any) -> ApiRefusal:
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
    return refusal({"error": {**error, **fields}}, status)


def sent(tools: list[ToolDefinition] = TOOLS, **members: Any) -> SentRequest:
    body: dict[str, Any] = {
        "model": "m",
        "messages": [{"role": "user", "content": "Hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 32_000,
        **members,
    }
    if tools:
        wire = {"type": "function", "cache_control": {"type": "ephemeral"}, "strict": False}
        body["tools"] = [{**wire, "function": {"name": each.name}} for each in tools]
    needed = frozenset(("model", "messages", "tools"))
    return SentRequest(body, tools, needed, frozenset(("temperature", "seed")))


def names(lessons: list[Lesson]) -> list[str]:
    assert all(each.kind == "tool" for each in lessons)
    assert [each.what for each in lessons] == [
        digest(tool) for tool in TOOLS if shown(tool) in {each.name for each in lessons}
    ]
    return [each.name for each in lessons]


GEMINI = "* GenerateContentRequest.tools[0].function_declarations[{}].parameters: missing field.\n"


@each_row(
    ("told", "tools"),
    [
        # github.com/openai/openai-python/issues/2024 and many others
        (openai("Invalid schema for function 'srv__bad': array schema missing items."), [1]),
        (openai("Invalid schema", param="tools[1].function.parameters"), [1]),
        (openai("Invalid 'tools[2].function.name': string does not match pattern."), [2]),
        (openai("Invalid 'tools[2].function.description': string too long, 1024", 404), [2]),
        # github.com/anthropics/claude-code/issues/586
        (openai("tools.1.custom.input_schema: JSON schema is invalid."), [1]),
        (openai("tools.2.custom.name: String should have at most 64 characters"), [2]),
        # github.com/google-gemini/gemini-cli/issues/1481
        (refusal([{"error": {"code": 400, "message": GEMINI.format(1)}}]), [1]),
        (refusal([{"error": {"message": GEMINI.format(0) + GEMINI.format(1)}}]), [0, 1]),
        (openai("Unknown name \"x\" at 'tools[0].functionDeclarations[2].parameters'"), [2]),
        (openai("Unable to submit request because `srv__bad` functionDeclaration is wrong"), [1]),
        # Mistral and other servers with FastAPI
        (
            refusal({"detail": [{"loc": ["body", "tools", 1, "function"], "msg": "No."}]}, 422),
            [1],
        ),
        # Groq
        (openai("invalid JSON schema for tool srv__bad, `tools[1].function.parameters`: no"), [1]),
        (openai("tool 't' has an invalid schema"), [2]),
        (openai("Invalid request: /tools/1/function/parameters/type must be a string"), [1]),
    ],
)
def test_tool_that_a_refusal_names_is_found(told: ApiRefusal, tools: list[int]) -> None:
    assert names(lessons_in(told, sent())) == [shown(TOOLS[each]) for each in tools]


MANY = [ToolDefinition(f"srv__tool{n}", "", b"{}") for n in range(200)]


@each_row(
    ("told", "limit"),
    [
        (
            openai(
                "Invalid 'tools': array too long. Expected an array with maximum length 128, but "
                "got an array with length 200 instead.",
                param="tools",
                code="array_above_max_length",
            ),
            128,
        ),
        (openai("tools: List should have at most 64 items after validation, not 200"), 64),
        (openai("Too many tools: 200 were given, the maximum is 40", 422), 40),
        (openai("You can provide up to 20 functions"), 20),
        (openai("The number of function declarations exceeds the limit of 100"), 100),
        (openai("too many tools"), 128),
    ],
)
def test_limit_of_tools_is_read(told: ApiRefusal, limit: int) -> None:
    (lesson,) = lessons_in(told, sent(MANY))

    assert (lesson.kind, lesson.limit) == ("tools", limit)


@each_row(
    ("told", "what", "instead"),
    [
        (openai("Unrecognized request argument supplied: stream_options"), "stream_options", ""),
        (refusal({"error": "unknown field stream_options"}), "stream_options", ""),
        (
            refusal({"detail": [{"loc": ["body", "store"], "msg": "Extra inputs"}]}, 422),
            "store",
            "",
        ),
        (openai('Invalid JSON payload received. Unknown name "store": Cannot find.'), "store", ""),
        (openai("Unknown parameter: 'include'.", param="include"), "include", ""),
        (openai("parallel_tool_calls is not supported"), "parallel_tool_calls", ""),
        (openai("tools.0.cache_control: Extra inputs are not permitted"), "cache_control", ""),
        (openai('Unknown name "strict" at tools[0]: Cannot find field.'), "strict", ""),
        (openai("Unsupported value: 'temperature' does not support 0.2"), "temperature", ""),
        (openai("seed: not supported by this model"), "seed", ""),
        (
            openai(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                param="max_tokens",
            ),
            "max_tokens",
            "max_completion_tokens",
        ),
        (
            openai("Your organization must be verified to stream this model.", param="stream"),
            "stream",
            "",
        ),
    ],
)
def test_refused_member_is_found(told: ApiRefusal, what: str, instead: str) -> None:
    extra = {"store": False, "include": [], "parallel_tool_calls": True}
    (lesson,) = lessons_in(told, sent(**extra, temperature=0.2, seed=5))

    assert (lesson.kind, lesson.what, lesson.name) == ("member", what, instead)


@each_row(
    ("told", "kind"),
    [
        (openai("registry.ollama.ai/library/gemma does not support tools"), "no_tools"),
        (openai('"auto" tool choice requires --enable-auto-tool-choice'), "no_tools"),
        (openai("tools param requires --jinja flag", 500), "no_tools"),
        (openai("No endpoints found that support tool use.", 404), "no_tools"),
        (openai("Function calling is not enabled for this model"), "no_tools"),
        (openai("Unrecognized request argument supplied: tools"), "no_tools"),
        (refusal({"detail": [{"loc": ["body", "tools"], "msg": "Extra inputs"}]}), "no_tools"),
        (openai("This model is only supported in v1/responses", 404), "responses"),
        (openai("max_tokens: 32000 > 8192, which is the maximum"), "output"),
        (openai("This model supports at most 4096 completion tokens"), "output"),
        (openai("failed to parse grammar"), "guess"),
        (openai("failed to parse grammar", 200), "guess"),  # in a stream, as from LM Studio
        (openai("cannot unmarshal array into Go struct field .tools.function"), "guess"),
        (openai("JSON schema conversion failed"), "guess"),
        (openai("Error rendering prompt with jinja template: Expected iterable"), "guess"),
        (openai("System role not supported"), "need"),
        (openai("Unsupported value: 'messages[0].role' does not support 'system'."), "need"),
        (openai("Tools with reasoning are not supported", param="reasoning_effort"), "effort"),
    ],
)
def test_other_lessons_are_found(told: ApiRefusal, kind: str) -> None:
    assert [each.kind for each in lessons_in(told, sent())] == [kind]


@each_row(
    "told",
    [
        openai("The model does not exist", 404),
        openai("temperature must be at most 2", param="temperature"),
        openai("Invalid 'messages[0].content': must not be empty"),
        openai("messages.2: tool_use ids were found without tool_result blocks"),
        openai("messages with role 'tool' must follow tool_calls"),
        openai("Invalid schema for function 'srv__bad'", 401),
        openai("Invalid schema for function 'srv__bad'", 429),
        openai("Please include a picture in your store"),
        openai("Failed to call a function. See 'failed_generation'.", code="tool_use_failed"),
        openai("Tool call validation failed: parameters for tool srv__bad did not match schema"),
        openai("Ensure that function call turn comes immediately after a user turn"),
        openai("Expected last role User or Tool for serving but got assistant"),
        openai("Your credit balance is too low"),
        openai("The system is busy and not supported by your plan"),
        refusal("", 400),
    ],
)
def test_refusal_that_names_nothing_to_leave_out_teaches_nothing(told: ApiRefusal) -> None:
    extra = {"store": False, "include": []}

    assert lessons_in(told, sent(**extra, temperature=5.0)) == []


@each_row(
    ("message", "status"),
    [
        ("This model's maximum context length is 4096 tokens. You sent 9000 tokens.", 400),
        ("prompt is too long: 9000 tokens > 4096 maximum", 400),
        ("The input token count (9,000) exceeds the maximum number allowed (4,096).", 400),
        ("Prompt contains 9000 tokens, too large for model with 4096 maximum context length", 400),
        ("Request too large for model `m`: Limit 4096, Requested 9000", 413),
        ("Request too large for gpt-m on tokens per min (TPM): Limit 4096, Requested 9000.", 429),
        ("the request exceeds the available context size", 400),
    ],
)
def test_tools_that_do_not_fit_into_the_context_are_cut(message: str, status: int) -> None:
    (lesson,) = lessons_in(openai(message, status), sent(MANY))

    assert lesson.kind == "tool_bytes"
    assert size_of(MANY) * 0.1 < lesson.limit < size_of(MANY) * 0.91


def test_a_conversation_that_is_longer_than_the_tools_is_not_cut_here() -> None:
    long = [{"role": "user", "content": "Hi. " * 1_000}]

    assert lessons_in(openai("prompt is too long"), sent(messages=long)) == []


PIECES = st.sampled_from(
    [*"'`\".:[]/ 1", "128", "tools", "tool", "function", "maximum", "exceeds", "srv__bad", "stream"]
)


@given(st.lists(PIECES, max_size=300).map(" ".join) | st.text(max_size=2_000))
def test_any_reason_gives_lessons_or_none(reason: str) -> None:
    for lesson in lessons_in(ApiRefusal(400, reason), sent(MANY)):
        assert lesson.kind != "tools" or 0 < lesson.limit < len(MANY)


@each_row(
    ("told", "sent_kinds", "kind"),
    [
        ("audio or image input is not supported", ("sounds",), "sounds"),
        ("image input is not supported", ("images",), "images"),
        ("image input is not supported", ("images", "documents"), "images"),
        ("unknown variant `file`, expected `image_url`", ("images", "documents"), "documents"),
        # Ollama: https://github.com/Kilo-Org/kilocode/issues/11878
        ("invalid message format", ("images", "documents"), "documents"),
    ],
)
def test_refused_files_are_learned_only_if_there_were_some(
    told: str, sent_kinds: tuple[str, ...], kind: str
) -> None:
    refused, body = openai(told), sent([]).body
    with_files = SentRequest(body, [], frozenset(), frozenset(), frozenset(sent_kinds))

    assert [(each.kind, each.what) for each in lessons_in(refused, with_files)] == [
        ("unread", kind)
    ]
    assert lessons_in(refused, sent([])) == []


def test_files_of_a_request_that_is_too_large_are_left_out() -> None:
    files = SentRequest(sent([]).body, [], frozenset(), frozenset(), frozenset(("images",)))
    too_large = openai("Request exceeds the maximum allowed number of bytes.", 413)
    too_long = openai("Request too large for model `m`: Limit 4096, Requested 9000", 413)

    assert [each.what for each in lessons_in(too_large, files)] == ["images"]
    assert lessons_in(too_long, files) == []  # the conversation is too long, not its files
    assert lessons_in(too_large, sent([])) == []
