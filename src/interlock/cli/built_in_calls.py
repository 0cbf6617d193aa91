"""Decides about Claude Code's own tools at the terminal."""

from __future__ import annotations

from msgspec import Raw

from interlock.calls import Call, Item, Outcome, build
from interlock.calls.asking import asking
from interlock.claude import Allow, Decide, Deny, Request
from interlock.cli.approval import TerminalApproval
from interlock.config import Config
from interlock.config.gateway import BUILT_IN
from interlock.errors import CallRefused
from interlock.policy import Policy, enforce


def decide_by(config: Config, approval: TerminalApproval) -> Decide:
    """Return what decides about Claude Code's own tools: the policy, then the person.

    About tools of servers the toolbox decides, as it does for every command.
    """

    async def allow(_: Call) -> Outcome:
        return Outcome(Raw(b"{}"))

    policy = Policy.for_local_user(config)
    check = build(allow, [enforce(policy, asks_pass=True), asking(approval)])

    async def decide(request: Request) -> Allow | Deny:
        server, _, tool = request.address.partition(":")
        if server != BUILT_IN:
            return Allow()
        try:
            await check(Call(Item("tools", server, tool), request.arguments))
        except CallRefused as error:
            return Deny(str(error))
        return Allow()

    return decide
