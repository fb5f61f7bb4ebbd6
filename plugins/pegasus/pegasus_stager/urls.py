"""URLs as pegasus-transfer reads them: file: URLs may be relative and name variables of the environment.

May know: text only; the environment is passed in. One rule: the same text gives the same path as in pegasus-transfer,
or, where that takes a part of a text for the whole, the path that was written.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

# A variable's name has two letters or more there, so it has here.
VARIABLE = re.compile(r"\${?([a-zA-Z][a-zA-Z0-9_]+)}?")
REMOTE = re.compile(r"(\w+)://([\w.\-:@#]*)(/.*)?", re.DOTALL)
# Of a path pegasus-transfer takes what comes before any other white space: another file.
UNCUT = re.compile(r"[\S ]*")
# What a file URL may start with, by its protocol; the rest of it is the path.
LOCAL = {
    "file": re.compile("^file:(//(localhost)?)?"),
    "symlink": re.compile("^symlink:(//)?"),
    "moveto": re.compile("^moveto:(//)?"),
}


class Url:
    """One place: where it is, at which site, how much it is preferred. `unset`: variables in it that the environment does not have.
    `held`: a copy that was made for us, and goes after us. `cut`: pegasus-transfer would read it as another place."""

    __slots__ = ("checkpoint", "cut", "held", "host", "kind", "path", "priority", "protocol", "site", "unset")

    def __init__(self, text: str, site: str, environ: Mapping[str, str]) -> None:
        self.site = site.replace("-", "_")
        self.priority = 0
        self.kind = None
        self.checkpoint = False
        self.held = self.cut = False
        self.unset: list[str] = []
        self.host = ""
        if ":" not in text:
            text = "file://" + text
        self.protocol = text.split(":", 1)[0]
        if self.protocol in LOCAL:
            self.path = self.expanded(LOCAL[self.protocol].sub("", text), environ)
            return
        found = REMOTE.fullmatch(text)
        if not found:
            raise ValueError(f"{text!r} is not a URL: write file:///path, or protocol://host/path")
        self.protocol, self.host, path = found.groups()
        self.path = re.sub("//+", "/", path or "")
        self.cut = not UNCUT.fullmatch(self.path)

    def expanded(self, text: str, environ: Mapping[str, str]) -> str:
        """A variable that is not set is empty, as in pegasus-transfer; who removes must look at `unset`."""

        def value(match: re.Match[str]) -> str:
            if match.group(1) not in environ:
                self.unset.append(match.group(1))
            return environ.get(match.group(1), "")

        return VARIABLE.sub(value, text)

    def __str__(self) -> str:
        return f"{self.protocol}://{self.host}{self.path}"
