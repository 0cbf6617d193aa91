"""Dependencies: parameters of a function that the server fills, by calling other functions.

`Depends` marks such a parameter. The functions are found and ordered once, at definition; a call
runs them in that order, each once, and closes them in reverse order before it is answered. They are
not in the schema of a tool, so a client can neither see nor set them.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Annotated, Any, get_args, get_origin

from msgspec import Struct

from interlock.context import Context
from interlock.errors import SignatureError
from interlock.schema.signature import at_caller, bound_arguments, is_async

CONTEXT = "__context"  # the keyword of the context; no argument can have this name
Overrides = Mapping[Any, Callable[..., Any]]
_EMPTY = inspect.Parameter.empty
# The marks of FastAPI, FastMCP (by `uncalled_for`) and the MCP SDK. Without an error, the parameter
# would be an argument, which the client could set.
_FOREIGN = {"fastapi": {"Depends", "Security"}, "uncalled_for": {"Dependency"}, "mcp": {"Resolve"}}


class Dependency(Struct, frozen=True):
    """The mark of a parameter that the function `provide` fills."""

    provide: Callable[..., Any]


def Depends(provide: Callable[..., Any], /) -> Any:  # noqa: N802 - FastAPI and FastMCP spell it so
    """Mark a parameter that the server fills with the value that `provide` returns or yields.

    Write `Annotated[Customer, Depends(customer)]` as the hint, or `= Depends(customer)` as the
    default.

    Args:
        provide: A plain or async function, a generator that yields once, or a function that
            `contextmanager` or `asynccontextmanager` decorates. It may take the `Context`, other
            dependencies, and arguments of the tool by name.

    Raises:
        SignatureError: `provide` cannot be called.
    """
    if not callable(provide):
        kind = type(provide).__name__
        raise at_caller(
            f"Depends() takes a function, not {kind}; write Depends(f) instead of Depends(f())"
        )
    return Dependency(provide)


# Definition


class _UnresolvedHint(SignatureError):
    """A type hint cannot be evaluated, so interlock cannot tell whether it marks a dependency."""


class DependencyStep(Struct, frozen=True):
    """One dependency of a plan, and where its parameters come from.

    `inputs` has, for each parameter, the key of its value: the name of an argument, `CONTEXT`, or
    the number of an earlier step.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[tuple[str, str | int], ...]
    is_async: bool
    opens: bool  # whether `call` returns a context manager to enter


class DependencyPlan(Struct, frozen=True):
    """The dependencies of a function, in the order in which they run."""

    steps: tuple[DependencyStep, ...]
    filled: tuple[tuple[str, int], ...]  # parameters of the function, and the numbers of steps
    is_async: bool
    opens: bool


class Marks:
    """Finds the parameters of a function that are marked as dependencies; for `describe`.

    Args:
        function: The function of a tool, resource or prompt, or a dependency.
        yields: The type that the server's lifespan yields; see `yielded_by`.

    Attributes:
        found: The function that fills a parameter, by the parameter's name.
    """

    def __init__(self, function: Callable[..., Any], yields: Any) -> None:
        self._function = function
        self._yields = yields
        self.found: dict[str, Callable[..., Any]] = {}

    def __call__(self, parameter: inspect.Parameter, hint: Any) -> bool:
        """Return whether the server fills a parameter by a dependency.

        Raises:
            SignatureError: The mark has no meaning, or the hint is `Context[T]` and the lifespan
                yields something else.
        """
        where = f"parameter {parameter.name!r} of {name_of(self._function)}"
        check_lifespan(hint, self._yields, where)
        provide = _marked(parameter, hint, where)
        if provide is not None:
            self.found[parameter.name] = provide
        return provide is not None

    def search(self) -> Marks:
        """Search the parameters of a function that has a schema of its own."""
        bound = bound_arguments(self._function)
        for name, parameter in inspect.signature(self._function).parameters.items():
            if name in bound:
                continue
            try:
                self(parameter, hint_of(self._function, name))
            except _UnresolvedHint:
                if "Depends" in str(parameter.annotation):
                    raise
        return self


def _marked(parameter: inspect.Parameter, hint: Any, where: str) -> Callable[..., Any] | None:
    marks = [parameter.default, *_metadata(hint)]
    for mark in marks:
        for kind in type(mark).__mro__:
            package = kind.__module__.partition(".")[0]
            if kind.__name__ in _FOREIGN.get(package, ()):
                raise SignatureError(
                    f"{where} is marked by {kind.__name__} of {package}; "
                    "import Depends from interlock instead"
                )
    found = [mark.provide for mark in marks if isinstance(mark, Dependency)]
    if len(found) > 1:
        raise SignatureError(f"{where} has {len(found)} dependencies; keep one Depends")
    if not found and _is_inside(hint):
        raise SignatureError(
            f"{where} has Depends inside its type; write Annotated[T | None, Depends(f)]"
        )
    return found[0] if found else None


def _unaliased(hint: Any) -> Any:
    while hasattr(hint, "__value__"):  # `type Alias = ...`
        hint = hint.__value__
    return hint


def _metadata(hint: Any) -> tuple[Any, ...]:
    hint = _unaliased(hint)
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _is_inside(hint: Any) -> bool:
    """Return whether a part of a type is marked; aliases may be recursive."""
    left: list[Any] = [hint]
    seen: list[Any] = []
    while left:
        part = _unaliased(left.pop())
        if any(part is each for each in seen):
            continue
        seen.append(part)
        inner = get_args(part)
        if any(isinstance(mark, Dependency) for each in inner for mark in _metadata(each)):
            return True
        left += inner
    return False


def hint_of(function: Callable[..., Any], name: str) -> Any:
    """Return the type hint of one parameter; `_EMPTY` if it has none.

    Raises:
        SignatureError: The hint cannot be resolved, so the parameter may be marked or not.
    """
    target: Any = function
    while isinstance(target, partial):
        target = target.func
    if isinstance(target, type):
        target = inspect.getattr_static(target, "__init__")
    elif not inspect.isroutine(target):
        target = type(target).__call__
    alone = types.SimpleNamespace(
        __annotations__={name: getattr(target, "__annotations__", {}).get(name, _EMPTY)},
        __globals__=getattr(inspect.unwrap(target), "__globals__", {}),
    )
    try:
        return typing.get_type_hints(alone, include_extras=True)[name]
    except Exception as error:
        what = f"what {name_of(function)} returns"
        if name != "return":
            what = f"parameter {name!r} of {name_of(function)}"
        raise _UnresolvedHint(
            f"the type hint of {what} cannot be resolved: {' '.join(str(error).split())}; types "
            "in hints must be defined at the top of a module"
        ) from error


def name_of(function: Any) -> str:
    """Return the name of a function, also inside a `functools.partial`, or of an object's class."""
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _placed(function: Callable[..., Any]) -> str:
    """Return the name of a function with its file and line, if it has one."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    return name_of(function) + place


class Planner:
    """Arranges the dependencies of one function.

    Args:
        arguments: The names of the arguments that a client may send.
        overrides: Functions that replace others.
        yields: The type that the server's lifespan yields; see `yielded_by`.

    Attributes:
        numbers: The number of the step that runs each function.
    """

    def __init__(self, arguments: Collection[str], overrides: Overrides, yields: Any) -> None:
        self._arguments = arguments
        self._overrides = overrides
        self._yields = yields
        self._steps: list[DependencyStep] = []
        self.numbers: dict[Callable[..., Any], int] = {}

    def plan(self, function: Callable[..., Any], filled: Overrides) -> DependencyPlan:
        """Return the plan of a function, some of whose parameters other functions fill."""
        numbered = tuple((name, self._add(each, ())) for name, each in filled.items())
        return DependencyPlan(
            steps=tuple(self._steps),
            filled=numbered,
            is_async=is_async(inspect.unwrap(function)) or any(s.is_async for s in self._steps),
            opens=any(each.opens for each in self._steps),
        )

    def _add(self, provide: Callable[..., Any], path: tuple[Callable[..., Any], ...]) -> int:
        if provide in path:
            cycle = " -> ".join(map(name_of, (*path[path.index(provide) :], provide)))
            raise SignatureError(f"these dependencies need each other: {cycle}")
        if provide in self.numbers:
            return self.numbers[provide]
        used = self._overrides.get(provide, provide)
        inputs = self._inputs(used, (*path, provide))
        call, is_async, opens = _opened(used)
        self._steps.append(DependencyStep(name_of(used), call, tuple(inputs), is_async, opens))
        self.numbers[provide] = number = len(self._steps) - 1
        return number

    def _inputs(
        self, function: Callable[..., Any], path: tuple[Callable[..., Any], ...]
    ) -> Iterator[tuple[str, str | int]]:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError, NameError) as error:
            raise SignatureError(f"dependency {_placed(function)}: {error}") from None
        for parameter in parameters:
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if name in bound_arguments(function):
                continue
            hint = hint_of(function, name)
            where = f"parameter {name!r} of dependency {_placed(function)}"
            provide = _marked(parameter, hint, where)
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise SignatureError(f"{where} is positional only, but is passed by name")
            if provide is not None:
                yield name, self._add(provide, path)
            elif is_context(hint):
                check_lifespan(hint, self._yields, where)
                yield name, CONTEXT
            elif name in self._arguments:
                yield name, name
            else:
                has = ", ".join(self._arguments) or "no arguments"
                raise SignatureError(
                    f"{where} is neither a dependency, nor the Context, nor an argument ({has}); "
                    "add the argument, or mark the parameter with Depends"
                )


def _opened(function: Callable[..., Any]) -> tuple[Callable[..., Any], bool, bool]:
    """Return a function as a step calls it, whether it is async, and whether it must be closed."""
    routine = function.func if isinstance(function, partial) else function
    if not inspect.isroutine(routine) and not isinstance(routine, type):
        routine = type(routine).__call__
    if inspect.isasyncgenfunction(routine):
        return asynccontextmanager(function), True, True
    if inspect.isgeneratorfunction(routine):
        return contextmanager(function), False, True
    wrapped = inspect.unwrap(routine)
    if inspect.isasyncgenfunction(wrapped):  # decorated by `asynccontextmanager`
        return function, True, True
    if inspect.isgeneratorfunction(wrapped):
        return function, False, True
    returns = get_origin(hint_of(function, "return")) if not isinstance(routine, type) else None
    if returns is AbstractAsyncContextManager:
        return function, True, True
    return function, is_async(function), returns is AbstractContextManager


# The context


def is_context(hint: Any) -> bool:
    """Return whether a type hint is `Context` or `Context[T]`, optional or not."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return any(each is Context or get_origin(each) is Context for each in (hint, *get_args(hint)))


def check_lifespan(hint: Any, yields: Any, where: str) -> None:
    """Check a hint against what the lifespan yields.

    Raises:
        SignatureError: The hint is `Context[T]`, and the lifespan yields something else.
    """
    for each in (hint, *get_args(hint)):
        if get_origin(each) is Context and not _fits(yields, wanted := get_args(each)[0]):
            raise SignatureError(
                f"{where} is Context[{_shown(wanted)}], but the server's lifespan yields "
                f"{_shown(yields)}; make them the same type"
            )


def _fits(yields: Any, wanted: Any) -> bool:
    """Return whether values of one type are of another, as far as `issubclass` can tell."""
    kinds = [get_origin(kind) or kind for kind in (yields, wanted)]
    if not all(isinstance(kind, type) for kind in kinds) or Any in kinds:
        return True
    is_nominal = not getattr(kinds[1], "_is_protocol", False) and not typing.is_typeddict(kinds[1])
    return issubclass(*kinds) if is_nominal else yields is not type(None)


def yielded_by(lifespan: Callable[..., Any] | None) -> Any:
    """Return the type that a lifespan is annotated to yield; `Any` if it is unknown."""
    if lifespan is None:
        return type(None)
    returns = hint_of(inspect.unwrap(lifespan), "return")
    arguments = get_args(returns)
    return arguments[0] if arguments else Any


def _shown(hint: Any) -> str:
    if hint is type(None):
        return "nothing"
    return hint.__qualname__ if isinstance(hint, type) else str(hint)
