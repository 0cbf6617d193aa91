"""The variables that PostgreSQL's programs get for a URL."""

from __future__ import annotations

import pytest

from interlock.errors import StoreError
from interlock.store.backup.postgres_programs import environment_of, run_program
from tests.support.rows import each_row


@each_row(
    "url, expected",
    [
        (
            "postgresql://in%20lock%40x:p%40s%2Fw%3Ao%25r%3Fd%23'\"\\%C3%A9@db.example:6432/a%20b",
            {
                "PGUSER": "in lock@x",
                "PGPASSWORD": "p@s/w:o%r?d#'\"\\é",
                "PGHOST": "db.example",
                "PGPORT": "6432",
                "PGDATABASE": "a b",
            },
        ),
        ("postgres://u@[::1]:5433/d", {"PGUSER": "u", "PGHOST": "::1", "PGPORT": "5433"}),
        ("postgresql://u@[::1]/d", {"PGHOST": "::1"}),
        ("postgresql://a:1,b:2/d", {"PGHOST": "a,b", "PGPORT": "1,2"}),
        ("postgresql://a,b/d", {"PGHOST": "a,b"}),
        (
            "postgresql://u@/d?host=/run/pg&password=x%26y&sslmode=verify-full&search_path=a b",
            {
                "PGHOST": "/run/pg",
                "PGPASSWORD": "x&y",
                "PGSSLMODE": "verify-full",
                "PGOPTIONS": "-c search_path=a\\ b",
            },
        ),
        ("postgresql:///d", {"PGDATABASE": "d"}),
    ],
)
def test_environment_has_every_part_of_a_url(url: str, expected: dict[str, str]):
    assert environment_of(url).items() >= expected.items()


async def test_program_gets_the_password_by_its_environment_and_no_other_secret(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("INTERLOCK_KEY", "canary")
    script = 'echo "$INTERLOCK_KEY, $0 $*, $PGPASSWORD" >&2; exit 1'
    with pytest.raises(StoreError, match=r"sh of PostgreSQL localhost/d failed: , \S*sh , geheim$"):
        await run_program("sh", ["-c", script], "postgresql://u:geheim@/d")
