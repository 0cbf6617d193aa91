"""Type hints of a server's author, rewritten once for msgspec when a function is described.

Plain limits and descriptions of pydantic, `annotated_types` and `Doc` become `msgspec.Meta`. A hint
that needs more of pydantic becomes one type that a `TypeAdapter` reads. Classes are recognised by
their modules, because only the user's program imports these packages.
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections import abc
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, time
from typing import Annotated, Any, NoReturn, get_args, get_origin

from msgspec import Meta, Struct

from interlock.errors import SignatureError
from interlock.schema import hooks
from interlock.schema.metadata import (
    EMPTY,
    LENGTHS,
    LIMITS,
    NUMBERS,
    NeedsPydantic,
    alias_of,
    default_of,
    is_field,
    is_of_peers,
    merge,
    of_peer,
    only_about_values,
    said_by,
    text_of,
    with_meta,
)

_SIZED = (
    *(bytes, bytearray, list, set, frozenset, dict, tuple),
    *(abc.Sequence, abc.MutableSequence, abc.Collection, abc.Set, abc.MutableSet),
    *(abc.Mapping, abc.MutableMapping),
)
# The limits that msgspec checks for each type; pydantic checks every type that is missing here.
_LIMITS_OF: dict[Any, frozenset[str]] = {
    **dict.fromkeys((bool, type(None)), frozenset()),
    **dict.fromkeys((int, float), NUMBERS),
    **dict.fromkeys(_SIZED, LENGTHS),
    str: LENGTHS | {"pattern"},
    **dict.fromkeys((datetime, time), frozenset(("tz",))),
}
_LISTS = (abc.Iterable, abc.Iterator)
FORMATS = {datetime: "date-time", time: "time"}
"""The formats of types that msgspec describes as text without one."""
_WRAPPERS = ("Required", "NotRequired", "ReadOnly")


class FunctionParameter(Struct, frozen=True):
    """A parameter of a function, as msgspec reads it.

    Attributes:
        name: The name in the function.
        argument: The name for clients.
        hint: The rewritten type hint.
        default: The default; `EMPTY` for a required parameter.
        factory: A function that makes the default for each call.
    """

    name: str
    argument: str
    hint: Any
    default: Any = EMPTY
    factory: Callable[[], Any] | None = None


def parameter(name: str, hint: Any, default: Any, where: str) -> FunctionParameter:
    """Return a parameter with its rewritten hint. `Field(...)` may be in the hint or the default.

    Raises:
        SignatureError: A limit cannot be applied; the text begins with `where`.
    """
    own = EMPTY if is_field(default) else default
    if is_field(default):
        hint = Annotated[hint, default]
    argument, found, factory = name, EMPTY, None
    if get_origin(hint) is Annotated:
        for field in filter(is_field, hint.__metadata__):
            try:
                argument = alias_of(field) or argument
                given, made = default_of(field)
            except SignatureError as error:
                raise SignatureError(f"{where}: {error}") from None
            if given is not EMPTY or made is not None:
                found, factory = given, made
        metadata = [
            only_about_values(each) if is_field(each) else each for each in hint.__metadata__
        ]
        hint = Annotated[(hint.__origin__, *metadata)]
    if own is not EMPTY:
        found, factory = own, None
    if found is None:
        hint = _or_none(hint)
    hint = rewritten(hint, where, name)
    _refuse_members(hint, where, [])
    return FunctionParameter(name, argument, hint, found, factory)


def _refuse_members(hint: Any, where: str, seen: list[Any]) -> None:
    """Refuse classes in an argument whose constructor msgspec would replace with its own rules."""
    if any(hint is each for each in seen):
        return
    seen.append(hint)
    for each in getattr(hint, "__attrs_attrs__", ()):
        if each.converter is not None:
            raise SignatureError(
                f"{where}: member {each.name!r} of {hint.__name__} has a converter, which would "
                "not run; use a model of pydantic"
            )
        if each.alias not in (None, each.name, each.name.lstrip("_")):
            raise SignatureError(
                f"{where}: member {each.name!r} of {hint.__name__} has the alias {each.alias!r}, "
                "which clients could not use; use a model of pydantic"
            )
    members = getattr(hint, "__attrs_attrs__", None)
    if members is None and dataclasses.is_dataclass(hint):
        members = dataclasses.fields(hint)
    for each in members or ():
        if not each.init:
            raise SignatureError(
                f"{where}: member {each.name!r} of {hint.__name__} has init=False, but clients "
                "could set it; use a property, or pydantic.dataclasses.dataclass"
            )
    inner = member_hints(hint).values() if has_members(hint) else get_args(hint)
    for each in inner:
        _refuse_members(each, where, seen)


def _or_none(hint: Any) -> Any:
    """Return the hint of a parameter with the default None, such as `str`, as one that takes None.

    Clients read the default in the schema, and many send it.
    """
    metadata: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, metadata = hint.__origin__, hint.__metadata__
    if hint not in (Any, object, EMPTY):
        hint = typing.Optional[hint]  # noqa: UP045 - a hint may be text
    return Annotated[(hint, *metadata)] if metadata else hint


def rewritten(hint: Any, where: str, name: str = "value") -> Any:
    """Return a hint that msgspec reads, with `schema.hooks` as its hooks.

    Args:
        hint: A hint in which all names are resolved.
        where: The place of the hint, with which errors begin.
        name: The prefix of the definitions of pydantic.

    Raises:
        SignatureError: Known metadata cannot be applied.
    """
    try:
        return _Rewriter(where, None, []).rewrite(hint)
    except NeedsPydantic as reason:
        need = str(reason)
    if "pydantic" not in sys.modules:
        raise SignatureError(
            f"{where}: only pydantic can apply {need}; import pydantic, or use msgspec.Meta"
        )
    if lost := _lost_meta(hint, []):
        raise SignatureError(f"{where}: {lost} has msgspec.Meta beside {need}; use Field")
    try:
        return hooks.adapted(_for_pydantic(hint), name)
    except TypeError as error:
        raise SignatureError(f"{where} needs pydantic for {need}: {error}") from error


class _Rewriter:
    """Rewrites one hint.

    Args:
        where: The place of the hint, with which errors begin.
        owner: The class whose member the hint is, if it is not the hint of a parameter.
        seen: The classes and aliases on the way to the hint.
    """

    def __init__(self, where: str, owner: type | None, seen: list[Any]) -> None:
        self._where = where
        self._owner = owner
        self._seen = seen

    def rewrite(self, hint: Any) -> Any:
        origin = get_origin(hint)
        if origin is Annotated:
            return self._annotated(hint.__origin__, hint.__metadata__)
        if origin in (typing.Union, types.UnionType):
            return self._union([self.rewrite(each) for each in get_args(hint)])
        if type(origin or hint).__name__ == "TypeAliasType":
            return self._alias(hint)
        if hasattr(hint, "__supertype__"):
            return self.rewrite(hint.__supertype__)
        if getattr(origin, "_name", "") in _WRAPPERS:
            return self.rewrite(get_args(hint)[0])
        if origin in _LISTS or hint in _LISTS:
            return self._generic(list, get_args(hint))
        if origin is not None and origin is not typing.Literal:
            self._class(origin)
            return self._generic(origin, get_args(hint), hint)
        return self._class(hint)

    def _generic(self, origin: Any, arguments: tuple[Any, ...], hint: Any = None) -> Any:
        if origin is abc.Callable or origin is type:
            return hint
        new = tuple(self.rewrite(each) for each in arguments)
        if hint is not None and all(a is b for a, b in zip(new, arguments, strict=True)):
            return hint
        return origin[new] if new else origin

    def _class(self, hint: Any) -> Any:
        if hint is object:
            return Any
        if hint in FORMATS:
            return Annotated[hint, Meta(extra_json_schema={"format": FORMATS[hint]})]
        if not isinstance(hint, type) or hooks.is_model(hint):
            return hint
        if issubclass(hint, Struct):
            self._struct(hint)
        elif hooks.is_of_pydantic(hint):
            raise NeedsPydantic(hint.__name__)
        elif has_members(hint):
            self._members(hint, self._where)
        return hint

    def _alias(self, hint: Any) -> Any:
        if any(hint == each for each in self._seen):
            raise NeedsPydantic(f"the recursive type {hint}")
        alias = get_origin(hint) or hint
        try:
            value = alias.__value__
        except Exception as error:  # the value may be any code
            raise SignatureError(f"{self._where} has type {hint}: {error}") from error
        self._seen.append(hint)
        result = self.rewrite(value[get_args(hint)] if get_args(hint) else value)
        self._seen.remove(hint)
        return result

    def _union(self, members: list[Any]) -> Any:
        bare = [_origin(each) for each in members]
        if str in bare:  # text is read as text
            members = [each for each in members if not hooks.is_text(_origin(each))]
            bare = [each for each in bare if not hooks.is_text(each)]
        others = [each for each in bare if each is not type(None)]
        for each in others:
            if len(others) > 1 and (hooks.is_model(each) or hooks.is_text(each)):
                raise NeedsPydantic(f"a union with {each.__name__}")
        return typing.Union[tuple(members)]  # noqa: UP007 - made from a list

    # Metadata

    def _annotated(self, base: Any, metadata: tuple[Any, ...]) -> Any:
        found: dict[str, Any] = {}
        for each in self._known(metadata):
            merge(found, each)
        base = self.rewrite(base)
        if not found:
            return base
        limits = {key: each for key, each in found.items() if key in LIMITS}
        notes = {key: each for key, each in found.items() if key not in LIMITS}
        if limits:
            base = self._limited(base, limits)
        return with_meta(base, notes) if notes else base

    def _known(self, metadata: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
        """Yield the known metadata as keyword arguments of `Meta`."""
        if text := text_of(metadata):
            yield {"description": text}
        for each in metadata:
            if isinstance(each, Meta):
                yield said_by(each)
            elif each is not None and is_of_peers(each):
                if self._owner is not None:  # members of a class cannot be rewritten
                    raise NeedsPydantic(f"{each!r} in {self._owner.__name__}")
                try:
                    yield of_peer(each)
                except SignatureError as error:
                    self._refuse(str(error))

    def _limited(self, base: Any, limits: dict[str, Any]) -> Any:
        """Add limits to a type, or to those members of a union that can have them."""
        is_union = get_origin(base) in (typing.Union, types.UnionType)
        members = list(get_args(base)) if is_union else [base]
        unused = set(limits)
        for at, member in enumerate(members):
            takes = _LIMITS_OF.get(_origin(member))
            if takes is None:
                raise NeedsPydantic(", ".join(sorted(limits)))
            if fitting := {key: each for key, each in limits.items() if key in takes}:
                if _origin(member) is int and not all(map(_is_int64, fitting.values())):
                    raise NeedsPydantic(", ".join(sorted(fitting)))
                members[at] = with_meta(member, fitting)
                unused -= fitting.keys()
        if unused:
            self._refuse(f"{', '.join(sorted(unused))} cannot be applied to {base}")
        return typing.Union[tuple(members)] if is_union else members[0]  # noqa: UP007

    def _refuse(self, problem: str) -> NoReturn:
        raise SignatureError(f"{self._where}: {problem}")

    # Classes with members

    def _members(self, hint: type, where: str) -> None:
        """Look at the members of a class.

        Raises:
            NeedsPydantic: A member has metadata for pydantic.
        """
        if any(hint is each for each in self._seen):
            return
        self._seen.append(hint)
        inner = _Rewriter(where, hint, self._seen)
        try:
            for each in member_hints(hint).values():
                inner.rewrite(each)
            if any(is_field(each) for each in _member_defaults(hint)):
                raise NeedsPydantic(f"Field in {hint.__name__}")
        except NeedsPydantic:
            if type(hint).__module__ == "typing" and sys.version_info < (3, 12):
                self._refuse(
                    f"{hint.__name__} is a typing.TypedDict, which pydantic cannot read before "
                    "Python 3.12; use typing_extensions.TypedDict"
                )
            raise

    def _struct(self, hint: type[Struct]) -> None:
        if any(hint is each for each in self._seen):
            return
        self._seen.append(hint)
        inner = _Rewriter(self._where, hint, self._seen)
        members = member_hints(hint)
        names, values = hint.__struct_fields__, hint.__struct_defaults__
        defaults = dict(zip(reversed(names), reversed(values), strict=False))
        for name, each in members.items():
            try:
                inner.rewrite(each)
                if is_field(defaults.get(name)):
                    raise NeedsPydantic("Field")
            except NeedsPydantic as need:
                self._refuse(
                    f"member {name!r} of the Struct {hint.__name__} has {need}, which msgspec "
                    "ignores; use msgspec.Meta, or a dataclass"
                )


def _is_int64(value: Any) -> bool:
    return isinstance(value, int) and -(2**63) <= value < 2**63


# Classes


def has_members(hint: Any) -> bool:
    """Return whether a type is a dataclass, Struct, TypedDict, NamedTuple or class of attrs."""
    return isinstance(hint, type) and (
        dataclasses.is_dataclass(hint)
        or issubclass(hint, Struct)
        or hasattr(hint, "__total__")  # a TypedDict
        or hasattr(hint, "__attrs_attrs__")
        or (issubclass(hint, tuple) and hasattr(hint, "_fields"))
    )


def member_hints(hint: type) -> dict[str, Any]:
    """Return the type hints of the members of a class; {} if one cannot be resolved."""
    with suppress(Exception):  # msgspec reports what is wrong with a hint
        return typing.get_type_hints(hint, include_extras=True)
    return {}


def _member_defaults(hint: type) -> Iterator[Any]:
    yield from getattr(hint, "_field_defaults", {}).values()
    for each in getattr(hint, "__dataclass_fields__", {}).values():
        yield each.default


def _origin(hint: Any) -> Any:
    bare = hint.__origin__ if get_origin(hint) is Annotated else hint
    return get_origin(bare) or bare


# Hints for pydantic


def _for_pydantic(hint: Any) -> Any:
    """Return a hint for a `TypeAdapter`; each `Meta`, which pydantic ignores, becomes a `Field`."""
    hint = getattr(hint, "__supertype__", hint)
    origin = get_origin(hint)
    if origin is Annotated:
        metadata = [_field_of(each) for each in hint.__metadata__]
        if text := text_of(hint.__metadata__):
            metadata.insert(0, sys.modules["pydantic"].Field(description=text))
        return Annotated[(_for_pydantic(hint.__origin__), *metadata)]
    arguments = get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(_for_pydantic, arguments))]  # noqa: UP007
    if origin in _LISTS or hint in _LISTS:
        origin, hint = list, list
    if origin is None or origin in (typing.Literal, abc.Callable) or not arguments:
        return Any if hint is object else hint
    new = tuple(map(_for_pydantic, arguments))
    return hint if new == arguments and get_origin(hint) is origin else origin[new]


def _lost_meta(hint: Any, seen: list[Any]) -> str:
    """Return the name of a class or alias with `Meta` inside, which pydantic would ignore."""
    alias = type(get_origin(hint) or hint).__name__ == "TypeAliasType"
    if alias or has_members(hint):
        if any(hint == each for each in seen):
            return ""
        seen.append(hint)
        members = [(get_origin(hint) or hint).__value__] if alias else member_hints(hint).values()
        if any(_has_meta(each) for each in members):
            return str(getattr(hint, "__name__", hint))
        return next(filter(None, (_lost_meta(each, seen) for each in members)), "")
    return next(filter(None, (_lost_meta(each, seen) for each in get_args(hint))), "")


def _has_meta(hint: Any) -> bool:
    return isinstance(hint, Meta) or any(
        _has_meta(each) for each in (*get_args(hint), *getattr(hint, "__metadata__", ()))
    )


def _field_of(each: Any) -> Any:
    field = sys.modules["pydantic"].Field
    if isinstance(each, Meta):
        said = said_by(each)
        said.pop("extra", None)
        return field(**said, json_schema_extra=said.pop("extra_json_schema", None))
    return each
