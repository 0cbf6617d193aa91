"""Makes the embedded model's prompt: examples, then the request.

The model continues texts better than it converses. The prompt is therefore a page of questions
with short answers, and the model writes the next answer. Earlier messages are left out: the model
would repeat the results of tools in them, with other values.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.models.model import ToolDefinition

_CHAT = """\
These are questions to a friendly assistant, with its short answers.

Q: Hi!
A: Hello! What can I do for you?

Q: How are you?
A: I'm fine, thank you! What can I do for you?

Q: Tell me a joke.
A: Why did the chicken cross the road? To get to the other side!

Q: I feel a bit sad.
A: I'm sorry to hear that. I hope you feel better soon.

Q: Thanks!
A: You're welcome!

Q: Bye!
A: Goodbye! See you soon.

Q: {request}
A:"""


def chat_prompt(request: str) -> str:
    """Return the prompt, which ends where the answer starts."""
    return _CHAT.format(request=" ".join(request.split()))


def abilities(tools: Sequence[ToolDefinition]) -> str:
    """Return one sentence about the servers of the tools."""
    servers = dict.fromkeys(tool.name.rpartition("__")[0] for tool in tools)
    names = ", ".join(name for name in servers if name)[:200]
    if not names:
        return "I have no tools here."
    return f"My tools are those of {names}."
