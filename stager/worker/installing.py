"""What makers of environments say alike: their codes, and a disk that is full.

May know: errors, text. One rule: of what an installer prints the end is told, which says most.
"""

from __future__ import annotations

from stager.model.errors import Transient

NOT_MADE_CODE, AWAY_CODE = "environment_not_made", "index_away"
NO_RATTLER = "this host has no py-rattler, which makes conda environments; whoever looks after it: pip install 'stager[conda]'"
LINES_TOLD, LINE_CHARS = 4, 400
FULL = ("No space left on device", "Disk quota exceeded")


def is_full(said: str) -> bool:
    return any(words in said for words in FULL)


def full(said: str) -> Transient:
    return Transient(f"there is no room for it: {tail(said)}", code="environment_no_room")


def tail(said: str) -> str:
    """Without what would do something to a terminal."""
    plain = "".join(letter if letter.isprintable() or letter == "\n" else "?" for letter in said.expandtabs())
    lines = [line.strip()[:LINE_CHARS] for line in plain.splitlines() if line.strip() and not line.startswith("[notice]")]
    return " / ".join(lines[-LINES_TOLD:]) or "it said nothing"
