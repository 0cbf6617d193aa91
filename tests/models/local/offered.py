"""Tools to choose among: those of an everyday desk, and 35 for time, Git and mathematics.

The 35 have the names and parameters of three real servers, described in other words.
"""

from __future__ import annotations

import json

from interlock.models import ToolDefinition

_TYPES = {"i": "integer", "n": "number"}


def _tool(server: str, line: str) -> ToolDefinition:
    """Read `name: description | required | optional`, each parameter with its type."""
    head, required, optional = [*map(str.strip, line.split("|")), "", ""][:3]
    name, _, description = head.partition(": ")
    properties = dict(map(_parameter, f"{required} {optional}".split()))
    schema = {
        "type": "object",
        "properties": properties,
        "required": [each.partition(":")[0] for each in required.split()],
    }
    return ToolDefinition(f"{server}__{name}", description, json.dumps(schema).encode())


def _parameter(text: str) -> tuple[str, dict[str, object]]:
    """Return the schema of `name:type=default`; `*` stands for a list of the type."""
    text, _, default = text.partition("=")
    name, _, kind = text.partition(":")
    schema: dict[str, object] = {"type": _TYPES.get(kind.strip("*"), "string")}
    for _ in range(kind.count("*")):
        schema = {"type": "array", "items": schema}
    if default:
        schema["default"] = int(default) if kind == "i" else default
    return name, schema


def _tools(servers: dict[str, str]) -> list[ToolDefinition]:
    return [_tool(server, line) for server, text in servers.items() for line in text.splitlines()]


DESK = _tools(
    {
        "time": """\
get_current_time: Get the current time in a timezone | timezone
convert_time: Convert a time between timezones | source_timezone time target_timezone""",
        "files": """\
read_file: Read the contents of a file | path
list_directory: List the files in a directory | path
write_file: Write text to a file, replacing what it has | path content
create_directory: Create a directory | path
move_file: Move or rename a file | source destination
delete_file: Delete a file | path""",
        "calendar": """\
list_events: List the events of a day | date
create_event: Create an event in the calendar | title date | time
cancel_event: Cancel an event | id""",
        "mail": """\
search: Search mails by words | query | limit:i
send: Send a mail | to subject body""",
        "weather": """\
get_forecast: Get the weather forecast for a city | city | days:i""",
        "shop": """\
list_orders: List the latest orders | | limit:i
cancel_order: Cancel an order | order_id:i""",
    }
)
WORKSHOP = _tools(
    {
        "time": """\
get_current_time: Return the current time of a timezone | timezone
convert_time: Convert a time from one timezone to another | source_timezone time target_timezone""",
        "git": """\
git_status: Show the state of the working tree | repo_path
git_diff_unstaged: Show the changes that are not staged | repo_path | context_lines:i=3
git_diff_staged: Show the staged changes | repo_path | context_lines:i=3
git_diff: Compare with another branch or commit | repo_path target | context_lines:i=3
git_commit: Record the staged changes as a commit | repo_path message
git_add: Stage files for the next commit | repo_path files:*
git_reset: Unstage everything | repo_path
git_log: Show the log of commits | repo_path | max_count:i=10 start_timestamp end_timestamp
git_create_branch: Create a branch, from a base branch if one is given | repo_path branch_name \
| base_branch
git_checkout: Switch to another branch | repo_path branch_name
git_show: Show what a commit changed | repo_path revision
git_branch: List branches | repo_path branch_type | contains not_contains""",
        "math": """\
evaluate: Evaluate an arithmetic expression | expression
descriptive_statistics: Compute the mean, median, variance and more of numbers | numbers:n*
is_prime: Check whether a number is prime | n:i
prime_factorization: Return the prime factors of a number | n:i
gcd_lcm: Return the greatest common divisor and the least common multiple | numbers:i*
solve_quadratic: Solve a quadratic equation by its coefficients | a:n b:n c:n
convert_base: Convert a number from one base to another | number from_base:i to_base:i
matrix_multiply: Multiply two matrices | a:n** b:n**
matrix_transpose: Transpose a matrix | matrix:n**
matrix_determinant: Return the determinant of a matrix | matrix:n**
matrix_inverse: Invert a matrix | matrix:n**
solve_linear_system: Solve a system of linear equations | a:n** b:n*
simplify_expression: Simplify a symbolic expression | expression
expand_expression: Expand a symbolic expression | expression
factor_expression: Factor a symbolic expression | expression
differentiate: Differentiate an expression by a variable | expression | variable=x order:i=1
integrate: Return the indefinite integral of an expression | expression | variable=x
solve_symbolic_equation: Solve an equation for a variable | equation | variable=x
definite_integral: Integrate an expression between two bounds | expression \
| variable=x lower=0 upper=1
limit: Return the limit of an expression at a point | expression | variable=x point=0 direction=+
taylor_series: Return the Taylor series of an expression | expression \
| variable=x point=0 order:i=6""",
    }
)
