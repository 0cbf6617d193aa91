"""The credentials of requests, as the document's security schemes require them.

Rules:

1. Credentials come from the operator's configuration, or from a user's own login. A caller's
   credentials are never passed on to the API.
2. A client's secret is sent only to the host of the operator's `tokenUrl` or `baseUrl`.
3. A credential that is not a valid header value is refused before the first request.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Protocol
from urllib.parse import quote

from msgspec import Struct

from interlock.config import variables
from interlock.config.openapi import ApiClient, ApiCredential, ApiLogin, ApiPassword, ApiSecret
from interlock.config.section import nearest
from interlock.errors import AuthRequired, ConfigError, LoginRequired
from interlock.oauth.storage import TokenStore, UserTokenStore
from interlock.oauth.token_source import TokenSource
from interlock.openapi.logins import UserLogin, client_tokens
from interlock.text import urls
from interlock.types import JsonObject

MIN_SECRET = 8  # characters; shorter values would make any text unreadable
MASK = "***"
# Headers that decide which host receives a request and where its body ends.
_FRAMING = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"}
)
MAX_USERS = 1_000  # users whose stored values are remembered, to mask them in results

Alternatives = Sequence[Mapping[str, Sequence[str]]]


class UserStores(Protocol):
    """The stored credentials of a gateway's users; each user is identified by `Principal.owner`.

    Attributes:
        is_local: Whether the login of the local user, whose owner is "", is stored here too.
    """

    is_local: bool

    async def values(self, owner: str, server: str) -> Mapping[str, str]:
        """Return the user's values for `${user:NAME}`, keyed by NAME."""
        ...

    def tokens(self, owner: str, server: str) -> TokenStore:
        """Return the store for the tokens of a user's login at a server."""
        ...

    def connect_url(self, owner: str, server: str) -> str:
        """Return the URL where a user connects to a server; "" if there is none."""
        ...


class Credentials(Struct):
    """The credentials of one request, grouped by the place where they are sent."""

    headers: dict[str, str] = {}
    query: dict[str, str] = {}
    cookies: dict[str, str] = {}
    tokens: list[TokenSource] = []

    def target(self, target: str) -> str:
        """Return a path and query with the query credentials added."""
        added = "&".join(
            f"{quote(name, safe='')}={quote(value, safe='*')}" for name, value in self.query.items()
        )
        return f"{target}{'&' if '?' in target else '?'}{added}"


class Identity:
    """Finds the credentials that an operation's requests need.

    Args:
        schemes: The security schemes of the document.
        auth: The configured credentials, keyed by security scheme.
        base_url: The base URL of the API.
        scopes: The scopes that the listed operations need, keyed by security scheme.
        users: The credentials of users; None if the local user is the only one.
        server: The server's name in `users`.
        headers: The operator's headers that contain `${user:NAME}`.
        secrets: Further texts to mask in results.

    Raises:
        ConfigError: A credential does not match its security scheme, or the document has no
            scheme with this name.
    """

    def __init__(
        self,
        schemes: Mapping[str, JsonObject],
        auth: Mapping[str, ApiCredential],
        base_url: str,
        scopes: Mapping[str, tuple[str, ...]],
        *,
        users: UserStores | None = None,
        server: str = "",
        headers: Mapping[str, str] | None = None,
        secrets: Iterable[str] = (),
    ) -> None:
        self._users = users
        self._server = server
        self._user_headers = dict(headers or {})
        self._values: dict[str, Mapping[str, str]] = {}  # by owner, most recently used last
        self._schemes = schemes
        self._auth = auth
        self._base_url = base_url
        self._scopes = scopes
        self._sources: dict[tuple[str, str], TokenSource] = {}  # by scheme and owner
        for name, credential in auth.items():
            if name not in schemes:
                hint = nearest(name, schemes)
                known = ", ".join(schemes) or "none"
                raise ConfigError(
                    f"openapi.auth.{name} is not a security scheme of the document{hint}; its "
                    f"schemes are: {known}"
                )
            if problem := credential_problem(schemes[name], credential):
                raise ConfigError(f"openapi.auth.{name} {problem}")
            if isinstance(credential, ApiClient):
                self.source(name)  # raises an error if the scheme's token URL is not usable
        if len(self.logins) > 1:
            raise ConfigError(
                f"openapi.auth has several logins ({', '.join(self.logins)}); keep one of them"
            )
        self._secrets = [*secrets, *chain.from_iterable(map(secrets_of, auth.values()))]
        texts = [*self._user_headers.values(), *chain.from_iterable(map(_texts_of, auth.values()))]
        self._has_user_values = any(map(variables.user_names, texts))

    # Choosing

    def chosen(self, security: Alternatives) -> Mapping[str, Sequence[str]] | None:
        """Return the first alternative with credentials for all its schemes, or None."""
        for alternative in security:
            if alternative.keys() <= self._auth.keys():
                return alternative
        return None

    def missing(self, security: Alternatives) -> str:
        """Describe the credentials that an operation lacks; return "" if none is missing."""
        if not security or self.chosen(security) is not None:
            return ""
        ways = [
            " and ".join(repr(name) for name in alternative if name not in self._auth)
            for alternative in security
        ]
        return " or ".join(dict.fromkeys(ways))

    def names(self, security: Alternatives) -> str:
        """Name the security schemes that an operation's requests use, as text for a message."""
        return " and ".join(repr(name) for name in self.chosen(security) or ())

    @property
    def logins(self) -> list[str]:
        """The names of the security schemes for which a user logs in."""
        return [name for name, each in self._auth.items() if isinstance(each, ApiLogin)]

    def secrets(self, owner: str = "") -> list[str]:
        """Return every text to mask in results for a user."""
        found = self._secrets.copy()
        for (_, whose), source in self._sources.items():
            if whose in ("", owner) and source.token:
                found.append(source.token)
        return [*found, *self._values.get(owner, {}).values()]

    def end_user(self, owner: str) -> None:
        """Drop a user's cached credentials after the user changed them."""
        self._values.pop(owner, None)
        for key in [each for each in self._sources if each[1] == owner]:
            del self._sources[key]

    # Applying

    async def credentials(self, security: Alternatives, owner: str = "") -> Credentials:
        """Return the credentials for one request.

        Args:
            security: The operation's alternative sets of security schemes.
            owner: The owner of the login and stored credentials; "" for the local user.

        Raises:
            LoginRequired: The user has to log in or to store a credential.
            InterlockError: No token can be obtained.
        """
        found = Credentials()
        values = await self._values_for(security, owner) if self._has_user_values else {}
        for name, text in self._user_headers.items():
            found.headers[name] = _filled(text, values)
        for name in self.chosen(security) or ():
            credential, scheme = self._auth[name], self._schemes[name]
            match credential:
                case ApiSecret(value=value):
                    _put(found, scheme, _filled(value, values))
                case ApiPassword(username=username, password=password):
                    filled = _filled(username, values)
                    if ":" in filled:
                        raise LoginRequired(
                            "the stored user name contains a colon; store another one"
                        )
                    _put(found, scheme, _text_of(ApiPassword(filled, _filled(password, values))))
                case ApiClient() | ApiLogin():
                    source = self.source(name, owner)
                    found.tokens.append(source)
                    await _with_token(source)
        return found

    async def check(self, security: Alternatives, owner: str) -> None:
        """Raise an error if a request would lack a user's credential.

        Raises:
            LoginRequired: The user has to log in or to store a credential.
            InterlockError: No token can be obtained.
        """
        await self._values_for(security, owner)
        for name in self.chosen(security) or ():
            if isinstance(self._auth[name], ApiLogin):
                await _with_token(self.source(name, owner))

    async def _values_for(self, security: Alternatives, owner: str) -> Mapping[str, str]:
        """Return the user's values for the `${user:NAME}` variables in a request.

        Raises:
            LoginRequired: The user has stored no value, or the server has no users.
        """
        texts = list(self._user_headers.values())
        for name in self.chosen(security) or ():
            texts += _texts_of(self._auth[name])
        needed = {name for text in texts for name in variables.user_names(text)}
        if not needed:
            return {}
        values: Mapping[str, str] = {}
        if self._users is not None and owner:
            values = await self._users.values(owner, self._server)
        if missing := ", ".join(sorted(needed - values.keys())):
            what = f"server {self._server!r}" if self._server else "the API"
            raise LoginRequired(f"{what} needs {missing} from the calling user")
        self._values[owner] = values
        while len(self._values) > MAX_USERS:
            del self._values[next(iter(self._values))]
        return values

    def connect_url(self, security: Alternatives, owner: str) -> str:
        """Return the URL where a user replaces an operation's credential, or ""."""
        used = [self._auth[name] for name in self.chosen(security) or ()]
        is_of_user = self._user_headers or any(
            isinstance(each, ApiLogin) or any(map(variables.user_names, secrets_of(each)))
            for each in used
        )
        if self._users is None or not owner or not is_of_user:
            return ""
        return self._users.connect_url(owner, self._server)

    def places(self, security: Alternatives) -> Credentials:
        """Return the credentials of an operation's requests, with masked values."""
        found = Credentials(headers=dict.fromkeys(self._user_headers, MASK))
        for name in self.chosen(security) or ():
            if isinstance(self._auth[name], ApiSecret | ApiPassword):
                _put(found, self._schemes[name], MASK)
            else:
                found.headers["Authorization"] = f"Bearer {MASK}"
        return found

    def source(self, name: str, owner: str = "") -> TokenSource:
        """Return the token source of a security scheme."""
        credential = self._auth[name]
        key = (name, owner if isinstance(credential, ApiLogin) else "")
        found = self._sources.get(key)
        if found is None:
            scheme, scopes = self._schemes[name], self._scopes.get(name, ())
            if isinstance(credential, ApiClient):
                found = client_tokens(scheme, credential, self._base_url, scopes)
            elif isinstance(credential, ApiLogin):
                store: TokenStore = UserTokenStore().for_owner(owner)
                if self._users is not None and (owner or self._users.is_local):
                    store = self._users.tokens(owner, self._server)
                found = UserLogin(scheme, credential, self._base_url, scopes, store=store, ask=None)
            else:
                raise ConfigError(
                    f"openapi.auth.{name} is a fixed value, so no token can be requested for it"
                )
            self._sources[key] = found
        return found

    def login(self, **options: Any) -> UserLogin:
        """Return a login that an interactive user can complete.

        Args:
            options: Further arguments for `UserLogin`.

        Raises:
            ConfigError: The API needs no login.
        """
        for name in self.logins:
            credential = self._auth[name]
            if isinstance(credential, ApiLogin):
                scopes = self._scopes.get(name, ())
                return UserLogin(self._schemes[name], credential, self._base_url, scopes, **options)
        raise ConfigError('openapi.auth has no {"login": true}, so there is nothing to log in to')


async def _with_token(source: TokenSource) -> None:
    """Get a token, unless the source already has a valid token."""
    if not source.token and not await source.valid_token():
        await source.refresh_after(AuthRequired("a token is needed", 401))


# Schemes


def credential_problem(scheme: JsonObject, credential: ApiCredential) -> str | None:
    """Return why a credential does not match a security scheme, or None if it matches."""
    kind = _kind(scheme)
    if kind == "apiKey" and not _is_place(scheme):
        return "is for a scheme that names no header, query parameter or cookie"
    match credential:
        case ApiPassword():
            if kind != "http basic":
                return f"is a user and a password, but the scheme is {kind}"
            if ":" in _without_user(credential.username):
                return "has a user with a colon, which HTTP basic authentication cannot send"
        case ApiClient():
            if kind not in ("oauth2", "openIdConnect"):
                return f"is a client with a secret, but the scheme is {kind}"
        case ApiLogin():
            if kind not in ("oauth2", "openIdConnect"):
                return f"is a login, but the scheme is {kind}"
        case ApiSecret():
            if kind == "mutualTLS":
                return "is a text, but the scheme is mutualTLS, which is not supported"
            if not credential.value.isprintable() or not credential.value.isascii():
                return "has a character that a header cannot have"
    return None


def _is_place(scheme: JsonObject) -> bool:
    """Return whether a scheme names a header, query parameter or cookie that can carry a key."""
    name = scheme.get("name")
    if not isinstance(name, str) or not urls.HTTP_TOKEN.fullmatch(name):
        return False
    return scheme.get("in") != "header" or name.lower() not in _FRAMING


def _kind(scheme: JsonObject) -> str:
    kind = str(scheme.get("type", ""))
    return f"http {str(scheme.get('scheme', '')).lower()}" if kind == "http" else kind


def describe(scheme: JsonObject) -> str:
    """Describe the credential of a security scheme: `an API key in the header X-Key`."""
    match _kind(scheme):
        case "apiKey":
            return f"an API key in the {scheme.get('in', 'header')} {scheme.get('name', '')!r}"
        case "http basic":
            return "a user and a password"
        case "oauth2" | "openIdConnect":
            return "a token: a login, a client with a secret, or the token itself"
        case kind if kind.startswith("http"):
            return f"a {kind.removeprefix('http ')} token"
        case kind:
            return f"{kind or 'an unknown scheme'}, which is not supported"


def _text_of(credential: ApiPassword) -> str:
    pair = f"{credential.username}:{credential.password}"
    return b64encode(pair.encode()).decode()


def _texts_of(credential: ApiCredential) -> list[str]:
    """Return the texts of a credential that may contain `${user:NAME}`."""
    match credential:
        case ApiSecret():
            return [credential.value]
        case ApiPassword():
            return [credential.username, credential.password]
    return []


def _without_user(text: str) -> str:
    return variables.fill_user(text, dict.fromkeys(variables.user_names(text), ""))


def _filled(text: str, values: Mapping[str, str]) -> str:
    filled = variables.fill_user(text, values)
    if filled != text and not (filled.isprintable() and filled.isascii()):
        raise LoginRequired("the stored value has a character that no header can have")
    return filled


def _put(found: Credentials, scheme: JsonObject, text: str) -> None:
    """Add a credential to the header, query or cookies, as its security scheme says."""
    if scheme.get("type") == "apiKey":
        name = str(scheme.get("name", ""))
        place = {"query": found.query, "cookie": found.cookies}.get(
            str(scheme.get("in", "header")), found.headers
        )
        place[name] = text
        return
    method = str(scheme.get("scheme", "bearer")).lower() if scheme.get("type") == "http" else ""
    if method == "basic":
        is_pair = ":" in text  # USER:PASSWORD from the configuration, not encoded yet
        text = b64encode(text.encode()).decode() if is_pair else text
        found.headers["Authorization"] = f"Basic {text}"
    elif method in ("", "bearer"):
        found.headers["Authorization"] = f"Bearer {text}"
    else:
        found.headers["Authorization"] = f"{scheme['scheme']} {text}"


# Secrets


def secrets_of(credential: ApiCredential) -> list[str]:
    """Return the texts of a credential to mask in results."""
    match credential:
        case ApiSecret():
            pair = credential.value
            encoded = [b64encode(pair.encode()).decode()] if ":" in pair else []
            return [pair, *encoded]
        case ApiPassword():
            return [credential.password, _text_of(credential)]
        case ApiClient() | ApiLogin():
            return [credential.client_secret] if credential.client_secret else []
    return []


def mask(text: str, secrets: Iterable[str]) -> str:
    """Mask each secret of `MIN_SECRET` characters or more in a text.

    Copies in which characters are percent-encoded, or are written as any escape of JSON, perhaps of
    JSON within JSON, are masked too.
    """
    has_escapes = "\\" in text or "%" in text
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET:
            text = text.replace(secret, MASK)
            if has_escapes:
                text = _spellings(secret).sub(MASK, text)
    return text


@lru_cache(maxsize=256)
def _spellings(secret: str) -> re.Pattern[str]:
    """Return a pattern that matches a secret in every spelling."""
    return re.compile("".join(map(_spellings_of, secret)))


def _spellings_of(character: str) -> str:
    # JSON within JSON doubles backslashes; a bound keeps a text of backslashes from taking long.
    backslashes = r"\\{1,8}"
    units = character.encode("utf-16-be", "surrogatepass").hex()
    forms = [
        re.escape(character),
        "".join(f"{backslashes}u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4)),
        "".join(f"(?i:%{each:02x})" for each in character.encode("utf-8", "surrogatepass")),
    ]
    short = {"/": "/", "\\": ""}.get(character, json.dumps(character, ensure_ascii=False)[2:-1])
    if short or character == "\\":
        forms.insert(0, backslashes + re.escape(short))
    return f"(?:{'|'.join(forms)})"


def check_plain_http(
    base_url: str, auth: Mapping[str, ApiCredential], headers: Mapping[str, str]
) -> None:
    """Raise an error if credentials would be sent to another machine without TLS.

    Raises:
        ConfigError: There are credentials, and `base_url` is http on another machine.
    """
    host = urls.split(base_url).hostname or ""
    if base_url.startswith("http://") and not urls.is_loopback(host) and (auth or headers):
        raise ConfigError(
            f"openapi.baseUrl {urls.display(base_url)} sends credentials without TLS; use "
            'https://, or add "allowHttp": true'
        )
