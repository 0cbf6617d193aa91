"""Dependencies: parameters of a function that the server fills, by calling other functions.

`Depends` marks such a parameter. The functions are found and ordered once, at definition; a call
runs them in that order, each once, and closes them in reverse order before it is answered. They are
not in the schema of a tool, so a client can neither see nor set them.
"""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from typing import Annotated, Any, get_args, get_origin
from weakref import WeakSet

from msgspec import Struct

from interlock.context import Context
from interlock.errors import SignatureError, ToolError
from interlock.schema.signature import is_async
from interlock.server.lifespan import Lifespan
from interlock.server.workers import Workers

CONTEXT = "__context"  # the keyword of the context; no argument can have this name
_EMPTY = inspect.Parameter.empty
# The marks of FastAPI, FastMCP (by `uncalled_for`) and the MCP SDK. Without an error, the parameter
# would be an argument, which the client could set.
_FOREIGN = {"fastapi": {"Depends", "Security"}, "uncalled_for": {"Dependency"}, "mcp": {"Resolve"}}


class Dependency(Struct, frozen=True):
    """The mark of a parameter that the function `provide` fills."""

    provide: Callable[..., Any]


def Depends(provide: Callable[..., Any], /) -> Any:  # noqa: N802 - FastAPI and FastMCP spell it so
    """Mark a parameter that the server fills with what `provide` returns or yields.

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
        raise SignatureError(
            f"Depends() takes a function, not {kind}; write Depends(f) instead of Depends(f())"
        )
    return Dependency(provide)


class Runtime:
    """The objects that the functions of one server share when they run.

    Attributes:
        workers: The threads that run plain functions.
        lifespan: The server's lifespan, and the object that it yielded.
        yields: The type that the lifespan is annotated to yield; `Any` if it is unknown, and the
            type of None without a lifespan.
        overrides: Functions that replace dependencies, keyed by the function that is replaced.
        resolvers: The functions with dependencies.
    """

    def __init__(self, workers: Workers, lifespan: Lifespan, yields: Any) -> None:
        self.workers = workers
        self.lifespan = lifespan
        self.yields = yields
        self.overrides: Mapping[Callable[..., Any], Callable[..., Any]] = {}
        self.resolvers: WeakSet[Resolver] = WeakSet()

    @contextmanager
    def override(self, others: Mapping[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
        """Replace dependencies; see `Server.override`."""
        before = self.overrides
        known = {each for resolver in self.resolvers for each in resolver.provides}
        for replaced, by in others.items():
            if not callable(by):
                kind = type(by).__name__
                raise SignatureError(
                    f"override of {_name(replaced)}: {kind} cannot be called; write a function"
                )
            if replaced not in known:
                raise SignatureError(
                    f"override: {_name(replaced)} is not a dependency of this server"
                )
        try:
            self._use({**before, **others})
            yield
        finally:
            self._use(before)

    def _use(self, overrides: Mapping[Callable[..., Any], Callable[..., Any]]) -> None:
        self.overrides = overrides
        for each in list(self.resolvers):
            each.arrange()


# Definition


class _UnresolvedHint(SignatureError):
    """A type hint cannot be evaluated, so it is unknown whether it marks a dependency."""


class _Step(Struct, frozen=True):
    """One dependency of a plan, and where its parameters come from.

    `inputs` has, for each parameter, the key of its value: the name of an argument, `CONTEXT`, or
    the number of an earlier step.
    """

    name: str
    call: Callable[..., Any]
    inputs: tuple[tuple[str, str | int], ...]
    is_async: bool
    opens: bool  # whether `call` returns a context manager to enter


class _Plan(Struct, frozen=True):
    """The dependencies of a function, in the order in which they run."""

    steps: tuple[_Step, ...]
    filled: tuple[tuple[str, int], ...]  # parameters of the function, and the numbers of steps
    is_async: bool
    opens: bool


def dependencies_of(function: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Return the functions that fill parameters of a function, keyed by the parameter's name.

    Raises:
        SignatureError: A parameter is marked in a way that has no meaning.
    """
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        try:
            provide = _dependency(function, parameter)
        except _UnresolvedHint:  # `describe` reports it, unless the tool has a schema of its own
            if "Depends" in str(parameter.annotation):
                raise
            continue
        if provide is not None:
            found[name] = provide
    return found


def _dependency(
    function: Callable[..., Any], parameter: inspect.Parameter
) -> Callable[..., Any] | None:
    where = f"parameter {parameter.name!r} of {_name(function)}"
    hint = _hint(function, parameter.name)
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


def _metadata(hint: Any) -> tuple[Any, ...]:
    while hasattr(hint, "__value__"):  # `type Alias = ...`
        hint = hint.__value__
    return hint.__metadata__ if get_origin(hint) is Annotated else ()


def _is_inside(hint: Any) -> bool:
    return any(
        any(isinstance(mark, Dependency) for mark in _metadata(each)) or _is_inside(each)
        for each in get_args(hint)
    )


def _hint(function: Callable[..., Any], name: str) -> Any:
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
        what = f"what {_name(function)} returns"
        if name != "return":
            what = f"parameter {name!r} of {_name(function)}"
        raise _UnresolvedHint(
            f"the type hint of {what} cannot be resolved: {' '.join(str(error).split())}; types "
            "in hints must be defined at the top of a module"
        ) from error


def _name(function: Any) -> str:
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__qualname__", None) or type(function).__qualname__


def _bound(function: Callable[..., Any]) -> Collection[str]:
    """Return the names of parameters that a `partial` has bound by keyword."""
    return function.keywords if isinstance(function, partial) else ()


class _Planner:
    """Arranges the dependencies of one function.

    Args:
        arguments: The names of the arguments that a client may send.
        runtime: The server's; its overrides replace functions.
    """

    def __init__(self, arguments: Collection[str], runtime: Runtime) -> None:
        self._arguments = arguments
        self._runtime = runtime
        self._steps: list[_Step] = []
        self.numbers: dict[Callable[..., Any], int] = {}

    def plan(self, function: Callable[..., Any]) -> _Plan:
        """Return the plan of a function."""
        dependencies = dependencies_of(function).items()
        filled = tuple((name, self._add(each, ())) for name, each in dependencies)
        return _Plan(
            steps=tuple(self._steps),
            filled=filled,
            is_async=is_async(inspect.unwrap(function)) or any(s.is_async for s in self._steps),
            opens=any(each.opens for each in self._steps),
        )

    def _add(self, provide: Callable[..., Any], path: tuple[Callable[..., Any], ...]) -> int:
        if provide in path:
            cycle = " -> ".join(map(_name, (*path[path.index(provide) :], provide)))
            raise SignatureError(f"these dependencies need each other: {cycle}")
        if provide in self.numbers:
            return self.numbers[provide]
        used = self._runtime.overrides.get(provide, provide)
        inputs = self._inputs(used, (*path, provide))
        call, is_async, opens = _opened(used)
        self._steps.append(_Step(_name(used), call, tuple(inputs), is_async, opens))
        self.numbers[provide] = number = len(self._steps) - 1
        return number

    def _inputs(
        self, function: Callable[..., Any], path: tuple[Callable[..., Any], ...]
    ) -> Iterator[tuple[str, str | int]]:
        try:
            parameters = inspect.signature(function).parameters.values()
        except (TypeError, ValueError) as error:
            raise SignatureError(f"dependency {_name(function)}: {error}") from None
        for parameter in parameters:
            name = parameter.name
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            if name in _bound(function):
                continue
            provide = _dependency(function, parameter)
            where = f"parameter {name!r} of dependency {_name(function)}"
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise SignatureError(f"{where} is positional only, but is passed by name")
            if provide is not None:
                yield name, self._add(provide, path)
            elif is_context(hint := _hint(function, name)):
                check_lifespan(hint, self._runtime, where)
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
    returns = get_origin(_hint(function, "return")) if not isinstance(routine, type) else None
    if returns is AbstractAsyncContextManager:
        return function, True, True
    return function, is_async(function), returns is AbstractContextManager


# The context


def is_context(hint: Any) -> bool:
    """Return whether a type hint is `Context`, `Context[T]`, or one of these or None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return any(each is Context or get_origin(each) is Context for each in (hint, *get_args(hint)))


def check_context(function: Callable[..., Any], name: str | None, runtime: Runtime) -> None:
    """Check the parameter `name`, which receives the context, against the server's lifespan.

    Raises:
        SignatureError: The hint is `Context[T]`, and the lifespan yields something else.
    """
    if name is not None:
        where = f"parameter {name!r} of {_name(function)}"
        check_lifespan(_hint(function, name), runtime, where)


def check_lifespan(hint: Any, runtime: Runtime, where: str) -> None:
    """Check the `T` of `Context[T]`; see `check_context`."""
    for each in (hint, *get_args(hint)):
        if get_origin(each) is Context and not _fits(runtime.yields, wanted := get_args(each)[0]):
            raise SignatureError(
                f"{where} is Context[{_shown(wanted)}], but the server's lifespan yields "
                f"{_shown(runtime.yields)}; make them the same type"
            )


def _fits(yields: Any, wanted: Any) -> bool:
    """Return whether a value of one type is of another, as far as `issubclass` can tell."""
    kinds = [get_origin(kind) or kind for kind in (yields, wanted)]
    if not all(isinstance(kind, type) for kind in kinds) or Any in kinds:
        return True
    is_nominal = not getattr(kinds[1], "_is_protocol", False) and not typing.is_typeddict(kinds[1])
    return issubclass(*kinds) if is_nominal else yields is not type(None)


def yielded_by(lifespan: Callable[..., Any] | None) -> Any:
    """Return the type that a lifespan is annotated to yield; `Any` if it is unknown."""
    if lifespan is None:
        return type(None)
    returns = _hint(inspect.unwrap(lifespan), "return")
    arguments = get_args(returns)
    return arguments[0] if arguments else Any


def _shown(hint: Any) -> str:
    if hint is type(None):
        return "nothing"
    return hint.__qualname__ if isinstance(hint, type) else str(hint)


# Calls


class Resolver:
    """A function with dependencies, which is called with the arguments and `CONTEXT`.

    Args:
        function: The function of a tool, resource or prompt.
        arguments: The names of the arguments that a client may send.
        context: The name of the parameter that receives the context; None without it.
        runtime: The server's.

    Attributes:
        is_async: Whether a call must be awaited, and runs in the event loop.
        provides: The functions of all dependencies, before overrides.

    Raises:
        SignatureError: A dependency cannot be called.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        arguments: Collection[str],
        context: str | None,
        runtime: Runtime,
    ) -> None:
        self._function = function
        self._arguments = arguments
        self._context = context
        self._runtime = runtime
        self._is_plain = not is_async(function)
        self.provides: Collection[Callable[..., Any]] = ()
        self.arrange()
        self.is_async = self._plan.is_async
        runtime.resolvers.add(self)

    def arrange(self) -> None:
        """Arrange the dependencies, with the overrides that are in effect."""
        planner = _Planner(self._arguments, self._runtime)
        self._plan = planner.plan(self._function)
        self.provides = {*self.provides, *planner.numbers}

    def __call__(self, /, **values: Any) -> Any:
        plan = self._plan
        if self.is_async or plan.is_async:
            return self._run_closing(plan, values) if plan.opens else self._run(plan, values, None)
        if plan.opens:
            return self._run_closing_plain(plan, values)
        return self._run_plain(plan, values, None)

    def _own(self, values: dict[Any, Any]) -> dict[str, Any]:
        """Return what the function itself receives, without its dependencies."""
        own = dict(values)
        context = own.pop(CONTEXT)
        if self._context is not None:
            own[self._context] = context
        return own

    def _swallowed(self) -> RuntimeError:
        return RuntimeError(
            f"a dependency of {_name(self._function)} has caught the function's error at its yield "
            "and did not raise it again"
        )

    # In the event loop

    async def _run_closing(self, plan: _Plan, values: dict[Any, Any]) -> Any:
        async with AsyncExitStack() as stack:
            return await self._run(plan, values, stack)
        raise self._swallowed()

    async def _run(self, plan: _Plan, values: dict[Any, Any], stack: AsyncExitStack | None) -> Any:
        workers, context = self._runtime.workers, values[CONTEXT]
        own = self._own(values)
        for number, step in enumerate(plan.steps):
            given = {}
            for name, key in step.inputs:
                if key in values:
                    given[name] = values[key]
            if not step.opens:
                if step.is_async:
                    values[number] = await step.call(**given)
                else:
                    made = await workers.submit(step.call, given, context)
                    values[number] = await made if hasattr(made, "__await__") else made
            elif stack is not None:
                if step.is_async:
                    values[number] = await stack.enter_async_context(step.call(**given))
                else:
                    values[number] = await self._enter(step.call, given, context, stack)
        for name, number in plan.filled:
            own[name] = values[number]
        if self._is_plain:
            return await workers.run(self._function, own, context)
        return await self._function(**own)

    async def _enter(
        self,
        call: Callable[..., Any],
        given: dict[str, Any],
        context: Context,
        stack: AsyncExitStack,
    ) -> Any:
        """Enter a plain context manager in a thread; it is also closed in a thread."""
        workers = self._runtime.workers

        async def leave(manager: Any, *error: Any) -> Any:
            try:
                closing = workers.submit(partial(_exited, manager, *error), {}, context)
                suppressed, raised = await asyncio.shield(closing)
            except ToolError:  # no thread is free, but what was opened must be closed
                suppressed, raised = _exited(manager, *error)
            if raised is not None:
                raise raised
            return suppressed

        opening = workers.submit(partial(_entered, call), given, context)
        try:
            manager, value = await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_left)
            raise
        stack.push_async_exit(partial(leave, manager))
        return value

    # In a thread, as one job

    def _run_closing_plain(self, plan: _Plan, values: dict[Any, Any]) -> Any:
        with ExitStack() as stack:
            return self._run_plain(plan, values, stack)
        raise self._swallowed()

    def _run_plain(self, plan: _Plan, values: dict[Any, Any], stack: ExitStack | None) -> Any:
        own = self._own(values)
        for number, step in enumerate(plan.steps):
            made = step.call(**{name: values[key] for name, key in step.inputs if key in values})
            if hasattr(made, "__await__"):
                raise TypeError(f"dependency {step.name} is not async but returned an awaitable")
            values[number] = stack.enter_context(made) if step.opens and stack is not None else made
        for name, number in plan.filled:
            own[name] = values[number]
        return self._function(**own)


def _entered(call: Callable[..., Any], /, **given: Any) -> tuple[Any, Any]:
    manager = call(**given)
    return manager, manager.__enter__()


def _exited(manager: Any, *error: Any) -> tuple[Any, BaseException | None]:
    try:
        return manager.__exit__(*error), None
    except BaseException as raised:
        return None, raised


def _left(opening: asyncio.Future[tuple[Any, Any]]) -> None:
    """Close a context manager whose call was cancelled while a thread entered it."""
    if not opening.cancelled() and opening.exception() is None:
        manager, _ = opening.result()
        manager.__exit__(None, None, None)
