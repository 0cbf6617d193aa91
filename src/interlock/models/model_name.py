"""Names of models: `PROVIDER:MODEL`, or `PROVIDER:MODEL@URL` for another server."""

from __future__ import annotations

from pathlib import PurePath

from interlock.text import urls

_FILES = ("local", "scripted")  # providers whose models are files


def split_url(name: str) -> tuple[str, str]:
    """Split a model's name into the name without its URL, and the URL or ""."""
    # Only "@http" starts a URL, because names of models may contain "@".
    for scheme in ("@http://", "@https://"):
        model, found, address = name.partition(scheme)
        if found:
            return model, scheme[1:] + address
    return name, ""


def public_name(name: str) -> str:
    """Return a model's name without the user, password and query in its URL."""
    model, url = split_url(name)
    return f"{model}@{urls.display(url)}" if url else name


def provider_and_model(name: str) -> tuple[str, str]:
    """Return the provider and the model in a name, without the folder of a model's file."""
    provider, _, model = split_url(name)[0].partition(":")
    # The folder may have a person's name.
    return provider, PurePath(model).name if provider in _FILES else model or provider
