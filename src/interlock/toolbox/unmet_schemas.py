"""Passes on results that break their tool's output schema, with a warning for the reader."""

from __future__ import annotations

from msgspec import Raw

from interlock.calls import Call, Outcome
from interlock.protocol.decoding import decode
from interlock.protocol.envelope import encode_large
from interlock.revisions import FEATURES
from interlock.types import CallToolResult, TextContent

_READERS = ("mcp", "claude")  # surfaces whose readers do not see `_meta`


def with_warning(call: Call, raw: Raw, result: CallToolResult) -> Outcome:
    """Return the outcome for a result that has a `warning`.

    Clients and Claude Code get the warning as a further text. For a client that checks structured
    content itself, the result is also an error, because such clients drop a success that breaks
    the schema; the text states that the tool ran.

    Args:
        raw: The result, as the server encoded it.
        result: The decoded result with its warning.
    """
    members = decode(dict[str, Raw], raw, "tools/call result")
    members["_meta"] = Raw(encode_large(result.meta))
    if call.caller.surface not in _READERS:
        return Outcome(Raw(encode_large(members)), result)
    blocks = decode(list[Raw], members.get("content", Raw(b"[]")), "content")
    text = TextContent(text=f"warning: {result.warning}")
    members["content"] = Raw(encode_large([*blocks, text]))
    features = FEATURES.get(call.caller.revision)
    if call.caller.surface == "mcp" and (features is None or features.structured):
        members["isError"] = Raw(b"true")
    return Outcome(Raw(encode_large(members)), is_error=False)  # for records: the tool ran
