"""Whether a model searches for tools instead of reading all definitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

from msgspec import Struct

if TYPE_CHECKING:
    from interlock.config.section import Section

Mode = Literal["auto", "on", "off"]
MOST_TOKENS = 10_000  # of definitions that a model reads
MAX_THRESHOLD = 10_000_000
MUST_BE_PATTERN = 'must be "SERVER:NAME", and may have *: "crm:*", "*:get_*"'


class ToolSearch(Struct, frozen=True):
    """Whether a model searches for tools instead of reading all definitions.

    Attributes:
        mode: "on", "off", or "auto" to search from 100 tools or from `threshold` on.
        always: Patterns of addresses whose tools are always listed, such as "crm:find".
        threshold: The number of tokens of all definitions; a token counts as four bytes.

    Raises:
        ValueError: The mode is unknown, `always` has no patterns, or the threshold is negative.
    """

    mode: Mode = "auto"
    always: tuple[str, ...] = ()
    threshold: int = MOST_TOKENS

    def __post_init__(self) -> None:
        if self.mode not in get_args(Mode):
            raise ValueError(f'invalid tool search {self.mode!r}: use "auto", "on" or "off"')
        if isinstance(self.always, str) or not all(map(is_pattern, self.always)):
            raise ValueError(
                f'invalid always {self.always!r}: use a tuple of patterns, such as ("crm:find_*",)'
            )
        if self.threshold < 0:
            raise ValueError(f"invalid threshold {self.threshold}: it must not be negative")

    @classmethod
    def of(cls, value: ToolSearch | str) -> ToolSearch:
        """Return the settings for a mode; return settings unchanged."""
        if isinstance(value, ToolSearch):
            return value
        return cls(value)  # type: ignore[arg-type] # another text raises an error


def is_pattern(value: object) -> bool:
    """Return whether a value is a pattern of the addresses of tools."""
    server, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    return bool(server and name and f"{server}{name}".isprintable())


def tool_search_in(section: Section) -> ToolSearch:
    """Read the member `toolSearch`: a mode, or an object.

    Raises:
        ConfigError: The member is not valid.
    """
    if not isinstance(section.members.get("toolSearch"), dict):
        return ToolSearch(section.choice("toolSearch", get_args(Mode)))
    inner = section.within("toolSearch")
    inner.warn_unknown(("mode", "always", "threshold"))
    for index, pattern in enumerate(inner.texts("always")):
        if not is_pattern(pattern):
            inner.refuse(MUST_BE_PATTERN, "always", index)
    return ToolSearch(
        inner.choice("mode", get_args(Mode)),
        inner.texts("always"),
        inner.count("threshold", MOST_TOKENS, MAX_THRESHOLD, 0),
    )
