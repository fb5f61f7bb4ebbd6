"""The digest of the code that decides: of the packages whose code says what a scheduler does next.

May know: the files of the package. One rule: two schedulers with one digest decide the same of the same events, whatever else differs
between them; so a commit to a page, to the command line or to an adapter makes no other version.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# The Machine and all that it imports; tests/unit/test_deciding.py holds that it imports nothing else of ours.
DECIDING = ("model", "planning", "scheduler")


@cache
def deciding_digest() -> str:
    """16 characters, as they stand in the journal beside each batch."""
    return digest_of(PACKAGE)


def digest_of(package: Path) -> str:
    """Of names and texts, in the order of the names, each with its length before it."""
    found = sha256()
    for name in DECIDING:
        for path in sorted((package / name).rglob("*.py")):
            for part in (path.relative_to(package).as_posix().encode(), path.read_bytes()):
                found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()[:16]
