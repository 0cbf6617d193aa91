"""MCP's messages and objects as structs, named as in the specification, fields in snake_case.

Rules:

1. One struct serves all revisions. Fields that an older revision does not have are absent.
2. Decoding ignores unknown fields; a forwarder keeps the encoded bytes.
3. `UNSET` means "not in the message", where null would mean something else.

Source: schemas of 2024-11-05 to 2026-07-28.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

__all__ = [
    "Annotations",
    "AudioContent",
    "CallToolParams",
    "CallToolResult",
    "CancelledParams",
    "ClientCapabilities",
    "CompleteParams",
    "CompleteResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "Content",
    "CreateMessageParams",
    "CreateMessageResult",
    "DiscoverResult",
    "ElicitParams",
    "ElicitResult",
    "EmbeddedResource",
    "ErrorObject",
    "GetPromptParams",
    "GetPromptResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "InitializeParams",
    "InitializeResult",
    "InputRequest",
    "JsonObject",
    "ListPage",
    "ListParams",
    "ListRootsResult",
    "ListenParams",
    "LogLevel",
    "LogMessage",
    "ProgressParams",
    "ProgressToken",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ReadResourceParams",
    "ReadResourceResult",
    "RequestId",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "ResourceUpdatedParams",
    "Result",
    "Role",
    "Root",
    "SamplingMessage",
    "ServerCapabilities",
    "SubscriptionFilter",
    "TextContent",
    "Tool",
    "ToolAnnotations",
    "ToolResultContent",
    "ToolUseContent",
    "UnknownContent",
    "Wire",
]

RequestId = int | str
"""The id of a request in JSON-RPC."""
ProgressToken = int | str
"""The id by which progress reports refer to their request."""
JsonObject = dict[str, Any]
"""A decoded JSON object."""
Role = Literal["user", "assistant"]
"""The author of a message."""
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
"""The severity of a log message, as in RFC 5424."""


class Wire(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Base of all wire types: camelCase on the wire, defaults left out."""


# Clients and servers


class Icon(Wire, frozen=True):
    """A picture for a tool, resource, prompt or program. Since 2025-11-25."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | str | None = None
    theme: str | None = None


class Implementation(Wire, frozen=True):
    """Name and version of a client or server. For display only, never for decisions."""

    name: str
    version: str = ""
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class ClientCapabilities(Wire, frozen=True):
    """Requests that a server may send to this client. None means "not supported"."""

    roots: JsonObject | None = None
    sampling: JsonObject | None = None
    elicitation: JsonObject | None = None
    experimental: JsonObject | None = None
    extensions: JsonObject | None = None


class ServerCapabilities(Wire, frozen=True):
    """Requests that a client may send to this server. None means "not supported"."""

    tools: JsonObject | None = None
    resources: JsonObject | None = None
    prompts: JsonObject | None = None
    logging: JsonObject | None = None
    completions: JsonObject | None = None
    experimental: JsonObject | None = None
    extensions: JsonObject | None = None


class InitializeParams(Wire, frozen=True):
    """`initialize`, revisions up to 2025-11-25."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation = Implementation(name="")


class InitializeResult(Wire, frozen=True):
    """Answer to `initialize`."""

    protocol_version: str
    capabilities: ServerCapabilities = ServerCapabilities()
    server_info: Implementation = Implementation(name="")
    instructions: str | None = None


class DiscoverResult(Wire, frozen=True):
    """Answer to `server/discover`, from 2026-07-28 on."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    result_type: str = "complete"
    meta: JsonObject | None = field(name="_meta", default=None)


# Content


class Annotations(Wire, frozen=True):
    """Hints about the audience of content. Since 2024-11-05; `last_modified` since 2025-06-18."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class TextContent(Wire, frozen=True, tag_field="type", tag="text"):
    """Text."""

    text: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ImageContent(Wire, frozen=True, tag_field="type", tag="image"):
    """A picture, Base64."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class AudioContent(Wire, frozen=True, tag_field="type", tag="audio"):
    """Sound, Base64. Since 2025-03-26."""

    data: str
    mime_type: str
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ResourceContents(Wire, frozen=True):
    """The contents of a resource: `text`, or `blob` in Base64."""

    uri: str
    mime_type: str | None = None
    text: str | None = None
    blob: str | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class EmbeddedResource(Wire, frozen=True, tag_field="type", tag="resource"):
    """A resource inside a result or prompt."""

    resource: ResourceContents
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ResourceLink(Wire, frozen=True, tag_field="type", tag="resource_link"):
    """The address of a resource that can be read. Since 2025-06-18."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ToolUseContent(Wire, frozen=True, tag_field="type", tag="tool_use"):
    """A tool call inside a sampling message. Since 2025-11-25."""

    id: str
    name: str
    input: JsonObject
    meta: JsonObject | None = field(name="_meta", default=None)


class ToolResultContent(Wire, frozen=True, tag_field="type", tag="tool_result"):
    """A tool's result inside a sampling message. Since 2025-11-25."""

    tool_use_id: str
    content: list[JsonObject] = []
    structured_content: Any = UNSET
    is_error: bool = False
    meta: JsonObject | None = field(name="_meta", default=None)


class UnknownContent(Wire, frozen=True, tag_field="type", tag=""):
    """A content block of an unknown type, kept whole in `fields`."""

    fields: JsonObject


Content = (
    TextContent
    | ImageContent
    | AudioContent
    | EmbeddedResource
    | ResourceLink
    | ToolUseContent
    | ToolResultContent
    | UnknownContent
)
"""One part of the content of a result or message."""
_KNOWN_TYPES = {"text", "image", "audio", "resource", "resource_link", "tool_use", "tool_result"}

_decode_content = msgspec.json.Decoder(Content).decode
_decode_object = msgspec.json.Decoder(JsonObject).decode


def decode_content(raw: Raw) -> Content:
    """Decode one content block; a block of an unknown type becomes `UnknownContent`.

    Raises:
        msgspec.ValidationError: A block of a known type lacks fields or has wrong ones.
    """
    try:
        block: Content = _decode_content(raw)
    except msgspec.ValidationError:
        fields = _decode_object(raw)
        kind = fields.get("type")
        if not isinstance(kind, str) or kind in _KNOWN_TYPES:
            raise
        return UnknownContent(fields=fields)
    return block


def join_text(content: Iterable[object]) -> str:
    """Join the text blocks of `content` with newlines; ignore other blocks."""
    return "\n".join([block.text for block in content if isinstance(block, TextContent)])


# Tools


class ToolAnnotations(Wire, frozen=True):
    """A server's claims about its tool: hints, never a reason for trust."""

    title: str | None = None
    read_only_hint: bool = False
    destructive_hint: bool = True
    idempotent_hint: bool = False
    open_world_hint: bool = True


class Tool(Wire, frozen=True):
    """A function that a server offers to the model. Spec 2026-07-28: server/tools, "Data Types"."""

    name: str
    input_schema: JsonObject
    description: str = ""
    title: str | None = None
    output_schema: JsonObject | None = None
    annotations: ToolAnnotations | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class CallToolParams(Wire, frozen=True):
    """`tools/call`. `arguments` may be encoded already."""

    name: str
    arguments: JsonObject | Raw | UnsetType = UNSET
    input_responses: JsonObject | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class InputRequest(Wire, frozen=True):
    """One question inside an input-required result: a request without its envelope."""

    method: str
    params: Raw = Raw(b"{}")


class Result(Wire, frozen=True):
    """Fields of every result.

    `result_type` is "complete" when absent; "input_required" brings `input_requests`,
    `request_state` or both. Spec 2026-07-28: basic/patterns/mrtr.
    """

    result_type: str = "complete"
    input_requests: dict[str, InputRequest] | None = None
    request_state: str | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


WARNING_KEY = "interlock/warning"  # the member of `_meta` for `CallToolResult.warning`


class CallToolResult(Result, frozen=True):
    """Answer to `tools/call`."""

    content: list[Content] = []
    structured_content: Any = UNSET  # any JSON from 2026-07-28 on, objects before
    is_error: bool = False

    @property
    def text(self) -> str:
        return join_text(self.content)

    @property
    def structured(self) -> Any:
        """The structured content; None if there is none or it is null."""
        return None if self.structured_content is UNSET else self.structured_content

    @property
    def warning(self) -> str:
        """How the result breaks its tool's output schema, as a sentence; "" if it does not."""
        return str((self.meta or {}).get(WARNING_KEY, ""))


# Resources, prompts, completion


class Resource(Wire, frozen=True):
    """A resource in a list."""

    uri: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ResourceTemplate(Wire, frozen=True):
    """A family of resources, addressed by an RFC 6570 template."""

    uri_template: str
    name: str = ""
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    icons: list[Icon] | None = None
    annotations: Annotations | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ReadResourceParams(Wire, frozen=True):
    """`resources/read`."""

    uri: str
    input_responses: JsonObject | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class ReadResourceResult(Result, frozen=True):
    """Answer to `resources/read`."""

    contents: list[ResourceContents] = []
    ttl_ms: int = 0
    cache_scope: str = "private"

    @property
    def text(self) -> str:
        """The text contents, joined with newlines."""
        return "\n".join([each.text for each in self.contents if each.text is not None])


class PromptArgument(Wire, frozen=True):
    """An argument of a prompt. Its value is always a string."""

    name: str
    title: str | None = None
    description: str | None = None
    required: bool = False


class Prompt(Wire, frozen=True):
    """A prompt in a list."""

    name: str
    title: str | None = None
    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class PromptMessage(Wire, frozen=True):
    """One message of a prompt."""

    role: Role
    content: Content


class GetPromptParams(Wire, frozen=True):
    """`prompts/get`."""

    name: str
    arguments: dict[str, str] | UnsetType = UNSET
    input_responses: JsonObject | UnsetType = UNSET
    request_state: str | UnsetType = UNSET


class GetPromptResult(Result, frozen=True):
    """Answer to `prompts/get`."""

    messages: list[PromptMessage] = []
    description: str | None = None


class PromptReference(Wire, frozen=True, tag_field="type", tag="ref/prompt"):
    """A prompt whose argument is to be completed."""

    name: str
    title: str | None = None


class ResourceTemplateReference(Wire, frozen=True, tag_field="type", tag="ref/resource"):
    """A resource template whose variable is to be completed."""

    uri: str


class CompletionArgument(Wire, frozen=True):
    """The argument that the user is typing, and its value so far."""

    name: str
    value: str


class CompletionContext(Wire, frozen=True):
    """The values of arguments that are already complete. Since 2025-06-18."""

    arguments: dict[str, str] = {}


class CompleteParams(Wire, frozen=True):
    """`completion/complete`."""

    ref: PromptReference | ResourceTemplateReference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET


class Completion(Wire, frozen=True):
    """Completion values for an argument, at most 100."""

    values: list[str] = []
    total: int | None = None
    has_more: bool = False


class CompleteResult(Wire, frozen=True):
    """Answer to `completion/complete`."""

    completion: Completion
    result_type: str = "complete"


# Lists: items stay encoded, so that a malformed item does not spoil the others


class ListParams(Wire, frozen=True):
    """Parameters of any list method."""

    cursor: str | UnsetType = UNSET


class ListPage(Wire, frozen=True):
    """One page of any list method. Exactly one of the four lists is there."""

    tools: list[Raw] | UnsetType | None = UNSET  # null from servers in Go whose list is empty
    resources: list[Raw] | UnsetType | None = UNSET
    resource_templates: list[Raw] | UnsetType | None = UNSET
    prompts: list[Raw] | UnsetType | None = UNSET
    next_cursor: str | None = None
    ttl_ms: int = 0
    cache_scope: str = "private"
    result_type: str = "complete"


# Requests of servers to clients


class Root(Wire, frozen=True):
    """A folder or file that the server may use. `uri` begins with file://"""

    uri: str
    name: str | None = None
    meta: JsonObject | None = field(name="_meta", default=None)


class ListRootsResult(Wire, frozen=True):
    """Answer to `roots/list`."""

    roots: list[Root]


class SamplingMessage(Wire, frozen=True):
    """A message for the client's model; `content` is one block or, since 2025-11-25, a list."""

    role: Role
    content: Content | list[Content]


class CreateMessageParams(Wire, frozen=True):
    """`sampling/createMessage`."""

    messages: list[SamplingMessage]
    max_tokens: int
    model_preferences: JsonObject | None = None
    system_prompt: str | None = None
    include_context: str | None = None
    temperature: float | None = None
    stop_sequences: list[str] | None = None
    metadata: JsonObject | None = None
    tools: list[Tool] | None = None
    tool_choice: JsonObject | None = None


class CreateMessageResult(Wire, frozen=True):
    """Answer to `sampling/createMessage`."""

    role: Role
    content: Content | list[Content]
    model: str
    stop_reason: str | None = None

    @property
    def text(self) -> str:
        """The text blocks, joined with newlines."""
        return join_text(self.content if isinstance(self.content, list) else [self.content])


class ElicitParams(Wire, frozen=True):
    """`elicitation/create`: a form (`requested_schema`) or, since 2025-11-25, a `url`."""

    message: str
    mode: Literal["form", "url"] = "form"
    requested_schema: JsonObject | None = None
    url: str | None = None
    elicitation_id: str | None = None


class ElicitResult(Wire, frozen=True):
    """Answer to `elicitation/create`. `content` only with "accept" of a form."""

    action: Literal["accept", "decline", "cancel"]
    content: JsonObject | None = None


# Notifications


class CancelledParams(Wire, frozen=True):
    """`notifications/cancelled`."""

    request_id: RequestId | None = None
    reason: str | None = None


class ProgressParams(Wire, frozen=True):
    """`notifications/progress`. `message` since 2025-03-26."""

    progress_token: ProgressToken
    progress: float
    total: float | None = None
    message: str | None = None


class LogMessage(Wire, frozen=True):
    """`notifications/message`."""

    level: LogLevel
    data: Any = None
    logger: str | None = None


class ResourceUpdatedParams(Wire, frozen=True):
    """`notifications/resources/updated`."""

    uri: str


class SubscriptionFilter(Wire, frozen=True):
    """The notifications that a `subscriptions/listen` stream delivers."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []  # defined by the tasks extension


class ListenParams(Wire, frozen=True):
    """`subscriptions/listen`, from 2026-07-28 on; its acknowledgement has the same shape."""

    notifications: SubscriptionFilter


class ErrorObject(Wire, frozen=True):
    """The `error` member of a JSON-RPC response."""

    code: int
    message: str = ""
    data: Any = None
