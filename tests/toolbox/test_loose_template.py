"""Templates of other programs, by their literals."""

from __future__ import annotations

from time import process_time

from interlock.toolbox.loose_template import LooseTemplate
from tests.support.rows import each_row


@each_row(
    ("template", "uri", "matches"),
    [
        ("notes://{name}", "notes://a/b", True),
        ("notes://{name}/raw", "notes://a/raw", True),
        ("notes://{name}/raw", "notes://a", False),
        ("notes://{a}/x/{b}", "notes://1/y/2", False),
        ("notes://{a}/x/{b}", "notes://1/x/2", True),
        ("search://s{?q,page}", "search://s?q=1", True),
        ("notes://a", "notes://ab", False),
        ("ab{x}bc", "abc", False),
    ],
)
def test_loose_template_matches_by_its_literals(template: str, uri: str, matches: bool):
    assert LooseTemplate(template).may_match(uri) is matches


def test_hostile_uri_is_matched_in_linear_time():
    template = LooseTemplate("x://" + "{a}a" * 50 + "{b}z")
    began = process_time()
    for _ in range(10):
        template.may_match("x://" + "a" * 50_000)

    assert process_time() - began < 1
