"""Odd lists that both programs do alike, with the files they speak of, each by name.

May know: what pegasus_lists.py may. One rule: a case that the two do otherwise on purpose is in tests/unit/test_pegasus_differences.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.testbed.pegasus import listed, transfer, url

GOOD_SHA256 = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7"
NAMES = ("a%20b", "a\nb", "tab\there", "trailing ", "é\u0301", "😀", "$a", "$$", "${", "x\\", "a:b", "a&b#c?d", "-n")
Odd = Callable[[Path], str]


def filled(path: Path, mode: int = 0o644) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"data")
    path.chmod(mode)
    return path


def linked(path: Path, to: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(to)
    return path


def copy(root: Path, target: str = "d/f", protocol: str = "file", **more: Any) -> dict[str, Any]:
    return transfer([url(filled(root / "s" / "f"))], url(f"{protocol}://{root}/{target}"), **more)


def removed(*paths: Path | str, recursive: Any = False) -> str:
    return listed(*({"type": "remove", "target": url(path, "x", recursive=recursive)} for path in paths))


def made(path: str) -> str:
    return listed({"type": "mkdir", "target": url(path, "x")})


def names(root: Path) -> str:
    entries = []
    for number, name in enumerate(NAMES):
        source = filled(root / str(number) / name)
        entries.append(transfer([url(f"file://{source}")], url(f"file://{root}/d/{number}/{name}"), lfn=name))
    return listed(*entries)


def modes(root: Path) -> str:
    entries = []
    for number, mode in enumerate((0o4755, 0o2755, 0o1644, 0o000, 0o777, 0o7777)):
        entries.append(transfer([url(filled(root / f"s{number}", mode))], url(root / "d" / str(number))))
        filled(root / "old" / str(number), mode & 0o777)
        entries.append(transfer([url(root / f"s{number}")], url(root / "old" / str(number))))
    return listed(*entries)


def checked(root: Path, metas: dict[str, str], protocol: str = "file") -> str:
    for name, text in metas.items():
        (root / name).write_text(text)
    return listed(copy(root, protocol=protocol, lfn="f", verify_checksum_remote=True))


def meta(sha256: str, lfn: str = "f") -> str:
    return json.dumps([{"_id": lfn, "_attributes": {"checksum.value": sha256}}])


def in_a_circle(root: Path, protocol: str = "file") -> str:
    linked(root / "d" / "f", "g")
    linked(root / "d" / "g", "f")
    return listed(copy(root, protocol=protocol))


def with_directory(root: Path, protocol: str) -> str:
    filled(root / "s" / "x" / "f")
    (root / "d").mkdir()
    return listed(transfer([url(root / "s" / "x")], url(f"{protocol}://{root}/d/x")))


def tree_with(root: Path, path: str) -> Path:
    filled(root / path)
    return root


ODD: dict[str, Odd] = {
    "names": names,
    "modes": modes,
    "destination in a circle": in_a_circle,
    "link in the place of a circle": lambda root: in_a_circle(root, "symlink"),
    "source in a circle": lambda root: listed(transfer([url(linked(root / "s" / "l", "l"))], url(root / "d" / "f"))),
    "parent in a circle": lambda root: listed(copy(root, f"{linked(root / 'd', 'd').name}/f")),
    "a chain of links": lambda root: listed(copy(tree_with(root, "x/r"), linked(linked(root / "l", "m").with_name("m"), "x/r").name)),
    "one destination five times": lambda root: listed(*[copy(root)] * 5),
    "a directory linked": lambda root: with_directory(root, "symlink"),
    "a directory moved": lambda root: with_directory(root, "moveto"),
    "a directory copied": lambda root: with_directory(root, "file"),
    "a link moved": lambda root: listed(transfer([url(linked(filled(root / "r").with_name("l"), "r"))], url(f"moveto://{root}/d/l"))),
    "no source, not to be looked at": lambda root: listed(
        *(transfer([url(root / "n")], url(f"symlink://{root}/d/{n}"), verify_symlink_source=n) for n in (False, 0, None))
    ),
    "no source, false in words": lambda root: listed(
        transfer([url(root / "n")], url(f"symlink://{root}/d/l"), verify_symlink_source="false")
    ),
    "checked and right": lambda root: checked(root, {"a.meta": meta(GOOD_SHA256)}),
    "checked, wrong and then right": lambda root: checked(root, {"a.meta": f"{meta('0')[:-1]}, {meta(GOOD_SHA256)[1:]}"}),
    "checked, and another list is no JSON": lambda root: checked(root, {"a.meta": "[{ no", "b.meta": meta(GOOD_SHA256)}),
    "a link is not checked": lambda root: checked(root, {"a.meta": meta("0")}, "symlink"),
    "what is moved is not checked": lambda root: checked(root, {}, "moveto"),
    "several destinations": lambda root: listed(
        copy(root) | {"dest_urls": [url(root / "low", priority=1), url(root / "high", priority=9)]}
    ),
    "words of other kinds": lambda root: listed(*(copy(root, lfn=lfn, linkage=None) for lfn in (5, None, ["x"]))),
    "a host in a file URL": lambda root: listed(transfer([url(f"file://{filled(root / 'h' / 'f').relative_to(root)}")], url(root / "d"))),
    "slashes and dots": lambda root: listed(
        transfer([url(f"file:///{filled(root / 's' / 'f').parent}//./f")], url(f"file:///{root}/d//e/../f"))
    ),
    "the longest name": lambda root: listed(copy(root, "d/" + "x" * 255)),
    "a name too long": lambda root: listed(copy(root, "d/" + "x" * 256)),
    "a destination that ends with a dot": lambda root: listed(copy(tree_with(root, "d/e"), "d/.")),
    "a file of the kernel": lambda root: listed(transfer([url("/proc/version")], url(root / "d" / "v"))),
    "a list in a list": lambda root: json.dumps([[copy(root)]]),
    "a list with other ends of lines": lambda root: json.dumps([copy(root)], indent=1).replace("\n", "\r\n"),
    "text with more words": lambda root: f"# src 1 local more words\n{filled(root / 's')}\n#   dst  1   lo.cal\n{root}/d/f",
    "remove what is nowhere": lambda root: removed(root / "no", f"{root}/no/such/", recursive=True),
    "remove below a file": lambda root: removed(f"{filled(root / 'f')}/x"),
    "remove below a circle": lambda root: removed(f"{linked(root / 'l', 'l')}/x", recursive=True),
    "remove a circle": lambda root: removed(linked(root / "l", "l"), recursive=True),
    "remove by two dots": lambda root: removed(f"{tree_with(root, 'a/b')}/a/../a", recursive=True),
    "remove a name with a star": lambda root: removed(f"{tree_with(root, 'a/b1')}/a/b*", recursive=True),
    "remove one thing three times": lambda root: removed(*[filled(root / "f")] * 3),
    "remove a name too long": lambda root: removed(root / ("x" * 300)),
    "remove, with nothing for recursive": lambda root: removed(tree_with(root, "d/f") / "d", recursive=None),
    "mkdir by two dots": lambda root: made(f"{root}/a/../b"),
    "mkdir below a link": lambda root: made(f"{linked(tree_with(root, 't/f') / 'l', 't')}/x"),
    "mkdir in the place of a link": lambda root: made(str(linked(root / "l", "nowhere"))),
    "mkdir below a circle": lambda root: made(f"{linked(root / 'l', 'l')}/x"),
    "mkdir here": lambda root: made("file:a/b"),
}


def odd(name: str) -> Callable[[Path], tuple[str, list[str]]]:
    return lambda root: (ODD[name](root), [])
