"""Tables as text, read alike wherever they lie."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.scatter import ScatterForm, form_of
from stager.model.table import NotTable, columns_of, is_called_so, key_of, rows_in
from stager.readers.native_rows import TABLE_ROWS_MAX, table_rows
from stager.worker.member_lists import members_in

# What a cell of either kind may hold.
CELLS = st.text(st.characters(exclude_characters="\0\r", exclude_categories=("Cs",)), max_size=8)


def test_rows_have_the_numbers_of_their_lines_and_empty_lines_none() -> None:
    assert list(rows_in("a\tb\r\n\r\n \t\r\n1\t2", "x.TSV")) == [(1, ["a", "b"]), (4, ["1", "2"])]
    assert list(rows_in('a,b\n"1\n2",3\n4,5\n', "x.csv")) == [(1, ["a", "b"]), (3, ["1\n2", "3"]), (4, ["4", "5"])]
    assert list(rows_in("", "x.tsv")) == list(rows_in("\n\n", "x.csv")) == []


@given(rows=st.lists(st.lists(CELLS, min_size=1, max_size=3), max_size=5))
def test_what_a_spreadsheet_writes_is_read(rows: list[list[str]]) -> None:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    there = [row for row in rows if any(cell.strip() for cell in row)]
    assert [cells for _, cells in rows_in(out.getvalue(), "x.csv")] == there


@pytest.mark.parametrize(
    ("name", "text", "line", "said"),
    [
        ("x.csv", 'a\n"b', 2, "unexpected end of data"),
        ("x.csv", 'a\n"b"c\n', 2, "expected after"),
        ("x.tsv", "a\rb\n", 1, "a carriage return stands inside of it; end lines with a line feed"),
        ("x.tsv", "a\n" + "b" * 200_000 + "\n", 2, "field larger than field limit"),
    ],
)
def test_what_is_no_table_has_its_line(name: str, text: str, line: int, said: str) -> None:
    with pytest.raises(NotTable, match=said) as caught:
        list(rows_in(text, name))
    assert caught.value.line == line and "newline=" not in str(caught.value)


def test_columns_are_keys() -> None:
    assert columns_of(["#Sample ID", "fromRow", " n ", "#x"]) == ("sample_id", "from_row", "n", "x")
    assert key_of("2nd") == "2nd" and key_of("--") == ""
    assert is_called_so("a.TXT") and not is_called_so("a.xlsx")
    assert form_of("l.txt", ("x",), directory=False) is ScatterForm.LINES and form_of("l.CSV", ("x",), directory=False) is ScatterForm.TABLE


def test_a_table_that_a_job_makes_is_read_as_one_that_is_there() -> None:
    for text, name in (("#Sample ID\tn\n\na\t1\n", "t.tsv"), ('SampleId,n\r\n"a b",1\r\n', "t.csv")):
        columns, rows, wrong = table_rows(text, name)
        assert columns == ("sample_id", "n") and tuple(rows) == members_in(text, name, columns, ScatterForm.TABLE) and not wrong


def test_of_what_is_wrong_a_few_are_kept_however_many_there_are() -> None:
    _, _, wrong = table_rows("a\tb\n" + "x\n" * 300_000, "t.tsv")
    assert len(wrong) == 20 and wrong[-1].place.line == 21
    _, rows, wrong = table_rows("a\n" + "".join(f"{number}\n" for number in range(TABLE_ROWS_MAX)), "t.tsv")
    assert len(rows) == TABLE_ROWS_MAX and not wrong
