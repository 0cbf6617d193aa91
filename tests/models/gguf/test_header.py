import struct
from pathlib import Path

import pytest

from interlock.errors import ModelUnavailable
from interlock.models.gguf.header import read_header
from tests.models.gguf.files import CHATML, write_model
from tests.support.rows import each_row


def test_header_states_context_memory_template_and_markers(tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", {"a": "<think>"}, context=777)

    header = read_header(path)

    assert (header.architecture, header.name, header.context) == ("llama", "Test", 777)
    assert header.token_bytes == 2 * 2 * 288  # key and value, 16 bits, the width of the model
    assert (header.template, header.size) == (CHATML, path.stat().st_size)
    assert {"<|im_start|>", "<|im_end|>", "</s>"} <= header.markers
    assert "<think>" not in header.markers  # a normal token of this file


@each_row(
    ("content", "problem"),
    [
        (b"", "empty"),
        (b"hello", "does not begin with GGUF"),
        (b"GGUF", "is cut off"),
        (b"GGUF" + struct.pack("<IQQ", 9, 1, 1), "version is 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1), "no tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 2**60), "damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1, 0), "no architecture"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 1, 1, 2**62), "is cut off"),
        (b"GGUF" + struct.pack("<IQQQcI", 3, 1, 1, 1, b"k", 99), "unknown type 99"),
        (b"GGUF" + struct.pack("<IQQQcIIQ", 3, 1, 1, 1, b"k", 9, 4, 2**40), "is cut off"),
    ],
)
def test_file_that_is_not_a_model_is_refused_with_its_problem(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)

    with pytest.raises(ModelUnavailable, match=problem) as caught:
        read_header(path)

    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_cut_anywhere_in_its_header_is_refused(tmp_path: Path) -> None:
    whole = write_model(tmp_path / "m.gguf", {}).read_bytes()
    end = whole.index(b"token_embd.weight")
    for size in range(0, end, 97):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        if size < end - 100:
            with pytest.raises(ModelUnavailable):
                read_header(tmp_path / "cut.gguf")
