"""Reads a GGUF file's header for facts that llama.cpp's Python binding does not report.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from interlock.errors import ModelUnavailable

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_NUMBERS = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?"))) | {10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens
_HALF = 2  # bytes of a number in the key-value cache
_MOST_KEYS = 100_000


class Header(Struct, frozen=True):
    """Facts about the model in a GGUF file.

    Attributes:
        size: The file's size in bytes.
        name: The author's name for the model; "" if the file has no name.
        architecture: "llama", "qwen3", ...
        context: The tokens of the longest text that the model was trained on; 0 if unknown.
        token_bytes: The bytes of memory for each token of a conversation; 0 if unknown.
        template: The chat template; "" if the file has no template.
        markers: Texts that the tokenizer reads as control tokens, such as the end of a turn.
    """

    size: int
    name: str
    architecture: str
    context: int
    token_bytes: int
    template: str
    markers: frozenset[str]


def read_header(path: Path) -> Header:
    """Read the header of a model's file, without the tensors.

    Raises:
        ModelUnavailable: The file is missing, or is not a GGUF model.
    """
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            reader = _Reader(data)
            return _header(reader.metadata(), len(data))
    except FileNotFoundError:
        raise ModelUnavailable(f"no model file at {path}") from None
    except OSError as error:
        raise ModelUnavailable(f"cannot read {path}: {error.strerror or error}") from error
    except (struct.error, ValueError, TypeError, UnicodeDecodeError) as error:
        raise ModelUnavailable(f"{path} is not a GGUF model: {error}") from error


def _header(metadata: dict[str, Any], size: int) -> Header:
    architecture = str(metadata.get("general.architecture", ""))
    if not architecture:
        raise ValueError("it has no architecture")
    template = str(metadata.get("tokenizer.chat_template", ""))
    return Header(
        size,
        str(metadata.get("general.name", "")),
        architecture,
        int(metadata.get(f"{architecture}.context_length", 0)),
        _token_bytes(metadata, architecture),
        template,
        frozenset(_markers(metadata, template)),
    )


def _token_bytes(metadata: dict[str, Any], architecture: str) -> int:
    def number(key: str, default: int = 0) -> int:
        value = metadata.get(f"{architecture}.{key}", default)
        return max(map(int, value), default=0) if isinstance(value, list) else int(value)

    heads = number("attention.head_count", 1)
    width = number("embedding_length") // max(heads, 1)
    key, value = number("attention.key_length", width), number("attention.value_length", width)
    return number("block_count") * number("attention.head_count_kv", heads) * (key + value) * _HALF


def _markers(metadata: dict[str, Any], template: str) -> Iterator[str]:
    tokens = metadata.get("tokenizer.ggml.tokens", [])
    types = metadata.get("tokenizer.ggml.token_type", [])
    for token, type in zip(tokens, types, strict=False):
        # Tokenizers of other programs declare plain texts, such as runs of spaces, as user-defined.
        if type == _CONTROL or (
            type == _USER_DEFINED and token.decode("utf-8", "replace") in template
        ):
            marker = token.decode("utf-8", "replace")
            if len(marker) > 1 and not marker.isspace():
                yield marker


class _Reader:
    """Reads the metadata of a file, never beyond its end."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._at = 0

    def metadata(self) -> dict[str, Any]:
        """Return all metadata, by key. The texts of tokens stay bytes."""
        if self._bytes(4) != _MAGIC:
            raise ValueError("it does not begin with GGUF")
        version, tensors, pairs = self._unpack("IQQ")
        if version not in _VERSIONS:
            raise ValueError(f"its version is {version}, not 2 or 3")
        if not tensors or pairs > _MOST_KEYS:
            raise ValueError("it holds no tensors" if not tensors else "its header is damaged")
        found: dict[str, Any] = {}
        for _ in range(pairs):
            key = self._string().decode()
            found[key] = self._value(*self._unpack("I"))
        return {
            k: v.decode("utf-8", "replace") if isinstance(v, bytes) else v for k, v in found.items()
        }

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            return self._unpack(_NUMBERS[kind])[0] if kind in _NUMBERS else self._fail(kind)
        kind, count = self._unpack("IQ")
        if count > len(self._data):
            raise ValueError("it is cut off")
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind not in _NUMBERS:
            return self._fail(kind)
        return list(self._unpack(f"{count}{_NUMBERS[kind]}"))

    def _string(self) -> bytes:
        (length,) = self._unpack("Q")
        return self._bytes(length)

    def _bytes(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("it is cut off")
        found = self._data[self._at : end]
        self._at = end
        return found

    def _unpack(self, format: str) -> tuple[Any, ...]:
        format = f"<{format}"
        return struct.unpack(format, self._bytes(struct.calcsize(format)))

    @staticmethod
    def _fail(kind: int) -> Any:
        raise ValueError(f"it has a value of the unknown type {kind}")
