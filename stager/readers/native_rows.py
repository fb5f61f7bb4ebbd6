"""Rows of a foreach that stand elsewhere: in a table beside the workflow, or in the names of files.

May know: templates, text. One rule: the same table and the same listing give the same rows, in an order of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from stager.model.table import NotTable, columns_of, rows_in
from stager.readers.lines import Place
from stager.readers.native_template import HOLE, KEY, TAKEN, Hole, Template
from stager.readers.paths import escape_wildcards

COLUMNS_MAX, TABLE_ROWS_MAX = 200, 100_000
WRONG_TOLD = 20
WILDCARDS_MAX = 4


@dataclass(frozen=True, slots=True)
class Wildcards:
    """A pattern whose `{words}` take what stands in a file's name. `glob`: the pattern with stars for them."""

    keys: tuple[str, ...]
    glob: str
    pattern: re.Pattern[str]

    def rows(self, names: Iterable[str]) -> list[tuple[str, ...]]:
        """Of the names that match, sorted, each once."""
        found = (self.pattern.fullmatch(name) for name in names)
        return sorted({tuple(match[key] for key in self.keys) for match in found if match is not None})


def words_of(text: str, params: Collection[str]) -> tuple[str, ...]:
    """Those in braces that are no parameters, each once."""
    return tuple(dict.fromkeys(match["key"] for match in HOLE.finditer(text) if match["key"] and match["key"] not in params))


def wildcards_of(template: Template) -> Wildcards:
    """`template`: with nothing but literal text between the words. A word that comes twice stands for the same text; none crosses a `/`,
    and each takes as much as it can. Raises ValueError.
    """
    keys = tuple(dict.fromkeys(piece.key for piece in template.pieces if isinstance(piece, Hole)))
    if len(keys) > WILDCARDS_MAX:
        raise ValueError(f"a pattern has at most {WILDCARDS_MAX} words in braces, and this one has {len(keys)}")
    glob, pattern, seen = "", "", set[str]()
    for at, piece in enumerate(template.pieces):
        if isinstance(piece, str):
            glob, pattern = glob + escape_wildcards(piece), pattern + re.escape(piece)
            continue
        if at and isinstance(template.pieces[at - 1], Hole):
            raise ValueError(f"nothing stands between two words in braces before {{{piece.key}}}, so nobody can tell where one ends")
        if piece.part or piece.format:
            raise ValueError(f"{piece.source} takes a text out of a name, as it is; write {{{piece.key}}}")
        glob += "*"
        pattern += f"(?P={piece.key})" if piece.key in seen else f"(?P<{piece.key}>[^/]+)"
        seen.add(piece.key)
    return Wildcards(keys, glob, re.compile(pattern, re.DOTALL))


@dataclass(frozen=True, slots=True)
class Wrong:
    """What cannot be read of a table, and where."""

    place: Place
    message: str


def table_rows(text: str, file: str) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[Wrong]]:
    """The names of the columns and the rows, by the file's ending. Of what is wrong the first few are told."""
    columns: tuple[str, ...] = ()
    rows: list[tuple[str, ...]] = []
    wrong: list[Wrong] = []
    try:
        for line, cells in rows_in(text, file):
            place = Place(line, 1, file)
            if not columns:
                columns, wrong = header_of(cells, place)
            elif len(cells) != len(columns):
                wrong.append(Wrong(place, f"the row has {len(cells)} cells, and the header names {len(columns)} columns"))
            elif any("\0" in cell for cell in cells):
                wrong.append(Wrong(place, "a cell holds a NUL character; no program can be given it"))
            else:
                rows.append(tuple(cell.strip() for cell in cells))
            if len(rows) > TABLE_ROWS_MAX:
                return columns, [], [Wrong(place, f"the table has more than {TABLE_ROWS_MAX:,} rows")]
            if len(wrong) >= WRONG_TOLD:
                break
    except NotTable as error:
        wrong.append(Wrong(Place(error.line, 1, file), f"this is no table: {error}"))
    if not wrong and not columns:
        wrong.append(Wrong(Place(1, 1, file), "the table is empty; its first line names the columns"))
    elif not wrong and not rows:
        wrong.append(Wrong(Place(1, 1, file), "the table has no row below its header, so the job would never run"))
    return columns, rows, wrong


def header_of(cells: list[str], place: Place) -> tuple[tuple[str, ...], list[Wrong]]:
    """`Sample ID` is the key sample_id."""
    if len(cells) > COLUMNS_MAX:
        return tuple(cells), [Wrong(place, f"the table has more than {COLUMNS_MAX} columns")]
    columns = columns_of(cells)
    wrong = [
        Wrong(place, f"the column {cell.strip()!r} cannot be a foreach key; call it by letters, digits and _, as in sample_2")
        for cell, key in zip(cells, columns, strict=True)
        if not KEY.fullmatch(key) or key in TAKEN
    ]
    twice = next((key for key in columns if columns.count(key) > 1), None)
    if twice is not None and not wrong:
        wrong.append(Wrong(place, f"two columns are called {twice!r}; rename one of them"))
    return columns, wrong
