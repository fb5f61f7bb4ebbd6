"""Transfers over the links to origins, in a table beside the samples: it is of this machine, not of a job type.

May know: sqlite3, the model. One rule: of each link and direction the newest runs are kept, and of each run the transfers that began
first; which origin it is stands there as a digest, so no name of a host or a user does. A stager that does not know the table leaves it
alone, so the format stays the same.

Small files and large ones are counted apart: thousands of the small would leave nothing that tells of the rate. Those that began first
are kept without a gap, so that of each of them is known how many others were under way when it began. Where one kind of a run is cut off,
what began later of the other looks as if it had been alone, and is not told of.

Copies from node to node are moves over one link more, whatever nodes they are. So are deletes, which move no bytes. How long each waited
for its turn stands in a table of its own, which came later.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import groupby
from math import inf
from operator import attrgetter
from pathlib import Path

from stager.model.link import SMALL_BYTES, Move

# The links of copies and of deletes; all others are digests.
BETWEEN_NODES, DELETES = "between nodes", "deletes"
# (transfer, the digest of its link, the move).
Seen = tuple[str, str, Move]
# Of each link, direction and kind. A run is kept whole, up to the second of these, while all newer ones have fewer than the first.
KEPT, KEPT_OF_RUN = 3_000, 3_000
TABLES = (
    "CREATE TABLE IF NOT EXISTS moves (transfer TEXT PRIMARY KEY, link TEXT NOT NULL, run TEXT NOT NULL, is_fetch INTEGER NOT NULL, "
    "begun_at REAL NOT NULL, ended_at REAL NOT NULL, moved_bytes INTEGER NOT NULL, read_back INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS move_waits (transfer TEXT PRIMARY KEY, waited_s REAL NOT NULL) WITHOUT ROWID",
)
# So many more may stand there until what is not kept is taken away together.
PRUNE_EVERY = 500
KIND = f"link, is_fetch, moved_bytes > {SMALL_BYTES}"
PRUNE_OF_RUN = (
    "DELETE FROM moves WHERE transfer IN (SELECT transfer FROM (SELECT transfer, row_number() OVER "
    f"(PARTITION BY {KIND}, run ORDER BY begun_at, transfer) AS place FROM moves) WHERE place > ?)"
)
PRUNE_RUNS = (
    "WITH runs(link, is_fetch, large, run, count, newest) AS "
    f"(SELECT {KIND}, run, count(*), max(ended_at) FROM moves GROUP BY 1, 2, 3, 4), "
    "after(link, is_fetch, large, run, newer) AS (SELECT link, is_fetch, large, run, sum(count) OVER (PARTITION BY link, is_fetch, large "
    "ORDER BY newest DESC, run ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) FROM runs) "
    f"DELETE FROM moves WHERE ({KIND}, run) IN (SELECT link, is_fetch, large, run FROM after WHERE newer >= ?)"
)
PRUNE_WAITS = "DELETE FROM move_waits WHERE transfer NOT IN (SELECT transfer FROM moves)"
READ = "SELECT link, run, is_fetch, begun_at, ended_at, moved_bytes, read_back, NULL FROM moves"
READ_WAITS = (
    "SELECT link, run, is_fetch, begun_at, ended_at, moved_bytes, read_back, waited_s FROM moves LEFT JOIN move_waits USING (transfer)"
)


def make(db: sqlite3.Connection) -> None:
    for table in TABLES:
        db.execute(table)


def write(db: sqlite3.Connection, seen: Iterable[Seen]) -> None:
    """Within the caller's transaction, as is `prune`. The same transfer again changes nothing."""
    seen = list(seen)
    rows = [
        (transfer, link, move.run, move.is_fetch, move.begun_at, move.ended_at, move.moved_bytes, move.read_back)
        for transfer, link, move in seen
    ]
    db.executemany("INSERT OR IGNORE INTO moves VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
    waits = [(transfer, move.waited_s) for transfer, _, move in seen if move.waited_s is not None]
    db.executemany("INSERT OR IGNORE INTO move_waits VALUES (?, ?)", waits)


def prune(db: sqlite3.Connection) -> None:
    db.execute(PRUNE_OF_RUN, (KEPT_OF_RUN,))
    db.execute(PRUNE_RUNS, (KEPT,))
    db.execute(PRUNE_WAITS)


def read(path: Path, only: str = "") -> dict[str, list[Move]]:
    """By link, without changing anything; of one link alone where it is named. Empty where nothing was measured."""
    if not path.exists():
        return {}
    db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "moves" not in tables:
            return {}
        found: dict[str, list[Move]] = {}
        wanted = (" WHERE link = ?", (only,)) if only else ("", ())
        rows = db.execute(f"{READ_WAITS if 'move_waits' in tables else READ}{wanted[0]} ORDER BY transfer", wanted[1])
        for link, run, is_fetch, begun_at, ended_at, moved_bytes, read_back, waited_s in rows:
            found.setdefault(link, []).append(Move(run, bool(is_fetch), begun_at, ended_at, moved_bytes, bool(read_back), waited_s))
        return {link: list(without_gaps(there)) for link, there in found.items()}
    finally:
        db.close()


def without_gaps(there: Iterable[Move]) -> Iterator[Move]:
    """Of each run and direction what began until the first kind was cut off; all of the other where none of it began until then."""
    way = attrgetter("run", "is_fetch")
    for _, one in groupby(sorted(there, key=way), way):
        moves = sorted(one, key=lambda move: move.begun_at)
        kinds = [[move for move in moves if (move.moved_bytes > SMALL_BYTES) is large] for large in (False, True)]
        until = min(kind[KEPT_OF_RUN - 1].begun_at if len(kind) >= KEPT_OF_RUN else inf for kind in kinds)
        for kind in kinds:
            yield from [move for move in kind if move.begun_at <= until] or kind
