"""Messages that tell approvers about a call: a signed webhook, or a message for Slack or Teams.

A message names the call and has a link. It never contains arguments, and the link alone decides
nothing, because its page requires a sign-in.

Sources: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md,
https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks and
https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors/how-to/connectors-using
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING

import msgspec

from interlock.config.gateway import CALLER, PREFIX, Notify
from interlock.text.quoting import visible
from interlock.text.timestamps import rfc3339
from interlock.types import JsonObject

if TYPE_CHECKING:
    from interlock.store.approvals import Approval

MAX_NAME = 200  # characters of a name in a message
EVENT = "approval.requested"


def request_of(
    approval: Approval, link: str | None, notify: Notify, at: int
) -> tuple[bytes, dict[str, str]]:
    """Return the body and the headers of the request that announces an approval.

    Args:
        approval: The approval, which waits for a decision.
        link: The URL of the page where it is decided; None if no page is served.
        notify: The receiver.
        at: The time of sending, in seconds since 1970.
    """
    make = {"standard": _event, "slack": _slack, "teams": _teams}[notify.format]
    body = msgspec.json.encode(make(approval, link))
    if not notify.secret:
        return body, {}
    return body, {
        "webhook-id": approval.id,  # the same for each attempt, so a receiver can drop repetitions
        "webhook-timestamp": str(at),
        "webhook-signature": signature(notify.secret, approval.id, at, body),
    }


def signature(secret: str, id: str, at: int, body: bytes) -> str:
    """Return the value of the header `webhook-signature`.

    Args:
        secret: The shared secret, as `whsec_` and Base64.
        id: The value of the header `webhook-id`.
        at: The value of the header `webhook-timestamp`.
        body: The request's body.
    """
    key = b64decode(secret.removeprefix(PREFIX))
    digest = hmac.digest(key, b"%b.%d.%b" % (id.encode(), at, body), sha256)
    return f"v1,{b64encode(digest).decode()}"


def _event(approval: Approval, link: str | None) -> JsonObject:
    return {
        "type": EVENT,
        "timestamp": rfc3339(approval.created),
        "data": {
            "id": approval.id,
            "call": approval.call,
            "tool": approval.tool,
            "user": approval.user,
            "rule": approval.rule,
            "approvers": list(approval.approvers),
            "expires": rfc3339(approval.expires),
            "url": link,
        },
    }


def _sentence(approval: Approval) -> str:
    until = str(rfc3339(approval.expires))
    who = [approval.user if each == CALLER else each for each in approval.approvers]
    tool, user, rule, approvers = (
        visible(each[:MAX_NAME])
        for each in (approval.tool, approval.user, approval.rule, " or ".join(who))
    )
    return (
        f"{tool} for {user} waits for approval by {approvers} (rule {rule}), "
        f"until {until[:10]} {until[11:16]} UTC."
    )


def _without_page(approval: Approval) -> str:
    return f"interlock approvals show {approval.id}"


def _slack(approval: Approval, link: str | None) -> JsonObject:
    text = _sentence(approval)
    for character, escape in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(character, escape)
    way = f"<{link}|Decide>" if link else f"`{_without_page(approval)}`"
    return {"text": f"{text}\n{way}", "unfurl_links": False}


def _teams(approval: Approval, link: str | None) -> JsonObject:
    # Not a TextBlock, because that would render Markdown, such as a link in the name of a user.
    text = _sentence(approval) if link else f"{_sentence(approval)} {_without_page(approval)}"
    card: JsonObject = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.2",
        "body": [{"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": text}]}],
    }
    if link:
        card["actions"] = [{"type": "Action.OpenUrl", "title": "Decide", "url": link}]
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}
