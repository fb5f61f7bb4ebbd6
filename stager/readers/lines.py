"""A YAML text as a tree that remembers where everything stands, and findings that say it.

May know: libyaml's event stream. One rule: every text is bounded (size, depth, nodes after aliases) and means only what is written:
no tags, no merge keys, no duplicate keys, no guessed types; a scalar is its text.
"""

from __future__ import annotations

import difflib
import re
import stat
from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

from stager.model.errors import InvalidInput

TEXT_BYTES_MAX = 128 * 2**20
DEPTH_MAX = 60
EMPTY = "the file is empty; a workflow starts with 'stager: 1'"
TOO_DEEP = f"nested deeper than {DEPTH_MAX} levels"
NODES_MAX = 10_000_000
FINDINGS_SHOWN = 60
FINDINGS_PER_PLACE = 5
# Then the rest of the file is not looked at: what it says would take longer to tell than anybody would read.
FINDINGS_MAX = 1000
KEY_SHOWN_CHARS, MESSAGE_CHARS = 200, 20_000
# A name that a person mistyped is short, and so is the list that it is one of.
NAME_CHARS, NAMES_COMPARED = 64, 10_000
# Of one reading, all hints together: about a second. A stranger chooses the names and how many of them are wrong.
COMPARISONS_MAX = 50_000

# `key: [a] b`: a value that is whole before its line is.
BEHIND_ITS_END = re.compile(r"""[^\s"'{\[]+\s*:\s+(?:\[[^\]]*\]|\{[^}]*\}|"[^"]*"|'[^']*')\s*[^\s#,]""")

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a thing stands: line and column count from 1; 0 when only the file is known. `file`: where it is not the workflow's own."""

    line: int = 0
    column: int = 0
    file: str = ""


@dataclass(slots=True)
class Node:
    """`items` of a mapping are (key, value) pairs, of a sequence its members; a scalar has its text as written."""

    kind: str
    place: Place
    text: str = ""
    plain: bool = False
    items: Sequence[Any] = ()
    weight: int = 1

    @property
    def is_null(self) -> bool:
        return self.kind == "scalar" and self.plain and self.text in ("", "~", "null")


@dataclass(frozen=True, slots=True)
class Finding:
    file: str
    place: Place
    key: str
    message: str

    def __str__(self) -> str:
        """One line, whatever names the file and the key have: they come from strangers, and go to a terminal."""
        where = f"{self.file}:{self.place.line}:{self.place.column}" if self.place.line else self.file
        told = f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"
        return told if told.isprintable() else "".join([each if each.isprintable() else repr(each)[1:-1] for each in told])


class WorkflowInvalid(InvalidInput):
    """All that must be mended before anything can start, in the order of the file."""

    def __init__(self, file: str, findings: Iterable[Finding], left_out: int = 0) -> None:
        self.findings, self.left_out = tuple(findings), left_out
        shown = [str(finding) for finding in self.findings[:FINDINGS_SHOWN]]
        left_out += len(self.findings) - len(shown)
        if left_out:
            shown.append(f"… and {left_out} more, not shown; mend these first")
        super().__init__("\n".join(shown), code="workflow_invalid", subject=file)


class Findings:
    """Collects what is wrong with one file, so that a user mends it in one go."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Finding] = []
        self.left_out = 0
        self.at_place: dict[Place, int] = {}
        comparisons_left.set([COMPARISONS_MAX])

    def note(self, place: Place, key: str, message: str) -> None:
        """One entry of a workflow may stand for 100,000 jobs: a few findings at one place tell enough."""
        at = Place(place.line, place.column) if place.file else place
        finding = Finding(place.file or self.file, at, shortened(key, KEY_SHOWN_CHARS), shortened(message, MESSAGE_CHARS))
        count = self.at_place.get(place, 0)
        if place.line and count >= FINDINGS_PER_PLACE:
            self.left_out += 1
        elif finding not in self.found[-FINDINGS_PER_PLACE:]:
            self.found.append(finding)
            self.at_place[place] = count + 1
            if len(self.found) >= FINDINGS_MAX:
                self.raise_if_any()

    def raise_if_any(self) -> None:
        if self.found:
            ordered = sorted(self.found, key=lambda found: (found.file != self.file, found.file, found.place.line, found.place.column))
            raise WorkflowInvalid(self.file, ordered, self.left_out)

    def __bool__(self) -> bool:
        return bool(self.found)


comparisons_left: ContextVar[list[int] | None] = ContextVar("comparisons_left", default=None)


def nearest(word: str, known: Collection[str]) -> str:
    """`; did you mean X?` or nothing. Nothing, too, once a reading has had its share of comparisons."""
    left = comparisons_left.get()
    if left is not None:
        if left[0] <= 0:
            return ""
        left[0] -= min(len(known), NAMES_COMPARED)
    close = closest(word, known)
    return f"; did you mean {close!r}?" if close is not None else ""


def closest(word: str, known: Collection[str]) -> str | None:
    """The known name that the word looks like; none for a word that is longer than anybody's slip."""
    if len(word) > NAME_CHARS:
        return None
    pool = [name for name in islice(known, NAMES_COMPARED) if len(name) <= NAME_CHARS]
    return next(iter(difflib.get_close_matches(word, pool, n=1, cutoff=0.6)), None)


def shortened(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]}…"


def read_lines(path: Path, shown: str) -> list[str]:
    """Of a file of names: str.splitlines() would cut those that hold U+2028 or U+0085."""
    return [line.removesuffix("\r") for line in read_text(path, shown).split("\n")]


def require_file(path: Path, shown: str) -> None:
    """Of a text that is read more than once, which a pipe gives once and then waits. Raises InvalidInput."""
    try:
        mode = path.stat().st_mode
    except OSError:
        # Told by who reads it.
        return
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        text = f"{shown} is a pipe, a socket or a device; write its text to a file, and name that"
        raise InvalidInput(text, code="bad_request", subject=shown)


def read_text(path: Path, shown: str) -> str:
    """The whole file as UTF-8; bounded before it is read."""
    try:
        with path.open("rb") as stream:
            raw = stream.read(TEXT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise InvalidInput(f"{shown}: there is no such file", code="not_found", subject=shown) from None
    except IsADirectoryError:
        raise InvalidInput(f"{shown} is a directory; name the workflow file in it", code="bad_request", subject=shown) from None
    except OSError as error:
        raise InvalidInput(f"{shown} cannot be read: {error.strerror}", code="bad_request", subject=shown) from None
    if len(raw) > TEXT_BYTES_MAX:
        raise InvalidInput(
            f"{shown} is larger than {TEXT_BYTES_MAX >> 20} MiB; write like jobs as one entry with foreach",
            code="bad_request",
            subject=shown,
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        column = error.start - raw.rfind(b"\n", 0, error.start)
        raise WorkflowInvalid(shown, [Finding(shown, Place(line, column), "", "this byte is not UTF-8; save the file as UTF-8")]) from None


def compose(text: str, shown: str, findings: Findings | None = None, *, empty: str = EMPTY, file: str = "") -> Node:
    """The one document of a YAML text. What libyaml cannot read is raised with its place; what is readable and not allowed (a tag, a key
    twice) goes to `findings`, so that the rest can be looked at too, and is raised as well where none are given. `empty`: what is said of
    a text without a document. `file`: its name, where `findings` are those of another."""
    collected = Findings(shown) if findings is None else findings
    composer = Composer(collected, file)
    try:
        loader = Loader(text)
        try:
            while loader.check_event():
                composer.take(loader.get_event())
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        context = getattr(error, "context", None)
        place = Place(mark.line + 1, mark.column + 1, file) if mark else Place(file=file)
        # Some versions of the library have a limit of their own, and reach it first: they read ahead of what they tell.
        is_deep = "nesting depth" in problem
        said = TOO_DEEP if is_deep else f"this is not YAML: {yaml_advice(text, place, problem, context)}"
        collected.note(place, "", said)
        collected.raise_if_any()
    if findings is None:
        collected.raise_if_any()
    if composer.root is None or composer.root.is_null:
        raise WorkflowInvalid(shown, [Finding(shown, Place(1, 1), "", empty)])
    return composer.root


def yaml_advice(text: str, place: Place, problem: str, context: str | None) -> str:
    """The finding of libyaml, in words of the line that it is in."""
    lines = text.split("\n")
    line = lines[place.line - 1] if 0 < place.line <= len(lines) else ""
    blank = line[: len(line) - len(line.lstrip())]
    if "\t" in blank:
        return "a tab indents this line; indent with spaces"
    if problem.startswith("mapping values are not allowed"):
        above = next((each for each in reversed(lines[: place.line - 1]) if each.strip()), "")
        if len(blank) > len(above) - len(above.lstrip()) and place.column == len(line.partition(":")[0]) + 1:
            return "this line is indented further than the one above it, which has a value already; indent both alike"
        return "a second ': ' in one line; put the value in quotes, or write key: | and the text below it"
    if context and "flow" not in context and "block mapping" in context and not line.lstrip().startswith(("-", "}", "]")):
        if re.match(BEHIND_ITS_END, line.lstrip()):
            return "text stands behind a closing } ] or quote; put the whole value in quotes"
        return f"this line is indented by {len(blank)}, which fits none of the keys above it; indent it as the keys that it belongs to"
    advice = "; text with any of : # { } [ ] , & * ! | > ' \" % @ ` in it may need quotes"
    return problem + (f" ({context})" if context else "") + advice


class Composer:
    """Builds the tree out of events. Own, because libyaml's composer recurses without a bound and follows aliases without counting."""

    def __init__(self, findings: Findings, file: str = "") -> None:
        self.findings, self.file = findings, file
        self.root: Node | None = None
        self.open: list[tuple[Node, list[Any], Node | None, set[str]]] = []
        self.anchors: dict[str, Node | None] = {}
        self.documents = 0

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.ScalarEvent):
            self.check_tag(event)
            node = Node("scalar", self.place_of(event), event.value, not event.style)
            self.name_anchor(event, node)
            self.put(node)
        elif isinstance(event, yaml.CollectionStartEvent):
            self.start(event, "mapping" if isinstance(event, yaml.MappingStartEvent) else "sequence")
        elif isinstance(event, yaml.CollectionEndEvent):
            node, _, anchor_node, _ = self.open.pop()
            if node.kind == "mapping":
                node.items = [pair for pair in node.items if pair[0].kind == "scalar"]
            if anchor_node is not None:
                self.anchors[anchor_node.text] = node
            self.put(node)
        elif isinstance(event, yaml.AliasEvent):
            self.follow(event)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            if self.documents > 1:
                self.stop(event, "a second document starts here; a workflow file holds one")

    def start(self, event: yaml.CollectionStartEvent, kind: str) -> None:
        self.check_tag(event)
        if len(self.open) >= DEPTH_MAX:
            self.stop(event, TOO_DEEP)
        anchor = Node("scalar", self.place_of(event), event.anchor) if event.anchor else None
        if anchor is not None:
            self.anchors[anchor.text] = None
        items: list[Any] = []
        self.open.append((Node(kind, self.place_of(event), items=items), items, anchor, set()))

    def put(self, node: Node) -> None:
        """A node is complete: hand it to what it lies in. Weights add up, so an alias counts as all that it stands for."""
        if not self.open:
            self.root = node
            return
        above, items, _, keys = self.open[-1]
        above.weight += node.weight
        if above.weight > NODES_MAX:
            self.findings.note(node.place, "", f"aliases make this more than {NODES_MAX:,} values")
            self.findings.raise_if_any()
        if above.kind == "sequence":
            items.append(node)
        elif items and items[-1][1] is None:
            items[-1] = (items[-1][0], node)
        else:
            self.put_key(items, node, keys)

    def put_key(self, items: list[Any], node: Node, keys: set[str]) -> None:
        if node.kind != "scalar":
            self.findings.note(node.place, "", "a key must be a plain word; quote it if it holds special characters")
        elif node.text == "<<" and node.plain:
            self.findings.note(node.place, "<<", "merge keys are not read; write the values out, or put what jobs share under 'defaults:'")
            node = replace(node, kind="dropped")
        elif node.text in keys:
            self.findings.note(node.place, node.text, "the same key twice; keep one of them")
            node = replace(node, kind="dropped")
        keys.add(node.text)
        items.append((node, None))

    def follow(self, event: yaml.AliasEvent) -> None:
        name = event.anchor or ""
        node = self.anchors.get(name)
        if node is None:
            inside = name in self.anchors
            self.stop(event, f"alias *{name} " + ("stands inside what it names" if inside else "names no anchor before it"))
        else:
            self.put(node)

    def name_anchor(self, event: yaml.NodeEvent, node: Node) -> None:
        if event.anchor:
            self.anchors[event.anchor] = node

    def check_tag(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        if event.tag:
            self.findings.note(self.place_of(event), event.tag[:80], "tags are not read; leave it out")

    def stop(self, event: yaml.Event, message: str) -> None:
        self.findings.note(self.place_of(event), "", message)
        self.findings.raise_if_any()

    def place_of(self, event: yaml.Event) -> Place:
        mark = event.start_mark
        return Place(mark.line + 1, mark.column + 1, self.file) if mark is not None else Place(file=self.file)
