"""Tables: a text with a row in each line, between tabs, or between commas with quotes as spreadsheets write them.

May know: text. One rule: a table is read the same way, whether it lies beside a workflow or a job made it.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Literal

SEPARATORS = {".tsv": "\t", ".tab": "\t", ".txt": "\t", ".csv": ","}


class NotTable(ValueError):
    """What is wrong, and in which line."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def is_called_so(name: str) -> bool:
    return name.lower().endswith(tuple(SEPARATORS))


def rows_in(text: str, name: str) -> Iterator[tuple[int, list[str]]]:
    """(number of its line, cells) of each row in which something stands. `name`: that ends in .csv, or has tabs. Raises NotTable."""
    separator = next((sign for ending, sign in SEPARATORS.items() if name.lower().endswith(ending)), "\t")
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if separator == "," else csv.QUOTE_NONE
    lines = csv.reader(lines_in(text), delimiter=separator, quoting=quoting, strict=True)
    try:
        for cells in lines:
            if any(cell.strip() for cell in cells):
                yield lines.line_num, cells
    except csv.Error as error:
        told = str(error)
        if "new-line character" in told:
            told = "a carriage return stands inside of it; end lines with a line feed"
        raise NotTable(lines.line_num, told) from None


def lines_in(text: str) -> Iterator[str]:
    """With their ends, since a cell in quotes may go on in the next line."""
    return (f"{line}\n" for line in text.replace("\r\n", "\n").removesuffix("\n").split("\n"))


def columns_of(cells: Iterable[str]) -> tuple[str, ...]:
    """The keys that a header names: the first may have a `#` before it."""
    return tuple(key_of(cell.removeprefix("#") if not at else cell) for at, cell in enumerate(cells))


def key_of(cell: str) -> str:
    """`Sample ID` is the key sample_id."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[^A-Za-z0-9]+", "_", cell.strip()).lower().strip("_")
