"""What finished runs left behind: logs, journal rows, cached replicas.

May know: the Machine's state (read only), the node. One rule: nothing an unfinished run could want, nothing that is not durable, nothing
at an origin.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

from stager import wire
from stager.model.errors import Refused, StagerError
from stager.scheduler.state import NEVER, OVER
from stager.scheduler.states import CopyState, RunState
from stager.service.app import Scheduler
from stager.worker.kept_sandboxes import tree_bytes as sandbox_bytes
from stager.worker.place import safe_name

Replica = tuple[str, str, int]


async def collect(scheduler: Scheduler, wanted: wire.GcRequest) -> wire.GcReport:
    over = await scheduler.ask(lambda: chosen_runs(scheduler, wanted.runs))
    # Their ledgers and reports are what people come back for.
    runs = over if wanted.runs or wanted.records else []
    replicas = await scheduler.ask(lambda: unwanted_replicas(scheduler)) if wanted.cache else []
    kept_sandboxes, idle = scheduler.kept_sandboxes, await scheduler.ask(lambda: idle_runs(scheduler, wanted.runs))
    sandboxes = [entry for entry in list(kept_sandboxes.kept.values()) if entry.run in idle]
    directories = [directory for run in over if (directory := scheduler.state_dir.logs / safe_name(run)).is_dir()]
    freed = await asyncio.to_thread(lambda: sum(map(tree_bytes, directories)))
    sizes = await asyncio.to_thread(lambda: [sandbox_bytes(each.place) for each in sandboxes])
    if wanted.dry_run:
        freed += sum(sizes) + sum(size for _, _, size in replicas)
        counts = {"replicas": len(replicas), "logs": len(directories), "sandboxes": len(sandboxes)}
        return wire.GcReport(runs=runs, freed_bytes=freed, journal_compacted=False, **counts)
    for directory in directories:
        await asyncio.to_thread(shutil.rmtree, directory, True)
    # Not one that somebody has a shell in.
    dropped_bytes = await asyncio.to_thread(
        lambda: [size for each, size in zip(sandboxes, sizes, strict=True) if kept_sandboxes.drop(each.run, each.job)]
    )
    dropped = [replica for replica in replicas if await drop(scheduler, replica)]
    if dropped:
        # The Machine learns from the node's own word what is gone.
        await scheduler.link.report_again()
    cleared = await scheduler.ask(lambda: remove_runs(scheduler, runs)) if runs else False
    freed += sum(dropped_bytes) + sum(size for _, _, size in dropped)
    counts = {"replicas": len(dropped), "logs": len(directories), "sandboxes": len(dropped_bytes)}
    return wire.GcReport(runs=runs, freed_bytes=freed, journal_compacted=cleared, **counts)


def chosen_runs(scheduler: Scheduler, named: list[str]) -> list[str]:
    """All that are over for good, or those named; a run that could be resumed goes only by name."""
    state = scheduler.machine.state
    if not named:
        return [record.run for record in scheduler.records.all() if not record.removed and record.state in OVER]
    for run in named:
        entry = state.runs.get(run)
        if entry is None:
            scheduler.run_service.known(run)
        elif entry.state is not RunState.FINISHED:
            raise Refused(f"run {run} is {entry.state.value}; cancel it first (stager cancel {run})", code="run_active", subject=run)
        elif entry.outcome not in OVER:
            text = f"run {run} is {entry.outcome.value if entry.outcome else 'over'} and could be resumed"
            raise Refused(f"{text}; cancel it first (stager cancel {run})", code="run_resumable", subject=run)
    return named


def idle_runs(scheduler: Scheduler, named: list[str]) -> set[str]:
    """Those whose jobs' sandboxes may go: all that nothing goes on in, or of them those named. A resume needs no sandbox."""
    active = scheduler.machine.state.active
    return {
        entry.run for entry in list(scheduler.kept_sandboxes.kept.values()) if entry.run not in active and (not named or entry.run in named)
    }


def unwanted_replicas(scheduler: Scheduler) -> list[Replica]:
    state, node = scheduler.machine.state, scheduler.link.node
    found = []
    for file in state.files.values():
        copy = file.copies.get(node)
        if copy is None or copy.state is not CopyState.PRESENT or copy.pins:
            continue
        if state.next_use(file) == NEVER and not state.holds_only_copy(file):
            found.append((file.id, copy.generation, copy.size_bytes))
    return found


async def drop(scheduler: Scheduler, replica: Replica) -> bool:
    file, generation, _ = replica
    try:
        await scheduler.node.client.delete_replica(file, generation, command_id=f"gc-{scheduler.epoch}")
    except StagerError:
        return False
    return True


def remove_runs(scheduler: Scheduler, runs: list[str]) -> bool:
    """Whether the journal tells of removed runs only, and is cleared at the next start."""
    for run in runs:
        scheduler.records.remove(run)
        scheduler.book.forget(run)
        scheduler.rates.forget(run)
    return all(record.removed for record in scheduler.records.all())


def tree_bytes(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else 0
