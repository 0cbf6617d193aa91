"""Values that a file requests from its user: `inputs` and `${input:ID}`, as in VS Code.

The command line may keep answers in the user's keyring. The variable `variables.input_variable`
answers without a question.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.config.section import Section

_KINDS = ("promptString", "pickString", "command")


class Input(Struct, frozen=True):
    """A question to the user.

    Attributes:
        id: The id in `${input:ID}`.
        description: The question.
        is_secret: Whether the answer is hidden while it is typed.
        default: The answer if the user gives none; "" for none.
        options: The only answers; () for any.
    """

    id: str
    description: str = ""
    is_secret: bool = False
    default: str = ""
    options: tuple[str, ...] = ()


def read(root: Section) -> dict[str, Input]:
    """Read the member `inputs` of a file, by id."""
    found = {}
    for entry in root.each("inputs"):
        entry.need("id")
        id = entry.filled("id")
        if entry.choice("type", _KINDS) == "command":  # a command of the editor
            entry.warn("runs a command of an editor: its value is asked for instead", "type")
        found[id] = Input(
            id,
            entry.optional("description"),
            entry.flag("password", False),
            entry.text("default") if "default" in entry.members else "",
            _options(entry),
        )
    return found


def _options(entry: Section) -> tuple[str, ...]:
    listed = entry.members.get("options", [])
    if isinstance(listed, list):  # texts, or objects with a label
        entry.members["options"] = [
            each.get("value") if isinstance(each, dict) else each for each in listed
        ]
    return entry.texts("options")
