"""Typed reading of a YAML tree: each getter gives a value or notes a finding with its place and the fix.

May know: lines, units. One rule: a getter never raises; it gives the default and the finding is already written down.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from stager.model.units import parse_duration_s, parse_size_bytes
from stager.model.workflow import Origin
from stager.ports import ImageAccess, RegistryImage
from stager.readers.lines import Findings, Node, Place, nearest
from stager.readers.native_beside import Beside
from stager.readers.native_lists import Values
from stager.readers.native_spec import ParamSpec
from stager.readers.native_template import HOLE, Template, template_of

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

KIND_NAMES = {"mapping": "a mapping (key: value)", "sequence": "a list", "scalar": "a single value"}
# As in compose files: a place at the top for what anchors name.
SCRATCH_PREFIX = "x-"
INTEGER = re.compile(r"[0-9]{1,12}")
BOOLEANS = {"true": True, "True": True, "false": False, "False": False}
# As editors of YAML 1.1 read and write them.
ON, OFF = ("on", "true", "True"), ("off", "false", "False")


# What other workflow systems call it.
ELSEWHERE = {
    "cores": "cpus cpu ncpus n_cpus num_cpus threads nthreads cpus_per_task vcpus core",
    "memory": "mem ram mem_mb memory_mb",
    "run": "cmd command commands exec script shell_cmd",
    "after": "depends_on depends needs requires dependencies upstream parents wait_for",
    "timeout": "walltime time_limit max_time runtime",
    "retries": "retry max_retries attempts tries errorStrategy",
    "env": "environment envs variables vars",
    "foreach": "for_each matrix scatter map with_items loop each",
    "inputs": "in reads input_files",
    "outputs": "out writes produces output_files",
    "spill": "spill_origin spill_to spill_dir",
    "on_exists": "overwrite if_exists",
    "on_failure": "on_error fail_fast",
    "origins": "sources remotes storage",
    "finals": "results publish targets",
    "jobs": "tasks steps rules processes",
    "venv": "virtualenv pip requirements",
    "conda": "conda_env mamba micromamba pixi",
}
CALLED_ELSEWHERE = {word: name for name, words in ELSEWHERE.items() for word in words.split()}


def called_otherwise(name: str, known: Collection[str]) -> str:
    """The key that means it here, in this place or another; nothing where no key does."""
    own = CALLED_ELSEWHERE.get(name)
    if own in known:
        return f"; did you mean {own!r}?"
    return ""


class Fields:
    """The keys of one mapping, each known by name."""

    def __init__(self, form: Form, node: Node, key: str, known: Collection[str]) -> None:
        self.form, self.node, self.key = form, node, key
        self.nodes: dict[str, Node] = {}
        for key_node, value in form.pairs(node, key):
            name = key_node.text
            if name in known:
                self.nodes[name] = value
            elif key or not name.startswith(SCRATCH_PREFIX):
                close = called_otherwise(name, known) or nearest(name, known) or unquoted(node) or f"; known here: {', '.join(known)}"
                form.findings.note(key_node.place, form.join(key, name), f"unknown key{close}")

    def __contains__(self, name: str) -> bool:
        return name in self.nodes

    def get(self, name: str) -> Node | None:
        """The node of a key that is there and not empty."""
        node = self.nodes.get(name)
        return None if node is None or node.is_null else node

    def at(self, name: str) -> str:
        return self.form.join(self.key, name)

    def place(self, name: str) -> Place:
        return self.nodes[name].place if name in self.nodes else self.node.place

    def text(self, name: str, default: str = "") -> str:
        """With the values of parameters in it."""
        node = self.get(name)
        found = None if node is None else self.form.bound(self.form.text(node, self.at(name), default), node, self.at(name))
        return default if found is None else found

    def parsed(self, name: str, parse: Callable[[str], T], default: T) -> T:
        """A scalar read by `parse`, whose ValueError is the finding; with the values of parameters in it."""
        node = self.get(name)
        if node is None or node.kind != "scalar":
            if node is not None:
                self.form.expect(node, self.at(name), "scalar")
            return default
        text = self.form.bound(node.text, node, self.at(name))
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            self.form.findings.note(node.place, self.at(name), str(error))
            return default

    def size(self, name: str, default: int | None = None) -> int | None:
        return self.parsed(name, parse_size_bytes, default)

    def duration(self, name: str, default: float | None = None) -> float | None:
        return self.parsed(name, parse_duration_s, default)

    def integer(self, name: str, default: int, *, least: int = 0) -> int:
        return self.parsed(name, lambda text: integer_of(text, least), default)

    def boolean(self, name: str, default: bool) -> bool:
        return self.parsed(name, boolean_of, default)

    def switch(self, name: str, default: bool) -> bool:
        return self.parsed(name, switch_of, default)

    def limit(self, name: str, default: int | None) -> int | None:
        """A size; 0 for `off`."""
        return self.parsed(name, lambda text: 0 if text in OFF else parse_size_bytes(text), default)

    def choice(self, name: str, kind: type[E], default: E) -> E:
        return self.parsed(name, lambda text: choice_of(text, kind), default)


def integer_of(text: str, least: int) -> int:
    if not INTEGER.fullmatch(text) or int(text) < least:
        raise ValueError(f"{text!r} is not a whole number of {least} or more")
    return int(text)


def boolean_of(text: str) -> bool:
    if text not in BOOLEANS:
        raise ValueError(f"{text!r} is neither true nor false; write one of them")
    return BOOLEANS[text]


def switch_of(text: str) -> bool:
    if text not in ON + OFF:
        raise ValueError(f"{text!r} is neither on nor off; write one of them")
    return text in ON


def choice_of(text: str, kind: type[E]) -> E:
    try:
        return kind(text)
    except ValueError:
        known = [member.value for member in kind]
        raise ValueError(f"{text!r} is unknown; choose {' or '.join(known)}{nearest(text, known)}") from None


def texts_in(node: Node) -> Iterator[str]:
    """Of a value and of all keys and values in it."""
    if node.kind == "scalar":
        yield node.text
    for item in node.items:
        for each in item if node.kind == "mapping" else (item,):
            yield from texts_in(each)


def unquoted(node: Node) -> str:
    """`{tile}` without quotes is a mapping in YAML."""
    if node.kind == "mapping" and len(node.items) == 1 and node.items[0][1].is_null:
        name = node.items[0][0].text
        return f'; a value that is put in stands in quotes: "{{{name}}}"'
    return ""


class Form:
    """Reads nodes for one workflow; what is wrong goes to its findings. `declared`: its parameters, and `params` their values, once they
    are read; `used`: those that stand in a text. `types`: the entries under `types:`. `beside`: reads further files, from `base` on.
    `unread`: there is a job of which a finding says all. `images`: asks registries; None: nobody does here. `pulled`: what they said.
    """

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.declared: dict[str, ParamSpec] = {}
        self.params = Values()
        self.used: set[str] = set()
        self.types: dict[str, Node] = {}
        self.beside, self.base = Beside(), Path()
        self.unread = False
        self.origins: dict[str, Origin] = {}
        self.images: ImageAccess | None = None
        self.pulled: dict[str, RegistryImage] = {}

    def bound(self, text: str, node: Node, key: str, *, strict: bool = True) -> str | None:
        """A text that no job's values come into, with those of parameters; a finding and None where a name in it is unknown."""
        if not self.params or "{" not in text:
            return text
        try:
            found = self.filled(template_of(text, self.params, strict=strict), node, key)
        except ValueError as error:
            self.findings.note(node.place, key, str(error))
            return None
        return None if found is None else found.source

    def filled(self, template: Template, node: Node, key: str, clean: Callable[[str], str] | None = None) -> Template | None:
        """With the values of parameters in it; a finding and None where one cannot be written so."""
        if not self.params:
            return template
        self.used.update(template.keys & self.params.keys())
        try:
            return template.bound(self.params, clean)
        except ValueError as error:
            self.findings.note(node.place, key, str(error))
            return None

    def listed(self, text: str) -> tuple[str, ...] | None:
        """The members of the list that the text names and says nothing more; None: it names none."""
        name = self.params.named_alone(text)
        if not name:
            return None
        self.used.add(name)
        return self.params.lists[name]

    def for_each(self, nodes: Iterable[Node], key: str) -> Iterator[None]:
        """Once with each member of the list that these texts name in the place of the list; once where they name none."""
        values, named = self.params, self.lists_in(nodes) if self.params.lists else []
        if len(named) > 1:
            text = f"{' and '.join(named)} are lists, and an entry takes its members from one; write one under foreach"
            self.findings.note(next(iter(nodes)).place, key, text)
            return
        try:
            for each in values.each(named[0]) if named else (values,):
                self.params = each
                yield
        finally:
            self.params = values

    def lists_in(self, nodes: Iterable[Node]) -> list[str]:
        named = {match["key"] for node in nodes for text in texts_in(node) for match in HOLE.finditer(text)}
        return [name for name in self.params.lists if name in named]

    @staticmethod
    def join(key: str, name: str) -> str:
        return f"{key}.{name}" if key else name

    def expect(self, node: Node, key: str, *kinds: str) -> bool:
        if node.kind in kinds and not (node.is_null and "scalar" in kinds):
            return True
        wanted = " or ".join(KIND_NAMES[kind] for kind in kinds)
        seen = "nothing" if node.is_null else KIND_NAMES[node.kind]
        self.findings.note(node.place, key, f"this should be {wanted}, and is {seen}{unquoted(node)}")
        return False

    def text(self, node: Node, key: str, default: str = "") -> str:
        return node.text if self.expect(node, key, "scalar") else default

    def pairs(self, node: Node | None, key: str) -> Iterator[tuple[Node, Node]]:
        """Key and value of a mapping, in the order of writing; nothing where there is nothing."""
        if node is not None and not node.is_null and self.expect(node, key, "mapping"):
            yield from node.items

    def members(self, node: Node | None, key: str, *, single: bool = False) -> Iterator[tuple[Node, str]]:
        """Each member of a list with its key; `single` takes one value as a list of one."""
        if node is None or node.is_null:
            return
        if single and node.kind == "scalar":
            yield node, key
        elif self.expect(node, key, "sequence"):
            for position, member in enumerate(node.items):
                yield member, f"{key}[{position}]"

    def texts(self, node: Node | None, key: str, *, single: bool = False) -> list[tuple[str, Node, str]]:
        return [(member.text, member, at) for member, at in self.members(node, key, single=single) if self.expect(member, at, "scalar")]

    def fields(self, node: Node, key: str, known: Collection[str]) -> Fields:
        return Fields(self, node, key, known)
