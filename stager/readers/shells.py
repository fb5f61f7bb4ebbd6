"""The shell that reads the text of a job: what `shell:` says, or the strict one that is taken where nothing is said.

May know: forms, templates, where this machine keeps bash. One rule: a workflow that was read names its shells in full, so that its jobs
run the same way whatever is installed later.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from stager.readers.native_form import Fields
from stager.readers.native_shell import holes_named
from stager.readers.native_template import HOLE, Hole

BASH_PLACES = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
STRICT = ("-euo", "pipefail", "-c")
STRICT_SH = ("/bin/sh", "-eu", "-c")
# Those whose quoting is the one that values are quoted by.
SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "busybox", "posh", "yash"))


def find_bash() -> str | None:
    return next((place for place in BASH_PLACES if os.access(place, os.X_OK)), None)


def strict_shell() -> tuple[str, ...]:
    """Of jobs whose workflow says nothing: each failing command ends them, inside pipelines too where there is bash."""
    bash = find_bash()
    return (bash, *STRICT) if bash else STRICT_SH


def in_image(shell: tuple[str, ...]) -> tuple[str, ...]:
    """The one of a job in a container, whose image has its own bash or none. `shell`: what the workflow says; empty: nothing."""
    return ("bash", *STRICT) if not shell or (shell[0] in BASH_PLACES and shell[1:] == STRICT) else shell


def shell_named(text: str) -> tuple[str, ...]:
    if text == "bash":
        return (find_bash() or "bash", *STRICT)
    if text == "sh":
        return STRICT_SH
    raise ValueError(
        f"{text!r} is no shell that has a name here; choose bash or sh (both end at the first error),"
        " or write a program and its options, as in [/bin/sh, -c]"
    )


def read_shell(fields: Fields, base: tuple[str, ...]) -> tuple[str, ...]:
    """A name, or a program with its options; the text is its last argument."""
    node, key = fields.get("shell"), fields.at("shell")
    if node is None:
        return base
    if node.kind != "sequence":
        return fields.parsed("shell", shell_named, base)
    argv = tuple(fields.form.bound(text, each, at, strict=False) or "" for text, each, at in fields.form.texts(node, key))
    if not argv or not argv[0] or any("\0" in text for text in argv):
        fields.form.findings.note(node.place, key, "a shell is a program and its options, as in [/bin/sh, -c]; the text comes behind them")
        return base
    return argv


def quotes_like_sh(shell: tuple[str, ...]) -> bool:
    return not shell or os.path.basename(shell[0]) in SHELLS


def foreign_text(text: str, keys: Collection[str], program: str) -> tuple[str, tuple[Hole, ...]]:
    """A text that no shell reads, as it is: values reach it by its environment only. Raises ValueError where it looks for one."""
    for match in HOLE.finditer(text):
        if match["key"] in keys:
            hole = Hole(match["key"], match["part"] or "", match["format"] or "")
            where = f"{match[0]} cannot be quoted for {program}, which is no shell that is known here"
            raise ValueError(f"{where}; take the variable {hole.variable} from the environment")
    return text, tuple(dict.fromkeys(holes_named(text, keys)))
