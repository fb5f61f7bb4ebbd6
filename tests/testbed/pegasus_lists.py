"""Made-up lists for pegasus-transfer, with the files they speak of.

May know: what both programs are to do alike. One rule: a seed gives one case, the same in each directory. What stager-transfer does
otherwise on purpose is not made here, but said by name in tests/unit/test_pegasus_differences.py.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.testbed.pegasus import transfer, url

NAMES = (
    "f.a",
    "with space",
    "semi;colon",
    "amp&er",
    "star*",
    "ümlaut",
    "-dash",
    "#hash",
    'quo"te',
    "~tilde",
    "back\\slash",
    ".dot",
    "a" * 180,
)
SIZES = (0, 1, 7, 4096, 70_001)
MODES = (0o644, 0o600, 0o755, 0o444, 0o664)


@dataclass
class Case:
    entries: list[dict[str, Any]] = field(default_factory=list)
    options: list[str] = field(default_factory=list)


def spelled(dice: random.Random, path: Path, root: Path, relative: bool = False) -> str:
    """One of the ways to write the URL of a local file. `root` is the working directory."""
    text = str(path)
    inside = str(path.relative_to(root))
    ways = [f"file://{text}", f"file://localhost{text}", f"file:{text}", f"file://$ROOT/{inside}", f"file://${{ROOT}}/./{inside}"]
    ways += [f"file:{inside}", f"file://{inside}", f"file://./{inside}"] if relative else []
    return dice.choice(ways if ":" in text else [*ways, text])


def filled(dice: random.Random, path: Path, mode: int | None = None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(dice.randbytes(dice.choice(SIZES)))
    path.chmod(dice.choice(MODES) if mode is None else mode)


def sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.seek(300_000)
        file.write(b"in the middle")
        file.truncate(900_000)


def source_made(dice: random.Random, path: Path, bad: bool) -> None:
    """A source as it may be met. The bad ones are those that both programs refuse."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if bad:
        way = dice.randrange(3)
        if way == 1:
            path.mkdir()
        elif way == 2:
            path.symlink_to("nowhere")
        return
    way = dice.randrange(8)
    if way == 0:
        sparse(path)
    elif way == 1:
        filled(dice, path.with_name("real"))
        path.symlink_to("real")
    else:
        filled(dice, path)


def destination_made(dice: random.Random, path: Path, source: Path, good: bool) -> None:
    """What may be at the destination before. With some of it neither program succeeds."""
    way = dice.randrange(8 if good else 11)
    if way < 4:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    if way < 6:
        filled(dice, path)
    elif way == 6:
        path.mkdir()
    elif way == 7:
        filled(dice, path.parent / "elsewhere" / "target")
        path.symlink_to("elsewhere/target")
    elif way == 8:
        path.symlink_to("not there")
    elif way == 9:
        filled(dice, path.parent / "elsewhere" / "in it")
        path.symlink_to("elsewhere")
    elif source.is_file() and not source.is_symlink():
        os.link(source, path)


def one_transfer(dice: random.Random, root: Path, number: int, protocols: tuple[str, str], copied: bool, good: bool) -> dict[str, Any]:
    place = root / f"t{number}"
    name = dice.choice(NAMES)
    count = dice.choice((1, 1, 1, 2, 3))
    priorities = dice.sample(range(1, 200), count)
    best = max(range(count), key=lambda index: priorities[index])
    sources = []
    for index in range(count):
        path = place / f"s{index}" / name
        share = 0.6 if count > 1 and index == best else 0.0 if good else 0.25
        source_made(dice, path, bad=dice.random() < share)
        text = spelled(dice, path, root, copied)
        if protocols[0] == "symlink":
            text = f"symlink://{path}"
        sources.append(url(text, f"site-{index}", priority=priorities[index]))
    target = place / "d" / dice.choice(("", "deep/er/")) / dice.choice((name, "other name"))
    destination_made(dice, target, place / f"s{best}" / name, good)
    text = spelled(dice, target, root, copied) if protocols[1] == "file" else f"{protocols[1]}://{target}"
    text += dice.choice(("", "", "", "", "/")) if target.is_dir() else ""
    more: dict[str, Any] = {"id": number, "linkage": dice.choice(("input", "output"))}
    if dice.random() < 0.5:
        more["lfn"] = name
    if protocols[1] == "symlink" and dice.random() < 0.4:
        more["verify_symlink_source"] = dice.random() < 0.5
    return transfer(sources, url(text, "the-dest"), **more)


def transfers(seed: int, root: Path, count: int = 40) -> Case:
    """Every third list goes well as a whole, so that exit code 0 is compared too."""
    dice = random.Random(f"transfers {seed}")
    case = Case()
    pairs = [("file", "file")] * 6 + [("file", "symlink"), ("symlink", "symlink"), ("file", "moveto")]
    if seed % 4 == 3:
        case.options = ["-s"]
    for number in range(count):
        protocols = dice.choice(pairs)
        copied = protocols == ("file", "file") and not case.options
        case.entries.append(one_transfer(dice, root, number, protocols, copied, good=seed % 3 == 0))
    return case


def removals(seed: int, root: Path, count: int = 40) -> Case:
    """Every third list goes well as a whole."""
    dice = random.Random(f"removals {seed}")
    good = seed % 3 == 0
    case = Case()
    for number in range(count):
        place = root / f"r{number}" / dice.choice(NAMES)
        place.parent.mkdir(parents=True)
        to_remove(dice, place)
        recursive: Any = True if good else dice.choice((True, False, "True", "False", "yes", "0"))
        ending = "" if place.is_symlink() or (good and not place.is_dir()) else dice.choice(("", "", "", "/"))
        linked = dice.random() < 0.2 and not (good and place.is_dir())
        text = f"symlink://{place}" if linked else spelled(dice, place, root) + ending
        case.entries.append({"type": "remove", "id": number, "target": url(text, "x", recursive=recursive)})
    filled(dice, root / "keep" / "kept")
    return case


def to_remove(dice: random.Random, place: Path) -> None:
    way = dice.randrange(5)
    if way == 1:
        filled(dice, place)
    elif way == 2:
        tree(dice, place)
    elif way == 3:
        place.symlink_to("../keep")
    elif way == 4:
        place.mkdir()


def tree(dice: random.Random, place: Path) -> None:
    for name in ("a/b/c", "a/d", "e"):
        filled(dice, place / name, 0o444)
    (place / "a" / "out").symlink_to("../../../keep")


def mkdirs(seed: int, root: Path) -> list[Case]:
    """One entry a case: pegasus-transfer dies of two."""
    dice = random.Random(f"mkdirs {seed}")
    (root / "there").mkdir()
    filled(dice, root / "file")
    paths = ["there", "new", "new/er/and/deeper", "with space", "file", "file/below", "there/"]
    return [Case([{"type": "mkdir", "id": 1, "target": url(f"file://{root}/{path}", "x")}]) for path in paths]


def as_text(entries: list[dict[str, Any]]) -> str:
    """The older form; it has no priorities, so only the first source is written."""
    lines = []
    for number, entry in enumerate(entries, 1):
        for word, key in (("src", "src_urls"), ("dst", "dest_urls")):
            lines += [f"# {word} {number} {entry[key][0]['site_label']}", entry[key][0]["url"]]
    return "\n".join(lines) + "\n"
