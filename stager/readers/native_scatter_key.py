"""`scatter:`: what a job scatters over, and what stands for the members until they are known.

May know: forms, references. One rule: what is assumed is of the form that was said, so that a plan can be made of it.
"""

from __future__ import annotations

from stager.model.scatter import MEMBERS_MAX
from stager.readers.lines import Node
from stager.readers.native_foreach import key_fits
from stager.readers.native_form import Fields, integer_of
from stager.readers.native_references import Names
from stager.readers.native_scattering import numbered
from stager.readers.native_spec import SCATTER_KEYS, Axis, ScatterSpec
from stager.readers.native_template import Template

KEYS_MAX = 20
EXPECTED = 1
NOTHING: tuple[Axis, ...] = ()
# Of its axis: with each of the foreach values go all members.
GROUP = -1


def read_scatter(fields: Fields, names: Names, foreach: tuple[Axis, ...]) -> tuple[ScatterSpec | None, tuple[Axis, ...]]:
    """And the axis of its values, of which those assumed stand in the place of the true ones. `foreach`: the axes beside it."""
    node, key, form = fields.get("scatter"), fields.at("scatter"), fields.form
    if node is None or not form.expect(node, key, "mapping"):
        return None, NOTHING
    words = form.fields(node, key, SCATTER_KEYS)
    outer = tuple(name for axis in foreach for name in axis.keys)
    over, directory = read_over(words, names.within(outer))
    keys = tuple(name for name, each, at in form.texts(words.get("as"), words.at("as"), single=True) if key_fits(name, each, at, names))
    if twice := sorted(set(keys) & set(outer)):
        form.findings.note(words.place("as"), words.at("as"), f"{twice[0]!r} is a key of the foreach already; choose another name")
        return None, NOTHING
    if not words.get("as") or not keys or len(set(keys)) < len(keys) or len(keys) > KEYS_MAX:
        form.findings.note(words.place("as"), words.at("as"), "name what a member is called: as: NAME, or as: [NAME, NAME] of a table")
        return None, NOTHING
    if directory and len(keys) > 1:
        form.findings.note(words.place("as"), words.at("as"), "what is in a directory has one value each, its name; write as: NAME")
        return None, NOTHING
    if over is None:
        return None, NOTHING
    # Names of entries begin with that of their directory, which is not known yet where each value has its own.
    rows = read_expected(words, keys, f"{over.constant}/" if directory and over.constant is not None else "")
    said, each = words.get("expect") is not None, over if over.constant is None else None
    return ScatterSpec(over.source, directory, node.place, key, said, each), (Axis(keys, node.place, key, GROUP, rows=rows),)


def read_over(words: Fields, names: Names) -> tuple[Template | None, bool]:
    node, form = words.get("over"), words.form
    if node is None:
        text = "name the output that the members stand in: over: FILE, or over: DIRECTORY/"
        form.findings.note(words.node.place, words.at("over"), text)
        return None, False
    text = form.text(node, words.at("over"))
    path = names.path(text.rstrip("/"), node, words.at("over")) if text else None
    return path, text.endswith("/")


def read_expected(words: Fields, keys: tuple[str, ...], before: str) -> tuple[tuple[str, ...], ...]:
    """`expect: 20`, or members as they may be called: `expect: [chr1, chr2]`, of a table `expect: [{shard: a, size: 1}]`."""
    node, key, form = words.get("expect"), words.at("expect"), words.form
    if node is not None and node.kind == "sequence":
        rows = tuple(row for member, at in form.members(node, key) if (row := expected_row(words, member, at, keys, before)))
        if not rows:
            form.findings.note(node.place, key, "the list is empty; write how many members there may be, or names as they may have them")
        return tuple(dict.fromkeys(rows)) or (("x",) * len(keys),)
    count = words.parsed("expect", most, EXPECTED)
    return numbered(1, count, keys, before)


def most(text: str) -> int:
    if (number := integer_of(text, 1)) > MEMBERS_MAX:
        raise ValueError(f"a job scatters over {MEMBERS_MAX:,} members at most")
    return number


def expected_row(words: Fields, member: Node, at: str, keys: tuple[str, ...], before: str) -> tuple[str, ...]:
    form = words.form
    if len(keys) == 1:
        text = form.text(member, at)
        return (f"{before}{text}",) if text else ()
    row = {name.text: form.text(value, f"{at}.{name.text}") for name, value in form.pairs(member, at)}
    if set(row) != set(keys):
        form.findings.note(member.place, at, f"each of these has the keys {', '.join(keys)}")
        return ()
    return tuple(row[key] for key in keys)
