"""Reads the limits on keys, tools and servers, and on the size of results."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import msgspec
from msgspec.structs import asdict

from interlock.config.gateway import (
    UNIT_OF,
    ByteQuota,
    ChatQuotas,
    Keep,
    KeyLimits,
    Limits,
    Rate,
    Results,
    ServerLimits,
)
from interlock.config.patterns import check_pattern
from interlock.config.section import MAX_LONG, Section

MAX_CALLS = 1_000_000_000
MAX_BYTES = 1 << 40
NEVER = "never"
MAX_SESSION = 7 * 86_400  # seconds; browsers keep the cookie of a session for as long
_RATE = re.compile(r"([0-9]{1,9})/(s|min|h|day)")
_SECONDS_OF = {unit: seconds for seconds, unit in UNIT_OF.items()}
RATE_FORM = 'a rate such as "20/s", "600/min", "100/h" or "10000/day"'


def read_limits(section: Section, servers: Collection[str]) -> Limits:
    """Return the limits in the member `limits` of a gateway."""
    section.warn_unknown(("perKey", "tools", "concurrent", "queue"))
    key, default = section.within("perKey"), Limits()
    key.warn_unknown(("rate", "burst", "concurrent", "perDay"))
    if "burst" in key.members and "rate" not in key.members:
        key.refuse('needs a "rate" beside it', "burst")
    tools = section.within("tools")
    rates: dict[str, Rate] = {}
    for pattern in tools.members:
        check_pattern(tools, pattern, servers, pattern)
        rate = read_rate(tools, pattern)
        if rate is not None:
            rates[pattern] = rate
    return Limits(
        per_key=KeyLimits(
            rate=read_rate(key, "rate"),
            burst=_count(key, "burst"),
            concurrent=key.count("concurrent", default.per_key.concurrent, MAX_CALLS),
            per_day=_count(key, "perDay"),
        ),
        tools=rates,
        concurrent=section.count("concurrent", default.concurrent, MAX_CALLS),
        queue=section.count("queue", default.queue, MAX_CALLS, least=0),
    )


def server_limits(section: Section) -> ServerLimits:
    """Return the limits on one server."""
    section.warn_unknown(("concurrent", "queue", "rate"))
    return ServerLimits(
        concurrent=_count(section, "concurrent"),
        queue=section.count("queue", 0, MAX_CALLS, least=0) if "queue" in section.members else None,
        rate=read_rate(section, "rate"),
    )


def read_rate(section: Section, key: str) -> Rate | None:
    """Read a rate; return None if the member is missing."""
    if key not in section.members:
        return None
    text = section.members[key]
    rate = parse_rate(text) if isinstance(text, str) else None
    if rate is None:
        section.refuse(f"must be {RATE_FORM}", key)
    return rate


def parse_rate(text: str) -> Rate | None:
    """Return the rate in a text such as "20/s"; None for any other text."""
    match = _RATE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        return None
    return Rate(int(match[1]), _SECONDS_OF[match[2]])


def _count(section: Section, key: str) -> int | None:
    return section.count(key, 1, MAX_CALLS) if key in section.members else None


def key_limits_problem(limits: Mapping[str, Any]) -> str:
    """Return what is wrong with an API key's own limits; "" if they are valid."""
    for name, value in limits.items():
        if name == "rate":
            if not isinstance(value, str) or parse_rate(value) is None:
                return f"rate must be {RATE_FORM}"
        elif name not in ("burst", "concurrent", "perDay"):
            return f"unknown limit {name!r}; the limits are rate, burst, concurrent and perDay"
        elif type(value) is not int or not 1 <= value <= MAX_CALLS:
            return f"{name} must be a whole number from 1 to {MAX_CALLS:,}"
    return ""


def key_limits(limits: Mapping[str, Any], common: KeyLimits) -> KeyLimits:
    """Return the limits of an API key: its own limits, and the common limits for all others.

    A key with its own rate does not get the common burst. Invalid members are ignored, because a
    newer version of this program may have stored them.
    """
    own = {name: value for name, value in limits.items() if not key_limits_problem({name: value})}
    has_rate = "rate" in own
    return KeyLimits(
        rate=parse_rate(own["rate"]) if has_rate else common.rate,
        burst=own.get("burst", None if has_rate else common.burst),
        concurrent=own.get("concurrent", common.concurrent),
        per_day=own.get("perDay", common.per_day),
    )


def read_results(section: Section, servers: Collection[str], known: Collection[str]) -> Results:
    """Return the limits in the member `results` of a gateway."""
    refuse_moved(section, "results")
    section.warn_unknown(("max", "tools", "views", "perUser", "total"))
    tools, views, default = section.within("tools"), section.within("views"), Results()
    for pattern in tools.members:
        check_pattern(tools, pattern, servers, pattern)
    for view in views.members:
        if view not in known:
            views.refuse(f"is not a view; the views are {', '.join(known) or 'none'}", view)
    return Results(
        max=section.count("max", default.max, MAX_BYTES, least=0),
        tools={each: tools.count(each, 1, MAX_BYTES) for each in tools.members},
        views={each: views.count(each, 1, MAX_BYTES) for each in views.members},
        per_user=section.count("perUser", default.per_user, MAX_BYTES),
        total=section.count("total", default.total, MAX_BYTES),
    )


def read_quotas(section: Section) -> ChatQuotas:
    """Return the limits in the member `quotas` of a chat page."""
    default = ChatQuotas()
    section.refuse_unknown(("conversations", "files"))
    return ChatQuotas(
        conversations=_quota(section.within("conversations"), default.conversations),
        files=_quota(section.within("files"), default.files),
    )


def _quota(section: Section, default: ByteQuota) -> ByteQuota:
    section.refuse_unknown(("perUser", "total"))
    return ByteQuota(
        per_user=section.count("perUser", default.per_user, MAX_BYTES),
        total=section.count("total", default.total, MAX_BYTES),
    )


def read_keep(section: Section) -> Keep:
    """Return the retention times in the member `keep` of a gateway."""
    section.refuse_unknown(Keep.__struct_fields__)
    times: dict[str, float | None] = {}
    for name, default in asdict(Keep()).items():
        if section.members.get(name) == NEVER and name == "conversations":
            times[name] = None
        elif name in section.members:
            most = MAX_SESSION if name == "sessions" else MAX_LONG
            times[name] = section.duration(name, 0.0, most)
        else:
            times[name] = default
    return msgspec.convert(times, Keep)


def refuse_moved(section: Section, name: str) -> None:
    """Refuse a member `keep` outside the member `keep` of the gateway."""
    if "keep" in section.members:
        section.refuse(f'is now "gateway": {{"keep": {{"{name}": …}}}}', "keep")


def server_results(section: Section) -> int | None:
    """Return the limit on the size of one server's results, in bytes; None if it is not set."""
    section.warn_unknown(("max",))
    return section.count("max", 1, MAX_BYTES) if "max" in section.members else None
