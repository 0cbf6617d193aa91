"""Reads JSON with comments and trailing commas, and locates each value in the text.

A place is a path of keys and indexes to a value, such as `("mcpServers", "time", "args", 1)`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn

MAX_DIGITS = 20

Place = tuple[str | int, ...]

# Strings are matched first, so that comment marks inside them are ignored. A string or comment that
# is not closed extends to the end of the text, because searching for its end again and again would
# take quadratic time.
_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_COMMENT = re.compile(_STRING + r"|//[^\r\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])", re.DOTALL)
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


class MemberSpan(NamedTuple):
    """The position in the text of a member of an object or list. The fields are offsets."""

    start: int  # offset of the member's key, or of the value in a list
    value: int
    end: int


class JsoncError(ValueError):
    """The text is not valid JSON. `line` and `column` start at 1, and are 0 if unknown."""

    def __init__(self, problem: str, line: int = 0, column: int = 0) -> None:
        super().__init__(problem)
        self.line = line
        self.column = column


class JsoncDocument:
    """A JSON text, its value, and the positions of all members in the text.

    Attributes:
        text: The text, without its byte order mark.
        value: The decoded value.
        spans: The position of each member, keyed by its place; () is the whole text.
    """

    def __init__(self, content: bytes) -> None:
        try:
            self.text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise JsoncError("not UTF-8 text: save the file as UTF-8", line) from None
        # Comments are replaced by spaces of the same length, so that offsets stay valid.
        self._plain = _COMMENT.sub(_blank_comment, self.text)
        bare = _TRAILING_COMMA.sub(_blank_comma, self._plain)
        if not bare.strip():
            raise JsoncError("the file is empty: write a JSON object, such as {}", 1)
        try:
            # `_check_number` refuses NaN, infinities and long numbers, and names their line.
            self.value: Any = json.loads(
                bare,
                parse_constant=lambda _: None,
                parse_int=lambda digits: int(digits[: MAX_DIGITS + 1]),
            )
            tokens = _TOKEN.finditer(bare)
            self.spans: dict[Place, MemberSpan] = {}
            first = next(tokens)
            self.spans[()] = MemberSpan(
                first.start(), first.start(), self._locate((), first, tokens)
            )
        except json.JSONDecodeError as error:
            # Not chained with `from error`, because that error contains the whole text with its
            # secrets.
            is_other = not bare[: error.pos].strip()  # not even the first character is JSON's
            text = "not JSON: write a JSON object, such as {}" if is_other else error.msg
            raise JsoncError(text, error.lineno, error.colno) from None
        except RecursionError:
            raise JsoncError("nested too deeply") from None

    def line(self, place: Place) -> int:
        """Return the line of the member at a place, or of the nearest existing object around it."""
        while place not in self.spans:
            place = place[:-1]
        return self.text.count("\n", 0, self.spans[place].start) + 1

    def _locate(self, place: Place, opening: re.Match[str], tokens: Iterator[re.Match[str]]) -> int:
        """Add the positions of all members of a value to `spans`; return the offset of its end."""
        if opening[0] not in {"{", "["}:
            self._check_number(opening)
            return opening.end()
        index = 0
        for token in tokens:
            if token[0] in {"}", "]"}:
                return token.end()
            if token[0] == ",":
                continue
            if opening[0] == "{":
                inner: Place = (*place, json.loads(token[0]))
                next(tokens)  # skip the colon
                value = next(tokens)
                if inner in self.spans:
                    self._refuse(f"{write_place(inner)} occurs twice", token.start())
            else:
                inner = (*place, index)
                value = token
                index += 1
            end = self._locate(inner, value, tokens)
            self.spans[inner] = MemberSpan(token.start(), value.start(), end)
        raise AssertionError("json.loads accepts closed values only")

    def _check_number(self, token: re.Match[str]) -> None:
        if token[0] in {"NaN", "Infinity", "-Infinity"}:
            self._refuse(f"{token[0]} is not JSON", token.start())
        if len(token[0]) > MAX_DIGITS and token[0].lstrip("-").isdecimal():
            self._refuse(f"a number has more than {MAX_DIGITS} digits", token.start())

    def _refuse(self, problem: str, offset: int) -> NoReturn:
        raise JsoncError(problem, self.text.count("\n", 0, offset) + 1)

    # Editing: each method returns a new text, in which everything else is unchanged

    def with_member(self, place: Place, name: str, value: Any) -> str:
        """Return the text with a new member at the end of the object at `place`."""
        newline = "\r\n" if "\r\n" in self.text else "\n"
        span = self.spans[place]
        members = [s for p, s in self.spans.items() if p[:-1] == place and p]
        outer = self._indentation(span.start)
        step = self._step()
        lines = json.dumps({name: value}, indent=step, ensure_ascii=False).split("\n")[1:-1]
        body = newline.join(outer + line for line in lines)
        if members:
            at = max(member.end for member in members)
            return f"{self.text[:at]},{newline}{body}{self.text[at:]}"
        at = span.value + 1
        if self.text[at : span.end - 1].strip():  # a comment follows the last member
            return f"{self.text[:at]}{newline}{body}{self.text[at:]}"
        return f"{self.text[:at]}{newline}{body}{newline}{outer}{self.text[span.end - 1 :]}"

    def without_member(self, place: Place) -> str:
        """Return the text without a member, its comma, and the comments before it."""
        span = self.spans[place]
        around = self.spans[place[:-1]]
        others = [s for p, s in self.spans.items() if p[:-1] == place[:-1] and p and p != place]
        before = max((s.end for s in others if s.end <= span.start), default=None)
        if before is not None:
            return self.text[:before] + self.text[span.end :]
        start = around.value + 1
        after = min((s.start for s in others), default=None)
        if after is not None:
            comma = self._plain.index(",", span.end)
            return self.text[:start] + self.text[comma + 1 :]
        return self.text[:start] + self.text[around.end - 1 :]

    def _indentation(self, offset: int) -> str:
        line = self.text[self.text.rfind("\n", 0, offset) + 1 : offset]
        return line[: len(line) - len(line.lstrip())]

    def _step(self) -> str:
        """Return the indentation of one level, as used before the first member."""
        first = min((s.start for p, s in self.spans.items() if len(p) == 1), default=0)
        return self._indentation(first) or "  "


def write_place(place: Place) -> str:
    """Return a place as text in the usual notation: mcpServers.time.args[1]."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[\w-]{1,64}", step):
            text += f".{step}"
        else:
            text += f"[{step[:64]!r}]"
    return text.removeprefix(".")


def _blank_comment(match: re.Match[str]) -> str:
    text = match[0]
    return text if text.startswith('"') else re.sub(r"[^\r\n]", " ", text)


def _blank_comma(match: re.Match[str]) -> str:
    if match[0].startswith('"'):
        return match[0]
    before = match.start() - 1
    while before >= 0 and match.string[before].isspace():
        before -= 1
    # Remove only commas that follow a value. Any other comma stays, and causes an error later.
    return match[0] if before < 0 or match.string[before] in "{[,:" else " "
