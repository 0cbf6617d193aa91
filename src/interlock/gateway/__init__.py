"""The gateway: offers many servers through one MCP endpoint, with authentication and a policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.gateway.forwarding.server import ForwardingServer
    from interlock.gateway.gateway import Gateway

__all__ = ["ForwardingServer", "Gateway"]

# Lazy, because `interlock chat` uses parts of this package but does not serve a gateway.
__getattr__ = loader(
    __name__, {"ForwardingServer": "gateway.forwarding.server", "Gateway": "gateway.gateway"}
)
