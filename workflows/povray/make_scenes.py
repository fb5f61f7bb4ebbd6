"""Makes the input of the rendering: scenes of POV-Ray's own examples, each with all that it includes, and one small file for each tile.

    python make_scenes.py DIRECTORY [--scene pawns --scene woodbox] [--frames 1] [--tiles 2x3] [--width 400]

A scene comes to lie in DIRECTORY/NAME/scene; DIRECTORY/NAME/NAME-000.json tells how its first frame is cut, NAME-000-r0c1.ini tells POV-Ray
what to render for one tile of it.

May know: where Debian keeps POV-Ray's examples. One rule: the same arguments give the same files, and nothing that was left from others.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

EXAMPLES = Path("/usr/share/doc/povray/examples")
INCLUDES = Path("/usr/share/povray-3.7/include")
MISSING = "{} is not there; install POV-Ray and its examples: apt-get install povray povray-examples (or call scripts/setup.sh povray)"
QUOTED = re.compile(r'"([^"/\\\n]+)"')
READ_FOR_MORE = {".pov", ".inc"}
# The way of smoothing that looks at nothing beyond a pixel's own corners, without chance: a tile is the same as that part of the whole.
QUALITY = {"Antialias": "On", "Sampling_Method": 2, "Antialias_Threshold": 0.3, "Jitter": "Off", "Display": "Off", "Work_Threads": 1}


@dataclass(frozen=True)
class Tile:
    """Pixels of a picture, counted from 0; `right` and `bottom` are the first ones beyond."""

    name: str
    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True)
class Shooting:
    """How each frame is rendered and cut."""

    columns: int = 2
    rows: int = 3
    width_pixels: int = 400
    frames: int = 1

    @property
    def height_pixels(self) -> int:
        return self.width_pixels * 3 // 4

    def tiles(self) -> list[Tile]:
        across, down = cuts(self.width_pixels, self.columns), cuts(self.height_pixels, self.rows)
        return [
            Tile(f"r{row}c{column}", across[column], down[row], across[column + 1], down[row + 1])
            for row in range(self.rows)
            for column in range(self.columns)
        ]

    def clock(self, frame: int) -> float:
        """POV-Ray's time: 0 in the first frame, 1 in the last."""
        return frame / (self.frames - 1) if self.frames > 1 else 0.0

    def check(self) -> None:
        if min(self.columns, self.rows, self.frames) < 1:
            sys.exit("there must be at least one frame, and one tile across and down")
        # POV-Ray takes a last row or column of 1 or less for a share of the whole.
        if self.columns * 2 > self.width_pixels or self.rows * 2 > self.height_pixels:
            sys.exit(f"a picture of {self.width_pixels} x {self.height_pixels} pixels is too small for {self.columns} x {self.rows} tiles")


def cuts(pixels: int, parts: int) -> list[int]:
    return [pixels * part // parts for part in range(parts + 1)]


def files_of(scene: Path, includes: Path = INCLUDES) -> dict[str, Path]:
    """The scene and every file that it, or what it includes, names between quotes: text, fonts, maps, pictures."""
    found, waiting = {scene.name: scene}, [scene]
    while waiting:
        path = waiting.pop()
        if path.suffix.lower() not in READ_FOR_MORE:
            continue
        for name in QUOTED.findall(path.read_text(encoding="latin-1")):
            place = next((place / name for place in (scene.parent, includes) if (place / name).is_file()), None)
            if place is not None and name not in found:
                found[name] = place
                waiting.append(place)
    return found


def find_scene(name: str, examples: Path = EXAMPLES) -> Path:
    if not examples.is_dir():
        sys.exit(MISSING.format(examples))
    found = sorted(path for path in examples.rglob("*.pov") if path.stem == name)
    if not found:
        sys.exit(f"{examples} has no scene {name}.pov; --list names those that are there")
    return found[0]


def tile_ini(scene: str, tile: Tile, shooting: Shooting, frame: int) -> str:
    """POV-Ray counts rows and columns from 1, both ends included."""
    said = {
        "Input_File_Name": f"{scene}/scene/{scene}.pov",
        "Library_Path": f"{scene}/scene",
        "Width": shooting.width_pixels,
        "Height": shooting.height_pixels,
        "Start_Column": tile.left + 1,
        "End_Column": tile.right,
        "Start_Row": tile.top + 1,
        "End_Row": tile.bottom,
        "Clock": f"{shooting.clock(frame):.6f}",
        **QUALITY,
    }
    return "".join(f"{key}={value}\n" for key, value in said.items())


def contents(scene: Path, shooting: Shooting) -> Iterator[tuple[str, bytes]]:
    """What is to lie in the scene's directory, by relative path."""
    name = scene.stem
    for file, path in files_of(scene).items():
        yield f"scene/{file}", path.read_bytes()
    for frame in range(shooting.frames):
        stem = f"{name}-{frame:03d}"
        places = {f"{stem}-{tile.name}": [tile.left, tile.top, tile.right, tile.bottom] for tile in shooting.tiles()}
        said = {"width": shooting.width_pixels, "height": shooting.height_pixels, "tiles": places}
        yield f"{stem}.json", (json.dumps(said, indent=1) + "\n").encode()
        for tile in shooting.tiles():
            yield f"{stem}-{tile.name}.ini", tile_ini(name, tile, shooting, frame).encode()


def write_scene(directory: Path, scene: Path, shooting: Shooting) -> list[Path]:
    """What is there already stays as it is: its time of change is part of its identity, and who holds a copy need not fetch it again."""
    wanted = {directory / scene.stem / name: content for name, content in contents(scene, shooting)}
    for path, content in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
    # The workflow takes every tile that lies here, those of an earlier call too.
    for old in (directory / scene.stem).glob(f"{scene.stem}-*"):
        if old not in wanted:
            old.unlink()
    return sorted(wanted)


def write_scenes(directory: Path, names: Sequence[str], shooting: Shooting) -> None:
    shooting.check()
    scenes = [find_scene(name) for name in names]
    for scene in scenes:
        files = write_scene(directory, scene, shooting)
        tiles = sum(path.suffix == ".ini" for path in files)
        print(f"{scene.stem}: {len(files_of(scene))} files of the scene, {tiles} tiles to render in {directory / scene.stem}")
    forget_others(directory, {scene.stem for scene in scenes})


def forget_others(directory: Path, names: set[str]) -> None:
    """Scenes of an earlier call keep their files and lose their tiles."""
    for kept in directory.glob("*/scene"):
        name = kept.parent.name
        for old in kept.parent.glob(f"{name}-*") if name not in names else ():
            old.unlink()


def parse_tiles(text: str) -> tuple[int, int]:
    columns, _, rows = text.partition("x")
    return int(columns), int(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Puts scenes of POV-Ray's examples into a directory, ready to be rendered in tiles.")
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--scene", action="append", help="name of an example, again for more (default: pawns and woodbox)")
    parser.add_argument("--frames", type=int, default=1, help="pictures of each scene, its clock going from 0 to 1 (default 1)")
    parser.add_argument("--tiles", type=parse_tiles, default=(2, 3), help="tiles across x tiles down (default 2x3)")
    parser.add_argument("--width", type=int, default=400, help="pixels across, a third more than down (default 400)")
    parser.add_argument("--list", action="store_true", help="print the names of the examples")
    given = parser.parse_args()
    if given.list:
        if not EXAMPLES.is_dir():
            sys.exit(MISSING.format(EXAMPLES))
        print("\n".join(sorted({path.stem for path in EXAMPLES.rglob("*.pov")})))
    elif given.directory is None:
        parser.error("where to? give a directory")
    else:
        write_scenes(given.directory, given.scene or ["pawns", "woodbox"], Shooting(*given.tiles, given.width, given.frames))


if __name__ == "__main__":
    main()
