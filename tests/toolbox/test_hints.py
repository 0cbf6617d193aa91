"""What a user can do about an error of a server."""

from __future__ import annotations

from interlock.config import HttpServer, StdioServer
from interlock.errors import AuthRequired, HttpError, InsufficientScope, LoginRequired, RemoteError
from interlock.toolbox.hints import with_hint
from tests.support.rows import each_row

URL = "https://notes.example/mcp"
OPEN = HttpServer(url=URL)
TOKEN = HttpServer(url=URL, headers={"Authorization": "Bearer t"})
ANONYMOUS = HttpServer(url=URL, auth="none")


def test_hint_for_a_missing_login_names_the_command_and_quotes_the_server():
    assert with_hint(LoginRequired("no login"), "my notes", OPEN).endswith(
        "no login: interlock servers login 'my notes'"
    )


def test_hint_for_a_server_in_no_file_adds_it_before_the_login():
    given = HttpServer(url=URL, is_named=False)

    way_out = ": interlock servers add NAME URL, then interlock servers login NAME"

    missing = LoginRequired("it needs a login: interlock servers login")
    assert with_hint(missing, "notes-example", given) == f"it needs a login{way_out}"
    lacking = InsufficientScope(("notes:write",))
    assert with_hint(lacking, "notes-example", given).endswith(f"{way_out} --scope notes:write")


@each_row("status", [404, 405])
def test_hint_for_a_wrong_path_names_the_usual_ones(status: int):
    hint = with_hint(HttpError("not found", status), "notes", OPEN)

    assert "most servers are at /mcp, old ones at /sse" in hint


def test_hint_for_a_missing_scope_asks_for_it_at_the_next_login():
    error = InsufficientScope(("notes:write",))

    assert with_hint(error, "notes", OPEN).endswith("servers login notes --scope notes:write")
    assert with_hint(error, "notes", TOKEN) == str(error)


def test_hint_for_a_rejected_header_names_the_configuration():
    error = AuthRequired("rejected", 401, "Bearer")

    assert "correct the header Authorization in its" in with_hint(error, "notes", TOKEN)
    assert '"auth": "none"' in with_hint(error, "notes", ANONYMOUS)


def test_hint_for_other_errors_is_empty():
    assert with_hint(RemoteError(1, "no"), "x", StdioServer(command="x")) == str(
        RemoteError(1, "no")
    )
