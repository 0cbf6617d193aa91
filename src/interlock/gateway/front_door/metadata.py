"""The document that describes the front door as an authorization server (RFC 8414)."""

from __future__ import annotations

from interlock.gateway.front_door.clients import METHODS
from interlock.gateway.front_door.request import OFFERED
from interlock.types import JsonObject

WELL_KNOWN = "/.well-known/oauth-authorization-server"
BY_JWT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
GRANTS = ("authorization_code", "refresh_token", "client_credentials", BY_JWT)
ALGORITHMS = ("RS256", "ES256")
ID_JAG = "urn:ietf:params:oauth:grant-profile:id-jag"


def metadata(issuer: str, *, registers: bool, takes_id_jag: bool) -> JsonObject:
    """Return the metadata.

    Args:
        issuer: The origin of the gateway's public URL.
        registers: Whether clients can register themselves.
        takes_id_jag: Whether an issuer may state whom a client acts for.
    """
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        **({"registration_endpoint": f"{issuer}/register"} if registers else {}),
        "revocation_endpoint": f"{issuer}/revoke",
        "scopes_supported": [*OFFERED, "offline_access"],
        "response_types_supported": ["code"],
        "response_modes_supported": ["query"],
        "grant_types_supported": list(GRANTS),
        **({"authorization_grant_profiles_supported": [ID_JAG]} if takes_id_jag else {}),
        "token_endpoint_auth_methods_supported": list(METHODS),
        "token_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "revocation_endpoint_auth_methods_supported": list(METHODS),
        "revocation_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
        "code_challenge_methods_supported": ["S256"],
        "client_id_metadata_document_supported": True,
        "authorization_response_iss_parameter_supported": True,
    }
