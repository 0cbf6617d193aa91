"""Wraps llama.cpp in one blocking class: load a model, write text, close the model.

The binding runs llama.cpp's server in this process, and that server must listen somewhere. It
gets a random key and a Unix socket in a folder that only this user can enter; the socket's name
is removed at once. No TCP port is opened.
"""

from __future__ import annotations

import importlib
import os
import secrets
import socket
import sys
import tempfile
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from interlock.errors import ContextTooLong, MissingExtra, ModelInterrupted, ModelUnavailable
from interlock.text.quoting import replace_surrogates

CONTEXT = 4096  # tokens of prompt and answer together
_WRITING = {
    "temperature": 0.0,
    "repeat_penalty": 1.15,
    "seed": 1,
    "stream": True,
    "timings_per_token": True,  # the only token counts if `on_text` stops the answer
    "cache_prompt": True,
}

# llama.cpp keeps the tokenizer of the last grammar, by the address of its vocabulary. If that model
# were freed, the next one could get its address, and with it the wrong tokenizer: its grammar would
# restrict nothing, or crash the process. So the model lives until another one has used a grammar.
_of_last_grammar: Any = None


class Text(Struct, frozen=True):
    """Text that the model wrote, with the numbers of tokens of the prompt and the text."""

    text: str
    input_tokens: int
    output_tokens: int
    complete: bool  # False if the limit or `on_text` stopped the text


class ChatTemplate(Struct, frozen=True):
    """The parts of a conversation that a model's chat template supports."""

    supports_tools: bool = False
    supports_system_role: bool = True


class LoadedModel:
    """A loaded model. Its methods block: call them in a worker thread, one at a time.

    Args:
        weights: A GGUF file.
        context: The number of tokens of prompt and answer together.

    Attributes:
        template: The parts of a conversation that the file's chat template supports.
    """

    def __init__(self, weights: Path, context: int = CONTEXT) -> None:
        try:
            xllamacpp = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise MissingExtra("the embedded model", "local") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_ctx = context
        params.n_parallel = 1
        params.warmup = False
        params.fit_params = False
        params.verbosity = -1  # write no log to stderr
        params.ui = False
        params.offline = True
        params.use_jinja = True
        params.api_keys = [secrets.token_hex(16)]
        # llama.cpp's threads wait for each other constantly: one thread on a busy core makes all of
        # them many times slower. So one core is left for other work.
        threads = max(1, min(4, _cores() - 1))
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
            params.hostnames = [str(Path(folder, "llama.sock"))]
            try:
                self._server: Any = xllamacpp.Server(params)
                self.template = _template(params.hostnames[0], params.api_keys[0])
            except (RuntimeError, OSError, HTTPException, msgspec.DecodeError) as error:
                raise ModelUnavailable(
                    f"llama.cpp cannot load {weights}; the file may be damaged, or need a newer "
                    "llama.cpp or more memory"
                ) from error

    def write(
        self,
        prompt: str,
        *,
        max_tokens: int,
        stop: tuple[str, ...] = (),
        on_text: Callable[[str], bool] = lambda _: True,
    ) -> Text:
        """Write a continuation of `prompt`.

        Args:
            prompt: The text; a beginning shared with the previous prompt is not computed again.
            max_tokens: The maximum tokens of the text.
            stop: Texts that end the answer; they are not included in it.
            on_text: Called with each piece; returns whether to continue.

        Raises:
            ModelInterrupted: llama.cpp failed.
        """
        pieces: list[str] = []
        state: dict[str, Any] = {}

        def receive(chunk: dict[str, Any]) -> bool:
            if "error" in chunk:
                state["error"] = chunk["error"]
                return True
            choice = chunk["choices"][0]
            state["finish"] = choice.get("finish_reason")
            state["timings"] = chunk.get("timings") or state.get("timings", {})
            if not choice["text"]:
                return False
            pieces.append(choice["text"])
            return not on_text(choice["text"])

        request = {"prompt": prompt, "max_tokens": max_tokens, "stop": list(stop), **_WRITING}
        try:
            outcome = self._server.handle_completions(replace_surrogates(request), receive)
        except RuntimeError as error:
            raise ModelInterrupted(f"llama.cpp: {error}") from error
        if isinstance(outcome, dict):
            state.update(outcome)
        if failure := state.get("error"):
            raise ModelInterrupted(f"llama.cpp: {failure.get('message', failure)}")
        counts = state.get("timings", {})
        return Text(
            "".join(pieces),
            counts.get("prompt_n", 0) + counts.get("cache_n", 0),
            counts.get("predicted_n", len(pieces)),
            state.get("finish") == "stop",
        )

    def chat(self, request: dict[str, Any], on_chunk: Callable[[dict[str, Any]], bool]) -> None:
        """Answer a chat completion request; a beginning shared with the previous one is kept.

        Args:
            request: A request in the format of OpenAI's API, without `stream`.
            on_chunk: Called with each chunk of the answer; returns whether to continue.

        Raises:
            ContextTooLong: The conversation does not fit.
            ModelInterrupted: llama.cpp failed.
        """
        failure: dict[str, Any] = {}
        if "grammar" in request or "tools" in request:
            global _of_last_grammar
            _of_last_grammar = self._server

        def receive(chunk: dict[str, Any]) -> bool:
            failure.update(chunk.get("error") or {})
            return bool(failure) or not on_chunk(chunk)

        request = replace_surrogates(request) | {
            "stream": True,
            "stream_options": {"include_usage": True},
            "timings_per_token": True,  # the only token counts if `on_chunk` stops the answer
            "cache_prompt": True,
        }
        try:
            outcome = self._server.handle_chat_completions(request, receive)
        except (RuntimeError, ValueError) as error:
            raise ModelInterrupted(f"llama.cpp: {error}") from error
        if isinstance(outcome, dict):
            failure.update(outcome.get("error") or {})
        if failure:
            text = f"llama.cpp: {failure.get('message', failure)}"
            if failure.get("type") == "exceed_context_size_error":
                sizes = (int(failure.get(key, 0)) for key in ("n_ctx", "n_prompt_tokens"))
                raise ContextTooLong(text, *sizes)
            raise ModelInterrupted(text)

    def close(self) -> None:
        """Free the memory, unless the last grammar was this model's: see `_of_last_grammar`.

        Closing twice is allowed; no other method may be called afterwards.
        """
        self._server = None


class _UnixConnection(HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)


class _Props(Struct):
    chat_template_caps: ChatTemplate = ChatTemplate()


def _template(path: str, key: str) -> ChatTemplate:
    """Request the template from the server in this process; the binding has no call for it."""
    connection = _UnixConnection(path, timeout=10)
    try:
        connection.request("GET", "/props", headers={"Host": "x", "Authorization": f"Bearer {key}"})
        return msgspec.json.decode(connection.getresponse().read(), type=_Props).chat_template_caps
    finally:
        connection.close()


def free_memory() -> int:
    """Return the bytes of memory that this process may still use."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize  # not POSIX: unknown, so llama.cpp reports a lack of memory


def _cores() -> int:
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
