"""Names for Claude Code: clean, short, and different."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.claude.names import PREFIX, server_name, split, tool_name

NAMES = st.text(min_size=1, max_size=200)
ODD = st.lists(NAMES | st.from_regex(r"[a-b_.\- ]{1,6}", fullmatch=True), min_size=2, unique=True)


@pytest.mark.slow("tries many examples")
@given(ODD)
def test_different_names_stay_different_clean_and_short(given: list[str]):
    servers = [server_name(each) for each in given]
    tools = [tool_name(servers[0], each) for each in given]

    assert len(set(servers)) == len(set(tools)) == len(given)
    for name in (*(f"{PREFIX}{servers[0]}__{each}" for each in tools), *servers):
        assert len(name) <= 64
        assert name.isascii()
        assert all(char.isalnum() or char in "_-" for char in name)


@given(NAMES, NAMES)
def test_whole_name_can_be_split_again(server: str, tool: str):
    clean = server_name(server)
    name = tool_name(clean, tool)

    assert split(f"{PREFIX}{clean}__{name}") == (clean, name)


def test_usual_names_are_kept_and_built_in_tools_are_not_split():
    assert server_name("time-server_2") == "time-server_2"
    assert tool_name("time", "get__current_time") == "get__current_time"
    assert split("Bash") is None


@given(NAMES)
def test_name_that_looks_hashed_is_hashed_again(name: str):
    hashed = server_name(name + "!")

    assert server_name(hashed) != hashed
