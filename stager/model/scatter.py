"""Jobs that are decided at run time: what they scatter over, and the members that another job's output names.

May know: text. One rule: the members of a scatter are found once, and all that is made of them follows from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from stager.model.record import Record
from stager.model.table import SEPARATORS

MEMBERS_MAX = 100_000
# A text of lines ends in .txt as a rule, though a table beside a workflow may, too.
TABLE_ENDINGS = tuple(ending for ending in SEPARATORS if ending != ".txt")
Rows = tuple[tuple[str, ...], ...]


class ScatterForm(StrEnum):
    """LINES: a text, a member in each line. TABLE: its first line names the columns. DIRECTORY: the names in an output that is one."""

    LINES = "lines"
    TABLE = "table"
    DIRECTORY = "directory"


class Scatter(Record):
    """Jobs of an entry are those that `over`, an output of the job `maker`, names members for. `name`: the entry, and in brackets which of
    its lists, where each of its foreach values has one. `keys`: what a member's values are called. `rows` None: that is not known yet, and
    `jobs` stand for what it will be, and `follow` are there because of these. `said`: the workflow says how many to expect.
    """

    name: str
    over: str
    keys: tuple[str, ...]
    maker: str
    form: ScatterForm
    jobs: tuple[str, ...] = ()
    rows: Rows | None = None
    said: bool = False
    follow: tuple[str, ...] = ()

    @property
    def entry(self) -> str:
        return entry_name(self.name)

    @property
    def what(self) -> str:
        return f"{self.over!r}, over which {self.entry!r} scatters"


def entry_name(name: str) -> str:
    """The entry of the workflow that a job or a scatter is of."""
    return name.partition("[")[0]


def form_of(over: str, keys: Sequence[str], *, directory: bool) -> ScatterForm:
    if directory:
        return ScatterForm.DIRECTORY
    return ScatterForm.TABLE if len(keys) > 1 or over.lower().endswith(TABLE_ENDINGS) else ScatterForm.LINES


def unknown(scatters: Iterable[Scatter]) -> list[Scatter]:
    return [each for each in scatters if each.rows is None]


def assumed_jobs(scatters: Iterable[Scatter]) -> frozenset[str]:
    """Those that stand for jobs that are not known yet: none of them can begin."""
    return frozenset(job for each in scatters if each.rows is None for job in each.jobs)


def standing_jobs(scatters: Iterable[Scatter]) -> frozenset[str]:
    """All that are only there because members are assumed, with those that go over what the assumed ones make."""
    return frozenset(job for each in scatters if each.rows is None for job in (*each.jobs, *each.follow))
