"""Reads from a refusal what to leave out of the next request.

The wordings come from providers and servers: OpenAI ("Invalid schema for function 'x'",
`tools[3].function.parameters`), Anthropic (`tools.3.custom.input_schema`), Gemini
(`function_declarations[3]`), Mistral and servers with FastAPI (`body.tools.3.function`),
Groq, vLLM, llama.cpp and Ollama. If a wording names no tool, member or limit, the refusal reaches
the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from interlock.models.http.api_refusal import ApiRefusal
from interlock.models.http.model_endpoint import context_sizes
from interlock.models.http.model_limits import OUTPUTS, digest, shown, size_of
from interlock.models.learned import Lesson
from interlock.models.model import ToolDefinition

# llama.cpp and Ollama answer 500 and 501 if a model's template cannot have tools. LM Studio's
# answer is an error with the status 200: https://github.com/NousResearch/hermes-agent/pull/67349
_STATUSES = frozenset((200, 400, 404, 405, 413, 422, 500, 501))
_OUTPUT = re.compile(
    r"max_tokens: \d+ > (\d+)|at most (\d+) (?:completion|output) tokens|"
    r"maximum (?:allowed )?(?:number of )?(?:completion|output) tokens\D{0,20}(\d+)",
    re.IGNORECASE,
)
_ABOUT_TOOLS = re.compile(r"\b(tools?|functions?|function_?declarations?)\b", re.IGNORECASE)
_ABOUT_MESSAGES = re.compile(
    r"\b(messages|input|contents)[\[.]|tool_call|tool_use|tool_result|"
    r"function_?(?:call|response)\b|"
    r"function (?:call (?:turn|part|is missing)|response)|\b(?:role|turns?)\b|tool messages?",
    re.IGNORECASE,
)
# The model's own output was wrong, so no tool is to blame: Groq, vLLM and llama.cpp.
_BAD_OUTPUT = re.compile(
    r"failed_generation|failed to call a function|tool call validation|tool_use_failed|"
    r"malformed function call|(?:failed to|could not|cannot) parse (?:the )?(?:tool|input|output)",
    re.IGNORECASE,
)
_TOO_MANY = re.compile(
    r"too many|array too long|at most (?:\d+) (?:items|tools|functions|elements)|"
    r"(?:maximum|max)\b[^.;]{0,40}\b(?:tools|functions|length|items|declarations)|"
    r"(?:exceeds?|more than|up to|limit of|limited to|maximum of|only)\b[^.;]{0,60}\b\d+",
    re.IGNORECASE,
)
_USUAL_LIMITS = (128, 64, 32, 16)  # tried in this order if a refusal states no number
_NO_TOOLS = re.compile(
    r"does(?: not|n't) support (?:tools|tool[ _]use|tool[ _]call|function|native tool)|"
    r"(?:tools?|tool[ _]use|tool[ _]calling|function[ _]calling|functions?) (?:is|are) "
    r"(?:not|un)[ ]?(?:supported|available|enabled|allowed)|enable-auto-tool-choice|"
    r"no endpoints found that support tool use|tools param requires|"
    r"(?:unsupported|unknown|unrecognized|unexpected)[^.;]{0,40}['\"`]tools?['\"`]|"
    r"['\"`]?\btools?['\"`]? (?:is|was) (?:not permitted|unexpected)|"
    r"^(?:body\.)?tools: extra|arguments? supplied: tools\b",
    re.IGNORECASE,
)
_DECLARATION = re.compile(r"function_?declarations?\s*[\[./]\s*(\d+)", re.IGNORECASE)
_INDEX = re.compile(
    r"\b(?:tools?|functions?)\s*[\[./]\s*(\d+)|\btools? (?:at )?(?:index|position) (\d+)",
    re.IGNORECASE,
)
# Words with which servers refuse a member, not its value.
_NOT_TAKEN = re.compile(
    r"unsupported|not (?:currently )?supported|does(?: not|n't) support|unrecogni[sz]ed|unknown|"
    r"unexpected|extra inputs|extra fields|not permitted|not allowed|extra_forbidden|"
    r"additional propert|deprecated|no longer|not accept|not recogni[sz]ed|not implemented|"
    r"not available|cannot be (?:set|used|specified)|only the default|"
    r"invalid (?:parameter|argument|field)|not a valid (?:parameter|argument|field)",
    re.IGNORECASE,
)
_DEFERRING = re.compile(
    r"\b(?:defer_loading|tool_references?|tool_search(?:_call|_output)?)\b|tool reference|"
    # a restricted key: https://github.com/anomalyco/opencode/issues/21928
    r"api\.responses\.write",
    re.IGNORECASE,
)
_INSTEAD = re.compile(r"\buse ['\"`]?(\w+)['\"`]? instead", re.IGNORECASE)
_IN_TOOLS = ("cache_control", "strict")  # members that interlock adds inside of tools and messages
# What a conversation lacks: see `openai.chat_request.NEEDS`.
_NEEDS = {
    # https://github.com/continuedev/continue/issues/11711,
    "reasoning": r"reasoning_content\W.{0,60}(missing|required|must be passed)|"
    r"(missing|requires?) .{0,30}reasoning_content",
    # https://github.com/securo-finance/securo/issues/884
    "signatures": r"missing an? .{0,3}thought_?signature",
    # https://github.com/aaif-goose/goose/issues/5998
    "answers": r"unexpected role .?user.? after role .?tool",
    # Mistral and its templates: https://github.com/jundot/omlx/pull/1997
    "ids": r"call ids? (was .{1,99} but must|should) be (a-z|alphanumeric)",
    # https://github.com/ggml-org/llama.cpp/issues/19851
    "turns": r"roles must alternate",
    # Gemma at Google, Gemma elsewhere, o1-mini: https://github.com/google/adk-python/issues/3900,
    # https://github.com/huggingface/chat-ui/issues/1386, https://github.com/janhq/jan/issues/4392
    "instructions": r"(developer|system) (instruction|role|message|prompt)s?\b.{0,20}not "
    r"(enabled|supported)|role.{0,3} does not support .?(system|developer)",
}
# Members of answers that are sent back in messages, such as reasoning. Groq refuses them:
# https://github.com/janhq/jan/issues/8136
_IN_MESSAGES = (
    *("reasoning_content", "reasoning_details", "thinking_blocks", "reasoning", "thinking"),
)
_FILES = re.compile(
    r"image|audio|multimodal|vision|mmproj|modalit|expected a string|"
    # vLLM and llama.cpp: https://github.com/langchain-ai/openwiki/issues/63
    r"(content|part)(\[\])?[ .](part|type)|"
    r"file_data|must be a string|unknown variant .?(image|file|input)|\bpdf\b|document|"
    # Ollama: https://github.com/Kilo-Org/kilocode/issues/11878
    r"invalid message format|cannot unmarshal array",
    re.IGNORECASE,
)
# What servers write if they read images, but not this format: Ollama without GIF and LM Studio
# without WebP (https://github.com/RooCodeInc/Roo-Code/issues/8827).
_IMAGE_FORMAT = re.compile(
    r"invalid image|(?:valid|encoded|process|unsupported) image|image (?:format|type)|mime.?type",
    re.IGNORECASE,
)
_RARE_IMAGES = ("image/webp", "image/gif")
_KINDS = {
    "sounds": r"audio|sound",
    "documents": r"pdf|document|\bfiles?\b",
    "images": r"image|vision",
}
_SIGNED = re.compile(r"thinking|signature|encrypted|reasoning|\bitem\b|thought", re.IGNORECASE)
_SCHEMA = re.compile(
    r"schema|grammar|jinja|template|\bparameters\b|\btools?\b|\bfunctions?\b", re.IGNORECASE
)


class SentRequest(Struct, frozen=True):
    """A request that was refused.

    Attributes:
        body: The request.
        tools: The tools of the request, in its order.
        needed: Members that the API requires, so they are never left out.
        options: Members that the user has set.
        files: Kinds of files in the messages ("sounds", "documents", "images"), and media types.
        is_signed: Whether the messages have parts that the provider has signed.
    """

    body: Mapping[str, Any]
    tools: Sequence[ToolDefinition]
    needed: frozenset[str]
    options: frozenset[str]
    files: frozenset[str] = frozenset()
    is_signed: bool = False


def lessons_in(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    """Return the lessons from a refusal; an empty list if nothing can be left out of a retry.

    A lesson of the kind "unsigned" or "guess" is for this request only.
    """
    is_learned_from = refusal.status in _STATUSES or refusal.is_too_large
    is_learned_from |= "api.responses.write" in refusal.reason
    if not is_learned_from or _BAD_OUTPUT.search(f"{refusal.code} {refusal.reason}"):
        return []
    for read in (
        _deferred_tools,
        _responses,
        _needs,
        _effort,
        _output_limit,
        _tools_too_long,
        _too_many_tools,
        _tools_at_all,
        _members_in_tools,
        _members_in_messages,
        _named_tools,
        _members,
        _unsigned,
        _unread_files,
        _unnamed_tool,
    ):
        if found := read(refusal, sent):
            return found
    return []


def _deferred_tools(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    # Proxies refuse the members, and models without tool search the tool.
    is_deferring = any(each.deferred for each in sent.tools)
    if is_deferring and _DEFERRING.search(f"{refusal.param} {refusal.reason}"):
        return [_lesson("lists_tools", refusal)]
    return []


def _responses(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    if "messages" in sent.body and re.search(r"v1/responses|responses api", refusal.reason, re.I):
        return [_lesson("responses", refusal)]
    return []


def _needs(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    if "messages" not in sent.body:
        return []
    return [
        _lesson("need", refusal, what=what)
        for what, pattern in _NEEDS.items()
        if re.search(pattern, refusal.reason, re.IGNORECASE)
    ][:1]


def _effort(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    # Some models of OpenAI accept tools in chat completions only without reasoning.
    if refusal.param == "reasoning_effort" and sent.tools and "reasoning_effort" not in sent.body:
        return [_lesson("effort", refusal)]
    return []


def _output_limit(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    if found := _OUTPUT.search(refusal.reason):
        limit = int(next(filter(None, found.groups())))
        asked = [sent.body[name] for name in OUTPUTS if isinstance(sent.body.get(name), int)]
        if asked and 0 < limit < max(asked):
            return [_lesson("output", refusal, limit=limit)]
    return []


def _tools_too_long(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    """Return the size that tools may have, if they are the larger part of a too long request."""
    sizes = context_sizes(refusal)
    listed = [each for each in sent.tools if not each.deferred]
    if sizes is None or not listed:
        return []
    written = [each for each in sent.body["tools"] if "defer_loading" not in each]
    size = len(msgspec.json.encode(written))
    total = len(msgspec.json.encode(sent.body))
    if 2 * size < total:
        return []  # the caller shortens the conversation
    limit, used = sizes
    # Half of the context is for the conversation; without numbers, half of the tools go.
    part = limit / (used or total / 4) / 2 * (total / size) if limit else 0.5
    return [_lesson("tool_bytes", refusal, limit=int(size_of(listed) * min(part, 0.9)))]


def _too_many_tools(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    reason, count = refusal.reason, len(sent.tools)
    is_about_tools = refusal.param == "tools" or _ABOUT_TOOLS.search(reason)
    if count < 2 or not is_about_tools or not _TOO_MANY.search(reason):
        return []
    is_about_all = refusal.param == "tools" or re.search(r"['\"`]tools['\"`]", reason)
    if not is_about_all and _named(refusal, sent):
        return []
    numbers = [int(each) for each in re.findall(r"(?<![\w.\[])\d{1,4}(?![\w\]])", reason)]
    limits = [each for each in numbers if 0 < each < count]
    if not limits:
        if not re.search(r"too many|too long|exceed", reason, re.IGNORECASE):
            return []
        limits = [each for each in _USUAL_LIMITS if each < count] or [count // 2]
    return [_lesson("tools", refusal, limit=max(limits))]


def _tools_at_all(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    if sent.tools and _NO_TOOLS.search(refusal.reason):
        return [_lesson("no_tools", refusal)]
    return []


def _members_in_tools(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    text = f"{refusal.param} {refusal.reason}"
    written = str(sent.body)
    return [
        _lesson("member", refusal, what=name)
        for name in _IN_TOOLS
        if f"'{name}'" in written and re.search(rf"(?:^|[.'\"`\s]){name}\b", text)
    ][:1]


def _members_in_messages(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    if not sent.is_signed or not _NOT_TAKEN.search(refusal.reason):
        return []
    written = {name for each in sent.body.get("messages", ()) for name in each}
    found = [name for name in _IN_MESSAGES if name in written and _is_member(name, refusal.reason)]
    return [_lesson("member", refusal, what=name) for name in found[:1]]


def _named_tools(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    return [
        _lesson("tool", refusal, what=digest(tool), name=shown(tool))
        for tool in _named(refusal, sent)
    ]


def _named(refusal: ApiRefusal, sent: SentRequest) -> list[ToolDefinition]:
    text = f"{refusal.param} {refusal.reason}"
    if _ABOUT_MESSAGES.search(text) and not _INDEX.search(text):
        return []
    if named := [tool for tool in sent.tools if _is_named(tool.name, text)]:
        return named
    found = _DECLARATION.findall(text) or [a or b for a, b in _INDEX.findall(text)]
    places = {int(each[:6]) for each in found}
    return [tool for place, tool in enumerate(sent.tools) if place in places]


def _is_named(name: str, text: str) -> bool:
    before = r"(?<![\w-])" if "__" in name else r"(?:['\"`“‘]|\b(?:function|tool)s? )"
    return re.search(rf"{before}{re.escape(name)}(?![\w-])", text) is not None


def _members(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    reason, named = refusal.reason, re.split(r"[.\[]", refusal.param)[0]
    is_stream = named == "stream" or (_NOT_TAKEN.search(reason) and _is_member("stream", reason))
    if is_stream and sent.body.get("stream"):
        return [_lesson("member", refusal, what="stream")]
    # A reason may name a member of a schema in `tools`, as Ollama does; tools have lessons above.
    free = [name for name in sent.body if name not in sent.needed and name != "tools"]
    found = [name for name in free if name == named] or [
        name for name in sorted(free, key=len, reverse=True) if _is_member(name, reason)
    ]
    instead = _INSTEAD.search(reason)
    for name in found:
        # The value of an option may be wrong. Then the user must hear of it.
        if name in sent.options and not _NOT_TAKEN.search(reason):
            continue
        other = instead[1] if instead and instead[1] != name else ""
        return [_lesson("member", refusal, what=name, name=other if name in OUTPUTS else "")]
    return []


def _is_member(name: str, reason: str) -> bool:
    """Return whether a reason names a member of a request, and not only uses the word."""
    if "_" in name:
        return re.search(rf"(?<!\w){name}(?!\w)", reason) is not None
    marks = (
        r"(?:['\"`]|\b(?:parameter|argument|supplied|field|property|key|input|option|member|body)s?"
        r"[\s:.]+|^)"
    )
    return re.search(rf"{marks}{re.escape(name)}(?![\w-])", reason, re.IGNORECASE) is not None


def _unsigned(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    if sent.is_signed and _SIGNED.search(refusal.reason):
        return [_lesson("unsigned", refusal)]
    return []


def _unread_files(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    is_too_large = refusal.status == 413 and context_sizes(refusal) is None
    if not sent.files or not (is_too_large or _FILES.search(refusal.reason)):
        return []
    rare = [each for each in _RARE_IMAGES if each in sent.files]
    if rare and _IMAGE_FORMAT.search(refusal.reason):
        return [_lesson("unread", refusal, what=each) for each in rare]
    # More models can process images than documents and sounds.
    kinds = [each for each in ("sounds", "documents", "images") if each in sent.files]
    named = [each for each in kinds if re.search(_KINDS[each], refusal.reason, re.IGNORECASE)]
    return [_lesson("unread", refusal, what=(named or kinds)[0])]


def _unnamed_tool(refusal: ApiRefusal, sent: SentRequest) -> list[Lesson]:
    reason = refusal.reason
    if sent.tools and _SCHEMA.search(reason) and not _ABOUT_MESSAGES.search(reason):
        return [_lesson("guess", refusal)]
    return []


def _lesson(
    kind: str, refusal: ApiRefusal, *, what: str = "", name: str = "", limit: int = 0
) -> Lesson:
    return Lesson(kind, what, name, limit, refusal.reason[:300])
