"""The reason of a failure, from a server's stderr."""

from interlock.transports.stderr import diagnostics
from tests.support.rows import each_row

NODE = """\
node:internal/modules/cjs/loader:1210
  throw err;
  ^

Error: Cannot find module '/srv/index.js'
Require stack: none
    at Module._resolveFilename (node:internal/modules/cjs/loader:1207:15)
    at Module._load (node:internal/modules/cjs/loader:1038:27) {
  code: 'MODULE_NOT_FOUND'
}

Node.js v20.20.2
"""
PYTHON = """\
Traceback (most recent call last):
  File "a.py", line 2, in <module>
KeyError: 'token'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 4, in <module>
acme.errors.ConfigError: no token
  in [server]

sys:1: RuntimeWarning: coroutine 'serve' was never awaited
"""
NPM = """\
npm error code E404
npm error 404 Not Found - GET some-server
npm error A complete log of this run can be found in: /root/.npm/_logs/debug-0.log
"""
UV = """\
error: No solution found when resolving tool dependencies
  cause: Because some-server was not found in the package registry
hint: Consider another index
"""
RUST = """\
thread 'main' panicked at src/main.rs:3:5:
no token
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
"""
GO = """\
panic: no token

goroutine 1 [running]:
main.main()
"""


@each_row(
    ("stderr", "words"),
    [
        ("", ""),
        ("\n \n", ""),
        ("starting\ncannot reach it\n\n", "cannot reach it"),
        (NODE, "Error: Cannot find module '/srv/index.js' Require stack: none"),
        (PYTHON, "acme.errors.ConfigError: no token in [server]"),
        ("TypeError [ERR_X]: bad\n    at f\n", "TypeError [ERR_X]: bad"),
        (GO, "panic: no token"),
    ],
)
def test_diagnostics_is_the_error_without_what_follows(stderr: str, words: str):
    assert diagnostics(stderr) == words


@each_row(
    ("stderr", "words"),
    [
        (NPM, "npm error code E404 npm error 404 Not Found - GET some-server"),
        (UV, "tool dependencies cause: Because some-server was not found"),
        (RUST, "panicked at src/main.rs:3:5: no token"),
    ],
)
def test_diagnostics_joins_an_error_of_several_lines(stderr: str, words: str):
    assert words in diagnostics(stderr)


def test_diagnostics_ignores_an_earlier_error():
    assert diagnostics("ValueError: old\n" + "working\n" * 100) == "working"


def test_diagnostics_has_no_colours():
    assert diagnostics("\x1b[32mINFO\x1b[39m \x1b[1;36mno token\x1b[0m\n") == "INFO no token"
    assert diagnostics("\x1b[31mError: no\x1b[0m\nbye\n") == "Error: no bye"


def test_diagnostics_has_at_most_300_characters():
    assert diagnostics("Error: " + "x" * 1000) == "Error: " + "x" * 293
