"""Definitions that an operator has accepted, compared with those that a server offers.

Rules:

1. A hash covers all that a model can see of a tool or prompt, and of an API's operation also what
   is sent where. The order of members does not matter.
2. A server has a hash of its own, of how it is launched and of its instructions. While that one
   differs, nothing of the server is offered.
3. What differs from its pin waits, and so does what has no pin. The rest of the server goes on. A
   renamed tool has no pin.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from interlock.types import JsonObject

_encode_sorted = msgspec.json.Encoder(order="deterministic").encode


def hash_of(document: JsonObject) -> str:
    """Return the SHA-256 of a definition, in hexadecimal digits."""
    return sha256(_encode_sorted(document)).hexdigest()


def document_of(definition: JsonObject, operation: JsonObject | None) -> JsonObject:
    """Return what a pin is made of.

    Args:
        definition: As the server lists it.
        operation: Of a tool of an API: what its model does not see; None for others.
    """
    return definition if operation is None else {**definition, "operation": operation}
