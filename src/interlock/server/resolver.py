"""Functions with dependencies: the objects that they share, and the steps of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

from interlock.context import Context
from interlock.errors import SignatureError, ToolError
from interlock.schema.signature import is_async
from interlock.server.dependencies import CONTEXT, DependencyPlan, Overrides, Planner, name_of
from interlock.server.lifespan import Lifespan
from interlock.server.workers import Workers


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
        self.overrides: Overrides = {}
        self.resolvers: WeakSet[Resolver] = WeakSet()

    @contextmanager
    def override(self, others: Overrides) -> Iterator[None]:
        """Replace dependencies; see `Server.override`."""
        before = self.overrides
        known = {each for resolver in self.resolvers for each in resolver.provides}
        for replaced, by in others.items():
            if not callable(by):
                kind = type(by).__name__
                raise SignatureError(
                    f"override of {name_of(replaced)}: {kind} cannot be called; write a function"
                )
            if replaced not in known:
                raise SignatureError(
                    f"override: {name_of(replaced)} is not a dependency of this server"
                )
        try:
            self._use({**before, **others})
            yield
        finally:
            self._use(before)

    def _use(self, overrides: Overrides) -> None:
        self.overrides = overrides
        for each in list(self.resolvers):
            each.arrange()


class Resolver:
    """A function with dependencies, which is called with the arguments and `CONTEXT`.

    Args:
        function: The function of a tool, resource or prompt.
        filled: The functions that fill its parameters, by the parameters' names.
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
        filled: Overrides,
        arguments: Collection[str],
        context: str | None,
        runtime: Runtime,
    ) -> None:
        self._function = function
        self._filled = filled
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
        runtime = self._runtime
        planner = Planner(self._arguments, runtime.overrides, runtime.yields)
        self._plan = planner.plan(self._function, self._filled)
        self.provides = {*self.provides, *planner.numbers}

    def __call__(self, /, **values: Any) -> Any:
        plan = self._plan
        if self.is_async or plan.is_async:
            return self._run_closing(plan, values) if plan.opens else self._run(plan, values, None)
        if plan.opens:
            return self._run_closing_plain(plan, values)
        return self._run_plain(plan, values, None)

    def _own(self, values: dict[Any, Any]) -> dict[str, Any]:
        """Return the arguments of the function itself, without those of its dependencies."""
        own = dict(values)
        context = own.pop(CONTEXT)
        if self._context is not None:
            own[self._context] = context
        return own

    def _swallowed(self) -> RuntimeError:
        return RuntimeError(
            f"a dependency of {name_of(self._function)} has caught the function's error at its "
            "yield and did not raise it again"
        )

    # In the event loop

    async def _run_closing(self, plan: DependencyPlan, values: dict[Any, Any]) -> Any:
        async with AsyncExitStack() as stack:
            return await self._run(plan, values, stack)
        raise self._swallowed()

    async def _run(
        self, plan: DependencyPlan, values: dict[Any, Any], stack: AsyncExitStack | None
    ) -> Any:
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

    def _run_closing_plain(self, plan: DependencyPlan, values: dict[Any, Any]) -> Any:
        with ExitStack() as stack:
            return self._run_plain(plan, values, stack)
        raise self._swallowed()

    def _run_plain(
        self, plan: DependencyPlan, values: dict[Any, Any], stack: ExitStack | None
    ) -> Any:
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
