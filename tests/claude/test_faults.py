"""Programs that are not Claude Code, too old, silent, talkative or gone; no real program needed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.claude import ClaudeCode
from interlock.errors import (
    ClaudeTooOld,
    ConfigError,
    ConnectionClosed,
    LocalProtocolError,
    MessageTooLarge,
    RequestTimeout,
    ServerExited,
    SpawnError,
)

Make = Callable[..., ClaudeCode]
INITIALIZED = (
    '{"type":"control_response","response":{"subtype":"success","request_id":"1","response":{}}}'
)


@pytest.fixture
def claude(tmp_path: Path, nothing_is_left: object) -> Make:
    """Make a `ClaudeCode` of a shell script; `--version` prints its first argument."""

    def make(text: str, version: str = "2.1.330 (Claude Code)", **options: object) -> ClaudeCode:
        path = tmp_path / "claude"
        shown = f'[ "$1" = --version ] && echo "{version}" && exit\n'
        path.write_text(f"#!/bin/sh\n{shown}{text}\n")
        path.chmod(0o755)
        return ClaudeCode(program=path, **options)  # type: ignore[arg-type]

    return make


async def test_program_that_exits_at_the_start_is_named_with_its_last_words(claude: Make):
    env = {"ANTHROPIC_API_KEY": "sk-ant-s3cr3t"}
    with pytest.raises(ServerExited, match=r"exited with code 3: bad key \*\*\*") as raised:
        await claude("echo bad key $ANTHROPIC_API_KEY >&2; exit 3", env=env).open()

    assert "s3cr3t" not in str(vars(raised.value))


@pytest.mark.slow("starts a program")
async def test_silent_program_is_ended_at_the_start_timeout(claude: Make):
    with pytest.raises(RequestTimeout, match=r"in time \(0.3 s\); raise start_timeout"):
        await claude("sleep 60", start_timeout=0.3).open()


async def test_too_old_program_is_an_error_with_both_versions(claude: Make):
    with pytest.raises(ClaudeTooOld, match=r"1\.0\.128 is too old \(at least 2\.0\.0\)"):
        await claude("exit 1", "1.0.128 (Claude Code)").open()


@pytest.mark.slow("starts a program")
async def test_file_that_is_not_claude_code_is_named(claude: Make):
    with pytest.raises(SpawnError, match="is not Claude Code"):
        await claude("exit 1", "cowsay 3.0").open()


async def test_lines_that_are_not_json_are_skipped(claude: Make):
    async with claude(f"echo Debug: hello; echo '{INITIALIZED}'; cat >/dev/null") as opened:
        assert opened.process_id


async def test_line_over_the_limit_ends_the_program_and_names_the_option(claude: Make):
    text = f"read line; echo '{INITIALIZED}'; read line; printf '%2000d' 0; cat >/dev/null"
    async with claude(text, max_line_bytes=1000) as opened:
        with pytest.raises(MessageTooLarge, match="raise max_line_bytes"):
            await opened.ask("hello")


async def test_file_without_permission_to_run_is_named(claude: Make, tmp_path: Path):
    opened = claude("exit")
    (tmp_path / "claude").chmod(0o644)
    with pytest.raises(SpawnError, match=f"{tmp_path}/claude"):
        await opened.open()


@pytest.mark.parametrize("until", ["it starts", "the program runs", "the program was asked"])
async def test_open_can_be_cancelled_at_any_point(claude: Make, tmp_path: Path, until: str):
    reached: dict[str, Callable[[], object]] = {
        "it starts": lambda: True,
        "the program runs": lambda: opened.process_id,
        "the program was asked": (tmp_path / "asked").exists,
    }
    opened = claude(f"read line; touch {tmp_path}/asked; cat >/dev/null")
    opening = asyncio.create_task(opened.open())
    while not reached[until]():  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(0)
    opening.cancel()
    await asyncio.gather(opening, return_exceptions=True)

    assert opening.cancelled()
    with pytest.raises(LocalProtocolError, match="is not open"):
        await opened.ask("hello")


async def test_program_that_ends_in_a_turn_fails_it_and_the_next_one(claude: Make):
    text = f"read line; echo '{INITIALIZED}'; read line; echo gone >&2; exit 7"
    async with claude(text) as opened:
        for _ in range(2):
            with pytest.raises(ServerExited, match="exited with code 7: gone"):
                await opened.ask("hello")


async def test_close_during_a_turn_fails_the_turn(claude: Make):
    opened = claude(f"read line; echo '{INITIALIZED}'; cat >/dev/null")
    await opened.open()
    events = opened.stream("hello")
    pending = events.__anext__()
    asking = asyncio.ensure_future(pending)
    await asyncio.sleep(0)
    await opened.close()

    with pytest.raises(ConnectionClosed, match="closed"):
        await asking


async def test_prompt_before_open_and_wrong_options_are_refused(claude: Make):
    with pytest.raises(LocalProtocolError, match="is not open"):
        await claude("exit").ask("hello")
    with pytest.raises(LocalProtocolError, match=r"'modle'.*fallback_model"):
        claude("exit", modle="opus")
    with pytest.raises(ConfigError, match="direct server 'x' is not a configured server"):
        claude("exit", direct=["x"])
