"""Tables of values that one test goes through."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

_SHOWN = 200  # characters of a value in the name of its row


def each_row(
    columns: str | Sequence[str], table: Iterable[Any], ids: Iterable[str] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a test with each row of a table. The first failing row ends the test and is named.

    It is written like `pytest.mark.parametrize`, which makes a case of each row. Here all rows are
    one case with the same fixtures, so no row may change what another one sees.
    """
    names = columns.replace(" ", "").split(",") if isinstance(columns, str) else list(columns)
    table = list(table)
    if not table or any(isinstance(row, type(pytest.param())) for row in table):
        raise ValueError(
            "a table needs rows, and marks or ids of a row need pytest.mark.parametrize"
        )
    rows = [dict(zip(names, [row] if len(names) == 1 else row, strict=True)) for row in table]
    labels = list(ids) or [""] * len(rows)

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def loop(**fixtures: Any) -> None:
            __tracebackhide__ = True
            for row, label in zip(rows, labels, strict=True):
                with _named(row, label):
                    test(**fixtures, **row)

        @functools.wraps(test)
        async def loop_async(**fixtures: Any) -> None:
            __tracebackhide__ = True
            for row, label in zip(rows, labels, strict=True):
                with _named(row, label):
                    await test(**fixtures, **row)

        looped: Any = loop_async if inspect.iscoroutinefunction(test) else loop
        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in names]
        looped.__signature__ = signature.replace(parameters=fixtures)
        return looped  # type: ignore[no-any-return]

    return decorate


@contextmanager
def _named(row: dict[str, Any], label: str) -> Iterator[None]:
    __tracebackhide__ = True
    try:
        yield
    except BaseException as error:
        values = ", ".join(f"{name}={repr(value)[:_SHOWN]}" for name, value in row.items())
        error.add_note(f"in the row {label or values}")
        raise
