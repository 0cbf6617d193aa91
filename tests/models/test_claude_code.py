"""Claude Code by name: only a chat can use it."""

from __future__ import annotations

import pytest

from interlock.agent import Agent
from interlock.errors import ConfigError, ModelUnavailable
from interlock.messages import UserMessage
from interlock.models.choosing import choose


async def test_claude_code_as_the_model_of_an_agent_is_refused_with_where_it_works():
    async with Agent("claude-code:opus") as agent:
        with pytest.raises(ModelUnavailable, match="interlock chat --model claude-code"):
            await agent.complete([UserMessage("Hello")])


async def test_name_of_the_model_is_kept_and_options_are_refused():
    assert (await choose("claude-code")).name == "claude-code"
    assert (await choose("claude-code:opus")).name == "claude-code:opus"
    with pytest.raises((ConfigError, ModelUnavailable), match="Claude Code"):
        await choose("claude-code", options={"temperature": 0.2})
