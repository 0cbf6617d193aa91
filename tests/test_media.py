"""Pictures, sounds and files: their media types, and their blocks."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from interlock import Audio, Client, File, Image, Server
from interlock.types import AudioContent, EmbeddedResource, ImageContent, ResourceContents
from tests.support.rows import each_row

PNG = b"\x89PNG\r\n\x1a\n"
WAV = b"RIFF\0\0\0\0WAVE"


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


@each_row(
    ("kind", "name", "arguments", "mime_type"),
    [
        (Image, "a.jpg", {}, "image/jpeg"),
        (Image, "a.SVG", {}, "image/svg+xml"),
        (Image, "a.bin", {}, "image/png"),
        (Image, "a.mp3", {}, "image/png"),
        (Image, None, {"data": PNG}, "image/png"),
        (Image, None, {"data": bytearray(PNG)}, "image/png"),
        (Image, None, {"data": b"?", "format": "jpg"}, "image/jpeg"),
        (Image, None, {"data": b"?", "format": ".PNG"}, "image/png"),
        (Image, "a.jpg", {"format": "image/avif"}, "image/avif"),
        (Audio, "a.mp3", {}, "audio/mpeg"),
        (Audio, None, {"data": WAV}, "audio/wav"),
        (Audio, None, {"data": b"ID3"}, "audio/mpeg"),
        (Audio, None, {"data": b"\0\0\0\x20ftypM4A"}, "audio/mp4"),
        (Audio, None, {"data": b"?", "format": "ogg"}, "audio/ogg"),
    ],
)
def test_the_media_type_comes_from_the_format_the_suffix_or_the_first_bytes(
    tmp_path, kind, name, arguments, mime_type
):
    if name is not None:
        (tmp_path / name).write_bytes(PNG)
        arguments = {"path": tmp_path / name, **arguments}

    media = kind(**arguments)

    block = ImageContent if kind is Image else AudioContent
    assert media.content() == block(data=encoded(media.data), mime_type=mime_type)


@each_row(
    ("arguments", "contents"),
    [
        ({"data": b"a,b", "mime_type": "text/csv"}, {"uri": "file:///file", "mime_type": "text/csv", "text": "a,b"}),  # noqa: E501
        ({"data": b"{}", "name": "a b.json"}, {"uri": "file:///a%20b.json", "mime_type": "application/json", "text": "{}"}),  # noqa: E501
        ({"data": b"\xff", "name": "a.txt"}, {"uri": "file:///a.txt", "mime_type": "text/plain", "blob": "/w=="}),  # noqa: E501
        ({"data": b"%PDF-1", "name": "a"}, {"uri": "file:///a", "mime_type": "application/pdf", "blob": encoded(b"%PDF-1")}),  # noqa: E501
        ({"data": b"hello"}, {"uri": "file:///file", "mime_type": "text/plain", "text": "hello"}),
        ({"data": b"\0\1"}, {"uri": "file:///file", "mime_type": "application/octet-stream", "blob": "AAE="}),  # noqa: E501
    ],
)  # fmt: skip
def test_a_file_is_an_embedded_resource_with_text_or_base64(arguments, contents):
    assert File(**arguments).content() == EmbeddedResource(resource=ResourceContents(**contents))


def test_a_file_has_the_name_of_its_path_and_not_its_folder(tmp_path: Path):
    (tmp_path / "notes.md").write_text("# Notes")

    resource = File(path=str(tmp_path / "notes.md")).content().resource

    assert (resource.uri, resource.text) == ("file:///notes.md", "# Notes")


@each_row(
    ("make", "error", "says"),
    [
        (lambda: Image(), ValueError, "Image takes either path or data"),
        (lambda: File("a", data=b"a"), ValueError, "File takes either path or data"),
        (lambda: Image(b"a"), TypeError, "the path of Image is bytes; pass Image(data=...)"),
        (lambda: Audio(data="a"), TypeError, "the data of Audio is str; it must be bytes"),
        (
            lambda: Image(data=b"?"),
            ValueError,
            "the first bytes show no known format of image",
        ),
        (lambda: Image("/nowhere/a.png"), FileNotFoundError, "/nowhere/a.png"),
    ],
)
def test_media_without_usable_bytes_are_refused(make, error, says):
    with pytest.raises(error) as raised:
        make()

    assert says in str(raised.value)


async def test_resources_and_prompts_return_media():
    server = Server("media")
    server.resource("pictures://one")(lambda: Image(data=PNG))
    server.prompt(name="look")(lambda: ["Look:", Image(data=PNG)])

    async with Client.memory(server) as client:
        (contents,) = (await client.read_resource("pictures://one")).contents
        messages = (await client.get_prompt("look", {})).messages

    assert (contents.mime_type, contents.blob) == ("image/png", encoded(PNG))
    assert [type(each.content).__name__ for each in messages] == ["TextContent", "ImageContent"]
