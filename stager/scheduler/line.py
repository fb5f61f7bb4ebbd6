"""The pace of a node's line: what it has fetched from origins, and for how long it was at it.

May know: node entries. One rule: a line that has only just begun is taken for what the plan expects of it, until what it did, or did
not do, says otherwise.
"""

from __future__ import annotations

from stager.planning.transport import AT_ONCE_MIN
from stager.scheduler.node_entry import NodeEntry

# What a line did longer ago counts half. A wait that is over counts as no more: an outage is not the pace of a line.
REMEMBERED_S = 60.0


def ask(node: NodeEntry, size_bytes: int, now: float) -> None:
    """So much more is to come over it."""
    if not node.line_count:
        node.line_since = now
    node.line_bytes += size_bytes
    node.line_count += 1


def let_go(node: NodeEntry, size_bytes: int, now: float, arrived_bytes: int = 0) -> None:
    """What was asked for is there, or does not come."""
    waited_s = min(busy_since(node, now), REMEMBERED_S)
    node.line_bytes -= size_bytes
    node.line_count -= 1
    if node.line_count and not arrived_bytes:
        return
    node.line_busy_s += waited_s
    node.line_done_bytes += arrived_bytes
    node.line_since = now
    if node.line_busy_s > REMEMBERED_S:
        node.line_busy_s, node.line_done_bytes = node.line_busy_s / 2, node.line_done_bytes // 2


def busy_since(node: NodeEntry, now: float) -> float:
    """The seconds that it has been busy for since something came over it."""
    return now - node.line_since if node.line_count and now > node.line_since else 0.0


def begun_bytes_max(node: NodeEntry) -> float:
    """Of what is on its way, so much may be there: of as many as a node has under way at once, the more the likelier that all of them are
    about to end. Of one at most the half: then one that takes twice as long as expected is known for slow, and no other.
    """
    at_once = min(node.line_count, AT_ONCE_MIN)
    return node.line_bytes * at_once / node.line_count * (at_once + 1) / (at_once + 3) if at_once else 0.0


def pace_of(node: NodeEntry, now: float, expected_bytes_per_s: float) -> float:
    """In bytes per second: as expected, but not less than what has come, nor more than if all were there that may be."""
    busy_s = node.line_busy_s + busy_since(node, now)
    if busy_s <= 0:
        return expected_bytes_per_s
    most = (node.line_done_bytes + begun_bytes_max(node)) / busy_s
    return max(1.0, node.line_done_bytes / busy_s, min(expected_bytes_per_s, most))


def left_s(node: NodeEntry, now: float, expected_bytes_per_s: float, more_bytes: int = 0) -> float:
    """Seconds until all is there that is on its way, and `more_bytes` behind it."""
    pace, since_s = pace_of(node, now, expected_bytes_per_s), busy_since(node, now)
    begun_bytes = max(pace * since_s, pace * (node.line_busy_s + since_s) - node.line_done_bytes)
    return (node.line_bytes - min(begun_bytes, begun_bytes_max(node)) + more_bytes) / pace
