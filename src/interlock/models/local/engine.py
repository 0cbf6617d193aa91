"""llama.cpp as one blocking object: load a model, write text, close it.

The binding runs llama.cpp's server in this process, and that server must listen somewhere. It
gets a random key and a Unix socket in a folder that only this user can enter; the socket's name
is removed at once. No TCP port is opened.
"""

from __future__ import annotations

import importlib
import os
import secrets
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec import Struct

from interlock.errors import MissingExtra, ModelInterrupted, ModelUnavailable

__all__ = ["Engine", "Text"]

CONTEXT = 4096  # tokens: prompt and answer


class Text(Struct, frozen=True):
    """Text written by the model, with the tokens of prompt and text."""

    text: str
    input_tokens: int
    output_tokens: int
    complete: bool  # False if the limit or `on_text` stopped it


class Engine:
    """A loaded model. Its methods block: call them in a worker thread, one at a time."""

    def __init__(self, weights: Path) -> None:
        try:
            xllamacpp = importlib.import_module("xllamacpp")
        except ImportError as error:
            raise MissingExtra("the embedded model", "local") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(weights)
        params.n_ctx = CONTEXT
        params.n_parallel = 1
        params.warmup = False
        params.fit_params = False
        params.verbosity = -1  # its log would go to stderr
        params.ui = False
        params.offline = True
        params.api_keys = [secrets.token_hex(16)]
        # llama.cpp's threads wait for each other constantly: one thread on a busy core makes all
        # of them many times slower. One core is therefore left to other work.
        threads = max(1, min(4, _cores() - 1))
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
            params.hostnames = [str(Path(folder, "llama.sock"))]
            try:
                self._server: Any = xllamacpp.Server(params)
            except RuntimeError as error:
                raise ModelUnavailable(f"llama.cpp cannot load {weights}: {error}") from error

    def write(
        self,
        prompt: str,
        *,
        max_tokens: int,
        stop: tuple[str, ...] = (),
        on_text: Callable[[str], bool] = lambda _: True,
    ) -> Text:
        """Continue `prompt`.

        Args:
            prompt: The text; a beginning shared with the previous prompt is not computed again.
            max_tokens: Limit of the text.
            stop: Texts that end the answer and are not part of it.
            on_text: Called with each piece; returns whether to go on.

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

        request: dict[str, Any] = {
            "prompt": prompt,
            "max_tokens": max_tokens,
            "stop": list(stop),
            "temperature": 0.0,
            "repeat_penalty": 1.15,
            "seed": 1,
            "stream": True,
            "timings_per_token": True,  # the only token counts if `on_text` stops it
            "cache_prompt": True,
        }
        try:
            outcome = self._server.handle_completions(request, receive)
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

    def close(self) -> None:
        """Free the memory. Closing twice is allowed; `write` must not be called afterwards."""
        self._server = None


def _cores() -> int:
    """Return how many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
