"""The user's settings for models: `settings.json` in the user's configuration folder.

A file with an error is refused completely; the error names the line and the member. A command's
options and environment variables override the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from interlock.config import section, shared_file
from interlock.config.jsonc import JsoncDocument
from interlock.config.section import Section
from interlock.config.tool_search import ToolSearch, tool_search_in
from interlock.errors import ConfigError
from interlock.messages import Usage
from interlock.text.quoting import kind

MAX_PRICE = 1_000_000  # the largest price of a million tokens, in the user's currency
# These providers' models accept no options, so the options for all models do not apply to them.
_WITHOUT_OPTIONS = ("local", "scripted")


class Price(Struct, frozen=True):
    """A model's price per million tokens, in the user's currency.

    Attributes:
        input: The price of input tokens.
        output: The price of output tokens.
        cached: The price of input tokens read from the provider's cache; None for the price
            `input`.
    """

    input: float
    output: float
    cached: float | None = None

    def cost(self, usage: Usage) -> float:
        cached = self.input if self.cached is None else self.cached
        fresh = usage.input_tokens - usage.cached_tokens
        parts = (
            fresh * self.input,
            usage.cached_tokens * cached,
            usage.output_tokens * self.output,
        )
        return sum(parts) / 1_000_000


class ModelUse(Struct, frozen=True):
    """The tokens that a model used in a conversation, and their cost, or None if it is unknown."""

    model: str
    usage: Usage
    cost: float | None


class ModelSettings(Struct, frozen=True):
    """The settings of one model."""

    options: dict[str, Any] = {}
    price: Price | None = None


class Settings(Struct, frozen=True):
    """The content of the settings file.

    Attributes:
        path: The file; None if no file exists.
        model: The default model, written as for `--model`; "" if none is set.
        options: Members to add to every request to a model, such as {"temperature": 0.2}.
        aliases: The names of models, keyed by the user's own names for them.
        models: The settings of single models, keyed by the model's name.
        tool_search: Whether models search for tools instead of reading all definitions.
        warnings: Warnings for the user, one line each.
    """

    path: Path | None = None
    model: str = ""
    options: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    models: dict[str, ModelSettings] = {}
    tool_search: ToolSearch = ToolSearch()
    warnings: tuple[str, ...] = ()

    @property
    def models_named(self) -> tuple[str, ...]:
        """The names of models in the file, whose servers the user has thereby chosen."""
        return (self.name_of(self.model), *self.aliases.values(), *self.models)

    def name_of(self, model: str) -> str:
        """Return the name of the model for an alias; return other names unchanged."""
        return self.aliases.get(model, model)

    def options_of(self, model: str) -> dict[str, Any]:
        """Return the options for a model, given the model's name."""
        general = {} if model.partition(":")[0] in _WITHOUT_OPTIONS else self.options
        return {**general, **self._of(model).options}

    def price_of(self, model: str) -> Price | None:
        """Return a model's price, given the model's name; None if the user has not set a price."""
        return self._of(model).price

    def costs(self, used: Mapping[str, Usage]) -> list[ModelUse]:
        """Return how many tokens each model used, and what they cost."""
        priced = ((name, usage, self.price_of(name)) for name, usage in used.items())
        return [
            ModelUse(name, usage, None if price is None else price.cost(usage))
            for name, usage, price in priced
        ]

    def _of(self, model: str) -> ModelSettings:
        for name, found in self.models.items():
            if self.name_of(name) == model:
                return found
        return ModelSettings()


# Reading


def default_path() -> Path:
    """Return the path of the settings file, which need not exist."""
    from platformdirs import user_config_path

    return user_config_path("interlock") / "settings.json"


def load(path: Path | None = None) -> Settings:
    """Read the settings file; return empty settings if the file is missing.

    Raises:
        ConfigError: The file cannot be read, or its content is not valid.
    """
    path = path or default_path()
    try:
        exists = path.exists()
    except OSError:
        exists = True  # assume that the file exists: reading it raises a clearer error
    return loads(shared_file.read(path), path) if exists else Settings()


def loads(text: bytes, path: Path | None = None) -> Settings:
    """Return the settings in a file's content.

    Raises:
        ConfigError: The content is not valid. The text names the file, line and member.
    """
    root = section.parse(text, path)
    root.warn_unknown(("model", "options", "aliases", "models", "toolSearch", "$schema"))
    aliases = root.within("aliases")
    for name in aliases.members:
        if not name.strip() or ":" in name:
            aliases.refuse("must be a name without colon: names with a colon are models", name)
        if aliases.filled(name) in aliases.members:
            aliases.refuse("stands for another alias: name a model", name)
    table = root.within("models")
    return Settings(
        path,
        root.optional("model"),
        root.within("options").members,
        aliases.members,
        {name: _model(table.within(name)) for name in table.members},
        tool_search_in(root),
        tuple(root.warnings),
    )


def _model(entry: Section) -> ModelSettings:
    entry.warn_unknown(("options", "price"))
    price = None
    if "price" in entry.members:
        price = _price(entry.within("price"))
    return ModelSettings(entry.within("options").members, price)


def _price(entry: Section) -> Price:
    entry.warn_unknown(Price.__struct_fields__)
    entry.need("input", "output")
    for name in Price.__struct_fields__:
        value = entry.members.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float):
            entry.refuse(f"must be the price of a million tokens, not {kind(value)}", name)
        if not 0 <= value <= MAX_PRICE:
            entry.refuse(f"must be from 0 to {MAX_PRICE:,}", name)
    members = entry.members
    return Price(members["input"], members["output"], members.get("cached"))


# Editing

EDITABLE = ("model", "toolSearch", "options", "aliases")
_SINGLE = ("model", "toolSearch")
_NAMES = "model, toolSearch, options.NAME or aliases.NAME"


def change(name: str, value: Any, path: Path | None = None) -> None:
    """Set one setting, or remove it if `value` is None. The file's other content is unchanged.

    Args:
        name: `model`, `toolSearch`, `options.NAME` or `aliases.NAME`.
        value: The new value; None to remove the setting.
        path: The file; None for the user's default file.

    Raises:
        ConfigError: The name is unknown, the file's content is not valid, or the file cannot be
            written.
    """
    found = (path or default_path()).resolve()
    part, _, key = name.partition(".")
    if part not in EDITABLE or (part in _SINGLE) == bool(key):
        raise ConfigError(f"no setting {name!r}; set {_NAMES}, or edit {found}")

    def content() -> bytes:
        before = shared_file.read(found) if found.exists() else b"{}\n"
        loads(before, found)
        after = _changed(before, part, key, value).encode()
        loads(after, found)  # raise rather than write a file that cannot be read again
        return after

    shared_file.edit(found, content)


def _changed(text: bytes, part: str, key: str, value: Any) -> str:
    place = (part, key) if key else (part,)
    document = JsoncDocument(text)
    if place in document.spans:
        document = JsoncDocument(document.without_member(place).encode())
    if value is None:
        return document.text
    if key and part not in document.value:
        return document.with_member((), part, {key: value})
    return document.with_member(place[:-1], place[-1], value)
