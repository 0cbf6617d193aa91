"""The providers of the lab: one row each, with what it accepts and how it answers."""

from __future__ import annotations

from typing import Any

from tests.providers import answer_forms, request_rules, schema_rules
from tests.providers.answer_forms import ChatForm, chat, sign_google, sign_openrouter
from tests.providers.fake_provider import KEY, Fake, Refused, Rule
from tests.providers.request_rules import CHAT

_OPENAI_ID = "Invalid 'messages[1].tool_calls[0].id': string too long, {!r}"
_ANY_ID = "[^\\s]{{1,64}}".format()
_USAGE = {"stream_options"}


def _anthropic_error(refused: Refused) -> Any:
    kind = "overloaded_error" if refused.status == 529 else "invalid_request_error"
    return {"type": "error", "error": {"type": kind, "message": refused.message}}


def _google_error(refused: Refused) -> Any:
    error = {"code": refused.status, "message": refused.message, "status": "INVALID_ARGUMENT"}
    return [{"error": error}]


def _mistral_error(refused: Refused) -> Any:
    about = {"type": "invalid_request_error", "param": None, "code": refused.code or "3051"}
    if refused.status != 422:
        return {"object": "error", "message": refused.message, **about}
    place = ["body", *refused.message.split(".")]
    found = {"type": "extra_forbidden", "loc": place, "msg": "Extra inputs are not permitted"}
    return {"object": "error", "message": {"detail": [found]}, **about}


def _openrouter_error(refused: Refused) -> Any:
    """https://github.com/charmbracelet/crush/issues/279"""
    about = {"raw": f'{{"error":{{"message":"{refused.message}"}}}}', "provider_name": "Google"}
    error = {"message": "Provider returned error", "code": refused.status, "metadata": about}
    return {"error": error, "user_id": "user_1"}


def _text_error(refused: Refused) -> Any:
    """LM Studio: https://github.com/LoadShine/tada/issues/16"""
    return {"error": refused.message}


def _server_error(refused: Refused) -> Any:
    """llama.cpp, vLLM and Ollama: the status as `code`, or none."""
    about = {"message": refused.message, "type": "invalid_request_error", "param": None}
    return {"error": {**about, "code": refused.status}}


def _part(text: str, status: int = 400) -> Any:
    return lambda place, kind: Refused(text.format(place, kind), status=status)


def _llama_part(_: int, kind: str) -> Refused:
    """llama.cpp without a projector, as its server in `test_llama_server` answers."""
    if kind == "file":
        return Refused("unsupported content[].type")
    return Refused(
        f"{kind.replace('_url', '').replace('input_', '')} input is not supported - hint: if this "
        "is unexpected, you may need to provide the mmproj",
        status=500,
    )


def _chat_rules(*more: Rule) -> tuple[Rule, ...]:
    return (request_rules.no_halves, request_rules.answered_calls, *more)


_NO_KEY = (401, "Invalid API Key")


def _refusals(**texts: tuple[int, str]) -> dict[str, tuple[int, str]]:
    """Return the failures of a provider; those that it does not state have OpenAI's text."""
    return {
        "key": (401, f"Incorrect API key provided: {KEY}"),
        "rate": (429, "Rate limit reached for requests. Please try again in 0s."),
        "overloaded": (503, "The engine is currently overloaded, please try again later"),
        "failure": (500, "The server had an error while processing your request."),
        "model": (404, "The model does not exist or you do not have access to it."),
        "quota": (402, "Insufficient Balance"),
        "context": (
            400,
            "This model's maximum context length is 8192 tokens. However, your messages resulted "
            "in 9001 tokens.",
        ),
        **texts,
    }


# https://github.com/vercel/ai/issues/16 lists the places of Azure's content filter; its first chunk
# has no choices: https://github.com/AbanteAI/archive-old-cli-mentat/issues/429
_AZURE_FIRST = b'data: {"id":"","choices":[],"object":"","prompt_filter_results":[]}\n\n'
# https://openrouter.ai/docs/api-reference/streaming: comments keep the connection open
_COMMENT = b": OPENROUTER PROCESSING\n\n"

_OPENAI = (
    request_rules.members(
        {*CHAT, *_USAGE, "max_completion_tokens", "max_tokens"}, "Unknown parameter: '{}'."
    ),
    request_rules.message_members((), "Unknown parameter: 'messages[{}].{}'."),
    request_rules.output_name,
    request_rules.temperature,
    request_rules.call_form("[^\\s]{1,40}", _OPENAI_ID),
    request_rules.tools(schema_rules.openai, 128),
)
_AZURE_FILES = request_rules.contents(
    # https://github.com/Azure/azure-sdk-for-net/issues/51873
    "image_url",
    "input_audio",
    refuse=_part("Invalid Value: '{1}'. This model does not support {1} content types."),
)
# Ids that begin again with each answer: https://github.com/vllm-project/vllm/issues/50295
_VLLM_FORM = ChatForm("reasoning", "chatcmpl-tool-{:032x}".format, repeats_ids=True, cached="")

FAKES = (
    Fake(
        "OpenAI, chat completions",
        "openai:gpt-6-luna",
        "/v1",
        _chat_rules(
            request_rules.at("/v1/chat/completions"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            *_OPENAI,
            request_rules.contents(
                "image_url", "file", "input_audio", refuse=_part("Invalid Value: '{1}'.")
            ),
        ),
        chat(ChatForm()),
        _refusals(
            # https://github.com/continuedev/continue/issues/11717
            large=(
                429,
                "Request too large for gpt-6-luna in organization org-1 on tokens per min (TPM): "
                "Limit 30000, Requested 37313. The input or output tokens must be reduced.",
            ),
        ),
        reasons=False,
        most_tools=128,
    ),
    Fake(
        "OpenAI, Responses API",
        "openai:gpt-6-luna-pro",
        "/v1",
        (
            request_rules.no_halves,
            request_rules.at("/v1/responses"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            request_rules.responses_request,
            request_rules.responses_items,
            request_rules.responses_deferred_tools,
            request_rules.tools(schema_rules.openai, 128),
        ),
        answer_forms.responses,
        _refusals(
            context=(400, "Your input exceeds the context window of this model."),
        ),
        takes=frozenset(("images", "documents")),
        most_tools=128,
    ),
    Fake(
        "Anthropic",
        "anthropic:claude-sonnet-5-5",
        "",
        (
            request_rules.no_halves,
            request_rules.at("/v1/messages"),
            request_rules.key("X-Api-Key"),
            request_rules.version,
            request_rules.anthropic_request,
            request_rules.anthropic_messages,
            request_rules.anthropic_thinking,
            request_rules.anthropic_deferred_tools,
            request_rules.tools(schema_rules.anthropic),
        ),
        answer_forms.messages,
        _refusals(
            key=(401, "invalid x-api-key"),
            overloaded=(529, "Overloaded"),
            context=(400, "prompt is too long: 9001 tokens > 8192 maximum"),
        ),
        _anthropic_error,
        takes=frozenset(("images", "documents")),
    ),
    Fake(
        "Gemini",
        "gemini:gemini-flash-latest",
        "/v1beta/openai",
        _chat_rules(
            request_rules.at("/v1beta/openai/chat/completions"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            request_rules.members(
                {*CHAT, *_USAGE, "max_tokens", "max_completion_tokens", "extra_body"},
                'Invalid JSON payload received. Unknown name "{}": Cannot find field.',
            ),
            request_rules.message_members((), 'Unknown name "{1}" at messages[{0}]'),
            request_rules.gemini_order,
            request_rules.google_signatures,
            request_rules.call_form(_ANY_ID, "Invalid function call id {!r}"),
            request_rules.contents(
                "image_url", "input_audio", refuse=_part("Invalid content part type: {1}")
            ),
            request_rules.tools(schema_rules.gemini),
        ),
        # Calls come whole, all with index 0: https://github.com/su-kaka/gcli2api/pull/406
        chat(
            ChatForm(
                "",
                "function-call-{:019d}".format,
                is_whole=True,
                index=False,
                called="stop",
                usage="last",
                cached="",
                sign=sign_google,
            )
        ),
        _refusals(
            context=(
                400,
                "The input token count (9001) exceeds the maximum number of tokens allowed (8192).",
            ),
            overloaded=(503, "The model is overloaded. Please try again later."),
        ),
        _google_error,
        takes=frozenset(("images", "sounds")),
        reasons=False,
        cached=False,
    ),
    Fake(
        "Mistral",
        "mistral:mistral-medium-latest",
        "/v1",
        _chat_rules(
            request_rules.at("/v1/chat/completions"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            request_rules.members({*CHAT, "max_tokens"}, "{}", 422),
            request_rules.message_members((), "messages.{}.assistant.{}", 422),
            request_rules.mistral_order,
            request_rules.call_form(
                "[a-zA-Z0-9]{9}",
                "Tool call id was {} but must be a-z, A-Z, 0-9, with a length of 9.",
            ),
            request_rules.contents(
                "image_url", "document_url", "input_audio", refuse=_part("Invalid type {1}")
            ),
            request_rules.tools(schema_rules.mistral),
        ),
        # Content as a list of parts: https://docs.mistral.ai/capabilities/reasoning
        chat(ChatForm("content", "{:09d}".format, is_whole=True, usage="last", cached="")),
        _refusals(
            context=(
                400,
                "Prompt contains 9001 tokens and 0 draft tokens, too large for model with 8192 "
                "maximum context length",
            ),
        ),
        _mistral_error,
        cached=False,
    ),
    Fake(
        "DeepSeek",
        "deepseek:deepseek-flash",
        "",
        _chat_rules(
            request_rules.at("/chat/completions"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            request_rules.deepseek_reasoning,
            request_rules.call_form(_ANY_ID, "Invalid tool call id {!r}"),
            # https://github.com/Zoo-Code-Org/Zoo-Code/issues/1106
            request_rules.contents(
                refuse=_part(
                    "Failed to deserialize the JSON body into the target type: messages[{0}]: "
                    "unknown variant `{1}`, expected `text`"
                )
            ),
            request_rules.tools(schema_rules.openai, 128),
        ),
        chat(
            ChatForm(
                "reasoning_content", "call_00_{:020d}".format, cached="prompt_cache_hit_tokens"
            )
        ),
        _refusals(),
        takes=frozenset(),
        most_tools=128,
    ),
    Fake(
        "OpenRouter",
        "openrouter:google/gemini-flash-latest",
        "/api/v1",
        _chat_rules(
            request_rules.at("/api/v1/chat/completions"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            request_rules.openrouter_details,
            request_rules.call_form(_ANY_ID, "Invalid tool call id {!r}"),
            request_rules.contents(
                "image_url", "file", "input_audio", refuse=_part("Invalid input: {1}")
            ),
            request_rules.tools(schema_rules.gemini),
        ),
        chat(
            ChatForm(
                "reasoning",
                "tool_0_read_{:012d}".format,
                first=(_COMMENT, _COMMENT),
                sign=sign_openrouter,
            )
        ),
        _refusals(
            context=(
                400,
                "This endpoint's maximum context length is 8192 tokens. However, you requested "
                "about 9001 tokens.",
            ),
        ),
        _openrouter_error,
    ),
    Fake(
        "Azure",
        "azure:gpt-6-luna",
        "",
        _chat_rules(
            request_rules.at("/openai/v1/chat/completions"),
            request_rules.key("api-key"),
            *_OPENAI,
            _AZURE_FILES,
        ),
        chat(ChatForm(first=(_AZURE_FIRST,))),
        _refusals(),
        takes=frozenset(("images", "sounds")),
        reasons=False,
        most_tools=128,
    ),
    Fake(
        "Azure, dated API",
        "azure:our-luna",
        "",
        _chat_rules(
            request_rules.at(
                "/openai/deployments/our-luna(-another-model)?/chat/completions",
                "api-version=2026-04-01",
            ),
            request_rules.key("api-key"),
            *_OPENAI,
            _AZURE_FILES,
        ),
        chat(ChatForm(first=(_AZURE_FIRST,))),
        _refusals(),
        takes=frozenset(("images", "sounds")),
        reasons=False,
        most_tools=128,
    ),
    Fake(
        "Groq",
        "groq:openai/gpt-oss-120b",
        "/openai/v1",
        _chat_rules(
            request_rules.at("/openai/v1/chat/completions"),
            request_rules.key("Authorization", f"Bearer {KEY}"),
            request_rules.members(
                {*CHAT, *_USAGE, "max_tokens", "max_completion_tokens"},
                "property '{}' is unsupported",
            ),
            # `reasoning` comes and may go back: https://github.com/groq/groq-python/pull/185
            request_rules.message_members(
                ("reasoning",),
                "'messages.{0}' : for 'role:assistant' the following must be satisfied["
                "('messages.{0}' : property '{1}' is unsupported)]",
            ),
            request_rules.call_form(_ANY_ID, "Invalid tool call id {!r}"),
            # https://github.com/microsoft/PyRIT/issues/704
            request_rules.contents(refuse=_part("'messages.{0}.content' must be a string")),
            request_rules.tools(schema_rules.openai, 128),
        ),
        chat(ChatForm("reasoning", "fc_{:036d}".format, is_whole=True, cached="")),
        _refusals(
            # https://github.com/assafelovic/gpt-researcher/issues/985
            context=(
                413,
                "Request too large for model `m` in organization `o` on tokens per minute (TPM): "
                "Limit 8192, Requested 9001, please reduce your message size and try again.",
            ),
            # https://github.com/anomalyco/opencode/issues/1018
            call=(400, "Failed to call a function. Please adjust your prompt."),
        ),
        takes=frozenset(),
        cached=False,
        most_tools=128,
    ),
    Fake(
        "Ollama",
        "ollama:qwen3:8b",
        "",
        _chat_rules(
            request_rules.at("/v1/chat/completions"),
            request_rules.no_key,
            request_rules.call_form(_ANY_ID, "invalid tool call arguments"),
            # openai/openai.go of https://github.com/ollama/ollama
            request_rules.contents("image_url", refuse=_part("invalid message format")),
            request_rules.images("image/gif", "invalid image input"),
            request_rules.tools(schema_rules.llama_cpp),
        ),
        chat(ChatForm("reasoning", "call_{:08d}".format, is_whole=True, cached="")),
        _refusals(key=_NO_KEY, context=(400, "the input exceeds the context length of this model")),
        _server_error,
        takes=frozenset(("images",)),
        unread=frozenset(("image/gif",)),
        cached=False,
    ),
    Fake(
        "LM Studio",
        "lmstudio:qwen3-vl-8b",
        "/v1",
        _chat_rules(
            request_rules.at("/v1/chat/completions"),
            request_rules.no_key,
            request_rules.call_form(_ANY_ID, "Invalid tool call id {!r}"),
            request_rules.contents(
                "image_url",
                refuse=_part(
                    "Invalid 'content': 'content' objects must have a 'type' field that is either "
                    "'text' or 'image_url'."
                ),
            ),
            request_rules.images("image/webp", "'url' field must be a base64 encoded image."),
            request_rules.tools(schema_rules.lm_studio),
        ),
        # Ids are numbers: https://github.com/lmstudio-ai/lmstudio-bug-tracker/issues/261
        chat(ChatForm("reasoning_content", "{:09d}".format, cached="")),
        _refusals(
            key=_NO_KEY,
            context=(
                400,
                "Trying to keep the first 9001 tokens when context the overflows. However, the "
                "model is loaded with context length of only 8192 tokens",
            ),
        ),
        _text_error,
        takes=frozenset(("images",)),
        unread=frozenset(("image/webp",)),
        cached=False,
    ),
    Fake(
        "llama.cpp",
        "llamacpp:our-model",
        "/v1",
        _chat_rules(
            request_rules.at("/v1/chat/completions"),
            request_rules.no_key,
            request_rules.alternating,
            request_rules.call_form(_ANY_ID, "Invalid tool call id {!r}"),
            request_rules.contents(refuse=_llama_part),
            request_rules.tools(schema_rules.llama_cpp),
        ),
        chat(ChatForm("reasoning_content", "{:032x}".format)),
        _refusals(
            key=_NO_KEY,
            context=(
                400,
                "request (9001 tokens) exceeds the available context size (8192 tokens), try "
                "increasing it",
            ),
        ),
        _server_error,
        takes=frozenset(),
        teaches=1,
    ),
    Fake(
        "vLLM",
        "vllm:mistralai/Mistral-Small-3.2-24B-Instruct",
        "/v1",
        _chat_rules(
            request_rules.at("/v1/chat/completions"),
            request_rules.no_key,
            request_rules.alternating,
            request_rules.call_form(_ANY_ID, "Invalid tool call id {!r}"),
            # https://github.com/langchain-ai/openwiki/issues/63
            request_rules.contents("image_url", refuse=_part("Unknown part type: {1}", 500)),
            request_rules.tools(schema_rules.vllm),
        ),
        chat(_VLLM_FORM),
        _refusals(
            key=_NO_KEY,
            context=(
                400,
                "This model's maximum context length is 8192 tokens. However, you requested 9001 "
                "tokens in the messages.",
            ),
        ),
        _server_error,
        takes=frozenset(("images",)),
        cached=False,
    ),
)
