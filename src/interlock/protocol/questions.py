"""The questions that a server may ask a client, according to the client's capabilities."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from interlock.errors import RemoteProtocolError
from interlock.protocol.leniency import decode_params
from interlock.types import ClientCapabilities, JsonObject, Wire

# The capability that a client must declare before it receives a question, keyed by the method.
_CAPABILITIES = {
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}


class _Question(Wire, frozen=True):
    mode: str = "form"
    tools: Raw | None = None
    tool_choice: Raw | None = None


def lacking(declared: ClientCapabilities, method: str, params: Raw) -> str:
    """Return the capability for a question that a client has not declared; "" if it has."""
    needed = _CAPABILITIES.get(method)
    has: JsonObject | None = getattr(declared, needed) if needed is not None else None
    if has is None:
        return needed or method
    try:
        question = decode_params(_Question, params)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RemoteProtocolError(f"malformed {method}: {error}") from None
    if needed == "elicitation":
        # In revisions before URL elicitation, a client that declares elicitation accepts forms.
        is_declared = question.mode in has or (question.mode == "form" and "url" not in has)
        return "" if is_declared else f"elicitation.{question.mode}"
    uses_tools = question.tools is not None or question.tool_choice is not None
    return "sampling.tools" if uses_tools and "tools" not in has else ""
