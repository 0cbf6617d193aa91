"""Every name in spans and metrics, in the spelling of OpenTelemetry's semantic conventions.

The conventions are those of github.com/open-telemetry/semantic-conventions-genai in the release
`RELEASE`, which are in development. Names that begin with "interlock." are interlock's own.
"""

from __future__ import annotations

from interlock import revisions

RELEASE = "v0.1.0"

# Attributes of requests
METHOD = "mcp.method.name"
REVISION = "mcp.protocol.version"
SESSION = "mcp.session.id"
REQUEST_ID = "jsonrpc.request.id"
TRANSPORT = "network.transport"
PROTOCOL = "network.protocol.name"
CLIENT_ADDRESS = "client.address"
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR = "error.type"

# Attributes of tools, models and agents
OPERATION = "gen_ai.operation.name"
TOOL = "gen_ai.tool.name"
TOOL_CALL = "gen_ai.tool.call.id"
PROMPT = "gen_ai.prompt.name"
PROVIDER = "gen_ai.provider.name"
MODEL = "gen_ai.request.model"
ANSWERED_BY = "gen_ai.response.model"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
MODALITY = "gen_ai.token.modality"
FINISH = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_write.input_tokens"

# Attributes of the process
SERVICE = "service.name"
VERSION = "service.version"
INSTANCE = "service.instance.id"
PROCESS = "process.pid"

# Metrics, and their units
SERVER_DURATION = "mcp.server.operation.duration"
CLIENT_DURATION = "mcp.client.operation.duration"
MODEL_DURATION = "gen_ai.client.inference.duration"
FIRST_CHUNK = "gen_ai.client.inference.time_to_first_chunk"
TOKENS = "gen_ai.client.inference.usage"  # followed by one of `TOKEN_KINDS`
TOKEN_KINDS = (
    "input_tokens",
    "output_tokens",
    "cache_read.input_tokens",
    "cache_write.input_tokens",
)
METRICS = {
    **dict.fromkeys((SERVER_DURATION, CLIENT_DURATION, MODEL_DURATION, FIRST_CHUNK), "s"),
    **{f"{TOKENS}.{kind}": "{token}" for kind in TOKEN_KINDS},
}

# Interlock's own attributes
CALL = "interlock.call.id"
SERVER = "interlock.server"
RISK = "interlock.risk"
RULE = "interlock.rule"
SURFACE = "interlock.surface"
WAITING = "interlock.waiting"  # an event
REASON = "interlock.waiting.reason"
WAITED = "interlock.waiting.ms"

# Values
EXECUTE_TOOL = "execute_tool"
INVOKE_AGENT = "invoke_agent"
CHAT = "chat"
TOOL_ERROR = "tool_error"
OTHER = "_OTHER"  # instead of a name that a caller may have made up

# The methods that may name a span. "server/discover" and the tasks are not in the conventions yet.
METHODS = frozenset(revisions.CLIENT_METHODS) | frozenset(
    f"tasks/{each}" for each in ("get", "update", "cancel", "result", "list")
)
UNTRACED = frozenset(("ping", "subscriptions/listen"))
# Requests that a client sends by itself; they have a span only within another span.
HOUSEKEEPING = frozenset(
    ("initialize", "server/discover", "ping", "tools/list", "resources/list",
     "resources/templates/list", "prompts/list")
)  # fmt: skip

# The conventions' names of providers, where they differ from interlock's.
PROVIDERS = {
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "azure": "azure.ai.openai",
    "xai": "x_ai",
}

# The names of Prometheus' format, which has no dots.
LABELS = {
    each.replace(".", "_"): each
    for each in (METHOD, TOOL, ERROR, REVISION, TRANSPORT, OPERATION, PROVIDER, MODEL, MODALITY)
}
_SUFFIXES = {"_seconds": "s", "_bytes": "By"}
_METRICS = {
    f"{name.replace('.', '_')}_{'seconds' if unit == 's' else 'total'}": (name, unit)
    for name, unit in METRICS.items()
}


def metric(name: str) -> tuple[str, str]:
    """Return the name and the unit of a metric, given its name in Prometheus' format.

    A collector that passes the metric on to Prometheus restores the given name:
    https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/
    """
    if name in _METRICS:
        return _METRICS[name]
    base = name.removesuffix("_total")
    suffix = next((each for each in _SUFFIXES if base.endswith(each)), "")
    namespace, _, rest = base.removesuffix(suffix).partition("_")
    return f"{namespace}.{rest}", _SUFFIXES.get(suffix, "")
