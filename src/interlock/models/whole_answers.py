"""Decides whether a stream that ended properly was the whole answer.

An answer is whole after one of these ends:

1. The provider states why it stopped: `finish_reason`, `stop_reason`, `response.completed`.
2. `[DONE]`, or a last chunk with nothing but the usage, follows text or a call, and the arguments
   of the last call are not cut.
3. The body of the response ends after the complete arguments of a call.

Any other answer was cut off: a text has no end of its own. A connection that breaks is an error of
the transport, unless the provider has already stated why it stopped.
"""

from __future__ import annotations

from interlock.errors import ModelInterrupted
from interlock.models.call_arguments import tool_calls


def check_end(
    model: str, *, stated: bool, marked: bool, has_text: bool, last_arguments: str | None
) -> None:
    """Raise `ModelInterrupted` if an answer is not whole.

    Args:
        model: The name of the model.
        stated: Whether the provider stated why it stopped.
        marked: Whether the stream had an end mark, or the usage alone as its last chunk.
        has_text: Whether the answer has text.
        last_arguments: The text of the last call's arguments; None without calls.
    """
    if last_arguments is None:
        whole = marked and has_text
    elif last_arguments.strip():
        whole = tool_calls("", "", last_arguments)[0].malformed is None
    else:
        whole = marked  # a call without arguments, or one whose arguments are missing
    if not (stated or whole):
        is_empty = not has_text and last_arguments is None
        why = (
            " before any text; try again, or use another model"
            if is_empty
            else ": the stream ended early; continue it, or try again"
        )
        raise ModelInterrupted(f"the answer of {model} was cut off{why}")
