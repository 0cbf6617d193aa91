"""The admin API's routes for the audit trail: filtered calls, one call, export, verification."""

from __future__ import annotations

import socket
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from interlock import aio
from interlock.auth.principal import principal_id
from interlock.config.section import parse_moment
from interlock.errors import ConfigError
from interlock.gateway.admin.operations import BASE, EmptyBody, Operations, PageQuery, listed
from interlock.server.http.json_api import (
    ApiRequest,
    JsonReply,
    LineStream,
    Problem,
    Route,
    not_found,
)
from interlock.store.audit.copies import copy_folder
from interlock.store.audit.copy_reading import TrailCopy, read_copy
from interlock.store.audit.reading import CallFilter
from interlock.store.audit.records import Status
from interlock.store.audit.rollup_series import MAX_BUCKETS, By
from interlock.text.timestamps import now_micros
from interlock.types import JsonObject


class CallQuery(PageQuery, frozen=True, forbid_unknown_fields=True):
    """The filter for a list of calls; times are written as in commands, such as "2h" ago."""

    user: str = ""
    key: str = ""
    tool: str = ""
    status: Status | Literal[""] = ""
    reason: str = ""
    since: str = ""
    until: str = ""


class Period(Struct, frozen=True, forbid_unknown_fields=True):
    """The time span of an export."""

    since: str = ""
    until: str = ""


class SeriesQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The chart to return, with one line for each `by`; `failures` includes failed calls' times."""

    by: By = "outcome"
    since: str = "24h"
    until: str = ""
    buckets: Annotated[int, Meta(ge=1, le=MAX_BUCKETS)] = 48
    failures: bool = True


async def list_calls(gate: Operations, request: ApiRequest) -> JsonReply:
    """Return a page of calls and refusals, newest first."""
    wanted: CallQuery = request.query
    filter = CallFilter(
        user=principal_id(wanted.user) if wanted.user else "",
        key=wanted.key,
        tool=wanted.tool,
        status=wanted.status,
        reason=wanted.reason,
        since=_moment(wanted.since, "since"),
        until=_moment(wanted.until, "until"),
        after=wanted.after,
    )
    async with gate.reading_audit() as reader:
        try:
            calls, following = await reader.page(filter, limit=wanted.limit)
        except ValueError:
            text = "query: after is not a cursor of this list; take it from the Link header"
            raise Problem(400, "bad_request", text) from None
    return listed(calls, request, following)


async def show(gate: Operations, request: ApiRequest) -> list[JsonObject]:
    """Return all records of a call, oldest first."""
    async with gate.reading_audit() as reader:
        records = await reader.records(request.path["call"])
    if not records:
        raise not_found("no call has this id")
    return records


async def series(gate: Operations, request: ApiRequest) -> JsonObject:
    """Return numbers of calls and percentiles of their duration over time."""
    wanted: SeriesQuery = request.query
    since = _moment(wanted.since, "since") or 0
    until = _moment(wanted.until, "until") or now_micros()
    if since >= until:
        raise Problem(400, "bad_request", "query: since is not before until")
    async with gate.reading_audit() as reader:
        found = await reader.series(
            wanted.by, since, until, buckets=wanted.buckets, failures=wanted.failures
        )
    return found.as_json()


async def export(gate: Operations, request: ApiRequest) -> LineStream:
    """Stream all records in a time span, as one JSON object per line."""
    since = _moment(request.query.since, "since")
    until = _moment(request.query.until, "until")
    encode = msgspec.json.Encoder().encode

    async def lines() -> AsyncGenerator[bytes, None]:
        async with gate.reading_audit() as reader:
            async for records in reader.export(since, until):
                if records:
                    yield b"\n".join(map(encode, records)) + b"\n"

    return LineStream(lines())


async def verify(gate: Operations, request: ApiRequest) -> JsonObject:  # noqa: ARG001
    """Check that no record was changed, removed, moved or added, and compare with the copy."""
    if gate.verifying.locked():
        raise Problem(
            409, "busy", "another verification is running; wait for its end", retry_after=5.0
        )
    secret, started = gate.services.secret, gate.assembly.started
    folder = copy_folder(started.audit, started.database or None)
    copy = TrailCopy(0)
    compared: JsonObject = {}
    async with gate.verifying, gate.reading_audit() as reader:
        hosts = frozenset((socket.gethostname(),))  # gateways on other hosts have own copies
        # The copy is read first: then the table has at least the records of the copy.
        try:
            copy = await aio.in_thread(lambda: read_copy([folder], secret, hosts=hosts))
            compared = {"copy": {"compared": True}}
        except ConfigError as error:
            compared = {"copy": {"compared": False, "problem": str(error)}}
        return (await reader.verify(secret, copy)).as_json() | compared


def _moment(text: str, name: str) -> int | None:
    if not text:
        return None
    found = parse_moment(text)
    if found is None:
        raise Problem(
            400, "bad_request", f"query: {name} is not a time such as 2026-11-22T10:00:00Z or 2h"
        )
    return found


ROUTES = (
    Route(
        "GET",
        f"{BASE}/audit",
        "admin:read",
        list_calls,
        "calls and refusals, newest first",
        query=CallQuery,
    ),
    Route(
        "GET",
        f"{BASE}/audit/export",
        "admin:read",
        export,
        "all records in a time span, as one JSON object per line",
        query=Period,
    ),
    Route(
        "POST",
        f"{BASE}/audit/verify",
        "admin:read",
        verify,
        "checks that no record was changed, removed, moved or added",
        body=EmptyBody,
    ),
    Route(
        "GET",
        f"{BASE}/audit/series",
        "admin:read",
        series,
        "numbers of calls and percentiles over time, for charts",
        query=SeriesQuery,
    ),
    Route("GET", f"{BASE}/audit/{{call}}", "admin:read", show, "the records of one call"),
)
