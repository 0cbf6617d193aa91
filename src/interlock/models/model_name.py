"""Names of models: `PROVIDER:MODEL`, or `PROVIDER:MODEL@URL` for another server."""

from __future__ import annotations

from interlock.text import urls


def split_url(name: str) -> tuple[str, str]:
    """Return a name without its URL, and the URL; "" for none."""
    # Only "@http" starts a URL, because names of models may contain "@".
    for scheme in ("@http://", "@https://"):
        model, found, address = name.partition(scheme)
        if found:
            return model, scheme[1:] + address
    return name, ""


def public_name(name: str) -> str:
    """Return a name without user, password and query of its URL."""
    model, url = split_url(name)
    return f"{model}@{urls.display(url)}" if url else name
