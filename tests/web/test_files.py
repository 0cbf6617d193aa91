"""Static files and page shells."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from interlock.web.files import FOLDER, Files, Shell, files_of_package, policy, without_comments
from tests.browser.vendor import LOCK, integrity
from tests.support.rows import each_row

VENDOR = FOLDER / "vendor"
SERVED = [
    path
    for path in FOLDER.rglob("*")
    if path.suffix in (".js", ".css", ".json", ".svg") and VENDOR not in path.parents
]


@pytest.fixture(scope="module")
def files() -> Files:
    return files_of_package()


def header(answer: object, name: bytes) -> bytes | None:
    return dict(answer.headers).get(name)  # type: ignore[attr-defined]


def test_file_requested_with_its_version_is_cached_for_ever(files: Files):
    answer = files.answer(f"{files.version}/shared/view.js", {})

    assert answer.status == 200
    assert header(answer, b"content-type") == b"text/javascript; charset=utf-8"
    assert b"immutable" in (header(answer, b"cache-control") or b"")
    assert answer.body == without_comments((FOLDER / "shared/view.js").read_text()).encode()


def test_module_is_served_without_comments_and_with_the_same_lines(files: Files):
    module = """// What it is for.
/**
 * @param {string} url
 */
const open = (url) => /** @type {any} */ (url).replace("https://", "") + "a // b"; // kept
"""
    assert without_comments(module).split("\n") == [
        *[""] * 4,
        'const open = (url) =>  (url).replace("https://", "") + "a // b"; // kept',
        "",
    ]
    vendored = files.answer(f"{files.version}/vendor/preact.js", {})
    assert vendored.body == (VENDOR / "preact.js").read_bytes()


def test_file_is_compressed_for_a_browser_that_takes_gzip(files: Files):
    answer = files.answer(f"{files.version}/shared/view.js", {b"accept-encoding": b"br, gzip"})

    assert header(answer, b"content-encoding") == b"gzip"
    assert gzip.decompress(answer.body) == files.answer(f"{files.version}/shared/view.js", {}).body


def test_known_etag_gets_304_without_a_body(files: Files):
    path = f"{files.version}/shared/view.js"
    etag = header(files.answer(path, {}), b"etag")

    answer = files.answer(path, {b"if-none-match": etag or b""})

    assert (answer.status, answer.body) == (304, b"")


@each_row(
    "path",
    ["shared/view.js", "0123456789abcdef/shared/view.js", "{v}/../files.py", "{v}/shared/../../x",
     "{v}/vendor/preact.d.ts", "{v}/", "{v}"],
)  # fmt: skip
def test_path_without_a_file_or_with_another_version_is_not_found(files: Files, path: str):
    assert files.answer(path.replace("{v}", files.version), {}).status == 404


def test_changed_file_changes_the_version(tmp_path: Path):
    (tmp_path / "a.js").write_text("1")
    before = Files(tmp_path).version
    (tmp_path / "a.js").write_text("2")

    assert Files(tmp_path).version != before


def test_page_has_all_security_headers_and_is_never_stored(files: Files):
    answer = files.page(Shell("t", "board/board.js", ()), {}, {})

    assert header(answer, b"content-security-policy") == policy()
    assert header(answer, b"cache-control") == b"no-store"
    assert header(answer, b"x-content-type-options") == b"nosniff"
    assert header(answer, b"referrer-policy") == b"no-referrer"
    assert header(answer, b"cross-origin-opener-policy") == b"same-origin"
    assert header(answer, b"cross-origin-resource-policy") == b"same-origin"
    assert b"camera=()" in (header(answer, b"permissions-policy") or b"")


def test_policy_of_a_page_allows_no_inline_code_and_no_other_origin():
    rules = dict(rule.split(" ", 1) for rule in policy().decode().split("; "))

    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
    assert rules["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in policy().decode()
    assert "http" not in policy().decode()


def test_data_of_a_page_cannot_end_their_script_element(files: Files):
    data = {"name": "</script><script>alert(1)</script><!--"}

    html = files.page(Shell("t", "board/board.js", ()), data, {}).body.decode()
    text = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)

    assert text is not None
    assert json.loads(text[1])["name"] == data["name"]


def test_page_preloads_each_module_that_its_entry_imports_before_its_fonts(files: Files):
    modules = files.modules("board/board.js")

    assert {"board/board.js", "shared/view.js", "vendor/preact.js"} <= set(modules)
    assert len(modules) == len(set(modules))
    html = files.page(Shell("t", "board/board.js", ()), {}, {}).body.decode()
    for each in modules:
        assert f'<link rel="modulepreload" href="/static/{files.version}/{each}">' in html
    assert html.count('as="font"') == html.count('fetchpriority="low"') == 2


@each_row(
    "forbidden",
    [
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write",
        r"dangerouslySetInnerHTML|createContextualFragment|DOMParser",
        r"\beval\(|new Function|setTimeout\([\"'`]",
        r"https?://(?!\$\{|www\.w3\.org/2000/svg)",
    ],
    ids=["markup as text", "markup by other means", "text as code", "another origin"],
)
def test_served_files_contain_no_forbidden_code(forbidden: str):
    assert [str(path) for path in SERVED if re.search(forbidden, path.read_text())] == []


def test_json_of_tools_and_people_is_read_and_written_only_with_all_digits():
    plain = {  # these read numbers of our own, or hand JSON to a frame, whose numbers are doubles
        *("shared/exact.js", "shared/page.js", "shared/app_box.js", "chat/composer.js"),
        "chat/draft.js",
    }
    reads = {
        path.relative_to(FOLDER).as_posix()
        for path in SERVED
        if path.suffix == ".js" and re.search(r"JSON\.(parse|stringify)", path.read_text())
    }

    assert reads <= plain


def test_vendored_files_have_their_recorded_hashes():
    recorded = json.loads((VENDOR / "vendor.json").read_text())
    hashes = {name: hash for each in recorded.values() for name, hash in each["files"].items()}
    found = {
        path.relative_to(VENDOR).as_posix(): integrity(path.read_bytes())
        for path in VENDOR.rglob("*")
        if path.suffix in (".js", ".woff2")
    }

    assert found == hashes


def test_vendored_packages_match_the_lock_file_and_have_their_licences():
    lock = json.loads(LOCK.read_text())["packages"]
    licences = (VENDOR / "LICENSES.txt").read_text()

    for name, each in json.loads((VENDOR / "vendor.json").read_text()).items():
        locked = lock[f"node_modules/{name}"]
        assert (each["version"], each["integrity"]) == (locked["version"], locked["integrity"])
        assert f"{name}\n{'=' * len(name)}\n" in licences
