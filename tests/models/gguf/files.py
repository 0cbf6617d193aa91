"""Writes tiny GGUF models whose answers a test decides.

Each token leads to one other token: embeddings are one-hot, the only block adds nothing, and the
output matrix holds which token follows which. Where a grammar forbids that token, llama.cpp takes
the most likely one that is allowed.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from pathlib import Path

_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
_NORMAL, _UNKNOWN, _CONTROL, _BYTE = 1, 2, 3, 6
_FEED_FORWARD = 32
_ALIGNMENT = 32

CHATML = """\
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

# As Qwen and Hermes have it, shortened. An answer after a result begins with another word.
WITH_TOOLS = """\
{%- if tools %}<|im_start|>system
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
For each call, return a json object within <tool_call></tool_call>:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}<|im_start|>assistant
{{ message.content or '' }}
{%- for call in message.tool_calls %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}<|im_end|>
{% elif message.role == 'tool' %}<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% else %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% if messages[-1].role == 'tool' %}<|result|>{% endif %}
{%- endif %}"""


def write_model(
    path: Path,
    follows: Mapping[str, str],
    *,
    template: str = CHATML,
    context: int = 4096,
    control: tuple[str, ...] = ("<|im_start|>", "<|im_end|>", "<|result|>"),
) -> Path:
    """Write a model in which the values of `follows` follow its keys; "" ends the answer."""
    words = {each for pair in follows.items() for each in pair if each}
    words -= {*control, ""}
    pieces = sorted({word.replace(" ", "\u2581") for word in (*words, " ")})
    tokens = ["<unk>", "<s>", "</s>", *control, *_BYTES, *pieces]
    types = [_UNKNOWN, _CONTROL, _CONTROL, *(_CONTROL for _ in control)]
    types += [*(_BYTE for _ in _BYTES), *(_NORMAL for _ in pieces)]
    end = tokens.index("<|im_end|>")  # by its name, llama.cpp ends the answer there
    place = {token.replace("\u2581", " "): n for n, token in enumerate(tokens)} | {"": end}
    width = -(-len(tokens) // 32) * 32
    output = array("f", bytes(4 * width * len(tokens)))
    output[end * width : (end + 1) * width] = array("f", [0.5] * width)
    for before, after in follows.items():
        output[place[after] * width + place[before]] = 1.0
    embedding = array("f", bytes(4 * width * len(tokens)))
    for index in range(len(tokens)):
        embedding[index * width + index] = 1.0
    ones = array("f", [1.0] * width)
    tensors = {
        "token_embd.weight": ((width, len(tokens)), embedding),
        "output_norm.weight": ((width,), ones),
        "output.weight": ((width, len(tokens)), output),
        "blk.0.attn_norm.weight": ((width,), ones),
        "blk.0.ffn_norm.weight": ((width,), ones),
        **{f"blk.0.attn_{name}.weight": _zeros(width, width) for name in ("q", "k", "v", "output")},
        "blk.0.ffn_gate.weight": _zeros(width, _FEED_FORWARD),
        "blk.0.ffn_up.weight": _zeros(width, _FEED_FORWARD),
        "blk.0.ffn_down.weight": _zeros(_FEED_FORWARD, width),
    }
    metadata: dict[str, object] = {
        "general.architecture": "llama",
        "general.name": "Test",
        "llama.context_length": context,
        "llama.embedding_length": width,
        "llama.block_count": 1,
        "llama.feed_forward_length": _FEED_FORWARD,
        "llama.attention.head_count": 1,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * len(tokens),
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
    }
    if template:
        metadata["tokenizer.chat_template"] = template
    path.write_bytes(_encode(metadata, tensors))
    return path


def _zeros(*shape: int) -> tuple[tuple[int, ...], array[float]]:
    return shape, array("f", bytes(4 * shape[0] * shape[1]))


def _encode(
    metadata: Mapping[str, object],
    tensors: Mapping[str, tuple[tuple[int, ...], array[float]]],
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    data = b""
    for name, (shape, values) in tensors.items():
        head += (
            _string(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        )
        head += struct.pack("<IQ", 0, len(data))  # 0: numbers of 32 bits
        data += _padded(values.tobytes())
    return _padded(head) + data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded


def _value(value: object) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
        case [float(), *_]:
            return struct.pack("<IIQ", 9, 6, len(value)) + array("f", value).tobytes()
        case [int(), *_]:
            return struct.pack("<IIQ", 9, 5, len(value)) + array("i", value).tobytes()
    raise TypeError(type(value))
