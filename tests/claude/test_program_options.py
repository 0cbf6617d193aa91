"""Options of Claude Code that a program gives by name."""

from __future__ import annotations

import pytest

from interlock.claude.program_options import checked_options
from interlock.errors import LocalProtocolError


def test_unknown_option_is_refused_with_the_names_of_the_known_ones():
    with pytest.raises(LocalProtocolError, match=r"'moddel'.*the options of Claude Code are mode,"):
        checked_options({"moddel": "opus"})  # type: ignore[typeddict-unknown-key]


def test_given_options_are_kept():
    options = checked_options({"model": "opus", "max_turns": 3})

    assert (options.model, options.max_turns) == ("opus", 3)
