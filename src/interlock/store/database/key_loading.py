"""The gateway's key for a database. It is loaded without the database unless it is missing."""

from __future__ import annotations

from pathlib import Path

from interlock.auth.gateway_key import FILE_NAME, VARIABLE, GatewayKey
from interlock.errors import ConfigError
from interlock.store.database.location import folder_beside, public


async def load_key(location: str | Path | None) -> GatewayKey:
    """Load the gateway's key for a database; create it only if the database belongs to no key.

    A new key would be of no use for the database of a key that was lost, and would hide the loss.

    Raises:
        ConfigError: The database belongs to a key that is missing; or see `GatewayKey.load`.
        StoreError: The key is missing, and the database cannot be read.
    """
    folder = folder_beside(location)
    if not GatewayKey.exists(folder):
        from interlock.store.database.key_owner import owner_of  # loads SQLAlchemy

        if (owner := await owner_of(location)) is not None:
            raise ConfigError(
                f"{public(location)}: this database belongs to gateway key {owner[:8]}…, which is"
                f" missing; put it into {folder / FILE_NAME}, or set {VARIABLE}"
            )
    return GatewayKey.load(folder)
