"""Values that a file asks its user for: `inputs` and `${input:ID}`, as in VS Code.

The command line may store the user's answers in the keyring. If the environment variable named by
`variables.input_variable` is set, the user is not asked.
"""

from __future__ import annotations

from msgspec import Struct

from interlock.config.section import Section
from interlock.errors import ConfigError

_KINDS = ("promptString", "pickString", "command")


class Input(Struct, frozen=True):
    """A value that the user is asked for.

    Attributes:
        id: The ID in `${input:ID}`.
        description: The question that the user sees.
        is_secret: Whether the user's typing is hidden.
        default: The value if the user enters nothing; "" for no default.
        options: The values that the user may choose; () for any value.
    """

    id: str
    description: str = ""
    is_secret: bool = False
    default: str = ""
    options: tuple[str, ...] = ()


def read(root: Section) -> dict[str, Input]:
    """Read the member `inputs` of a file; return the inputs, keyed by id.

    A wrong input is ignored with a warning, so that it costs only the servers that refer to it.
    """
    found = {}
    for entry in root.each_usable("inputs"):
        try:
            read = _input(entry.without_nulls())
        except ConfigError as error:
            root.warnings.append(f"{error}; this input is ignored")
        else:
            found[read.id] = read
    return found


def _input(entry: Section) -> Input:
    entry.need("id")
    if entry.choice("type", _KINDS) == "command":  # only the editor can run its commands
        entry.warn("runs a command of an editor: its value is asked for instead", "type")
    return Input(
        entry.filled("id"),
        entry.optional("description"),
        entry.flag("password", False),
        entry.text("default") if "default" in entry.members else "",
        _options(entry),
    )


def _options(entry: Section) -> tuple[str, ...]:
    listed = entry.members.get("options", [])
    if isinstance(listed, list):  # each option is a text, or an object with a label
        entry.members["options"] = [
            each.get("value") if isinstance(each, dict) else each for each in listed
        ]
    return entry.texts("options")
