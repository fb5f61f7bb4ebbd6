"""`foreach:`: where its values come from, and the rows they make.

May know: forms, references. One rule: the number of rows is known before the first is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby, product

from stager.model.errors import InvalidInput
from stager.model.table import is_called_so, key_of
from stager.readers.lines import Node, nearest
from stager.readers.native_references import Names
from stager.readers.native_rows import table_rows, wildcards_of, words_of
from stager.readers.native_spec import Axis, Reference
from stager.readers.native_template import KEY, TAKEN, Template
from stager.readers.paths import clean_path, has_wildcard

RANGE = re.compile(r"(-?[0-9]{1,9})\.\.(-?[0-9]{1,9})(?:\.\.([0-9]{1,9}))?")
RANGE_VALUES_MAX = 1_000_000


def read_foreach(node: Node | None, key: str, names: Names) -> tuple[Axis, ...]:
    """A mapping key -> values (every combination), with `zip:` a mapping whose keys go in step; or a list of rows; or a text: a pattern
    with words in braces, or a table."""
    if node is None:
        return ()
    if node.kind == "sequence":
        return read_rows(node, key, names)
    if node.kind == "scalar":
        return read_text_of(node, key, names)
    axes: list[Axis] = []
    for group, (name_node, value) in enumerate(names.form.pairs(node, key)):
        if name_node.text == "zip":
            for inner_node, inner in names.form.pairs(value, f"{key}.zip"):
                axes += read_axis(inner_node, inner, f"{key}.zip", group, names)
        else:
            axes += read_axis(name_node, value, key, group, names)
    if not axes and not names.form.findings:
        names.form.findings.note(node.place, key, "foreach has no key; write foreach: {NAME: VALUES}")
    seen: set[str] = set()
    for axis in axes:
        if axis.keys[0] in seen:
            names.form.findings.note(axis.place, axis.key, "the same key twice; choose another name")
        seen.add(axis.keys[0])
    return tuple(axes)


def key_fits(name: str, node: Node, key: str, names: Names) -> bool:
    """Keys become environment variables, so they must not be one that programs look at."""
    if name in names.form.params:
        names.form.findings.note(node.place, key, f"{name!r} is a parameter already; give the foreach key another name")
        return False
    if KEY.fullmatch(name) and name not in TAKEN:
        return True
    lower = key_of(name)
    better = lower if KEY.fullmatch(lower) and lower not in TAKEN and lower not in names.keys else ""
    advice = f"write {better}, and {{{better}}} where it is used" if better else "choose another, as in tile or tile_2"
    names.form.findings.note(
        node.place, key, f"{name!r} cannot be a foreach key, which has lower-case letters, digits and single _; {advice}"
    )
    return False


def read_axis(name_node: Node, node: Node, key: str, group: int, names: Names) -> list[Axis]:
    name, at = name_node.text, f"{key}.{name_node.text}"
    if not key_fits(name, name_node, at, names):
        # So that its uses are no findings of their own.
        return [Axis((name,), node.place, at, group, rows=(("x",),))]
    if node.kind == "sequence":
        told = len(names.form.findings.found)
        values = [value for text, each, its in names.form.texts(node, at) for value in values_in(text, each, its, names)]
        if len(names.form.findings.found) > told:
            return [Axis((name,), node.place, at, group, rows=(("x",),))]
        if not values:
            names.form.findings.note(node.place, at, "the list is empty, so the job would never run; give it values")
        return [Axis((name,), node.place, at, group, rows=tuple((value,) for value in values))]
    listed = names.form.listed(node.text)
    if listed is not None:
        if not listed:
            names.form.findings.note(node.place, at, f"the list {node.text} is empty, so the job would never run; give it values")
        return [Axis((name,), node.place, at, group, rows=tuple((value,) for value in listed))]
    words = words_of(names.form.text(node, at), names.form.params)
    if words and node.kind == "scalar":
        if words != (name,):
            fix = f"a pattern for {name!r} has {{{name}}} and no other word; write foreach: PATTERN to take several from a name"
            names.form.findings.note(node.place, at, f"{node.text!r} takes {', '.join(words)} out of names; {fix}")
            return [Axis((name,), node.place, at, group, rows=(("x",),))]
        return read_pattern(words, node, at, group, names)
    text = filled(names.form.text(node, at), node, at, names)
    if text and (match := RANGE.fullmatch(text)):
        try:
            return [Axis((name,), node.place, at, group, rows=tuple((value,) for value in range_values(match)))]
        except ValueError as error:
            names.form.findings.note(node.place, at, str(error))
            return []
    reference = names.reference(node, at) if text else None
    return [Axis((name,), node.place, at, group, reference=reference)] if reference else []


def values_in(text: str, node: Node, key: str, names: Names) -> tuple[str, ...]:
    """Of one member of a list under foreach: those of a parameter that is a list, or one."""
    listed = names.form.listed(text)
    if listed is not None:
        return listed
    value = value_in(text, node, key, names)
    return () if value is None else (value,)


def value_in(text: str, node: Node, key: str, names: Names) -> str | None:
    """A finding and None where it cannot be one: each value is a variable of its job."""
    value = filled(text, node, key, names)
    if value is None or "\0" not in value:
        return value
    names.form.findings.note(node.place, key, "the value holds a NUL character; no program can be given it")
    return None


def filled(text: str, node: Node, key: str, names: Names) -> str | None:
    """With the values of parameters; other braces stay, since a value may be any text."""
    return names.form.bound(text, node, key, strict=False)


def range_values(match: re.Match[str]) -> list[str]:
    """`1..10`, `0..100..5`, `10..1`; both ends count, and `001..100` keeps its zeros."""
    first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
    if step == 0:
        raise ValueError("a range cannot step by 0")
    if abs(last - first) // step >= RANGE_VALUES_MAX:
        raise ValueError(f"the range has more than {RANGE_VALUES_MAX:,} values")
    padded = any(len(text.lstrip("-")) > 1 and text.lstrip("-").startswith("0") for text in (match[1], match[2]))
    width = max(len(match[1]), len(match[2])) if padded else 0
    values = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    return [f"{value:0{width}d}" for value in values]


def read_rows(node: Node, key: str, names: Names) -> tuple[Axis, ...]:
    """`[{a: 1, b: x}, {a: 2, b: y}]`: the rows themselves."""
    rows: list[tuple[str, ...]] = []
    keys: tuple[str, ...] = ()
    for member, at in names.form.members(node, key):
        row = {name.text: cell(value, f"{at}.{name.text}", names) for name, value in names.form.pairs(member, at)}
        if not row:
            if member.kind == "mapping" or member.is_null:
                names.form.findings.note(member.place, at, "the row is empty; write it as {NAME: VALUE}, or leave it out")
            return ()
        if not keys:
            keys = tuple(row)
            fits = [key_fits(name.text, name, at, names) for name, _ in member.items]
            if not all(fits):
                return ()
        if set(row) != set(keys):
            names.form.findings.note(member.place, at, f"each row has the same keys; the first has {', '.join(keys)}")
            return ()
        rows.append(tuple(row[name] for name in keys))
    if not rows:
        names.form.findings.note(node.place, key, "the list is empty, so the job would never run; give it rows")
        return ()
    return (Axis(keys, node.place, key, 0, rows=tuple(rows)),)


def cell(node: Node, key: str, names: Names) -> str:
    return value_in(names.form.text(node, key), node, key, names) or ""


def read_text_of(node: Node, key: str, names: Names) -> tuple[Axis, ...]:
    """`lab:reads/{sample}_R1.fastq`: a row for each file that is called so; or `samples.tsv`: a row for each line below its header."""
    words = words_of(node.text, names.form.params)
    if words:
        fits = [key_fits(word, node, key, names) for word in words]
        return tuple(read_pattern(words, node, key, 0, names)) if all(fits) else ()
    name = names.form.bound(node.text, node, key)
    return read_table(name, node, key, names) if name is not None else ()


def read_pattern(words: tuple[str, ...], node: Node, key: str, group: int, names: Names) -> list[Axis]:
    parts = names.split(node.text, node, key)
    if parts is None:
        return []
    origin, path = parts
    try:
        if has_wildcard(path):
            raise ValueError(f"{path!r} has *, ? or [ beside words in braces; write a word for each part that changes")
        written = names.within(words).written(path, node, key)
        template = None if written is None else names.form.filled(written, node, key)
        if template is None:
            return []
        clean_path(template.shape)
        found = wildcards_of(template)
    except ValueError as error:
        names.form.findings.note(node.place, key, str(error))
        return []
    reference = Reference(Template((found.glob,)), origin, glob=True)
    if not names.can_be_asked(reference, "", node, key):
        return []
    return [Axis(found.keys, node.place, key, group, reference=reference, wildcards=found)]


def read_table(name: str, node: Node, key: str, names: Names) -> tuple[Axis, ...]:
    findings = names.form.findings
    if not is_called_so(name):
        ways = "a pattern with a word in braces, as in here:{sample}.txt, a table (.tsv or .csv), a list of rows, or {NAME: VALUES}"
        findings.note(node.place, key, f"{name!r} makes no rows; write {ways}")
        return ()
    try:
        path, text = names.form.beside.text(names.form.base, name)
    except InvalidInput as error:
        findings.note(node.place, key, f"{error}; a table is written by its path from the workflow file")
        return ()
    columns, rows, wrong = table_rows(text, str(path))
    for each in wrong:
        findings.note(each.place, key, each.message)
    if not wrong:
        for column in columns:
            key_fits(column, node, key, names)
    return () if wrong else (Axis(columns, node.place, key, 0, rows=tuple(rows)),)


def rows_of(axes: tuple[Axis, ...], values: Mapping[int, list[tuple[str, ...]]], rows_max: int) -> Iterator[dict[str, str]]:
    """Every combination, the last key fastest; what is zipped goes in step. `values` by position of the axis. Raises ValueError."""
    if not axes:
        yield {}
        return
    columns: list[tuple[tuple[str, ...], list[tuple[str, ...]]]] = []
    total = 1
    for _, members in groupby(range(len(axes)), key=lambda position: axes[position].group):
        group = list(members)
        lengths = {len(values[position]) for position in group}
        if len(lengths) > 1:
            counts = ", ".join(f"{axes[position].keys[0]} has {len(values[position])}" for position in group)
            raise ValueError(f"zipped keys need equally many values: {counts}")
        keys = tuple(key for position in group for key in axes[position].keys)
        columns.append((keys, [sum(parts, ()) for parts in zip(*(values[position] for position in group), strict=True)]))
        total *= len(columns[-1][1])
    if total > rows_max:
        raise ValueError(f"foreach makes {total:,} jobs, more than the {rows_max:,} allowed; let one job do more of them")
    keys = sum((column[0] for column in columns), ())
    for combination in product(*(column[1] for column in columns)):
        yield dict(zip(keys, sum(combination, ()), strict=True))


def unknown_set(text: str, known: Mapping[str, object]) -> str:
    """The message for a foreach that names neither a set nor files."""
    ways = "write a set of 'files:', origin:pattern, a pattern over outputs of the jobs above, a list, or a range as in 1..10"
    return f"{text!r} names no files; {ways}{nearest(text, known)}"
