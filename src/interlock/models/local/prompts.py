"""The prompt of the embedded model: examples, then the conversation.

The model continues texts better than it converses. The prompt is therefore a page of questions
with short answers, and the model writes the next answer.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.messages import AssistantMessage, Message, UserMessage
from interlock.models import ToolDefinition

__all__ = ["chat_prompt"]

# A token has at least one byte, so this limits the tokens, too: with the examples and the longest
# answer the prompt fits the context.
_BYTES = 2_800

_CHAT = """\
These are questions to a friendly assistant, with its short and correct answers.

Q: Hi!
A: Hello! What can I do for you?

Q: What is the capital of Italy?
A: The capital of Italy is Rome.

Q: How do I boil an egg?
A: Put the egg into boiling water for eight minutes, then cool it in cold water.

Q: Who are you?
A: I am a small language model that runs on your own computer.

Q: Thanks!
A: You're welcome!

Q: What can you do?
A: {abilities}

"""


def chat_prompt(messages: Sequence[Message], tools: Sequence[ToolDefinition]) -> str:
    """Return the prompt, which ends where the answer to the last question starts."""
    room = _BYTES
    lines: list[str] = []
    for message in reversed(messages):
        if not isinstance(message, UserMessage | AssistantMessage) or not message.content:
            continue
        text = cut(" ".join(message.content.split()), room // 2)
        lines.append(f"Q: {text}\n" if isinstance(message, UserMessage) else f"A: {text}\n\n")
        room -= len(lines[-1].encode())
        if room < 200:
            break
    return _CHAT.format(abilities=abilities(tools)) + "".join(reversed(lines)) + "A:"


def cut(text: str, size: int) -> str:
    """Return the beginning of `text`, at most `size` bytes of UTF-8."""
    return text.encode()[:size].decode(errors="ignore")


def abilities(tools: Sequence[ToolDefinition]) -> str:
    """Return one sentence about the servers of the tools."""
    servers = dict.fromkeys(tool.name.rpartition("__")[0] for tool in tools)
    names = cut(", ".join(name for name in servers if name), 200)
    if not names:
        return "I can answer simple questions and chat with you."
    return f"I can answer simple questions, and I can use these tools for you: {names}."
