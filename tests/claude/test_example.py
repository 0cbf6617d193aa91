"""docs/use/claude.md: its example with the real program, and what it must name."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import sys
from pathlib import Path

from interlock.claude import ClaudeCode
from interlock.claude.program import ProgramOptions
from tests.claude import programs
from tests.claude.messages_api import MessagesApi, call, say
from tests.support.node import node_folder

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "claude_code.py"
SDK_OPTIONS = """
    tools allowed_tools system_prompt mcp_servers strict_mcp_config permission_mode
    continue_conversation resume session_id max_turns max_budget_usd disallowed_tools model
    fallback_model betas permission_prompt_tool_name cwd cli_path settings add_dirs env extra_args
    max_buffer_size debug_stderr stderr can_use_tool hooks user include_partial_messages
    include_hook_events forward_subagent_text verbatim_prompts fork_session resume_session_at
    resume_drops_turn agents setting_sources skills sandbox plugins max_thinking_tokens thinking
    effort output_format enable_file_checkpointing session_store session_store_flush
    load_timeout_ms task_budget client_app
"""  # the fields of ClaudeAgentOptions in 0.2.187
SDK_METHODS = """
    connect receive_messages query interrupt set_permission_mode set_model rewind_files
    reconnect_mcp_server toggle_mcp_server stop_task get_mcp_status get_context_usage
    get_server_info receive_response disconnect
"""


async def test_example_prints_answers_and_results(
    claude_program: str, api: MessagesApi, tmp_path: Path
):
    api.scripts["What is 2 + 3?"] = [call(("mcp__math__add", {"a": 2, "b": 3})), say("It is 5.")]
    api.scripts["And plus 4?"] = [call(("mcp__math__add", {"a": 5, "b": 4})), say("It is 9.")]
    node = node_folder()
    env = {
        "PATH": f"{node}{os.pathsep}{os.environ['PATH']}",
        "INTERLOCK_CLAUDE": str(programs.program(claude_program)),
        **programs.environment(api.url, tmp_path),
    }
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", str(EXAMPLE)),
        env=env,
        cwd=tmp_path,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()

    assert err.decode() == ""
    assert out.decode() == "It is 5.\n[math:add -> 9]\nIt is 9.\n"


def test_page_maps_every_option_and_method_of_claude_agent_sdk():
    page = (ROOT / "docs/migrate/claude-agent-sdk.md").read_text()
    rows = page.splitlines()
    mapped = " ".join(row.split("|")[1] for row in rows if row.startswith("|"))
    names = set(re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]*)`", mapped))))

    assert {*SDK_OPTIONS.split(), *SDK_METHODS.split()} - names == set()


def test_page_names_every_option_of_the_class():
    page = (ROOT / "docs/use/claude.md").read_text()
    ours = {*inspect.signature(ClaudeCode).parameters, *ProgramOptions.__annotations__}

    assert [name for name in ours - {"servers", "options"} if f"`{name}`" not in page] == []
