"""Paths inside sandboxes and below origins, and glob patterns over them.

May know: text only. One rule: a path that leaves `clean_path` is relative, `/`-separated, has no `.` or `..`, and stays where it is
joined to.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import lru_cache

NAME_BYTES_MAX = 255
PATH_BYTES_MAX = 4000
RESERVED_PREFIX = ".stager"
# Images of containers that are no files.
REGISTRY = re.compile(r"(?:docker|oras|library|shub)://")
# What `**/` stands for.
DIRECTORIES = "(?:[^/.][^/]*/)*"
QUICK = re.compile(r"[^/.\0\ud800-\udfff][^/\0\ud800-\udfff]{0,59}(?:/[^/.\0\ud800-\udfff][^/\0\ud800-\udfff]{0,59}){0,9}")


def clean_path(text: str) -> str:
    """`./a//b` -> `a/b`. Raises ValueError that says what is wrong with the path and what to write."""
    if QUICK.fullmatch(text):
        return text
    if not text:
        raise ValueError("the path is empty; name a file")
    if "\0" in text:
        raise ValueError("the path holds a NUL character; no file can be called so")
    if text.startswith("/"):
        raise ValueError(f"{text!r} is absolute; write it relative to the sandbox or to the origin's URL")
    names = [name for name in text.split("/") if name not in ("", ".")]
    if ".." in names:
        raise ValueError(f"{text!r} leaves its directory by '..'; write a path that stays inside")
    if not names:
        raise ValueError(f"{text!r} names the directory itself; name a file in it")
    if any(name.startswith(RESERVED_PREFIX) for name in names):
        raise ValueError(f"{text!r} is reserved: names that start with {RESERVED_PREFIX!r} belong to stager; choose another")
    try:
        sizes = [len(name.encode("utf-8")) for name in names]
    except UnicodeEncodeError:
        raise ValueError(f"{text!r} is not UTF-8; rename the file") from None
    if max(sizes) > NAME_BYTES_MAX or sum(sizes) + len(sizes) > PATH_BYTES_MAX:
        raise ValueError(f"{text[:60]!r}… is too long: a name may have {NAME_BYTES_MAX} bytes and a path {PATH_BYTES_MAX}")
    return "/".join(names)


def has_wildcard(text: str) -> bool:
    return any(sign in text for sign in "*?[")


def escape_wildcards(text: str) -> str:
    """The pattern that matches just this text."""
    return re.sub(r"([*?[])", r"[\1]", text) if has_wildcard(text) else text


@lru_cache(maxsize=4096)
def pattern_of(glob: str) -> re.Pattern[str]:
    """`*` and `?` stay within a name and skip a leading dot, `**/` crosses directories, `[a-z]` and `[!a]` are sets. Raises ValueError.

    Patterns come from strangers, and a match holds up the whole process: what stands between two `**` or two `*` is looked for once, at
    the first place where it is (`(?>`), which is good enough since what follows may begin anywhere behind it.
    """
    runs: list[list[str]] = [[]]
    names = glob.split("/")
    for name in names[:-1]:
        runs.append([]) if name == "**" else runs[-1].append(name_pattern(name) + "/")
    last = rf"{DIRECTORIES}[^/.][^/]*" if names[-1] == "**" else name_pattern(names[-1])
    first, *others = ["".join(run) for run in runs]
    if not others:
        return re.compile(first + last, re.DOTALL)
    between = "".join(rf"(?>{DIRECTORIES}?{run})" for run in others[:-1] if run)
    return re.compile(rf"{first}{between}{DIRECTORIES}{others[-1]}{last}", re.DOTALL)


def may_match_below(glob: str, directory: str) -> bool:
    """Whether files below a directory could match."""
    names = glob.split("/")
    return any(pattern_of("/".join(names[:end])).fullmatch(directory) for end in range(1, len(names)))


def name_pattern(name: str) -> str:
    parts, position = [""], 0
    while position < len(name):
        sign = name[position]
        if sign == "*":
            parts.append("")
        elif sign == "?":
            parts[-1] += "[^/]"
        elif sign == "[":
            end = name.find("]", position + 2 if name[position + 1 : position + 2] != "!" else position + 3)
            if end < 0:
                raise ValueError(f"{name!r} has a '[' without ']'; write '[[]' for the character itself")
            members = name[position + 1 : end]
            negated = members.startswith("!")
            members = re.sub(r"([\\\[\]^&~|])", r"\\\1", members.removeprefix("!"))
            try:
                re.compile(f"[{members}]")
            except re.error:
                raise ValueError(f"{name!r} has a range whose end comes before its start; write it as in '[a-z]'") from None
            parts[-1] += f"(?!/)[{'^' if negated else ''}{members}]"
            position = end
        else:
            parts[-1] += re.escape(sign)
        position += 1
    visible = "(?=[^/.])" if name[:1] in ("*", "?", "[") and name[:3] != "[.]" else ""
    if len(parts) == 1:
        return visible + parts[0]
    return visible + parts[0] + "".join(f"(?>[^/]*?{part})" for part in parts[1:-1] if part) + "[^/]*" + parts[-1]


def fixed_directory(glob: str) -> str:
    """The longest directory that every match lies below: `raw/m31/*.fits` -> `raw/m31`; wildcards in brackets are undone."""
    names = []
    for name in glob.split("/")[:-1]:
        if has_wildcard(re.sub(r"\[[*?[]\]", "", name)):
            break
        names.append(re.sub(r"\[([*?[])\]", r"\1", name))
    return "/".join(names)


class NameIndex:
    """Finds the names a glob matches without looking at all of them: by the fixed text before its first or after its last wildcard."""

    def __init__(self, names: Iterable[str]) -> None:
        self.forward = sorted(names)
        self.backward = sorted(name[::-1] for name in self.forward)

    def match(self, glob: str) -> list[str]:
        """Sorted. Raises ValueError on a pattern that cannot be read."""
        pattern = pattern_of(glob)
        head, tail = re.split(r"[*?[]", glob, maxsplit=1)[0], re.split(r"[*?\]]", glob)[-1][::-1]
        by_head, by_tail = between(self.forward, head), between(self.backward, tail)
        if by_head[1] - by_head[0] <= by_tail[1] - by_tail[0]:
            candidates = self.forward[by_head[0] : by_head[1]]
        else:
            candidates = sorted(name[::-1] for name in self.backward[by_tail[0] : by_tail[1]])
        return [name for name in candidates if pattern.fullmatch(name)]


def between(names: list[str], prefix: str) -> tuple[int, int]:
    """The slice of a sorted list that starts with the prefix."""
    return bisect_left(names, prefix), bisect_left(names, prefix + "\U0010ffff") if prefix else len(names)
