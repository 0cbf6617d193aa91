"""What providers are reported to refuse in a request, beside the schemas of tools.

Each rule raises `Refused` with the provider's text. A link leads to a report of the refusal or to
the provider's own text; a rule without a link is ours: what an API documents, enforced.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from tests.providers import schema_rules
from tests.providers.fake_provider import KEY, Refused, Request, Rule
from tests.providers.schema_rules import Reader

Part = dict[str, Any]

# The address and the key


def at(path: str, query: str = "") -> Rule:
    """Refuse requests to another path.

    Azure without its version:
    https://github.com/MicrosoftDocs/azure-docs/issues/114602
    """

    def check(request: Request) -> None:
        if not re.fullmatch(path, request.path) or request.query != query:
            raise Refused("Resource not found", status=404)

    return check


def key(header: str, value: str = KEY) -> Rule:
    """Refuse requests without the key in its header, or with the key in another header as well."""

    def check(request: Request) -> None:
        names = {name.lower() for name, each in request.headers.items() if KEY in each}
        if request.headers.get(header) != value or names - {header.lower()}:
            raise Refused("Incorrect API key provided", status=401)

    return check


def no_key(request: Request) -> None:
    """A local server without a key is sent none, also not an empty one."""
    if "Authorization" in request.headers:
        raise Refused("Malformed Authorization header", status=401)


def version(request: Request) -> None:
    """Refuse requests without a version, which Anthropic's reference requires."""
    if request.headers.get("Anthropic-Version") != "2023-06-01":
        raise Refused("anthropic-version: header is required")


# Members of a request

CHAT = {"model", "messages", "tools", "stream", "temperature", "top_p", "stop", "reasoning_effort"}


def members(names: Iterable[str], text: str, status: int = 400) -> Rule:
    """Refuse unknown members of a request.

    OpenAI: https://github.com/teabranch/open-responses-server/issues/41
    Gemini: https://github.com/MinLL/SkyrimNet-GamePlugin/issues/77
    Mistral: https://github.com/mistralai/platform-docs-public/issues/7 and
    https://github.com/dnakov/anon-kode/issues/53 (`stream_options`)
    Groq: https://github.com/fanenr/chatbot/issues/21
    Azure: https://github.com/lobehub/lobehub/issues/10567
    """
    known = {*names}

    def check(request: Request) -> None:
        for name in request.body.keys() - known:
            raise Refused(text.format(name), status=status, param=name, code="unknown_parameter")

    return check


def message_members(names: Iterable[str], text: str, status: int = 400) -> Rule:
    """Refuse unknown members of messages.

    Groq: https://github.com/janhq/jan/issues/8136
    Mistral: https://github.com/charmbracelet/crush/issues/1590
    """
    known = {"role", "content", "tool_calls", "tool_call_id", *names}

    def check(request: Request) -> None:
        for place, message in enumerate(request.messages):
            for name in message.keys() - known:
                raise Refused(text.format(place, name), status=status)

    return check


def output_name(request: Request) -> None:
    """https://github.com/FoundationAgents/OpenManus/issues/555"""
    if "max_tokens" in request.body:
        raise Refused(
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
            "'max_completion_tokens' instead.",
            param="max_tokens",
            code="unsupported_parameter",
        )


def temperature(request: Request) -> None:
    """https://github.com/decolua/9router/issues/560"""
    if request.body.get("temperature", 1) != 1:
        raise Refused(
            "Unsupported value: 'temperature' does not support 0.2 with this model. Only the "
            "default (1) value is supported.",
            param="temperature",
            code="unsupported_value",
        )


# The order of messages


def answered_calls(request: Request) -> None:
    """https://github.com/aliasrobotics/cai/issues/111 and, in words, all providers' references."""
    waiting: list[str] = []
    for place, message in enumerate(request.messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                raise Refused(
                    f"Invalid parameter: messages with role 'tool' must be a response to a "
                    f"preceding message with 'tool_calls' (messages[{place}])"
                )
            waiting.remove(message["tool_call_id"])
        elif waiting:
            raise Refused(
                "An assistant message with 'tool_calls' must be followed by tool messages "
                "responding to each 'tool_call_id'. The following tool_call_ids did not have "
                f"response messages: {', '.join(waiting)}"
            )
        calls = [each["id"] for each in message.get("tool_calls", ())]
        if len(set(calls)) != len(calls):
            raise Refused(f"Duplicate tool call ids {calls}")
        waiting += calls
    if waiting:
        raise Refused(f"tool_call_ids {waiting} did not have response messages")


def call_form(id: str, text: str) -> Rule:
    """Refuse calls whose ids, names or arguments do not have a provider's form.

    OpenAI, 40 characters: https://github.com/agno-agi/agno/issues/5382
    Mistral, 9 characters: https://github.com/anomalyco/opencode/issues/1680
    llama.cpp, arguments: https://github.com/noonghunna/club-3090/issues/665
    Ollama, arguments: openai/openai.go of https://github.com/ollama/ollama
    """

    def check(request: Request) -> None:
        for message in request.messages:
            ids = [each["id"] for each in message.get("tool_calls", ())]
            for each in (*ids, *([message["tool_call_id"]] if message["role"] == "tool" else ())):
                if not re.fullmatch(id, each):
                    raise Refused(text.format(each))
            for call in message.get("tool_calls", ()):
                _check_function(call)

    return check


def _check_function(call: Part) -> None:
    function = call["function"]
    if call["type"] != "function" or not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", function["name"]):
        raise Refused(f"Invalid function name {function['name']!r}")
    try:
        given = json.loads(function["arguments"])
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise Refused("Failed to parse tool call arguments as JSON", status=500)


def alternating(request: Request) -> None:
    """The templates of Mistral's models, outside of Mistral's own API.

    https://github.com/vllm-project/vllm/issues/6862 (two messages of the user)
    https://github.com/suitenumerique/conversations/issues/197 (two of the system)
    https://github.com/SWE-agent/mini-swe-agent/issues/759 (calls and results are excepted)
    """
    roles = [each["role"] for each in request.messages if each["role"] != "tool"]
    if roles[:1] == ["system"]:
        roles = roles[1:]
    plain = [
        each["role"]
        for each in request.messages
        if each["role"] == "user" or (each["role"] == "assistant" and "tool_calls" not in each)
    ]
    if "system" in roles or any(a == b for a, b in pairwise(plain)):
        raise Refused(
            "After the optional system message, conversation roles must alternate "
            "user/assistant/user/assistant/..."
        )


def mistral_order(request: Request) -> None:
    """protocol/instruct/validator.py of https://github.com/mistralai/mistral-common

    https://github.com/datapizza-labs/datapizza-ai/issues/98 (user after tool)
    https://github.com/OpenHands/OpenHands/issues/8685 (neither content nor calls)
    """
    allowed = {
        "system": {"user", "assistant", "system"},
        "user": {"assistant", "system", "user"},
        "assistant": {"assistant", "user", "tool"},
        "tool": {"assistant", "tool"},
    }
    before = "system"
    for message in request.messages:
        role = message["role"]
        if role not in allowed[before]:
            raise Refused(f"Unexpected role '{role}' after role '{before}'", code="3230")
        if role == "assistant" and not (message.get("content") or message.get("tool_calls")):
            raise Refused("Assistant message must have either content or tool_calls, but not none.")
        before = role
    if before not in ("user", "tool"):
        raise Refused(f"Expected last role User or Tool for serving but got {before}")


def gemini_order(request: Request) -> None:
    """https://github.com/google-gemini/gemini-cli/issues/11814 (it begins with a call)"""
    before = ""
    for message in request.messages:
        if message.get("tool_calls") and before not in ("user", "tool"):
            raise Refused(
                "Please ensure that function call turn comes immediately after a user turn or "
                "after a function response turn."
            )
        before = message["role"]


# Contents


def contents(*kinds: str, refuse: Callable[[int, str], Refused], results: bool = False) -> Rule:
    """Refuse empty messages, and parts of other kinds than text and `kinds`.

    Args:
        kinds: The types of parts that a message of the user may have.
        refuse: Returns the refusal of a part, by the place of its message and its type.
        results: Whether a result may have parts. OpenAI takes text there, and LM Studio as well:
            https://github.com/QwenLM/qwen-code/issues/3616
    """

    def check(request: Request) -> None:
        for place, message in enumerate(request.messages):
            content = message.get("content")
            if content is None and message.get("tool_calls"):
                continue
            if isinstance(content, str):
                _check_text(place, message, content)
                continue
            if not isinstance(content, list) or not content:
                raise Refused(f"messages[{place}].content: {content!r} is not text or parts")
            for part in content:
                allowed = kinds if message["role"] == "user" or results else ()
                if part["type"] not in ("text", *allowed, "thinking"):
                    raise refuse(place, part["type"])
                _check_part(part)

    return check


def _check_text(place: int, message: Part, text: str) -> None:
    # https://github.com/microsoft/autogen/issues/6083, also behind OpenAI's form of the API
    if not text.strip() and not message.get("tool_calls"):
        raise Refused(
            f"messages.{place}: all messages must have non-empty content except for the optional "
            "final assistant message"
        )


def _check_part(part: Part) -> None:
    """Check the forms of parts: of OpenAI, and of Mistral for documents and sounds."""
    match part:
        case {"type": "text", "text": str(text)} if text.strip():
            return
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            # https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/1792
            if re.match(r"data:image/(png|jpeg|gif|webp);base64,.", url):
                return
        case {"type": "file", "file": {"filename": str(name), "file_data": str(url)}} if name:
            # https://openrouter.ai/docs/features/multimodal/pdfs
            if url.startswith("data:application/pdf;base64,"):
                return
        case {"type": "input_audio", "input_audio": {"data": str(), "format": "wav" | "mp3"}}:
            return
        case {"type": "input_audio", "input_audio": str()} | {"type": "document_url"}:
            return
        case {"type": "thinking", "thinking": [{"type": "text", "text": str()}]}:
            return
    raise Refused(f"Invalid content part {str(part)[:200]}")


def images(unread: str, text: str) -> Rule:
    """Refuse images of a format.

    LM Studio, WebP: https://github.com/RooCodeInc/Roo-Code/issues/8827
    Ollama, GIF: openai/openai.go of https://github.com/ollama/ollama
    """

    def check(request: Request) -> None:
        if f"data:{unread};base64".encode() in request.raw:
            raise Refused(text)

    return check


def no_halves(request: Request) -> None:
    """Refuse half of a character, which UTF-8 cannot express.

    https://github.com/anthropics/claude-code/issues/3277
    """
    if re.search(rb"\\u[dD][89abAB]..(?!\\u[dD][c-fC-F])", request.raw):
        raise Refused("The request body is not valid JSON: no low surrogate in string")
    request.raw.decode()


# Tools


def tools(read: Reader, most: int = 0) -> Rule:
    """Refuse schemas, empty lists and too many tools.

    OpenAI, 128: https://github.com/0x4m4/hexstrike-ai/issues/29, DeepSeek: its reference
    An empty list: https://github.com/partITech/php-mistral/issues/76
    """

    def check(request: Request) -> None:
        offered = request.body.get("tools")
        if offered is None:
            return
        if not offered:
            raise Refused("[] is too short - 'tools'", param="tools")
        if most and len(offered) > most:
            raise Refused(
                f"Invalid 'tools': array too long. Expected an array with maximum length {most}, "
                f"but got an array with length {len(offered)} instead.",
                param="tools",
                code="array_above_max_length",
            )
        for place, tool in enumerate(offered):
            if tool.get("type") != "tool_search":
                _check_tool(read, place, tool)

    return check


def _check_tool(read: Reader, place: int, tool: Part) -> None:
    function = tool.get("function", tool)
    name = function["name"]
    schema = function["input_schema"] if "input_schema" in function else function["parameters"]
    if name == REFUSED_TOOL:
        raise Refused(f"Invalid schema for function '{name}': it is refused", code="invalid")
    if problem := read(name, schema):
        raise Refused(re.sub(r"tools(\[|\.)0", rf"tools\g<1>{place}", problem))
    # https://github.com/getsentry/sentry-mcp/issues/106
    if read is schema_rules.openai and len(function.get("description", "")) > 1024:
        raise Refused(f"Invalid 'tools[{place}].function.description': string too long.")


REFUSED_TOOL = "srv__refused"  # a tool that each provider refuses


def anthropic_deferred_tools(request: Request) -> None:
    """https://github.com/anthropics/claude-code/issues/82004 (a reference without its definition)

    https://github.com/nearai/ironclaw/pull/7274 (all tools deferred)
    https://github.com/decolua/9router/issues/3567 (a deferred tool with a mark for the cache)
    Ours: at most 10,000 deferred tools, as documented; a result with references has nothing else.
    """
    offered = request.body.get("tools", [])
    deferred = [each for each in offered if each.get("defer_loading")]
    if deferred and len(deferred) == len(offered):
        raise Refused(
            "At least one tool must have defer_loading=false. All tools cannot be deferred."
        )
    if len(deferred) > 10_000:
        raise Refused("tools: at most 10000 deferred tools")
    for each in deferred:
        if "cache_control" in each:
            raise Refused(
                f"Tool '{each['name']}' cannot both defer_loading=true cache_control set. Tools "
                "defer_loading cannot use prompt caching."
            )
    names = {each["name"] for each in offered}
    for message in request.messages:
        for block in message["content"]:
            parts = block.get("content") if block["type"] == "tool_result" else None
            found = [each for each in parts or () if isinstance(each, dict)]
            references = [each for each in found if each["type"] == "tool_reference"]
            if references and len(references) < len(found):
                raise Refused("tool_result: references and other blocks")
            for each in references:
                if each["tool_name"] not in names:
                    raise Refused(
                        f"Tool reference '{each['tool_name']}' not found in available tools"
                    )


def responses_deferred_tools(request: Request) -> None:
    """https://github.com/pydantic/pydantic-ai/pull/6080 (deferred tools without the search)

    https://github.com/Oaklight/llm-rosetta/issues/394 (models without the search)
    Ours: items of the search need its tool, and a tool is not offered in two places.
    """
    offered = request.body.get("tools", [])
    searches = [each for each in offered if each["type"] == "tool_search"]
    outputs = [each for each in request.body["input"] if each.get("type") == "tool_search_output"]
    if searches and "nano" in request.model:
        raise Refused(f"Tool 'tool_search' is not supported with {request.model}.", param="tools")
    loaded = [tool for each in outputs for tool in each["tools"]]
    if any("defer_loading" in each for each in [*offered, *loaded]) and not searches:
        raise Refused(
            "Invalid Value: tools.defer_loading. Deferred tools require tools.tool_search."
        )
    if outputs and not searches:
        raise Refused("tool_search_output requires tools.tool_search.")
    names = [each["name"] for each in offered if "name" in each]
    if len(searches) > 1 or {*names} & {each["name"] for each in loaded}:
        raise Refused("Invalid Value: tools. A tool is there twice.")
    for each in searches:
        known = {"type", "execution", "description", "parameters"}
        if each.keys() != known or each["execution"] != "client":
            raise Refused(f"Invalid Value: tools.tool_search {str(each)[:200]}")


# What must come back


def google_signatures(request: Request) -> None:
    """https://github.com/nanbingxyz/5ire/issues/405

    The calls of the current turn need signatures; Google has a mark for calls of other models:
    https://ai.google.dev/gemini-api/docs/thought-signatures
    """
    for message in request.turn:
        for place, call in enumerate(message.get("tool_calls", ())):
            google = call.get("extra_content", {}).get("google", {})
            found, signed = google.get("thought_signature"), request.issued.get(call["id"])
            if place == 0 and not found:
                raise Refused(
                    "Function call is missing a thought_signature in functionCall parts. "
                    f"Additional data, function call `default_api:{call['function']['name']}`"
                )
            if found and found != (signed or "skip_thought_signature_validator"):
                raise Refused("Thought signature is not valid")


def openrouter_details(request: Request) -> None:
    """https://github.com/UKGovernmentBEIS/inspect_ai/issues/2838 and, for details of others,

    https://github.com/can1357/oh-my-pi/issues/3399
    """
    for message in request.messages:
        details = [each.get("data") for each in message.get("reasoning_details", ())]
        for call in message.get("tool_calls", ()):
            token = request.issued.get(call["id"])
            if token and token not in details:
                raise Refused(
                    "Gemini models require OpenRouter reasoning details to be preserved in each "
                    "request."
                )
        if any(each not in request.issued for each in details):
            raise Refused("messages.1.content.0: Invalid `signature` in `thinking` block")


def deepseek_reasoning(request: Request) -> None:
    """https://github.com/NousResearch/hermes-agent/pull/15228 (each message, with tools)"""
    for message in request.messages:
        found = message.get("reasoning_content", "")
        issued = {request.issued.get(each["id"]) for each in message.get("tool_calls", ())} - {None}
        lacks = message["role"] == "assistant" and not found.strip()
        if request.body.get("tools") and (lacks or issued - {found}):
            raise Refused(
                "The `reasoning_content` in the thinking mode must be passed back to the API."
            )


# Anthropic's Messages API


def anthropic_messages(request: Request) -> None:
    """https://github.com/anthropics/claude-code/issues/7929 (results directly after calls)

    https://github.com/anthropics/claude-code/issues/13460 (results without calls)
    https://github.com/anthropics/claude-code/issues/59812 (empty text)
    https://github.com/anthropics/claude-code/issues/28515 (ids of the whole conversation)
    """
    waiting: list[str] = []
    known: set[str] = set()
    before = "assistant"
    for place, message in enumerate(request.messages):
        role, blocks = message["role"], message["content"]
        if role == before or role not in ("user", "assistant"):
            raise Refused(f"messages: roles must alternate between user and assistant ({place})")
        before = role
        if not blocks:
            raise Refused(f"messages.{place}: all messages must have non-empty content")
        results = [each["tool_use_id"] for each in blocks if each["type"] == "tool_result"]
        first = [each["type"] for each in blocks[: len(results)]]
        if sorted(results) != sorted(waiting) or first != ["tool_result"] * len(results):
            raise Refused(
                f"messages.{place}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(waiting)}"
            )
        for index, block in enumerate(blocks):
            if problem := _block_problem(role, block):
                raise Refused(f"messages.{place}.content.{index}: {problem}")
        waiting = [each["id"] for each in blocks if each["type"] == "tool_use"]
        if len(set(waiting)) != len(waiting) or known & {*waiting}:
            raise Refused(f"messages.{place}: `tool_use` ids must be unique")
        known |= {*waiting}
    if waiting or before == "assistant":
        raise Refused("messages: the conversation must end with a user message")


def _block_problem(role: str, block: Part) -> str:
    plain = {name: each for name, each in block.items() if name != "cache_control"}
    match plain:
        case {"type": "text", "text": str(text)}:
            return "" if text.strip() else "text content blocks must be non-empty"
        case {"type": "tool_result", "content": str(text), "is_error": bool()}:
            return "" if text.strip() and role == "user" else "content is empty"
        case {"type": "tool_result", "content": list(parts)} if parts:
            return next(filter(None, (_block_problem("user", each) for each in parts)), "")
        case {"type": "tool_use", "id": str(id), "name": str(name), "input": dict()}:
            valid = re.fullmatch("[a-zA-Z0-9_-]+", id) and re.fullmatch("[a-zA-Z0-9_-]{1,64}", name)
            return "" if valid and role == "assistant" else f"tool_use.id: {id} {name}"
        case {"type": "tool_reference", "tool_name": str()}:
            return ""
        case {"type": "image", "source": {"type": "base64", "media_type": kind, "data": str(data)}}:
            known = kind in ("image/png", "image/jpeg", "image/gif", "image/webp")
            return "" if known and data and role == "user" else "Could not process image"
        case {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": str(data)},
        }:
            return "" if data and role == "user" else "Could not process PDF"
        case {"type": "thinking", "thinking": str(), "signature": str(signature)} if signature:
            return "" if role == "assistant" else "thinking belongs to the assistant"
        case {"type": "redacted_thinking", "data": str(data)} if data:
            return ""
    return f"Input tag {block.get('type')!r} or its members: Extra inputs are not permitted"


def anthropic_request(request: Request) -> None:
    """https://github.com/hotovo/aider-desk/issues/513 (4 marks), and Anthropic's reference"""
    body = request.body
    known = {"model", "max_tokens", "messages", "system", "tools", "stream", "temperature"}
    for name in body.keys() - known - {"top_p", "output_config", "thinking"}:
        raise Refused(f"{name}: Extra inputs are not permitted")
    if not isinstance(body.get("max_tokens"), int):
        raise Refused("max_tokens: Field required")
    marks = json.dumps(body).count('"cache_control"')
    if marks > 4:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {marks}.")
    if not all(each["text"].strip() for each in body.get("system", [{"text": "-"}])):
        raise Refused("system: text content blocks must be non-empty")


def anthropic_thinking(request: Request) -> None:
    """https://github.com/anthropics/claude-code/issues/63284 (changed blocks)

    https://github.com/can1357/oh-my-pi/issues/3399 (blocks of others)
    """
    for message in request.messages:
        blocks = message["content"] if message["role"] == "assistant" else []
        found = {each["signature"]: each for each in blocks if each["type"] == "thinking"}
        for signature, block in found.items():
            if signature not in request.issued:
                raise Refused("messages.1.content.0: Invalid `signature` in `thinking` block")
            if block["thinking"] != request.issued[signature]:
                raise Refused(
                    "`thinking` or `redacted_thinking` blocks in the latest assistant message "
                    "cannot be modified."
                )
        for call in blocks:
            token = request.issued.get(call.get("id", ""))
            if token and token not in found:
                raise Refused("Expected `thinking` or `redacted_thinking`, but found `tool_use`.")


# OpenAI's Responses API

_CALLS = ("function_call", "tool_search_call")


def responses_request(request: Request) -> None:
    """The reference of the Responses API: its members, and that nothing is stored."""
    known = {"model", "input", "stream", "store", "include", "instructions", "tools", "reasoning"}
    for name in request.body.keys() - known - {"max_output_tokens", "top_p"}:
        raise Refused(f"Unknown parameter: '{name}'.", param=name, code="unknown_parameter")
    if request.body.get("store") is not False:
        raise Refused("store must be set to false")


def responses_items(request: Request) -> None:
    """https://github.com/continuedev/continue/issues/8933 (reasoning without its item)

    https://github.com/openai/codex/issues/8145 (reasoning of others)
    https://github.com/teunlao/swift-ai-sdk/issues/8 (a call without its reasoning)
    """
    items = request.body["input"]
    waiting: list[str] = []
    tokens = {each.get("encrypted_content") for each in items if each.get("type") == "reasoning"}
    for place, item in enumerate(items):
        match item:
            case {"type": "reasoning", "id": id, "encrypted_content": token, "summary": list()}:
                after = items[place + 1 : place + 2]
                if not after or after[0].get("type") not in ("message", *_CALLS):
                    raise Refused(f"Item '{id}' was provided without its required following item.")
                if token not in request.issued:
                    raise Refused("The encrypted content gAAA could not be verified.")
            case {"type": "function_call", "call_id": str(id), "name": name, "arguments": text}:
                _check_function({"type": "function", "function": {"name": name, "arguments": text}})
                if len(id) > 64 or request.issued.get(id, "") not in {*tokens, ""}:
                    raise Refused(f"Item '{id}' was provided without its 'reasoning' item")
                waiting.append(id)
            case {"type": "tool_search_call", "call_id": str(id), "arguments": dict()}:
                waiting.append(id)
            case {
                "type": "tool_search_output",
                "call_id": id,
                "execution": "client",
                "status": "completed",
                "tools": list(found),
            }:
                if id not in waiting or not all(each.get("defer_loading") for each in found):
                    raise Refused(f"No tool search call found for {str(item)[:200]}.")
                waiting.remove(id)
            case {"role": "developer", "content": str(text)} if text.strip():
                continue
            case {"type": "function_call_output", "call_id": id, "output": output} if output:
                if id not in waiting:
                    raise Refused(f"No tool call found for function call output with call_id {id}.")
                waiting.remove(id)
            case {"type": "message"} | {"role": "assistant" | "user", "content": _}:
                _check_response_message(item)
            case _:
                raise Refused(f"Invalid value: input[{place}] {str(item)[:200]}")
    if waiting:
        raise Refused(f"No tool output found for function call {waiting[0]}.")


def _check_response_message(item: Part) -> None:
    content = item["content"]
    for part in [{"type": "input_text", "text": content}] if isinstance(content, str) else content:
        match part:
            case {"type": "input_text" | "output_text", "text": str(text)} if text.strip():
                continue
            case {"type": "refusal", "refusal": str()}:
                continue
            case {"type": "input_image", "image_url": str(url)} if url.startswith("data:image/"):
                continue
            case {"type": "input_file", "filename": str(), "file_data": str(url)}:
                if url.startswith("data:application/pdf;base64,"):
                    continue
        raise Refused(f"Invalid content {str(part)[:200]}")
