"""`.stagerignore`: which files beside a workflow stay where they are, by the rules of gitignore.

May know: text. One rule: a name means here what it means to git (tests/unit/test_ignore_rules.py asks git itself).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

NAME = ".stagerignore"


@dataclass(frozen=True, slots=True)
class Rule:
    pattern: re.Pattern[str]
    keeps: bool
    directories_only: bool


class IgnoreRules:
    """Of one directory's file; the last rule that fits counts."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.rules = [rule for line in lines if (rule := rule_of(line)) is not None]

    def ignores(self, path: str, *, is_directory: bool = False) -> bool:
        """Nothing below a directory that is ignored comes back."""
        parts = path.split("/")
        above = ("/".join(parts[:number]) for number in range(1, len(parts)))
        return any(self._says(each, True) for each in above) or self._says(path, is_directory)

    def _says(self, path: str, is_directory: bool) -> bool:
        for rule in reversed(self.rules):
            if (is_directory or not rule.directories_only) and rule.pattern.fullmatch(path):
                return not rule.keeps
        return False


def rule_of(line: str) -> Rule | None:
    text = line.rstrip("\r\n")
    while text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1]
    if not text or text.startswith("#"):
        return None
    keeps, text = text.startswith("!"), text.removeprefix("!")
    only, text = text.endswith("/"), text.removesuffix("/")
    anchored, text = "/" in text, text.removeprefix("/")
    if not text:
        return None
    found = expression(text)
    return Rule(re.compile(found if anchored else f"(?:.*/)?{found}", re.DOTALL), keeps, only) if found is not None else None


def expression(text: str) -> str | None:
    """None: a pattern that fits nothing."""
    found, place = "", 0
    while place < len(text):
        rest = text[place:]
        starts = place == 0 or text[place - 1] == "/"
        if starts and rest.startswith("**/"):
            found, place = f"{found}(?:.*/)?", place + 3
        elif starts and rest == "**":
            found, place = f"{found}.+", len(text)
        elif rest[0] == "*":
            run = len(rest) - len(rest.lstrip("*"))
            found, place = f"{found}[^/]*", place + run
        elif rest[0] == "?":
            found, place = f"{found}[^/]", place + 1
        elif rest[0] == "[":
            read = character_class(rest)
            if read is None:
                return None
            found, place = found + read[0], place + read[1]
        elif rest[0] == "\\":
            if len(rest) < 2:
                return None
            found, place = found + re.escape(rest[1]), place + 2
        else:
            found, place = found + re.escape(rest[0]), place + 1
    return found


def character_class(text: str) -> tuple[str, int] | None:
    """The class that begins here, and its length."""
    place = 2 if text[1:2] in ("!", "^") else 1
    negated, members, first = place == 2, "", place
    while place < len(text) and (text[place] != "]" or place == first):
        if text[place] == "\\" and place + 1 < len(text):
            place += 1
        one = text[place]
        if text[place + 1 : place + 2] == "-" and text[place + 2 : place + 3] not in ("", "]"):
            last = text[place + 2]
            members += f"{re.escape(one)}-{re.escape(last)}" if one <= last else ""
            place += 3
        else:
            members, place = members + re.escape(one), place + 1
    if place >= len(text):
        return None
    inside = members or ""
    return (f"(?!/)[^{inside}]" if negated else f"(?!/)[{inside}]") if inside else "(?!)", place + 1
