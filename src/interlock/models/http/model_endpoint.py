"""Names a model and its host in errors, and keeps the key out of them."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import urlsplit

from interlock.errors import (
    ContextTooLong,
    ModelError,
    ModelInterrupted,
    ModelOverloaded,
    ModelRefused,
    ModelUnavailable,
)
from interlock.models.http.api_refusal import ApiRefusal
from interlock.text import urls

_LONGEST_WAIT = 3_600  # seconds; a longer Retry-After was shortened to this
_SHOWN = 300  # characters of a provider's text in an error
_N = r"[\d,]+"
# Errors about a request that is longer than the context.
_TOO_LONG = tuple(
    re.compile(each, re.IGNORECASE)
    for each in (
        rf"prompt is too long(?:: (?P<used>{_N}) tokens > (?P<limit>{_N}))?",  # Anthropic
        rf"maximum context length is (?P<limit>{_N}) tokens(?:\D+(?P<used>{_N}) tokens)?",  # OpenAI
        rf"\((?P<used>{_N}) tokens\) exceeds the available context size \((?P<limit>{_N}) tokens\)",
        r"exceeds? (?:the )?(?:available |model's )?context (?:size|window|length|limit)",
        rf"token count \((?P<used>{_N})\) exceeds the maximum[^(]*\((?P<limit>{_N})\)",  # Gemini
        # Mistral, xAI, vLLM
        rf"contains (?P<used>{_N}) tokens.{{0,60}}too large for model with (?P<limit>{_N})",
        rf"maximum prompt length is (?P<limit>{_N}) but the request contains (?P<used>{_N})",
        rf"passed (?P<used>{_N}) input tokens.{{0,90}}context length is only (?P<limit>{_N})",
        rf"\(length (?P<used>{_N})\) is longer than the maximum model length of (?P<limit>{_N})",
        rf"context length of only (?P<limit>{_N}) tokens",  # LM Studio
        r"input is too long for requested model",  # Bedrock
        rf"limit (?P<limit>{_N}), requested (?P<used>{_N})",  # Groq, with 413
    )
)
_OVERLOADED = frozenset(("overloaded_error", "rate_limit_exceeded", "server_is_overloaded"))


def context_sizes(refusal: ApiRefusal) -> tuple[int, int] | None:
    """Return the limit and the used tokens if a request was too long; None if it was not.

    A number that the provider does not state is 0.
    """
    if refusal.status not in (400, 413, 422) and not refusal.is_too_large:
        return None
    for pattern in _TOO_LONG:
        if found := pattern.search(refusal.reason):
            written = {"limit": "", "used": "", **found.groupdict()}
            limit, used = ((written[each] or "").replace(",", "") for each in ("limit", "used"))
            return int(limit or 0), int(used or 0)
    return (0, 0) if refusal.code == "context_length_exceeded" else None


def host_of(url: str, name: str) -> str:
    """Return the host, and the port if there is one, of the URL of a model.

    Raises:
        ModelUnavailable: The URL is not valid; the text has the name of the model.
    """
    if problem := urls.problem(url):
        raise ModelUnavailable(f"the address {urls.display(url)} of {name} {problem}")
    return urlsplit(url).netloc.rpartition("@")[2]


class ModelEndpoint(NamedTuple):
    """The names of a model and its host for errors, and the key that errors must not show."""

    name: str  # the name for --model
    model: str  # the provider's name for it
    host: str  # host, or host:port
    key: str  # the API key, never shown; "" for none
    variable: str  # the environment variable of the key; "" if the key must not be sent
    hint: str = ""  # what to do if the host does not know the model

    def __repr__(self) -> str:
        return f"ModelEndpoint({self.name!r}, {self.host!r})"

    def explain(self, refusal: ApiRefusal) -> ModelError:
        """Return the error for a refusal: one line with the provider's reason and what to do."""
        status = refusal.status
        detail = self.detail(refusal)
        if status == 200:  # the error of an answer that states no status
            return self._failed(refusal, detail)
        if status == 401:
            return ModelRefused(f"{self.host} {self._key_problem(detail)}")
        if status == 404:
            return ModelUnavailable(f"{self.host} {self._not_found(refusal, detail)}")
        text = f"{self.host} refused the request to {self.name} ({status}): {detail}"
        if sizes := context_sizes(refusal):
            return ContextTooLong(text, *sizes)
        if refusal.is_unpaid:
            return ModelRefused(f"{text}; add credit to the account, or use another model")
        if status == 429:
            return self._overloaded("limits the rate of", refusal, detail)
        if status in (503, 529):
            return self._overloaded("is overloaded and cannot run", refusal, detail)
        if status == 408 or status >= 500:
            text = f"{self.host} failed to run {self.name} ({status}): {detail}"
            return ModelUnavailable(text if refusal.is_page else f"{text}; try again later")
        return ModelRefused(text)

    def _failed(self, refusal: ApiRefusal, detail: str) -> ModelError:
        text = f"{self.host} failed to run {self.name}: {detail}"
        if sizes := context_sizes(refusal):
            return ContextTooLong(text, *sizes)
        is_overloaded = refusal.code in _OVERLOADED
        return (ModelOverloaded if is_overloaded else ModelUnavailable)(f"{text}; try again later")

    def _key_problem(self, detail: str) -> str:
        if self.key:
            return f"refused the key for {self.name} (401): {detail}; check {self.variable}"
        way = f"set {self.variable}"
        if not self.variable:
            way = "name the model with --model, or in your settings, to send it your key"
        return f"requires a key for {self.name} (401): {detail}; {way}"

    def _not_found(self, refusal: ApiRefusal, detail: str) -> str:
        hint = f"; {self.hint}" if self.hint else ""
        if self.model in refusal.reason or "model" in refusal.reason.lower():
            hint = hint or "; use another model: see `interlock models`"
            return f"has no model {self.model!r} (404): {detail}{hint}"
        if not refusal.is_page:
            hint = hint or "; check the address and the model's name"
        return f"found nothing for {self.name} (404): {detail}{hint}"

    def broken_off(self, refusal: ApiRefusal) -> ModelError:
        """Return the error for an error in the stream of an answer that has begun."""
        detail = self.detail(refusal)
        if refusal.code in _OVERLOADED or refusal.status in (429, 503, 529):
            return ModelOverloaded(f"{self.name} is overloaded: {detail}; try again later")
        return self.cut_off(detail)

    def cut_off(self, why: str) -> ModelInterrupted:
        """Return the error for an answer whose end did not arrive."""
        return ModelInterrupted(
            f"the answer of {self.name} was cut off: {self.clean(why)}; continue it, or try again"
        )

    def unreachable(self, why: str) -> ModelUnavailable:
        """Return the error for a host that cannot be reached."""
        is_ours = urls.is_loopback(urlsplit(f"//{self.host}").hostname or "")
        hint = "start its server" if is_ours else "check your connection"
        if "certificate is not trusted" in why:
            hint = "name the file of its certificate authority in SSL_CERT_FILE"
        return ModelUnavailable(
            f"cannot connect to {self.host} for {self.name}: {self.clean(why)}; {hint}, or use "
            "another model: see `interlock models`"
        )

    def _overloaded(self, what: str, refusal: ApiRefusal, detail: str) -> ModelError:
        after = refusal.retry_after
        when = "later" if after is None else f"in {after:g} s"
        if after is not None and after >= _LONGEST_WAIT:
            when = "in an hour or later"
        return ModelOverloaded(
            f"{self.host} {what} {self.name} ({refusal.status}): {detail}; try again {when}"
        )

    def detail(self, refusal: ApiRefusal) -> str:
        """Return the reason of a refusal as one short line."""
        reason = self.clean(refusal.reason)
        if refusal.is_page:
            title = f" ({reason})" if reason else ""
            # A proxy sends its own page while the server behind it fails.
            way = "try again later" if refusal.status >= 500 else f"check the address {self.host}"
            return f"it sent a web page{title}; {way}"
        return reason.removesuffix(".") or self.clean(refusal.code) or "no reason given"

    def clean(self, text: str) -> str:
        """Return a provider's text as one short line without the key."""
        text = " ".join(self.redact(text[:2000]).split())
        return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"

    def redact(self, text: str) -> str:
        """Replace the key, and every part of it of 6 characters or more, by "[key]"."""
        text = re.sub(r"\S*\*{3,}\S*", "[key]", text)  # a key masked by the provider
        shortest = 6
        start = 0
        while self.key and start + shortest <= len(text):
            end = start + shortest
            if text[start:end] not in self.key:
                start += 1
                continue
            while end < len(text) and text[start : end + 1] in self.key:
                end += 1
            text = f"{text[:start]}[key]{text[end:]}"
            start += len("[key]")
        return text
