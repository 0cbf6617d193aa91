"""Make an image of a root file system: `python pack.py ROOT LAYOUT TAG`.

The last stage of the Dockerfile states the user, the command and the rest. The image is written to
LAYOUT, a folder in the layout of the Open Container Initiative, by umoci.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from dockerfile_parse import DockerfileParser

DOCKERFILE = Path(__file__).with_name("Dockerfile")
COPIED = "--from=build /rootfs/ /"  # the root file system, which is inserted here


def options() -> Iterator[str]:
    """Yield the options of `umoci config` for the last stage of the Dockerfile."""
    parser = DockerfileParser(str(DOCKERFILE))
    every = [each for each in parser.structure if each["instruction"] != "COMMENT"]
    last = max(at for at, each in enumerate(every) if each["instruction"] == "FROM")
    for each in every[last + 1 :]:
        name, value = each["instruction"], each["value"]
        match name:
            case "ENTRYPOINT" | "CMD" | "VOLUME":
                yield from (f"--config.{name.lower()}={item}" for item in json.loads(value))
            case "USER" | "STOPSIGNAL":
                yield f"--config.{name.lower()}={value}"
            case "WORKDIR":
                yield f"--config.workingdir={value}"
            case "EXPOSE":
                yield f"--config.exposedports={value}/tcp"
            case "ENV":
                yield from (f"--config.env={key}={item}" for key, item in parser.envs.items())
            case "LABEL":
                yield from (f"--config.label={key}={item}" for key, item in parser.labels.items())
            case "COPY" if value == COPIED:
                pass
            case _:
                raise SystemExit(f"error: {DOCKERFILE}: {name} {value} is not known here")


def main(root: str, layout: str, tag: str) -> None:
    """Write the image, and print its size."""
    image = f"--image={layout}:{tag}"
    for command in (
        ["init", f"--layout={layout}"],
        ["new", image],
        ["insert", image, root, "/"],
        ["config", image, *options()],
    ):
        subprocess.run(["umoci", *command], check=True, stdout=subprocess.DEVNULL)
    size = sum(each.stat().st_size for each in Path(layout).rglob("*"))
    print(f"{layout}:{tag}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main(*sys.argv[1:])
