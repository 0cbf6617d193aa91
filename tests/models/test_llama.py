"""llama.cpp as one blocking object."""

import tempfile
from pathlib import Path

import pytest

from interlock.errors import ModelUnavailable
from interlock.models.llama import LoadedModel
from tests.models.processes import python

pytestmark = pytest.mark.slow("the embedded model")


async def test_weights_that_llama_cannot_load_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"not a model")

    with pytest.raises(ModelUnavailable, match=r"cannot load .*bad\.gguf"):
        LoadedModel(tmp_path / "bad.gguf")


def test_the_model_writes_nothing_and_opens_no_port(cache: Path) -> None:
    code = """
import asyncio, os, sys, tempfile
from pathlib import Path
from interlock.messages import UserMessage
from interlock.models import complete
from interlock.models.local import LocalModel

async def main():
    model = LocalModel(Path(sys.argv[1]))
    await complete(model, [UserMessage("Hello!")])
    sockets = {os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
               if os.path.exists(f"/proc/self/fd/{fd}")}
    for table in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            assert f"socket:[{line.split()[9]}]" not in sockets, line
    assert not list(Path(tempfile.gettempdir()).glob("interlock-*/llama.sock"))
    await model.close()

asyncio.run(main())
"""
    # Its own folder: other tests may be starting a model in the usual one.
    with tempfile.TemporaryDirectory() as folder:
        done = python(code, str(cache), TMPDIR=folder)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
