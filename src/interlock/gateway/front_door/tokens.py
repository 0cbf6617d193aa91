"""The token endpoint: codes and refresh tokens become access tokens, and both can be revoked.

RFC 6749, sections 4.1.3, 5 and 6; RFC 7009 (revocation); RFC 9700, section 4.14 (rotation).
"""

from __future__ import annotations

import hmac
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from interlock.auth.access_token import ID_BYTES, LIFETIME, AccessToken
from interlock.auth.key_format import digest
from interlock.auth.principal import Principal
from interlock.auth.stored_authorization import StoredAuthorization, StoredPerson
from interlock.auth.stored_key import TENANT
from interlock.errors import StoreError
from interlock.gateway.front_door.client_authentication import ProvenClient
from interlock.gateway.front_door.clients import FrontClient, places_of
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.refresh_token import RefreshToken, refresh_token, verdict
from interlock.gateway.front_door.request import OAuthError, granted, scopes_in
from interlock.types import JsonObject

CODE_LIFETIME = 60 * 1_000_000  # microseconds
SHARED = LIFETIME // 2  # seconds for which an authorization must still last to be shared
PER_CLIENT = 20  # authorizations of one person for one client; the least used one ends
MICROS = 1_000_000


class Decided(Struct, frozen=True):
    """A person's decision, which a code stands for.

    Attributes:
        redirect_uri: The URI that the request stated; the client must state it again.
        challenge: The PKCE challenge.
        authorization: The authorization, which is stored once the code is redeemed.
    """

    redirect_uri: str
    challenge: str
    authorization: StoredAuthorization


def authorization_of(
    client: FrontClient,
    person: Principal,
    *,
    view: str,
    scopes: tuple[str, ...],
    expires: int,
    now: int,
) -> StoredAuthorization:
    """Return a new authorization, with which a client acts for a person."""
    return StoredAuthorization(
        id=urlsafe_b64encode(secrets.token_bytes(ID_BYTES)).decode(),
        user=person.id,
        client=client.id,
        name=client.name,
        verified=client.verified,
        places=tuple(sorted(places_of(client))),
        view=view,
        scopes=scopes,
        salt=secrets.token_bytes(16),
        rotated=now,
        key=person.key_id,
        created=now,
        last_used=now,
        expires=expires,
        tenant=person.tenant or TENANT,
    )


class TokenIssuer:
    """Issues, replaces and revokes tokens.

    Args:
        parts: The shared parts of the front door.
    """

    def __init__(self, parts: DoorParts) -> None:
        self._store = parts.store
        self._ring = parts.ring
        self._secret = parts.secret
        self._resources = parts.gateway.resources
        self._recording = parts.gateway.recorder.recording_client
        self._check_person = parts.rechecks.check
        self._wall = parts.wall
        self._key = parts.secret.derive("refresh token")

    async def issue_code(self, decided: Decided, person: StoredPerson) -> str:
        """Return a new code for what a person has allowed.

        Raises:
            StoreError: The database is unavailable.
        """
        code, now = secrets.token_urlsafe(32), self._wall()
        body = msgspec.json.encode(decided).decode()
        await self._store.add_code(digest(code), body, now + CODE_LIFETIME, person, now)
        return code

    # A code

    async def redeem(self, form: Mapping[str, str], proven: ProvenClient) -> JsonObject:
        """Exchange a code for tokens.

        Raises:
            OAuthError: The code is not valid, or belongs to another client or request.
        """
        hash = digest(form.get("code", ""))
        found = await self._store.code(hash)
        if found is None:
            raise _invalid("the code is not valid")
        body, expires, used_for = found
        decided = msgspec.json.decode(body, type=Decided)
        if used_for:
            made = await self._store.get(used_for)
            await self.end([made] if made else [], "code_reused")
            raise _invalid("the code was used before; what it led to has ended")
        self._check_code(decided, form, proven.client)
        now = self._wall()
        if expires <= now:
            raise _invalid("the code has expired")
        allowed = decided.authorization
        self._check_resource(form, allowed.view)
        made = replace(allowed, proven=proven.signs, rotated=now, created=now, last_used=now)
        self._check_active(made, now)
        await self._check_person(made)
        await self._end_surplus(made)
        record = self._recording("redeemed", made)
        if not await self._store.redeem(hash, made, record=record):
            return await self.redeem(form, proven)  # it was used at the same time
        return self._answer(made, 0, made.scopes)

    def _check_code(self, decided: Decided, form: Mapping[str, str], client: FrontClient) -> None:
        if decided.authorization.client != client.id:
            raise _invalid("the code belongs to another client")
        if form.get("redirect_uri", decided.redirect_uri) != decided.redirect_uri:
            raise _invalid("the code belongs to another redirect_uri")
        verifier = form.get("code_verifier", "")
        if not 43 <= len(verifier) <= 128 or not verifier.isascii():
            raise OAuthError("invalid_request", "code_verifier must have 43 to 128 characters")
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).decode().rstrip("=")
        if not hmac.compare_digest(challenge, decided.challenge):
            raise _invalid("code_verifier is not that of the request")

    def _check_resource(self, form: Mapping[str, str], view: str) -> None:
        stated = form.get("resource", "")
        if stated and self._resources().view_of(stated) != view:
            raise OAuthError("invalid_target", "the code was granted for another resource")

    async def _active(self, made: StoredAuthorization) -> list[StoredAuthorization]:
        """Return the active authorizations of the same person for the same client."""
        return await self._store.list(
            user=made.user, client=made.client, tenant=made.tenant, active_at=made.created
        )

    async def _end_surplus(self, made: StoredAuthorization) -> None:
        """End the least used authorizations of a person for a client, if there are too many."""
        active = await self._active(made)
        active.sort(key=lambda each: each.last_used, reverse=True)
        if surplus := active[PER_CLIENT - 1 :]:
            await self.end(surplus, "replaced")

    async def grant(self, made: StoredAuthorization, *, is_shared: bool) -> JsonObject:
        """Return an access token that needs no code, without a refresh token.

        Args:
            made: A new authorization.
            is_shared: Whether tokens share an authorization that is young enough, because many
                processes of one program request them.
        """
        rights, least = (made.view, made.scopes, made.key), made.created + SHARED * MICROS
        for each in await self._active(made) if is_shared else ():
            if (each.view, each.scopes, each.key) == rights and each.expires > least:
                made = each
                break
        else:
            await self._end_surplus(made)
            await self._store.add(made, record=self._recording("redeemed", made))
        answer = self._answer(made, 0, made.scopes)
        del answer["refresh_token"]
        return answer

    # A refresh token

    async def refresh(self, form: Mapping[str, str], proven: ProvenClient) -> JsonObject:
        """Exchange a refresh token for tokens.

        Raises:
            OAuthError: The token is not valid, or was used before.
        """
        read = RefreshToken.read(form.get("refresh_token", ""))
        while True:
            stored = None if read is None else await self._store.get(read.authorization)
            if read is None or stored is None or not read.is_of(stored, self._key):
                raise _invalid("the refresh token is not valid")
            if stored.client != proven.client.id:
                raise _invalid("the refresh token belongs to another client")
            if stored.proven and not proven.signs:
                text = "this authorization belongs to a client that signs its requests"
                raise OAuthError("invalid_client", text, 401)
            now = self._wall()
            self._check_active(stored, now)
            await self._check_person(stored)
            scopes = self._narrowed(form, stored)
            self._check_resource(form, stored.view)
            match verdict(stored, read.generation, now):
                case "same":
                    return self._answer(stored, stored.generation, scopes)
                case "reused":
                    await self.end([stored], "reused")
                    raise _invalid("the refresh token was used before; the access has ended")
                case "unknown":
                    raise _invalid("the refresh token is not valid")
            if await self._store.rotate(stored.id, stored.generation, now):
                return self._answer(stored, stored.generation + 1, scopes)

    def _check_active(self, stored: StoredAuthorization, now: int) -> None:
        state = stored.state(now)
        if state != "active":
            raise _invalid(f"the access has ended ({state}): sign in again")
        if stored.key and not self._ring.has_key(stored.key):
            raise _invalid("the key that signed in has ended: sign in again")

    def _narrowed(self, form: Mapping[str, str], stored: StoredAuthorization) -> tuple[str, ...]:
        asked = scopes_in(form)
        scopes = granted(asked, stored.scopes)
        if asked and not scopes:
            raise OAuthError("invalid_scope", "these scopes were not granted")
        return scopes

    def _answer(
        self, stored: StoredAuthorization, generation: int, scopes: tuple[str, ...]
    ) -> JsonObject:
        expires = min(self._wall() // MICROS + LIFETIME, stored.expires // MICROS)
        token = AccessToken(stored.id, generation, expires, scopes, stored.view)
        return {
            "access_token": token.sealed(self._secret),
            "token_type": "Bearer",
            "expires_in": max(0, expires - self._wall() // MICROS),
            "refresh_token": refresh_token(stored, generation, self._key),
            "scope": " ".join(scopes),
        }

    # The end

    async def revoke(self, token: str, proven: ProvenClient) -> None:
        """End the authorization of a client's own token; all other tokens change nothing."""
        read, opened = RefreshToken.read(token), AccessToken.opened(token.encode(), self._secret)
        if (found := read or opened) is None:
            return
        stored = await self._store.get(found.authorization)
        is_genuine = stored is not None and (read is None or read.is_of(stored, self._key))
        if stored is not None and is_genuine and stored.client == proven.client.id:
            await self.end([stored], "revoked")

    async def end(self, all: Iterable[StoredAuthorization], reason: str) -> None:
        """End authorizations, here at once and at every gateway within a second.

        Raises:
            StoreError: They cannot be ended.
        """
        for each in all:
            if each.ended is None:
                record = self._recording("ended", each, reason)
                await self._store.end(each, reason, self._wall(), record=record)
        with suppress(StoreError):  # the change is stored, and the next reading applies it
            await self._ring.refresh()

    async def end_person(self, person: StoredPerson, reason: str) -> None:
        """End all that a person has allowed.

        Raises:
            StoreError: It cannot be ended.
        """
        await self.end(await self._store.list(user=person.user, tenant=person.tenant), reason)


def _invalid(text: str) -> OAuthError:
    return OAuthError("invalid_grant", text)
