"""Calls of a person's own programs: `interlock chat` and `interlock call`.

With a member `gateway` its policy, limits and audit trail hold for them as for every caller. They
call as `user:local` with the scope `mcp:*`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from interlock.calls import Around
from interlock.config import Config, ServerConfig
from interlock.policy import Approve, Policy, enforce
from interlock.transports import InProcessServer


class LocalCalls(Struct, frozen=True):
    """What the toolbox of such a program needs: its servers, and the layers of every call."""

    servers: Mapping[str, ServerConfig | InProcessServer]
    around: Sequence[Around]


@asynccontextmanager
async def local_calls(
    config: Config, approve: Approve, *, environ: Mapping[str, str] | None = None
) -> AsyncIterator[LocalCalls]:
    """Open what a configuration says about calls.

    Args:
        config: The configuration.
        approve: Asks the person about a call that must be approved.
        environ: Where `${VAR}` is looked up; `os.environ` when None.

    Raises:
        ConfigError: The configuration or the gateway's key cannot be used.
        StoreError: The audit trail cannot be opened.
    """
    if config.gateway is None:
        yield LocalCalls(config.servers, [enforce(Policy.for_local_user(config), approve)])
        return
    # These need packages of the extra "serve", which a chat without a gateway does not.
    from interlock.auth.gateway_key import GatewayKey
    from interlock.gateway.assembly import layers_of, make_parts, make_trail
    from interlock.store.audit_upkeep import open_trail
    from interlock.store.location import folder_beside

    parts = make_parts(config, os.environ if environ is None else environ)
    location, audit = parts.settings.database or None, parts.settings.audit
    trail = None
    async with AsyncExitStack() as stack:
        if audit.mode != "off":
            secret = GatewayKey.load(folder_beside(location))
            writer = await stack.enter_async_context(open_trail(location, secret, audit))
            trail = make_trail(writer, secret, audit)
            stack.callback(trail.flush)
        outside = [trail.refusals] if trail is not None else []
        inside = [enforce(parts.policy, approve), *layers_of(parts, trail)]
        yield LocalCalls(parts.servers, [*outside, *inside])
