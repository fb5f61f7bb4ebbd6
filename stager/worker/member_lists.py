"""Members in the text, table or directory that a job made.

May know: text. One rule: members that are taken stand in the order in which they were written, name nothing outside a sandbox, and come
once each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stager.model.scatter import MEMBERS_MAX, Rows, ScatterForm
from stager.model.table import NotTable, columns_of, rows_in

VALUE_BYTES_MAX = 1000
# Of a value that is told.
SHOWN_CHARS = 60


def members_in(text: str, over: str, keys: Sequence[str], form: ScatterForm) -> Rows:
    """Raises ValueError that says what is wrong and where."""
    if form is ScatterForm.TABLE:
        return in_table(text, over, keys)
    lines = ((number, (line.strip(),)) for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), start=1) if line.strip())
    return checked(("line", number, values) for number, values in lines)


def members_of_directory(names: Iterable[str], over: str) -> Rows:
    """Raises ValueError."""
    return checked(("entry", number, (f"{over}/{name}",)) for number, name in enumerate(sorted(names), start=1))


def in_table(text: str, over: str, keys: Sequence[str]) -> Rows:
    columns: tuple[str, ...] = ()
    places: list[int] = []
    found: list[tuple[str, int, tuple[str, ...]]] = []
    try:
        for line, cells in rows_in(text, over):
            if not columns:
                columns = columns_of(cells)
                places = [place_of_column(columns, key) for key in keys]
            elif len(cells) != len(columns):
                raise ValueError(f"line {line} has {len(cells)} cells, and the header names {len(columns)} columns")
            else:
                found.append(("line", line, tuple(cells[place].strip() for place in places)))
            if len(found) > MEMBERS_MAX:
                break
    except NotTable as error:
        raise ValueError(f"line {error.line} is no row of a table: {error}") from None
    if not columns:
        raise ValueError(f"it is empty, and its first line is to name the columns {', '.join(keys)}")
    return checked(found)


def place_of_column(columns: Sequence[str], key: str) -> int:
    if columns.count(key) != 1:
        what = "no column" if key not in columns else "two columns"
        raise ValueError(f"it has {what} {key!r}; its first line names {', '.join(columns)[:200]}")
    return columns.index(key)


def checked(found: Iterable[tuple[str, int, tuple[str, ...]]]) -> Rows:
    """Raises ValueError for the first that cannot be a member."""
    seen: dict[tuple[str, ...], int] = {}
    for what, number, values in found:
        for value in values:
            wrong = why_not(value)
            if wrong:
                raise ValueError(f"{what} {number} has {value[:SHOWN_CHARS]!r}, which {wrong}")
        if values in seen:
            raise ValueError(f"{what} {number} repeats {', '.join(values)[:SHOWN_CHARS]!r} of {what} {seen[values]}")
        seen[values] = number
        if len(seen) > MEMBERS_MAX:
            raise ValueError(f"it names more than {MEMBERS_MAX:,} members")
    return tuple(seen)


def why_not(value: str) -> str:
    """Empty: it may be a value of a member."""
    if not value:
        return "is empty"
    if not value.isprintable():
        return "holds a character that cannot be printed"
    if len(value.encode()) > VALUE_BYTES_MAX:
        return f"is longer than {VALUE_BYTES_MAX:,} bytes"
    if value.startswith("/") or ".." in value.split("/"):
        return "leads out of a sandbox"
    return ""
