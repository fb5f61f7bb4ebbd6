"""Draws the diagrams of states in docs/architecture.md from the tables of transitions.

    python scripts/state_diagrams.py

May know: the tables. One rule: the page is written between its marks and nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from pathlib import Path

from stager.scheduler.states import COPY_TRANSITIONS, JOB_TRANSITIONS, RUN_TRANSITIONS, TRANSFER_TRANSITIONS

PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
TABLES: dict[str, Mapping[StrEnum | None, Collection[StrEnum | None]]] = {
    "job": {None: [next(iter(JOB_TRANSITIONS))], **JOB_TRANSITIONS},
    "copy": {**COPY_TRANSITIONS},
    "transfer": {**TRANSFER_TRANSITIONS},
    "run": {**RUN_TRANSITIONS},
}
BEGIN, END = "<!-- states of a {kind}: scripts/state_diagrams.py -->", "<!-- end of states -->"


def diagram(table: Mapping[StrEnum | None, Collection[StrEnum | None]]) -> str:
    """In the order of the table. `[*]`: there is none."""
    rank = {state: index for index, state in enumerate(table)}
    rows = [(old, new) for old, news in table.items() for new in sorted(news, key=rank.__getitem__)]
    arrows = "".join(f"    {old or '[*]'} --> {new or '[*]'}\n" for old, new in rows)
    return f"```mermaid\nstateDiagram-v2\n{arrows}```\n"


def drawn(page: str) -> str:
    """The page with its diagrams as the tables have them. Raises ValueError where a mark is missing."""
    for kind, table in TABLES.items():
        begin = BEGIN.format(kind=kind) + "\n"
        start = page.index(begin) + len(begin)
        page = page[:start] + diagram(table) + page[page.index(END, start) :]
    return page


def main() -> None:
    PAGE.write_text(drawn(PAGE.read_text()))


if __name__ == "__main__":
    main()
