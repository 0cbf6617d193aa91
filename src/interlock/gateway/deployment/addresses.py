"""Checks of addresses: who can reach the listeners, and by which URL and names."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

from interlock.config import GatewaySettings
from interlock.config.gateway import Address
from interlock.gateway.deployment.check_result import CheckResult, error, ok, warning
from interlock.gateway.serving.listeners import DEFAULT
from interlock.text.urls import is_loopback

_ANY = ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


def check_listeners(settings: GatewaySettings, *, has_callers: bool) -> Iterator[CheckResult]:
    """Check who can reach the listeners.

    Args:
        has_callers: Whether a key or an issuer exists, or this is not known.
    """
    public = settings.listen or DEFAULT
    shown = f"{public}: {_reach(public)} can reach the endpoint"
    is_local = is_loopback(public.host)
    if not (is_local or has_callers):
        yield error("listener", f"{shown}, but no key exists: interlock keys create NAME")
    elif not is_local and not settings.public_url.startswith("https:"):
        text = f"{shown}, without TLS; put a proxy before it, and set publicUrl to its https URL"
        yield warning("listener", text)
    else:
        yield ok("listener", shown)
    admin = settings.admin
    if admin is None:
        where = "at the same address" if is_local and not settings.public_url else "not served"
        yield ok("adminListener", f"the admin API and /metrics are {where}")
    elif is_same(admin, public):
        yield error("adminListener", f"gateway.listen and gateway.admin.listen are both {admin}")
    else:
        yield ok("adminListener", f"{admin}: {_reach(admin)} can reach the admin API")


def _reach(address: Address) -> str:
    if is_loopback(address.host):
        return "this machine"
    return "every network" if address.host in _ANY else f"the network of {address.host}"


def is_same(one: Address, other: Address) -> bool:
    """Return whether two listeners exclude each other."""
    hosts = {one.host, other.host}
    return one.port == other.port != 0 and (len(hosts) == 1 or bool(hosts.intersection(_ANY)))


def check_url(settings: GatewaySettings) -> CheckResult:
    """Check that the URL for clients, the accepted hosts, the address and the proxies agree."""
    listen, url = settings.listen or DEFAULT, settings.public_url
    is_local = is_loopback(listen.host)
    if not url:
        if is_local:
            return ok("url", f"http://{listen}/mcp")
        text = "publicUrl is missing, so clients are told a URL of loopback; set it"
        return warning("url", text)
    parts = urlsplit(url)
    name = parts.hostname or ""
    if is_loopback(name) and not is_local:
        text = f"publicUrl {url} names loopback, but the gateway listens at {listen}"
        return error("url", f"{text}; set the URL that clients use")
    if settings.hosts and name not in {each.rpartition(":")[0] or each for each in settings.hosts}:
        text = f"publicUrl names {name}, and hosts only {', '.join(settings.hosts)}"
        return warning("url", f"{text}; clients use one of both wrongly: correct it")
    if parts.scheme == "https" and not settings.proxies:
        text = f"publicUrl {url} is that of a proxy, whose address the audit trail has for clients"
        return warning("url", f"{text}; list it in gateway.proxies")
    return ok("url", url)
