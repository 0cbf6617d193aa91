from interlock.messages import ToolCall
from interlock.models.gguf.markers import JOINER, Markers

MARKERS = Markers(frozenset(("<|end|>", "<|e", "[INST]", "<")))


def test_text_without_markers_is_unchanged() -> None:
    text = "a < b, [INST and <|END|>"

    assert MARKERS.as_text(text) == text


def test_every_marker_is_broken_after_its_first_character() -> None:
    broken = MARKERS.as_text("x<|end|><|end|>[INST]")

    assert broken == f"x<{JOINER}|end|><{JOINER}|end|>[{JOINER}INST]"
    assert MARKERS.as_text(broken) == broken


def test_only_markers_in_arguments_are_joined_again() -> None:
    call = ToolCall("1", "write", {"text": MARKERS.as_text("<|end|>") + f" a{JOINER}b"})

    assert MARKERS.original(call).input == {"text": f"<|end|> a{JOINER}b"}
