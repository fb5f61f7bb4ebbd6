"""The inputs that a task waits for, as lines for its log: at once, and then each minute.

May know: what a run's status holds. One rule: a line says what `stager status` knows, in the words of whoever reads the task's log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stager import wire

SAY_EVERY_S = 60.0
NAMED_MAX = 3


class Pulse:
    """When to say something: at once, and then each minute."""

    def __init__(self) -> None:
        self.next_at = 0.0

    def is_due(self) -> bool:
        now = time.monotonic()
        if now < self.next_at:
            return False
        self.next_at = now + SAY_EVERY_S
        return True


def of_run(status: wire.RunStatus) -> str:
    """How far a run is, and what keeps it."""
    from stager.client import format_size

    done, total = status.jobs.get("done", 0), sum(status.jobs.values())
    words = [f"run {status.info.run} is {status.info.state}: {done} of {total} jobs done, {len(status.running)} running"]
    words += [f"{status.jobs[state]} {state}" for state in ("failed", "skipped") if status.jobs.get(state)]
    for verb, moved, planned in (
        ("fetched", status.fetched_bytes, status.fetch_bytes_planned),
        ("uploaded", status.uploaded_bytes, status.upload_bytes_planned),
    ):
        words += [f"{format_size(moved)} of {format_size(planned)} {verb}"] if planned else []
    words += [f"{status.finals_durable} of {status.finals_total} products durable"] if status.finals_total else []
    return "; ".join([", ".join(words), *kept_by(status)])


def of_inputs(status: wire.RunStatus, names: Mapping[str, str]) -> str:
    """The reasons why a task still waits for its inputs. `names`: their URIs by their names in the run."""
    from stager.client import format_size

    moving = [
        f"{names[each.lfn]}: {format_size(each.bytes_done)} of {format_size(each.bytes_total)}"
        for each in status.transfers
        if each.direction != "upload" and each.lfn in names
    ]
    words = [f"on their way: {named(moving)}"] if moving else []
    words += kept_by(status)
    if not words:
        free = {each.node: each.capacity_bytes - each.used_bytes - each.reserved_bytes for each in status.nodes}
        nodes = [f"{format_size(free_bytes)} of I/O node {node} are free" for node, free_bytes in free.items()]
        words = [f"none is on its way just now ({named(nodes)})" if nodes else "none is on its way just now"]
    return "; ".join(words)


def kept_by(status: wire.RunStatus) -> list[str]:
    """Nodes and origins that do not answer, and what went wrong."""
    silent = [f"I/O node {each.node} does not answer" for each in status.nodes if not each.connected]
    held = [each.message for each in status.waiting] + [each.message for each in status.problems]
    return [*silent, *([named(held)] if held else [])]


def named(words: Iterable[str]) -> str:
    """The first few of them."""
    listed = list(words)
    more = f", and {len(listed) - NAMED_MAX} more" if len(listed) > NAMED_MAX else ""
    return ", ".join(listed[:NAMED_MAX]) + more
