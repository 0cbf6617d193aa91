"""Answers of an API: their media type, charset and phrase."""

from __future__ import annotations

from interlock.openapi.answers import ApiAnswer
from tests.support.rows import each_row


@each_row(
    ("header", "media_type", "charset"),
    [
        ("application/json", "application/json", ""),
        ("Text/HTML ; Charset=ISO-8859-1", "text/html", "iso-8859-1"),
        ('text/plain; format=flowed; charset="UTF-8"', "text/plain", "utf-8"),
        ("text/plain; charset", "text/plain", ""),
        ("", "", ""),
    ],
)
def test_content_type_is_split_into_media_type_and_charset(
    header: str, media_type: str, charset: str
) -> None:
    answer = ApiAnswer(200, {"content-type": header}, b"")

    assert (answer.media_type, answer.charset) == (media_type, charset)


def test_an_unknown_http_status_is_shown_as_a_number() -> None:
    assert [ApiAnswer(status, {}, b"").phrase for status in (404, 799)] == ["404 Not Found", "799"]
