"""Decodes a request as a server would, from the document alone: no code of the package is used.

The result has one entry for each argument, by (place, name); name is None for a whole body.
Text has lost its types, so `as_sent` converts the arguments of a call to the same form.
"""

from __future__ import annotations

import email
import email.policy
import json
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote

Key = tuple[str, str | None]
_SEPARATORS = {"spaceDelimited": "%20", "pipeDelimited": "%7C", "tabDelimited": "%09"}
_LITERAL = ","  # a delimiter in a part, which is not encoded
_RAW = {"%20": " ", "%7C": "|", "%09": "\t", ",": ","}


class Reader:
    """One document, as the tests read it."""

    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.is_old = "swagger" in root

    def follow(self, node: Any) -> Any:
        while isinstance(node, dict) and isinstance(node.get("$ref"), str):
            found: Any = self.root
            for step in node["$ref"].removeprefix("#/").split("/"):
                step = unquote(step).replace("~1", "/").replace("~0", "~")
                found = self.follow(found)
                found = found[int(step) if isinstance(found, list) else step]
            node = found
        return node

    def operation(self, key: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        method, _, path = key.partition(" ")
        item = self.follow(self.root["paths"][path])
        operation = item[method.lower()]
        merged: dict[tuple[str, str], dict[str, Any]] = {}
        for each in [*item.get("parameters", []), *operation.get("parameters", [])]:
            parameter = self.follow(each)
            merged[parameter["in"], parameter["name"]] = parameter
        return operation, list(merged.values())

    def style(self, parameter: dict[str, Any]) -> tuple[str, bool]:
        place = parameter["in"]
        default = "form" if place in ("query", "cookie", "body") else "simple"
        if self.is_old:
            format = parameter.get("collectionFormat", "csv")
            if format == "multi":
                return "form", True
            names = {"ssv": "spaceDelimited", "tsv": "tabDelimited", "pipes": "pipeDelimited"}
            return names.get(format, default), False
        style = parameter.get("style", default)
        return style, parameter.get("explode", style == "form")

    def schema(self, parameter: dict[str, Any]) -> Any:
        if self.is_old:
            return parameter
        return parameter.get("schema", {})


class Decoder:
    """Decodes the requests of one operation."""

    def __init__(self, reader: Reader, key: str) -> None:
        self._reader = reader
        self._operation, self._parameters = reader.operation(key)
        self._template = key.partition(" ")[2].partition("#")[0].partition("?")[0]

    def decode(
        self,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes | None,
        sent: dict[Key, Any],
    ) -> dict[Key, Any]:
        """Return what arrived.

        Args:
            target: Path and query.
            headers: All of them.
            body: Or None.
            sent: What was meant: only the kinds of its values are used, scalar, list or object,
                and whether the body is whole.
        """
        self._sent = sent
        path, _, query = target.partition("?")
        found: dict[Key, Any] = {}
        fields = dict(headers)
        path_values = self._match(path)
        pairs = [part.partition("=")[::2] for part in query.split("&") if part]
        cookies = [
            part.partition("=")[::2] for part in fields.get("Cookie", "").split("; ") if part
        ]
        declared = {(each["in"], each["name"]): each for each in self._parameters}
        for name in path_values:
            declared.setdefault(("path", name), {"in": "path", "name": name, "schema": {}})
        for (place, name), parameter in declared.items():
            if place == "path":
                found["path", name] = self._text(parameter, path_values[name])
            elif place == "query":
                value = self._pairs(parameter, pairs)
                if value is not None:
                    found["query", name] = value
            elif place == "cookie":
                value = self._pairs(parameter, cookies)
                if value is not None:
                    found["cookie", name] = value
            elif place == "header" and name in fields and ("header", name) in sent:
                found["header", name] = self._text(parameter, fields[name], encoded=False)
        if body is not None:
            found |= self._body(fields["Content-Type"], body)
        return found

    def _match(self, path: str) -> dict[str, str]:
        names = re.findall(r"\{([^{}]+)\}", self._template)
        parts = re.split(r"\{[^{}]+\}", self._template)
        match = re.fullmatch("([^/]*?)".join(re.escape(part) for part in parts), path)
        assert match, f"{path} is not a path of {self._template}"
        return dict(zip(names, match.groups(), strict=True))

    # Parameters

    def _json(self, parameter: dict[str, Any]) -> bool:
        return any("json" in name for name in parameter.get("content", ()))

    def _kind(self, parameter: dict[str, Any]) -> str:
        sent = self._sent.get((parameter["in"], parameter["name"]))
        return {list: "array", dict: "object"}.get(type(sent), "scalar")

    def _text(self, parameter: dict[str, Any], text: str, encoded: bool = True) -> Any:
        """Decode one string in a path or a header."""
        plain = unquote if encoded else str
        if self._json(parameter):
            return json.loads(plain(text))
        style, explode = self._reader.style(parameter)
        kind, name = self._kind(parameter), parameter["name"]
        separator = _SEPARATORS.get(style, ",")
        if not encoded:
            separator = _RAW[separator]
        if style == "label":
            assert text.startswith(".")
            text, separator = text[1:], "." if explode else ","
        if style == "matrix":
            assert text.startswith(";")
            text = text[1:]
            if kind == "object" and explode:
                return dict(self._split(part) for part in text.split(";"))
            parts = text.split(";") if explode else [text]
            assert all(part.startswith(f"{name}=") for part in parts)
            text = ",".join(part.removeprefix(f"{name}=") for part in parts)
        if kind == "scalar":
            return plain(text)
        if text == "":
            return [] if kind == "array" else {}
        items = text.split(separator)
        if kind == "array":
            return [plain(item) for item in items]
        if explode:
            return dict(self._split(item, plain) for item in items)
        return dict(zip(map(plain, items[::2]), map(plain, items[1::2]), strict=True))

    def _split(self, part: str, plain: Callable[[str], str] = unquote) -> tuple[str, str]:
        key, _, value = part.partition("=")
        return plain(key), plain(value)

    def _pairs(self, parameter: dict[str, Any], pairs: list[tuple[str, str]]) -> Any:
        """Decode the pairs of a query or of cookies that belong to a parameter."""
        name = parameter["name"]
        own = [value for key, value in pairs if unquote(key) == name]
        if self._json(parameter):
            return json.loads(unquote(own[0])) if own else None
        style, explode = self._reader.style(parameter)
        kind = self._kind(parameter)
        if style == "deepObject":
            nested = [
                (unquote(key), unquote(value))
                for key, value in pairs
                if unquote(key).startswith(f"{name}[")
            ]
            if nested:
                return brackets(nested)[name]
        if kind == "object" and explode and style == "form":
            schema = self._reader.follow(self._reader.schema(parameter))
            known = schema.get("properties", {})
            others = {each["name"] for each in self._parameters}
            found = {
                unquote(key): unquote(value)
                for key, value in pairs
                if unquote(key) in known or (not known and unquote(key) not in others)
            }
            return found or None
        if not own:
            return None
        if kind == "array" and (explode or style == "deepObject"):
            return [unquote(value) for value in own]
        if kind == "scalar":
            return unquote(own[0])
        items = [unquote(each) for each in own[0].split(_SEPARATORS.get(style, ","))]
        return items if kind == "array" else dict(zip(items[::2], items[1::2], strict=True))

    # Body

    def _body(self, content_type: str, body: bytes) -> dict[Key, Any]:
        is_whole = ("body", None) in self._sent
        if "multipart/" in content_type:
            value: Any = self._multipart(parts(content_type, body))
        elif "x-www-form-urlencoded" in content_type:
            value = self._form(body.decode("ascii"))
        elif content_type.startswith("application/json") or "+json" in content_type:
            value = json.loads(body)
        else:
            value = body
        return {("body", None): value} if is_whole else {("body", k): v for k, v in value.items()}

    def _multipart(self, fields: dict[str, list[Any]]) -> dict[str, Any]:
        """Join the parts of each property, by the encoding that the document chooses."""
        styled: dict[str, Any] = {}
        for name, parameter in self._encodings("multipart/form-data").items():
            raw = [
                (quote(key), quote(each, safe=_LITERAL))
                for key, values in fields.items()
                for each in values
                if isinstance(each, str)
            ]
            value = self._pairs(parameter, raw)
            if value is not None:
                styled[name] = value
        plain = {
            name: values[0] if len(values) == 1 else values
            for name, values in fields.items()
            if not (styled and name.partition("[")[0] in self._encodings("multipart/form-data"))
        }
        schema = self._media("multipart/form-data")
        known = schema.get("properties", plain) if isinstance(schema, dict) else plain
        return {name: each for name, each in plain.items() if name in known or not styled} | styled

    def _media(self, name: str) -> Any:
        if self._reader.is_old:
            return {}
        content = self._reader.follow(self._operation["requestBody"])["content"]
        return self._reader.follow(content[name].get("schema", {}))

    def _encodings(self, name: str) -> dict[str, Any]:
        """Return the properties of a form that have a style, as if they were parameters."""
        if self._reader.is_old:
            declared = [each for each in self._parameters if each["in"] == "formData"]
            return {
                each["name"]: {**each, "in": "body"}
                for each in declared
                if each.get("type") == "array" and each["items"].get("type") != "file"
            }
        content = self._reader.follow(self._operation["requestBody"])["content"]
        properties = self._media(name).get("properties", {})
        return {
            key: {"in": "body", "name": key, "schema": properties[key], **encoding}
            for key, encoding in content[name].get("encoding", {}).items()
            if key in properties and ("style" in encoding or "explode" in encoding)
        }

    def _form(self, text: str) -> Any:
        pairs = [self._split(part) for part in text.split("&") if part]
        raw = [part.partition("=")[::2] for part in text.split("&") if part]
        value = brackets(pairs)
        for name, parameter in self._encodings("application/x-www-form-urlencoded").items():
            if parameter.get("style") != "deepObject":
                styled = self._pairs(parameter, raw)
                if styled is not None:
                    value[name] = styled
        return value


def brackets(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Decode `a[b][0]=c` as Rack and qs do; a repeated name is a list."""
    root: dict[str, Any] = {}
    for name, value in pairs:
        first, *rest = re.findall(r"^[^\[]+|\[[^\]]*\]", name)
        steps = [first, *(step[1:-1] for step in rest)]
        node = root
        for step in steps[:-1]:
            node = node.setdefault(step, {})
        last = steps[-1]
        if last in node:
            node[last] = [*(node[last] if isinstance(node[last], list) else [node[last]]), value]
        else:
            node[last] = value
    return {key: _lists(each) for key, each in root.items()}


def _lists(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    node = {key: _lists(each) for key, each in node.items()}
    return list(node.values()) if node and all(key.isdigit() for key in node) else node


def parts(content_type: str, body: bytes) -> dict[str, list[Any]]:
    """Decode a multipart form: text, JSON, or bytes with name and type for a file."""
    message = email.message_from_bytes(
        b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body, policy=email.policy.HTTP
    )
    found: dict[str, list[Any]] = {}
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        assert isinstance(name, str)
        assert isinstance(data, bytes)
        file = part.get_filename()
        if file is not None:
            value: Any = {"file": file, "type": part.get_content_type(), "data": data}
        elif "Content-Type" in part and "json" in part["Content-Type"]:
            value = json.loads(data)
        else:
            value = data.decode()
        found.setdefault(name.replace("%22", '"'), []).append(value)
    return found


# Expectation


def as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return json.dumps(value)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def flat(value: Any) -> Any:
    """Return a value as a style delivers it: one level of text."""
    if isinstance(value, dict):
        return {key: as_text(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [as_text(each) for each in value]
    return as_text(value)


def deep(value: Any) -> Any:
    """Return a value as bracketed names deliver it: all levels, text at the ends."""
    if isinstance(value, dict):
        found = {key: deep(each) for key, each in value.items() if each is not None}
        return {key: each for key, each in found.items() if each not in ({}, [])}
    if isinstance(value, list):
        return [deep(each) for each in value]
    return as_text(value)
