import click
import pytest

from interlock.cli.utf8_command import Utf8Command
from tests.support.rows import each_row


@click.command(cls=Utf8Command)
@click.argument("name")
@click.argument("pairs", nargs=-1)
@click.option("--env", multiple=True)
@click.option("--flag", is_flag=True)
def command(**_: object) -> None:
    """Do nothing."""


def parse(*arguments: str) -> None:
    command.make_context("command", list(arguments))


@each_row(
    ("arguments", "label"),
    [
        (("a\udcff",), "NAME"),
        (("a", "b", "secret\udcff"), "[PAIRS]... number 2"),
        (("a", "key=secret\udcff"), "key=…"),
        (("a", "\udcff=secret"), "[PAIRS]... number 1"),
        (("a", "--env", "KEY=secret\udcff"), "--env KEY=…"),
        (("a", "--env", "secret\udcff"), "--env number 1"),
    ],
)
def test_text_that_is_not_utf8_is_wrong_usage_without_its_value(
    arguments: tuple[str, ...], label: str
):
    with pytest.raises(click.UsageError) as caught:
        parse(*arguments)

    assert caught.value.message == f"{label} is not UTF-8"


def test_utf8_text_and_any_other_type_are_accepted():
    parse("ü☀", "a=b", "--env", "é", "--flag")
