"""Makes a YAML text say more, and leaves all that stands in it as it stands: comments, order, quotes, line ends.

The caller gives the wanted values as a tree (`tree_of`): mappings that got keys, sequences that got members at their end, scalars that
changed. Only these are written into the text, where libyaml says that they belong. The result is read again and compared with the tree,
so what cannot be done this way (members behind aliases, odd layouts) is refused and nothing else comes of it. A library that writes
documents back with their comments (ruamel.yaml) lays out anew what it writes: lists get another indent, long lines other breaks. In a
file that a person keeps in version control three new entries shall be three new entries.

May know: libyaml, lines. One rule: a byte that was there is gone only where a scalar changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from stager.model.errors import InvalidInput, Refused
from stager.readers.lines import Loader, Node, WorkflowInvalid, compose

Tree = dict[str, "Tree"] | list["Tree"] | str | None


@dataclass(frozen=True, slots=True)
class Edit:
    """`text` in the place of what stands from `start` to `end`."""

    start: int
    end: int
    text: str


def tree_of(text: str, shown: str) -> Tree:
    """The value of a text. Every scalar is its text; what is shared by an alias is there once for each use. Raises InvalidInput."""
    return plain(compose(text, shown))


def plain(node: Node) -> Tree:
    if node.kind == "mapping":
        return {key.text: plain(value) for key, value in node.items}
    if node.kind == "sequence":
        return [plain(member) for member in node.items]
    return None if node.is_null else node.text


def amended(text: str, wanted: Tree, shown: str) -> str:
    """The text that says `wanted`. Raises Refused where adding to the text does not get there."""
    refusal = Refused(
        f"{shown} is laid out in a way that nothing can be added to safely; print the entries and paste them", code="unsupported"
    )
    try:
        writer = Writer(text)
        writer.bring(yaml.compose(text, Loader=Loader), wanted)
        result = writer.text()
        said = tree_of(result, shown)
    except (WorkflowInvalid, Unwritable, yaml.YAMLError) as problem:
        raise refusal from problem
    if said != wanted:
        raise refusal
    return result


class Unwritable(Exception):
    """The tree asks for something that is no addition and no changed scalar."""


class Writer:
    """Collects the edits that bring a document to a tree. Those of the inside come before those of what is around it, so that of two at
    one place the deeper one stands first.
    """

    def __init__(self, before: str) -> None:
        self.before = before
        self.line_end = "\r\n" if "\r\n" in before else "\n"
        self.edits: list[Edit] = []

    def bring(self, node: yaml.Node | None, wanted: Tree) -> None:
        if isinstance(node, yaml.MappingNode) and isinstance(wanted, dict):
            there = {key.value for key, _ in node.value}
            for key, value in node.value:
                if key.value not in wanted:
                    raise Unwritable
                self.bring(value, wanted[key.value])
            self.add(node, {key: value for key, value in wanted.items() if key not in there})
        elif isinstance(node, yaml.SequenceNode) and isinstance(wanted, list):
            if len(wanted) < len(node.value):
                raise Unwritable
            for member, tree in zip(node.value, wanted, strict=False):
                self.bring(member, tree)
            self.add(node, wanted[len(node.value) :])
        elif isinstance(node, yaml.ScalarNode):
            self.replace(node, wanted)
        else:
            raise Unwritable

    def replace(self, node: yaml.ScalarNode, wanted: Tree) -> None:
        """In the style of a line, also where it was nothing and becomes a mapping."""
        is_null = not node.style and node.value in ("", "~", "null")
        if (None if is_null else node.value) == wanted:
            return
        space = " " if node.start_mark.index == node.end_mark.index else ""
        self.edits.append(Edit(node.start_mark.index, node.end_mark.index, space + in_line(wanted)))

    def add(self, node: yaml.MappingNode | yaml.SequenceNode, news: Mapping[str, Tree] | list[Tree]) -> None:
        if not news:
            return
        if node.flow_style:
            inner = in_line(news)[1:-1]
            at = last_mark(node.value[-1]).index if node.value else node.start_mark.index + 1
            self.edits.append(Edit(at, at, f", {inner}" if node.value else inner))
        else:
            first = node.value[0][0].start_mark if isinstance(node, yaml.MappingNode) else node.start_mark
            lines = yaml.safe_dump(news, sort_keys=False, default_flow_style=False, width=2**30, allow_unicode=True).splitlines()
            at = self.end_of_line(last_mark(node))
            self.edits.append(Edit(at, at, "".join(self.line_end + " " * first.column + line for line in lines)))

    def end_of_line(self, mark: yaml.Mark) -> int:
        """Before the line break, so that a last line without one needs no care. A block of text ends behind its own."""
        index: int = mark.index
        if mark.column == 0 and index:
            return index - (2 if self.before[index - 2 : index] == "\r\n" else 1)
        at = self.before.find("\n", index)
        if at < 0:
            return len(self.before)
        return at - 1 if self.before[at - 1] == "\r" else at

    def text(self) -> str:
        parts, reached = [], 0
        for edit in sorted(self.edits, key=lambda edit: edit.start):
            parts += [self.before[reached : edit.start], edit.text]
            reached = edit.end
        return "".join(parts) + self.before[reached:]


def last_mark(node: yaml.Node | tuple[yaml.Node, yaml.Node]) -> yaml.Mark:
    """Where the text of a node ends. libyaml ends blocks where the next thing begins, behind the comments between."""
    if isinstance(node, tuple):
        return last_mark(node[1])
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        return last_mark(node.value[-1])
    return node.end_mark


def in_line(tree: Tree | Mapping[str, Tree]) -> str:
    dumped: str = yaml.safe_dump(tree, sort_keys=False, default_flow_style=True, width=2**30, allow_unicode=True)
    return dumped.removesuffix("\n").removesuffix("\n...")


def document(tree: Tree) -> str:
    """A whole new text in the layout of Pegasus.api."""
    text: str = yaml.safe_dump(tree, sort_keys=False, default_flow_style=False, width=2**30, allow_unicode=True)
    return text


def list_at(tree: Mapping[str, Tree], key: str, shown: str) -> list[dict[str, Tree]]:
    """The members of a list of mappings; none where nothing is said. Raises InvalidInput."""
    found = tree.get(key)
    if found is None:
        return []
    mappings = [member for member in found if isinstance(member, dict)] if isinstance(found, list) else []
    if not isinstance(found, list) or len(mappings) < len(found):
        raise InvalidInput(f"{shown}: {key}: must be a list of mappings", code="bad_request", subject=shown)
    return mappings
