"""Exchange of a user's ID token for a JWT that a different authorization server accepts.

With it, a company's identity provider decides which servers its employees may use
(enterprise-managed authorization). RFC 8693; draft-ietf-oauth-identity-assertion-authz-grant
(ID-JAG).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct

from interlock.errors import AuthError
from interlock.oauth.client_identity import ClientIdentity
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata, check_token, read, refusal
from interlock.oauth.fetcher import Fetcher, check_url
from interlock.oauth.identity import authenticate_client
from interlock.text.urls import display

_GRANT_TYPE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - not a secret
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"


class _Exchanged(Struct, frozen=True):
    access_token: str
    issued_token_type: str


class TokenExchange:
    """The `assertion` for a `JwtBearer`, issued by a company's identity provider.

    Args:
        token_endpoint: The identity provider's token endpoint.
        client: The client, registered at the identity provider, which must be the client's
            `issuer`.
        id_token: Returns the user's ID token, which is sent only to `token_endpoint`.
        fetcher: Sends the requests; None for a new fetcher that reaches only public addresses.

    Raises:
        AuthError: `token_endpoint` is not an https URL.
    """

    def __init__(
        self,
        token_endpoint: str,
        *,
        client: ClientIdentity,
        id_token: Callable[[], Awaitable[str]],
        fetcher: Fetcher | None = None,
    ) -> None:
        check_url(token_endpoint, "the token endpoint of the identity provider")
        self._endpoint = token_endpoint
        self._client = client
        self._id_token = id_token
        self._fetcher = fetcher or Fetcher()

    async def __call__(self, issuer: str, resource: str) -> str:
        """Return a JWT for the authorization server `issuer`, for use at `resource`.

        Raises:
            AuthError: The identity provider refused to issue the JWT.
            InterlockError: The identity provider could not be reached, or sent an invalid response.
        """
        provider = ServerMetadata(self._client.issuer, token_endpoint=self._endpoint)
        form = {
            "grant_type": _GRANT_TYPE,
            "requested_token_type": _ID_JAG,
            "audience": issuer,
            "resource": resource,
            "subject_token": await self._id_token(),
            "subject_token_type": _ID_TOKEN,
        }
        headers = {"Accept": "application/json"}
        authenticate_client(self._client, Discovery("", None, provider), form, headers)
        reply = await self._fetcher.post(self._endpoint, form=form, headers=headers)
        what = f"the identity provider {display(self._endpoint)} gave no token"
        if reply.status // 100 != 2:
            credentials = headers.get("Authorization", "").removeprefix("Basic ")
            assertion = form.get("client_assertion", "")
            secrets = (form["subject_token"], credentials, assertion, *self._client.secrets)
            raise refusal(reply, secrets).error(what, reply.status)
        answer = read(reply, _Exchanged)
        if answer.issued_token_type != _ID_JAG:
            raise AuthError(f"{what} of the requested type")
        return check_token(answer.access_token, f"{display(self._endpoint)} gave a token")
