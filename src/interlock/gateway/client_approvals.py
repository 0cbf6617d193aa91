"""Approvals that clients give to their own calls, and access to the stored approvals."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from interlock.auth.gateway_key import GatewayKey
from interlock.calls import Call, Entry, Item
from interlock.config import Config
from interlock.config.gateway import ApprovalSettings
from interlock.config.gateway_reading import resolve
from interlock.context import Context, Question, elicitation, url_elicitation
from interlock.errors import CapabilityError, ClientRefused, InputRequired, RequestTimeout
from interlock.gateway.forwarding.call_link import CallLink
from interlock.gateway.forwarding.forwarder import ApprovalTicket, ticket_of
from interlock.gateway.front import GatewayFront
from interlock.layers.approvals import Approvals, PinOf, Write
from interlock.layers.audit import ARGUMENTS_KEY
from interlock.policy import Policy
from interlock.protocol.envelope import encode
from interlock.store.approvals import Approval, ApprovalStore
from interlock.store.audit.postgres_tables import AuditTables
from interlock.store.audit.writer import AuditRecord, AuditWriter, open_tables
from interlock.store.database.changes import ChangeFeed
from interlock.store.database.claims import Claim, ClaimFailed
from interlock.store.database.key_loading import load_key
from interlock.store.database.key_owner import open_owned
from interlock.text import quoting
from interlock.text.timestamps import rfc3339
from interlock.toolbox import Toolbox
from interlock.types import ElicitResult

PAGE_TIMEOUT = 120.0  # seconds that a call waits for a decision after its user opened the page
MAX_FORM = 8 * 1024  # bytes of arguments that fit into a form
FORM = {
    "type": "object",
    "properties": {"approve": {"type": "boolean", "title": "Approve this one call"}},
    "required": ["approve"],
}


class ClientQuestions:
    """Asks a call's client to approve the call. Its objects are `AskCaller` functions.

    Args:
        front: Returns the gateway's HTTP side, which serves pages. It also asks about calls that do
            not come from an MCP client, such as calls from the chat.
    """

    def __init__(self, front: Callable[[], GatewayFront]) -> None:
        self._front = front

    async def __call__(self, call: Call, approval: Approval | None) -> bool | None:
        """Return the client's answer; None if the client cannot be asked or does not answer.

        Raises:
            InputRequired: A modern client must send the answer with its next request.
            MalformedAnswer: The answer is malformed.
        """
        if not isinstance(call.back, CallLink):
            return await self._front().ask(call, approval)
        if approval is None:
            return None
        if call.slots is not None:
            call.slots.give_back()
        context = call.back.context
        form = form_of(call, approval)
        if form is not None:
            answer = await _ask(context, approval, form)
            if answer is not None:
                return _is_approval(answer)
        page = self._front().page_of(approval)
        if page is not None:
            text = f"{quoting.visible(call.entry.address)} must be approved on its page"
            answer = await _ask(context, approval, url_elicitation(text, page))
            # Opening the page does not decide: wait here until a decision cancels this task.
            if answer is not None and answer.action == "accept":
                await asyncio.sleep(PAGE_TIMEOUT)
        return None


def form_of(call: Call, approval: Approval) -> Question | None:
    """Return a form that shows the whole call; None if its arguments are too long for a form.

    Invisible characters, and characters that change the direction of text, are escaped.
    """
    arguments = quoting.visible_json(call.arguments)
    if len(arguments.encode()) > MAX_FORM:
        return None
    risk = call.decision.risk if call.decision is not None else ""
    lines = (
        f"Approve this call of {call.entry.address}?",
        f"server: {call.entry.server}",
        f"tool: {call.name}",
        f"risk: {risk}",
        f"asked by: {approval.user}" + (f", key {approval.key}" if approval.key else ""),
        f"rule: {approval.rule}",
        f"approval: {approval.id}, until {rfc3339(approval.expires)}",
        "arguments:",
    )
    shown = "\n".join((*(quoting.visible(line) for line in lines), arguments))
    return elicitation(shown, FORM)


async def _ask(context: Context, approval: Approval, question: Question) -> ElicitResult | None:
    """Ask a client, modern or legacy; return None if it cannot be asked or does not answer."""
    ticket = ticket_of(context)
    if context.is_modern and (ticket is None or ticket.approval != approval.id):
        context.answers.pop(approval.id, None)  # no question with this id was sent, so ignore it
    try:
        answer: ElicitResult = (await context.ask({approval.id: question}))[approval.id]
    except InputRequired as error:
        state = encode(ApprovalTicket(approval.id)).decode()
        raise InputRequired(error.questions, state) from None
    except (CapabilityError, ClientRefused, RequestTimeout):
        return None
    return answer


def _is_approval(answer: ElicitResult) -> bool | None:
    if answer.action == "cancel":  # the user made no choice
        return None
    return answer.action == "accept" and (answer.content or {}).get("approve") is True


def pin_in(toolbox: Callable[[], Toolbox]) -> PinOf:
    """Return a function that returns the hash of a tool's current definition."""

    def pin_of(entry: Entry | Item) -> str:
        if isinstance(entry, Item):
            return ""
        now = toolbox().by_wire_name(entry.wire_name)
        return now.pin if now is not None else ""

    return pin_of


@asynccontextmanager
async def open_approvals(
    feed: ChangeFeed,
    location: str | None,
    secret: GatewayKey,
    writer: AuditWriter | None,
    *,
    settings: Callable[[], ApprovalSettings],
    policy: Callable[[], Policy],
    keep: float,
    toolbox: Callable[[], Toolbox] | None = None,
) -> AsyncGenerator[Approvals, None]:
    """Open the approvals in a database.

    Args:
        feed: Has the database with the approvals, and its clock.
        location: The location of the same database, to write without an audit trail.
        secret: The gateway's key.
        writer: Writes to the audit trail; None without an audit trail.
        settings: Returns the current settings for approvals.
        policy: Returns the current policy.
        keep: The seconds from an approval's expiry until it is deleted.
        toolbox: Returns the toolbox with the current definitions; None to use each call's
            definition.
    """
    async with AsyncExitStack() as stack:
        write: Write
        if writer is not None:
            write = writer.append
        else:
            tables = open_tables(location)
            stack.push_async_callback(tables.close)
            write = _without_trail(tables)
        yield Approvals(
            *(ApprovalStore(feed.database, secret), write, secret.derive(ARGUMENTS_KEY)),
            settings=settings,
            policy=policy,
            keep=keep,
            now=feed.now,
            pin_of=None if toolbox is None else pin_in(toolbox),
            has_trail=writer is not None,
        )


@asynccontextmanager
async def approvals_in(
    config: Config, location: str | None, *, decides: bool = False
) -> AsyncGenerator[Approvals, None]:
    """Open the approvals in a gateway's database, for a command. The gateway need not be running.

    Args:
        config: The configuration that the gateway was started with.
        location: The location of the gateway's database.
        decides: Whether the command approves or denies calls, which the audit trail must record.

    Raises:
        StoreError: The database cannot be used.
    """
    settings, policy = resolve(config, os.environ), Policy.from_config(config)
    secret = await load_key(location)
    async with AsyncExitStack() as stack:
        database = await open_owned(location, secret)
        stack.push_async_callback(database.close)
        feed = ChangeFeed(database)
        await feed.set_clock()
        writer = None
        if decides and settings.audit.mode != "off":
            opened = AuditWriter.open(location, key=secret, settings=settings.audit)
            writer = await stack.enter_async_context(opened)
        yield await stack.enter_async_context(
            open_approvals(
                *(feed, location, secret, writer),
                settings=lambda: settings.approvals,
                policy=lambda: policy,
                keep=settings.keep.approvals,
            )
        )


def _without_trail(tables: AuditTables) -> Write:
    async def write(_: AuditRecord, claim: Claim) -> None:
        with suppress(ClaimFailed):
            await tables.write(claim)

    return write
