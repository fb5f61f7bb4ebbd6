"""The steps of the rendering, one call each: render a tile with the real POV-Ray, join tiles to the picture (Pillow).

    python povray_job.py render TILE.ini TILE.png
    python povray_job.py join FRAME.json PICTURE.png --tiles TILE.png...

May know: POV-Ray's command line, Pillow. One rule: a step writes only what its arguments name, the same bytes each time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image


def render(tile: Path, picture: Path) -> None:
    """tile -> picture: its own pixels only. POV-Ray would write the whole picture with the rest black, and the time of day into it."""
    if shutil.which("povray") is None:
        sys.exit("there is no povray on PATH; install it: apt-get install povray (or call scripts/setup.sh povray)")
    said = dict(line.split("=", 1) for line in tile.read_text().splitlines() if "=" in line)
    box = (int(said["Start_Column"]) - 1, int(said["Start_Row"]) - 1, int(said["End_Column"]), int(said["End_Row"]))
    # POV-Ray writes to the directory it is started in and no other, and reads below its HOME. The tile's settings stand in for those of the
    # machine, which would have it look for includes where the machine keeps them before it looks at the job's inputs.
    environment = os.environ | {"HOME": os.getcwd(), "POVINI": str(tile)}
    with tempfile.NamedTemporaryFile(dir=".", suffix=".png") as whole:
        command = ["povray", f"+O{Path(whole.name).name}", "+FN"]
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.exit(f"POV-Ray ended with {done.returncode}; what it said is above")
        with Image.open(whole.name) as image:
            if image.size != (int(said["Width"]), int(said["Height"])):
                sys.exit(f"{tile}: POV-Ray made a picture of {image.size}, not of {said['Width']} x {said['Height']} pixels")
            image.convert("RGB").crop(box).save(picture, "PNG")


def join(frame: Path, picture: Path, tiles: Sequence[Path]) -> None:
    """tiles -> picture, each where the frame's file says; all of them, once."""
    said = json.loads(frame.read_text())
    given = {tile.stem: tile for tile in tiles}
    if given.keys() != said["tiles"].keys() or len(given) != len(tiles):
        sys.exit(f"{frame} wants the tiles {' '.join(sorted(said['tiles']))}; given are {' '.join(map(str, tiles))}")
    whole = Image.new("RGB", (said["width"], said["height"]))
    for name, (left, top, right, bottom) in said["tiles"].items():
        with Image.open(given[name]) as image:
            if image.size != (right - left, bottom - top):
                sys.exit(f"{given[name]} has {image.size} pixels, and its place {(right - left, bottom - top)}")
            whole.paste(image, (left, top))
    whole.save(picture, "PNG")


def main() -> None:
    parser = argparse.ArgumentParser(description="One step of the rendering.")
    commands = parser.add_subparsers(dest="step", required=True)
    rendering = commands.add_parser("render", help=render.__doc__)
    rendering.add_argument("tile", type=Path)
    joining = commands.add_parser("join", help=join.__doc__)
    joining.add_argument("frame", type=Path)
    for command in (rendering, joining):
        command.add_argument("picture", type=Path)
    joining.add_argument("--tiles", type=Path, nargs="+", required=True)
    arguments = vars(parser.parse_args())
    step = {"render": render, "join": join}[arguments.pop("step")]
    arguments["picture"].parent.mkdir(parents=True, exist_ok=True)
    step(**arguments)


if __name__ == "__main__":
    main()
