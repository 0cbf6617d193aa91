"""What every page promises: its length, how it was checked, and no word about later."""

from __future__ import annotations

import re

from tests.docs.page import ROOT, pages
from tests.support.rows import each_row

DOCS = ROOT / "docs"
LONGEST = 250  # lines of a page that is not generated
GENERATED = ("reference/cli/", "reference/api/", "reference/faults.md", "reference/members.md")
HOW_TO = ("author", "connect", "operate", "use", "migrate")
LATER = re.compile(r"in progress|not built|not yet built|coming soon|work in progress|\bTODO\b|TBD")
# What people search for, and the page that answers.
ANSWERS = {
    "backup": "operate/backup",
    "restore": "operate/backup",
    "docker": "operate/container",
    "systemd": "operate/systemd",
    "nginx": "operate/nginx",
    "PostgreSQL": "operate/replicas",
    "mount": "author/mounting",
    "FastAPI": "author/mounting",
    "lifespan": "author/lifespan",
    "image": "author/results",
    "timeout": "reference/servers-file",
    "401": "operate/troubleshooting",
    "proxy": "author/proxy",
    "Keycloak": "operate/identity/keycloak",
    "upgrade": "operate/upgrade",
}


def test_no_written_page_is_longer_than_the_limit():
    lengths = {
        str(each.relative_to(DOCS)): each.read_text().count("\n") for each in DOCS.rglob("*.md")
    }
    long = {name: lines for name, lines in lengths.items() if lines > LONGEST}

    assert {name for name in long if not name.startswith(GENERATED)} == set()


def test_every_how_to_says_how_it_was_checked():
    every = [page for folder in HOW_TO for page in sorted((DOCS / folder).rglob("*.md"))]

    silent = [each for each in every if "Checked with" not in each.read_text()]
    assert [str(each.relative_to(DOCS)) for each in silent] == []


def test_no_page_speaks_of_a_feature_that_is_still_to_come():
    found = [
        f"{page.relative_to(ROOT)}: {words}"
        for page in pages()
        for words in LATER.findall(page.read_text())
    ]

    assert found == []


@each_row(("word", "page"), [*ANSWERS.items()])
def test_word_that_people_search_for_is_on_the_page_that_answers(word: str, page: str):
    assert word.lower() in (DOCS / f"{page}.md").read_text().lower()
