"""The pace of a node's line: what it has fetched from origins, and for how long it was at it.

May know: node entries. One rule: a line that has only just begun is taken for what the plan expects of it, until what it did, or did
not do, says otherwise.
"""

from __future__ import annotations

from stager.scheduler.node_entry import NodeEntry

# What a line did longer ago counts half. A wait that is over counts as no more: an outage is not the pace of a line.
REMEMBERED_S = 60.0
# Of what is on its way, so much may be taken for there: whatever is said of its pace, it is not.
BEGUN_MOST = 0.75


def ask(node: NodeEntry, size_bytes: int, now: float) -> None:
    """So much more is to come over it."""
    if not node.line_bytes:
        node.line_since = now
    node.line_bytes += size_bytes


def let_go(node: NodeEntry, size_bytes: int, now: float, arrived_bytes: int = 0) -> None:
    """What was asked for is there, or does not come."""
    waited_s = min(busy_since(node, now), REMEMBERED_S)
    node.line_bytes -= size_bytes
    if node.line_bytes and not arrived_bytes:
        return
    node.line_busy_s += waited_s
    node.line_done_bytes += arrived_bytes
    node.line_since = now
    if node.line_busy_s > REMEMBERED_S:
        node.line_busy_s, node.line_done_bytes = node.line_busy_s / 2, node.line_done_bytes // 2


def busy_since(node: NodeEntry, now: float) -> float:
    """The seconds that it has been busy for since something came over it."""
    return max(0.0, now - node.line_since) if node.line_bytes else 0.0


def pace_of(node: NodeEntry, now: float, expected_bytes_per_s: float) -> float:
    """In bytes per second: as expected, but not less than what has come, nor more than if half of what is on its way were there."""
    busy_s = node.line_busy_s + busy_since(node, now)
    if busy_s <= 0:
        return expected_bytes_per_s
    most = (node.line_done_bytes + node.line_bytes / 2) / busy_s
    return max(1.0, node.line_done_bytes / busy_s, min(expected_bytes_per_s, most))


def left_s(node: NodeEntry, now: float, expected_bytes_per_s: float, more_bytes: int = 0) -> float:
    """Seconds until all is there that is on its way, and `more_bytes` behind it."""
    pace = pace_of(node, now, expected_bytes_per_s)
    begun_bytes = min(BEGUN_MOST * node.line_bytes, pace * busy_since(node, now))
    return max(0.0, node.line_bytes - begun_bytes + more_bytes) / pace
