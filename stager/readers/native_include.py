"""`include:` of a native workflow: files with parameters, job types and hints that several workflows share.

May know: YAML trees. One rule: a file is read once, however many include it, and a name is defined in one place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from stager.model.errors import InvalidInput
from stager.readers.lines import Node, Place, compose
from stager.readers.native_beside import Beside
from stager.readers.native_form import Form
from stager.readers.native_spec import FORMAT_VERSION, INCLUDED_KEYS, MERGED_KEYS

FILES_MAX = 100
EMPTY = f"the file is empty; an included file starts with 'stager: {FORMAT_VERSION}' and has types, params or io_hints"


class Including:
    """Puts what included files define beside what the workflow file itself does."""

    def __init__(self, root: Node, path: Path, form: Form, beside: Beside) -> None:
        self.root, self.form, self.beside = root, form, beside
        self.path = Path(os.path.normpath(path))
        self.seen: set[str] = {os.path.realpath(path)}

    def run(self) -> None:
        for node in self.named(self.root, ""):
            self.include(node, (self.path,))

    def named(self, root: Node, key: str) -> list[Node]:
        """Of one file or a list of them."""
        found = next((value for name, value in root.items if name.text == "include"), None)
        return [node for _, node, _ in self.form.texts(found, "include", single=True)]

    def include(self, node: Node, chain: tuple[Path, ...]) -> None:
        """`chain`: the files that include each other, down to the one in which `node` stands."""
        findings = self.form.findings
        if not node.text:
            findings.note(node.place, "include", "the name of the file is missing; write include: FILE")
            return
        try:
            path, text = self.beside.text(chain[-1].parent, node.text)
        except InvalidInput as error:
            findings.note(node.place, "include", str(error))
            return
        places = [os.path.realpath(each) for each in chain]
        if os.path.realpath(path) in places:
            circle = " includes ".join(str(each) for each in (*chain[places.index(os.path.realpath(path)) :], path))
            findings.note(node.place, "include", f"files include each other in a circle: {circle}; take one of these away")
            return
        if os.path.realpath(path) in self.seen:
            return
        self.seen.add(os.path.realpath(path))
        if len(self.seen) > FILES_MAX:
            findings.note(node.place, "include", f"more than {FILES_MAX} files are included; join some of them")
            findings.raise_if_any()
        root = compose(text, str(path), findings, empty=EMPTY, file=str(path))
        if self.fits(root, path):
            self.merge(root)
            for inner in self.named(root, str(path)):
                self.include(inner, (*chain, path))

    def fits(self, root: Node, path: Path) -> bool:
        """Notes what does not belong into an included file."""
        findings = self.form.findings
        if not self.form.expect(root, "", "mapping"):
            return False
        version = next((value for name, value in root.items if name.text == "stager"), None)
        if version is None or version.text != str(FORMAT_VERSION):
            place = version.place if version is not None else root.place
            findings.note(place, "stager", f"an included file starts with stager: {FORMAT_VERSION}, as a workflow file does")
        for name, _ in root.items:
            if name.text not in INCLUDED_KEYS and not name.text.startswith("x-"):
                text = f"{name.text!r} belongs into the workflow file; an included file has {', '.join(INCLUDED_KEYS[1:])}"
                findings.note(name.place, name.text, text)
        return True

    def merge(self, root: Node) -> None:
        for name, value in root.items:
            if name.text in MERGED_KEYS and not value.is_null and self.form.expect(value, name.text, "mapping"):
                self.unite(name, value)

    def unite(self, name: Node, value: Node) -> None:
        own = next((pair for pair in self.root.items if pair[0].text == name.text), None)
        if own is None or own[1].is_null:
            entries = Node("mapping", value.place, items=[*value.items])
            self.root.items = [*[pair for pair in self.root.items if pair is not own], (name, entries)]
            return
        if own[1].kind != "mapping":
            return
        defined = {each.text: each for each, _ in own[1].items}
        for each, what in value.items:
            if each.text in defined:
                where = self.told(defined[each.text].place)
                key = f"{name.text}.{each.text}"
                self.form.findings.note(each.place, key, f"{each.text!r} is defined twice: here, and {where}; take one of them away")
            else:
                own[1].items = [*own[1].items, (each, what)]

    def told(self, place: Place) -> str:
        return f"{place.file or self.path}:{place.line}:{place.column}"


def with_type(node: Node, types: Mapping[str, Node], known: Sequence[str]) -> Node:
    """The entry of a job with the keys of its type, where it does not write them itself; variables of `env` are united."""
    named = next((value.text for name, value in node.items if name.text == "type" and value.kind == "scalar"), "")
    shared = types.get(named)
    if shared is None:
        return node
    own = {name.text: value for name, value in node.items}
    items = list(node.items)
    for name, value in shared.items:
        if name.text not in known:
            continue
        if name.text not in own:
            items.append((name, value))
        elif name.text == "env" and own["env"].kind == value.kind == "mapping":
            items = [(each, united(what, value) if each.text == "env" else what) for each, what in items]
    return Node("mapping", node.place, items=items)


def united(own: Node, shared: Node) -> Node:
    """The entries of both; what both have is its own."""
    written = {name.text for name, _ in own.items}
    return Node("mapping", own.place, items=[*[pair for pair in shared.items if pair[0].text not in written], *own.items])
