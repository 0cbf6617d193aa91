"""The layers that a call passes on its way to a server; `stack` defines their order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.layers.enforcement import CallDenied, enforce
from interlock.layers.stack import Layers
from interlock.lazy import loader

if TYPE_CHECKING:
    from interlock.layers.audit import AuditTrail
    from interlock.layers.limits import Limiter

__all__ = ["AuditTrail", "CallDenied", "Layers", "Limiter", "enforce"]

# Lazy, because a program without limits and audit trail does not need these modules.
__getattr__ = loader(__name__, {"AuditTrail": "layers.audit", "Limiter": "layers.limits"})
