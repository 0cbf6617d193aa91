"""The server that the conformance suite tests: every tool, resource and prompt it asks for.

    python server.py --port N        serves http://127.0.0.1:N/mcp
    python server.py                 serves stdio

Names and texts are the suite's own. Written with nothing but the public interface.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import struct
import wave
import zlib
from typing import Annotated, Any

from msgspec import Meta

from interlock import Audio, Context, Image, Server, ToolError
from interlock.context import elicitation, roots_list, sampling
from interlock.types import (
    Content,
    ElicitResult,
    EmbeddedResource,
    JsonObject,
    ResourceContents,
    TextContent,
)

STEP = 0.05  # seconds between notifications

server = Server("interlock-conformance", version="1.0.0")


def main() -> None:
    """Serve until it is stopped."""
    parser = argparse.ArgumentParser(description="The fixture of the conformance suite.")
    parser.add_argument("--port", type=int, help="of 127.0.0.1; without it: stdio")
    port = parser.parse_args().port
    if port is None:
        server.run()
    else:
        server.run_http(host="127.0.0.1", port=port)


def red_dot() -> bytes:
    """Return a PNG of one red pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", check)

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)  # 1 x 1, 8 bits, red-green-blue
    pixels = zlib.compress(b"\0\xff\0\0")
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def silence() -> bytes:
    """Return a WAV file of ten silent samples."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(8000)
        sound.writeframes(bytes(20))
    return file.getvalue()


def form(**properties: JsonObject) -> JsonObject:
    """Return the schema of a form whose fields are all required."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def embedded(uri: str, text: str, mime_type: str = "text/plain") -> EmbeddedResource:
    """Return a text as an embedded resource."""
    return EmbeddedResource(resource=ResourceContents(uri=uri, mime_type=mime_type, text=text))


def filled_in(answer: ElicitResult, field: str) -> Any:
    """Return a field of an accepted form, or raise an error for the model."""
    if answer.action != "accept" or answer.content is None or field not in answer.content:
        raise ToolError(f"the person did not give {field}: {answer.action}")
    return answer.content[field]


NAME_FORM = form(name={"type": "string"})


# What a tool may return


@server.tool
async def test_simple_text() -> str:
    """Return text."""
    return "This is a simple text response for testing."


@server.tool
async def test_image_content() -> Image:
    """Return a picture."""
    return Image(data=red_dot())


@server.tool
async def test_audio_content() -> Audio:
    """Return sound."""
    return Audio(data=silence())


@server.tool
async def test_embedded_resource() -> EmbeddedResource:
    """Return a resource."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool
async def test_multiple_content_types() -> list[Content | Image]:
    """Return text, a picture and a resource."""
    return [
        TextContent(text="Multiple content types test:"),
        Image(data=red_dot()),
        embedded(
            "test://mixed-content-resource", '{"test":"data","value":123}', "application/json"
        ),
    ]


@server.tool
async def test_error_handling() -> str:
    """Fail."""
    raise ToolError("This tool intentionally returns an error for testing")


# Telling the client


@server.tool
async def test_tool_with_progress(context: Context) -> str:
    """Report progress three times."""
    for percent in (0, 50, 100):
        context.progress(percent, total=100, message=f"Completed step {percent} of 100")
        await asyncio.sleep(STEP)
    return str(context.progress_token)


@server.tool
async def test_tool_with_logging(context: Context) -> str:
    """Log three messages."""
    for text in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        context.log("info", text)
        await asyncio.sleep(STEP)
    return "Logged three messages"


@server.tool
async def test_logging_tool(context: Context) -> str:
    """Log a message, if the client's log level allows it."""
    context.log("info", "This is only for clients that ask for it")
    return "Logged a message"


@server.tool
async def test_trigger_tool_change() -> str:
    """Change the list of tools and change it back, so that other scenarios see the usual one."""

    async def test_dynamic_tool() -> str:
        """Exist for a moment."""
        return "dynamic"

    server.tool(test_dynamic_tool)
    server.remove_tool("test_dynamic_tool")
    return "The list of tools has changed"


@server.tool
async def test_trigger_prompt_change() -> str:
    """Change the list of prompts, and change it back."""

    async def test_dynamic_prompt() -> str:
        """Exist for a moment."""
        return "dynamic"

    server.prompt(test_dynamic_prompt)
    server.remove_prompt("test_dynamic_prompt")
    return "The list of prompts has changed"


@server.tool
async def test_reconnection(context: Context) -> str:
    """Drop the connection during the call."""
    context.close_stream(retry_ms=500)
    await asyncio.sleep(STEP)
    return "Reconnection test completed successfully"


# Asking the client


@server.tool
async def test_sampling(prompt: str, context: Context) -> str:
    """Ask the client's model."""
    return f"LLM response: {(await context.sample(prompt, 100)).text}"


@server.tool
async def test_elicitation(message: str, context: Context) -> str:
    """Ask the user for a name and an address."""
    wanted = form(
        username={"type": "string", "description": "User's response"},
        email={"type": "string", "description": "User's email address"},
    )
    return _summary(await context.elicit(message, wanted))


@server.tool
async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask with a form that has defaults of every type."""
    wanted = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {
                "type": "string",
                "enum": ["active", "inactive", "pending"],
                "default": "active",
            },
            "verified": {"type": "boolean", "default": True},
        },
    }
    return _summary(await context.elicit("Please review", wanted))


@server.tool
async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Ask with a form that has choices of every kind."""
    plain = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{nth} Option"}
        for n, nth in ((1, "First"), (2, "Second"), (3, "Third"))
    ]
    wanted = {
        "type": "object",
        "properties": {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {
                "type": "string",
                "enum": ["opt1", "opt2", "opt3"],
                "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        },
    }
    return _summary(await context.elicit("Please choose", wanted))


def _summary(answer: ElicitResult) -> str:
    return f"Elicitation completed: action={answer.action}, content={answer.content}"


@server.tool
async def test_missing_capability(context: Context) -> str:
    """Ask the client's model, which may be missing."""
    return (await context.sample("Are you there?", 100)).text


@server.tool
async def test_streaming_elicitation(context: Context) -> str:
    """Ask the user for a name."""
    answer = await context.elicit("What is your name?", NAME_FORM, key="user_name")
    return f"Hello, {filled_in(answer, 'name')}!"


# Asking in rounds, from 2026-07-28 on


@server.tool
async def test_input_required_result_elicitation(context: Context) -> str:
    """Ask the user for a name."""
    answer = await context.elicit("What is your name?", NAME_FORM, key="user_name")
    return f"Hello, {filled_in(answer, 'name')}!"


@server.tool
async def test_input_required_result_sampling(context: Context) -> str:
    """Ask the client's model for a capital."""
    answer = await context.sample("What is the capital of France?", 100, key="capital_question")
    return answer.text


@server.tool
async def test_input_required_result_list_roots(context: Context) -> str:
    """Ask for the client's roots."""
    roots = await context.roots(key="client_roots")
    return "\n".join(root.uri for root in roots)


@server.tool
async def test_input_required_result_request_state(context: Context) -> str:
    """Ask for a confirmation; the client returns the state."""
    wanted = form(ok={"type": "boolean"})
    answer = await context.elicit("Please confirm", wanted, key="confirm")
    return f"state-ok: {filled_in(answer, 'ok')}"


@server.tool
async def test_input_required_result_tampered_state(context: Context) -> str:
    """Ask for a confirmation; a modified state is refused."""
    return await test_input_required_result_request_state(context)


@server.tool
async def test_input_required_result_multiple_inputs(context: Context) -> str:
    """Ask three things at once."""
    answers = await context.ask(
        {
            "user_name": elicitation("What is your name?", NAME_FORM),
            "greeting": sampling("Write a short greeting", 50),
            "client_roots": roots_list(),
        }
    )
    name = filled_in(answers["user_name"], "name")
    greeting = answers["greeting"].text
    return f"{greeting}, {name}: {len(answers['client_roots'].roots)} roots"


@server.tool
async def test_input_required_result_multi_round(context: Context) -> str:
    """Ask for a name, and then for a color."""
    name = filled_in(
        await context.elicit("Step 1: What is your name?", NAME_FORM, key="step1"), "name"
    )
    color_form = form(color={"type": "string"})
    color = filled_in(
        await context.elicit("Step 2: What is your favorite color?", color_form, key="step2"),
        "color",
    )
    return f"{name} likes {color}"


@server.tool
async def test_input_required_result_capabilities(context: Context) -> str:
    """Send only requests that the client supports."""
    questions = {}
    if context.can("sampling"):
        questions["capital_question"] = sampling("What is the capital of France?", 100)
    if context.can("elicitation"):
        questions["user_name"] = elicitation("What is your name?", NAME_FORM)
    answers = await context.ask(questions)
    return f"Answered: {', '.join(answers) or 'nothing, as nothing can be asked'}"


# Tasks


@server.tool
async def greet(name: str) -> str:
    """Greet at once."""
    return f"Hello, {name}!"


@server.tool(task=True)
async def slow_compute(seconds: float, label: str = "") -> str:
    """Run for some time."""
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds:g} s"


@server.tool(task="required")
async def failing_job() -> str:
    """Fail after some time."""
    await asyncio.sleep(1.0)
    raise ToolError("The job has failed")


@server.tool(task=True)
async def protocol_error_job(context: Context) -> str:
    """Require a capability that the client lacks."""
    return f"{len(await context.roots())} roots"


@server.tool(task=True)
async def confirm_delete(filename: str, context: Context) -> str:
    """Delete a file that does not exist, once the user has agreed."""
    wanted = form(confirm={"type": "boolean"})
    answer = await context.elicit(f"Delete {filename}?", wanted, key="confirm")
    return f"Deleted {filename}" if filled_in(answer, "confirm") else f"Kept {filename}"


@server.tool(task=True)
async def multi_input(context: Context) -> str:
    """Ask two things at once."""
    answers = await context.ask(
        {
            "first": elicitation("What is your name?", NAME_FORM),
            "second": elicitation("What is your other name?", NAME_FORM),
        }
    )
    return " ".join(answer.action for answer in answers.values())


@server.tool(task="later")
async def test_tool_with_task(context: Context) -> str:
    """Ask first, and go on as a task."""
    answer = await context.elicit("What is your name?", NAME_FORM, key="user_name")
    await context.begin_task()
    await asyncio.sleep(STEP)
    return f"Hello, {filled_in(answer, 'name')}!"


# Schemas


@server.tool(
    input_schema={
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    }
)
async def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Accept arguments described by a schema of the 2020-12 dialect."""
    return f"Got {', '.join(arguments)}"


@server.tool
async def test_x_mcp_header(
    region: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "Region"})],
) -> str:
    """Accept an argument that HTTP clients repeat in a header."""
    return f"region: {region}"


# Resources


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture."""
    return red_dot()


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A text that can be subscribed to."""
    return "Watched resource content"


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> JsonObject:
    """Data of an id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


# Prompts


@server.prompt
async def test_simple_prompt() -> str:
    """Return one message."""
    return "This is a simple prompt for testing."


@server.prompt
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """Return one message of two arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.completion("test_prompt_with_arguments", "arg1")
async def complete_arg1(typed: str) -> list[str]:
    """Propose values for `arg1`."""
    return [value for value in ("test-one", "test-two", "other") if value.startswith(typed)]


@server.prompt(name="test_prompt_with_embedded_resource")
async def prompt_with_embedded_resource(
    resourceUri: str,  # the name that the suite gives
) -> list[Content]:
    """Return a resource and a text.

    Args:
        resourceUri: URI of the resource to embed.
    """
    return [
        embedded(resourceUri, "Embedded resource content for testing."),
        TextContent(text="Please process the embedded resource above."),
    ]


@server.prompt
async def test_prompt_with_image() -> list[Content | Image]:
    """Return a picture and a text."""
    return [Image(data=red_dot()), TextContent(text="Please analyze the image above.")]


@server.prompt
async def test_input_required_result_prompt(context: Context) -> str:
    """Ask for what the prompt is about."""
    wanted = form(context={"type": "string"})
    answer = await context.elicit("What context should the prompt use?", wanted, key="user_context")
    return f"Use this context: {filled_in(answer, 'context')}"


if __name__ == "__main__":
    main()
