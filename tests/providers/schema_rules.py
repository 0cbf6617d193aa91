"""What providers are reported to refuse in the schema of a tool.

Each function returns the text with which one provider refuses a tool; "" if it accepts the tool.
The links lead to reports of people whose requests were refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import jsonschema_rs

Schema = dict[str, Any]
Reader = Callable[[str, Any], str]

_2020 = "https://json-schema.org/draft/2020-12/schema"
_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_FORMATS = ("date-time", "date", "time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")
_ONE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_MANY = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def subschemas(schema: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield a schema and all below it, each with its place."""
    yield place, schema
    if not isinstance(schema, dict):
        return
    for key in _ONE:
        if key in schema and (key != "additionalProperties" or isinstance(schema[key], dict)):
            yield from subschemas(schema[key], (*place, key))
    for key in _MANY:
        for index, each in enumerate(schema.get(key) or ()):
            yield from subschemas(each, (*place, key, str(index)))
    for key in _MAPS:
        found = schema.get(key)
        for name, each in (found if isinstance(found, dict) else {}).items():
            yield from subschemas(each, (*place, key, name))


def _types(schema: Schema) -> list[str]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind] if isinstance(kind, str) else []


def _name(name: str, pattern: str) -> str:
    return "" if re.fullmatch(pattern, name) else f"name: should match pattern '^{pattern}$'"


def anthropic(name: str, schema: Any) -> str:
    """Anthropic's Messages API, and so Claude Code.

    https://github.com/anthropics/claude-code/issues/586 (draft 2020-12, `$schema` of draft 7)
    https://github.com/anthropics/claude-code/issues/44788 (alternatives at the root)
    https://github.com/beautyfree/appstore-connect-mcp/issues/2 (names of properties)
    """
    if found := _name(name, "[a-zA-Z0-9_-]{1,64}"):
        return f"tools.0.custom.{found}"
    place = "tools.0.custom.input_schema"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return f"{place}.type: Input should be 'object'"
    if {"oneOf", "allOf", "anyOf"} & schema.keys():
        return f"{place}: input_schema does not support oneOf, allOf, or anyOf at the top level"
    for key in schema.get("properties") or ():
        if not re.fullmatch("[a-zA-Z0-9_.-]{1,64}", key):
            return (
                f"{place}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'"
            )
    named = schema.get("$schema", _2020)
    if named != _2020 or not jsonschema_rs.meta.is_valid({**schema, "$schema": _2020}):
        return f"{place}: JSON schema is invalid. It must match JSON Schema draft 2020-12"
    return ""


def bedrock(name: str, schema: Any) -> str:
    """Bedrock's Converse API.

    https://github.com/RooCodeInc/Roo-Code/pull/10022 (names of tools)
    https://github.com/aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/709
    """
    return _name(name, "[a-zA-Z0-9_-]{1,64}") or anthropic(name, schema)


def openai(name: str, schema: Any) -> str:
    """OpenAI's chat completions and Responses API, without `strict`.

    https://github.com/langchain-ai/langchainjs/issues/9804 (alternatives at the root)
    https://github.com/goruck/home-generative-agent/pull/545 (`const` at the root)
    https://github.com/meilisearch/meilisearch-mcp/issues/27 (arrays without items)
    https://github.com/can1357/oh-my-pi/issues/2784 (look-around)
    https://github.com/smallmain/vscode-unify-chat-provider/issues/162 (text as a schema)
    https://github.com/Lucassssss/eechat/issues/52 (names of tools)
    https://github.com/cbdb-project/cbdb-online-main-server/pull/879 (list as properties)
    """
    if found := _name(name, "[a-zA-Z0-9_-]{1,64}"):
        return f"Invalid 'tools[0].function.{found}"
    start = f"Invalid schema for function '{name}': "
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return f"{start}schema must be a JSON Schema of 'type: \"object\"'"
    if {"oneOf", "anyOf", "allOf", "enum", "const", "not"} & schema.keys():
        return (
            f"{start}schema must have type 'object' and not have "
            "'oneOf'/'anyOf'/'allOf'/'enum'/'const'/'not' at the top level."
        )
    if not isinstance(schema.get("properties"), dict):
        return f"{start}In context=(), object schema missing properties"
    if not jsonschema_rs.meta.is_valid({**schema, "$schema": _2020}):
        return f"{start}it is not a JSON Schema"
    for place, each in subschemas(schema):
        if problem := _openai_part(each) if isinstance(each, dict) else "":
            return f"{start}In context={place}, {problem}"
    return ""


def _openai_part(schema: Schema) -> str:
    types = _types(schema)
    if "array" in types and "items" not in schema:
        return "array schema missing items."
    if schema.get("enum") == []:
        return "[] is too short"
    if types and "enum" in schema:
        for value in schema["enum"]:
            if not jsonschema_rs.is_valid({"type": types}, value):
                return f"enum value {value!r} does not validate against {types}"
    pattern = schema.get("pattern", "")
    return f"{pattern!r} is not a 'regex'" if _looks_around(pattern) else ""


def _looks_around(pattern: str) -> bool:
    return re.search(r"\(\?[=!<]|\\p\{|\\[:/#'\"]|\\[1-9]|\\Z", pattern) is not None


def mistral(name: str, schema: Any) -> str:
    """Mistral's API, which compiles the schemas to a grammar.

    https://github.com/SylphxAI/pdf-reader-mcp/issues/63 (boolean exclusive bounds)
    https://github.com/BerriAI/litellm/pull/13389 (`$id` and `$schema`)
    """
    if found := _name(name, "[a-zA-Z0-9_-]{1,64}"):
        return found
    if not jsonschema_rs.meta.is_valid({**schema, "$schema": _2020}):
        return f"Invalid tool schema: {schema}"
    for place, each in subschemas(schema):
        if isinstance(each, dict) and {"$id", "$schema", "id"} & each.keys():
            return f"Grammar error: at {place}: failed to compile JSON schema"
    return ""


def fireworks(_name: str, schema: Any) -> str:
    """Fireworks, which also serves others' requests.

    https://github.com/docker/mcp-gateway/pull/234 (a schema without a type)
    """
    for _, each in subschemas(schema):
        if not isinstance(each, dict) or not {"type", "$ref", "anyOf", "enum"} & each.keys():
            return f"JSON Schema not supported: could not understand the instance `{each}`"
    return ""


def llama_cpp(_name: str, schema: Any) -> str:
    """llama.cpp's server, and so LM Studio and Ollama: all schemas become one grammar.

    https://github.com/ggml-org/llama.cpp/issues/26930 (patterns without anchors)
    https://github.com/codefuturist/email-mcp/issues/58 (look-ahead)
    https://github.com/ggml-org/llama.cpp/issues/14227 (a schema without a type)
    https://github.com/firecrawl/firecrawl/issues/4512 (large bounds)
    """
    for _, each in subschemas(schema):
        if not isinstance(each, dict):
            return f"JSON schema conversion failed: Unrecognized schema: {each}"
        known = {"$ref", "anyOf", "oneOf", "const", "enum", "properties", "items"}
        if each and not known & each.keys() and not set(_types(each)) & {*_TYPES}:
            return f"JSON schema conversion failed: Unrecognized schema: {each}"
        if "$ref" in each and not _resolves(each["$ref"], schema):
            return f"JSON schema conversion failed: Error resolving ref {each['$ref']}"
        pattern = each.get("pattern", "^$")
        if pattern[:1] != "^" or pattern[-1:] != "$":
            return "JSON schema conversion failed: Pattern must start with '^' and end with '$'"
        bounds = [each.get(key, 0) for key in ("minLength", "maxLength", "minItems", "maxItems")]
        if _looks_around(pattern) or max(bounds) > 2_000:
            return "Failed to initialize samplers: failed to parse grammar"
    return ""


def vllm(_name: str, schema: Any) -> str:
    """vLLM with a grammar.

    https://github.com/z-lab/paroquant/issues/31 (formats)
    """
    for _, each in subschemas(schema):
        if isinstance(each, dict) and each.get("format", "date") not in _FORMATS:
            return f"Grammar error: Unknown format: {each['format']}"
    return llama_cpp(_name, schema)


def lm_studio(_name: str, schema: Any) -> str:
    """LM Studio, before it passes a request to llama.cpp.

    https://github.com/unclecode/crawl4ai/issues/2207 (no properties)
    """
    if not isinstance(schema.get("properties"), dict):
        return "[{'code': 'invalid_type', 'path': [0, 'function', 'parameters', 'properties']}]"
    return llama_cpp(_name, schema)


_GEMINI = {"type", "format", "title", "description", "nullable", "enum", "items", "properties"}
_GEMINI |= {"required", "anyOf", "minimum", "maximum", "minItems", "maxItems"}
_GEMINI |= {"minLength", "maxLength", "pattern"}


def gemini(name: str, schema: Any) -> str:
    """Gemini, also by its endpoint for OpenAI's API.

    https://github.com/mixelpixx/KiCAD-MCP-Server/issues/7 (names of tools)
    https://github.com/tashfeenahmed/freellmapi/issues/97 (`additionalProperties`)
    https://github.com/pizza-bot-app/pizza-bot/issues/62 (`exclusiveMinimum`, `const`)
    https://github.com/taylorwilsdon/google_workspace_mcp/issues/1099 (a list of types)
    https://github.com/danny-avila/LibreChat/issues/6971 (no type)
    https://github.com/czlonkowski/n8n-mcp/issues/4 (an array without items)
    https://github.com/sbroenne/mcp-server-excel/issues/607 (empty values)
    https://github.com/weave-os/router/pull/65 (values that are not text)
    https://github.com/probelabs/probe/issues/569 (required without a property)
    https://github.com/agno-agi/agno/issues/2112 (no properties)
    https://github.com/anomalyco/opencode/issues/11889 (properties of other types)
    https://github.com/hideya/langchain-mcp-tools-ts/issues/36 (formats)
    """
    if found := _name(name, "[a-zA-Z_][a-zA-Z0-9_.-]{0,63}"):
        return f"tools[0].function_declarations[0].{found}"
    for place, each in subschemas(schema):
        if problem := _gemini_part(each):
            return f"tools[0].function_declarations[0].parameters.{'.'.join(place)}: {problem}"
    return ""


def _gemini_part(schema: Any) -> str:
    if not isinstance(schema, dict) or schema.keys() - _GEMINI:
        return f"Unknown name: Cannot find field: {schema}"
    if "anyOf" in schema:
        return "" if len(schema) == 1 else "when using any_of, it must be the only field set"
    kind = schema.get("type")
    if kind not in _TYPES:
        return "Proto field is not repeating" if isinstance(kind, list) else "no type"
    if "enum" in schema and (kind != "string" or "" in schema["enum"]):
        return "enum: only allowed for STRING type, cannot be empty"
    if not all(isinstance(each, str) for each in schema.get("enum", ())):
        return "Invalid value (TYPE_STRING)"
    if kind == "array" and "items" not in schema:
        return "items: missing field"
    if kind != "object" and {"properties", "required"} & schema.keys():
        return "properties: only allowed for OBJECT type"
    if schema.get("properties") == {}:
        return "properties: should be non-empty for OBJECT type"
    if set(schema.get("required", ())) - schema.get("properties", {}).keys():
        return "required[0]: property is not defined"
    if kind == "string" and schema.get("format", "enum") not in ("enum", "date-time"):
        return "format: only 'enum' and 'date-time' are supported for STRING type"
    return ""


def _resolves(reference: Any, root: Schema) -> bool:
    section, _, name = str(reference).removeprefix("#/").partition("/")
    found = root.get(section)
    return isinstance(found, dict) and name in found


READERS: dict[str, Reader] = {
    each.__name__: each
    for each in (anthropic, bedrock, openai, mistral, fireworks, llama_cpp, vllm, lm_studio)
}


def refusals(name: str, schema: Any) -> dict[str, str]:
    """Return the texts with which providers refuse a tool, by provider."""
    found = {provider: read(name, schema) for provider, read in READERS.items()}
    return {provider: text for provider, text in found.items() if text}
