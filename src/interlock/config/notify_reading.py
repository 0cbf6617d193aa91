"""Reads `gateway.notify`: where messages about waiting approvals are sent, and their form."""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Mapping

from msgspec.structs import replace

from interlock.config import variables
from interlock.config.gateway import PREFIX, Notify
from interlock.config.section import Section
from interlock.errors import ConfigError
from interlock.text import urls

SECRET_BYTES = (24, 64)  # minimum and maximum; Standard Webhooks, "Signature scheme"
_FORMATS = ("standard", "slack", "teams")
_SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
# Hosts of the connectors, and of the workflows that replace them.
_TEAMS = (".webhook.office.com", ".logic.azure.com", ".api.powerplatform.com")


def read_notify(gateway: Section) -> Notify | None:
    """Return the member `notify`, an object or only its URL; None if it is missing."""
    if "notify" not in gateway.members:
        return None
    if isinstance(gateway.members["notify"], str):
        notify, place = Notify(url=gateway.filled("notify")), (gateway, "notify")
    else:
        section = gateway.within("notify")
        section.warn_unknown(("url", "secret", "format"))
        section.need("url")
        notify = Notify(url=section.filled("url"), secret=section.optional("secret"))
        if "format" in section.members:
            notify = replace(notify, format=section.choice("format", _FORMATS))
        place = (section, "url")
    if "${" not in notify.url + notify.secret:
        notify = _with_format(notify)
        if problem := _problem(notify):
            section, key = place
            section.refuse(problem, "secret" if "secret" in section.members else key)
    return notify


def filled_notify(notify: Notify, environ: Mapping[str, str]) -> Notify:
    """Return the member with the values of its variables.

    Raises:
        ConfigError: A variable is not set, or its value cannot be used. The text has no value.
    """
    url = variables.fill(notify.url, "gateway.notify.url", environ)
    secret = variables.fill(notify.secret, "gateway.notify.secret", environ)
    filled = _with_format(replace(notify, url=url, secret=secret))
    if problem := _problem(filled):
        raise ConfigError(f"gateway.notify {problem}")
    return filled


def _with_format(notify: Notify) -> Notify:
    """Return the member with the form that the URL's host needs, unless another one is stated."""
    try:
        host = urls.split(notify.url).hostname or ""
    except ValueError:
        return notify
    if notify.format == "standard" and host in _SLACK:
        return replace(notify, format="slack")
    if notify.format == "standard" and host.endswith(_TEAMS):
        return replace(notify, format="teams")
    return notify


def _problem(notify: Notify) -> str:
    """Return why a message cannot be sent; "" if it can."""
    try:
        parts = urls.split(notify.url)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or parts.scheme not in ("http", "https") or notify.url.split() != [notify.url]:
        return "must be a URL with a valid host, such as https://hooks.example.com/approvals"
    if parts.scheme == "http" and not urls.is_loopback(host):
        return "must be https://, or http:// on loopback"
    if "@" in parts.netloc or "#" in notify.url:
        return "must not contain a user name or a fragment"
    if not notify.secret:
        needed = 'needs a "secret" beside "url": "whsec_" and the Base64 of 32 random bytes'
        return needed if notify.format == "standard" else ""
    try:
        size = len(b64decode(notify.secret.removeprefix(PREFIX), validate=True))
    except (binascii.Error, ValueError):
        size = 0
    least, most = SECRET_BYTES
    if least <= size <= most:
        return ""
    return f'must be "{PREFIX}" and the Base64 of {least} to {most} random bytes'
