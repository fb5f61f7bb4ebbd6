"""Garbage collection of what finished runs left behind: logs, journal rows, cached replicas, images, environments.

May know: the Machine's state (read only), the node. One rule: nothing an unfinished run could want, nothing that is not durable, nothing
at an origin.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from stager import wire
from stager.adapters.run_records import RunRecords
from stager.model.errors import Refused, StagerError
from stager.runtime.credentials import CredentialBook
from stager.runtime.node_link import NodeLink
from stager.runtime.together import TOGETHER_MAX
from stager.scheduler.state import NEVER, OVER, State
from stager.scheduler.states import CopyState, RunState
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.made_for_jobs import NOTHING_GONE, MadeForJobs
from stager.service.rates import Rates
from stager.worker import KeptSandboxes
from stager.worker.kept_sandboxes import tree_bytes as sandbox_bytes
from stager.worker.place import safe_name


class Replica(NamedTuple):
    node: str
    file: str
    generation: str
    size_bytes: int


class NodeReplicas:
    """The replicas of the nodes that the scheduler may delete beside the Machine. `epoch`: of the scheduler that asks."""

    def __init__(self, links: Mapping[str, NodeLink], epoch: int) -> None:
        self.links, self.epoch = links, epoch

    async def drop(self, replicas: Sequence[Replica]) -> list[Replica]:
        """Those that are gone. The Machine learns from each node's own word what it has left."""
        dropped: set[Replica] = set()
        for node in dict.fromkeys(replica.node for replica in replicas):
            there = [replica for replica in replicas if replica.node == node]
            gone = await self._drop(self.links[node], there)
            if gone:
                await self.links[node].report_again()
            dropped.update(gone)
        return [replica for replica in replicas if replica in dropped]

    async def _drop(self, link: NodeLink, replicas: Sequence[Replica]) -> list[Replica]:
        gone: list[Replica] = []
        for begin in range(0, len(replicas), TOGETHER_MAX):
            asked = replicas[begin : begin + TOGETHER_MAX]
            try:
                answers = await link.client.delete_replicas([(each.file, each.generation, f"gc-{self.epoch}") for each in asked])
            except StagerError:
                break
            gone += [replica for replica, refused in zip(asked, answers, strict=True) if refused is None]
        return gone


class RunRemoval:
    """Forgets runs that are over. On the driving thread."""

    def __init__(self, records: RunRecords, book: CredentialBook, rates: Rates) -> None:
        self.records, self.book, self.rates = records, book, rates

    def over(self) -> list[str]:
        return [record.run for record in self.records.all() if not record.removed and record.state in OVER]

    def remove(self, runs: list[str]) -> bool:
        """Whether the journal tells of removed runs only, and is cleared at the next start."""
        for run in runs:
            self.records.remove(run)
            self.book.forget(run)
            self.rates.forget(run)
        return all(record.removed for record in self.records.all())


class GarbageCollector:
    """On the event loop's thread. `logs`: the directory that the worker writes what jobs print to. `results`: those that are remembered.
    `unwritten`: files that results name which are not written there yet, asked on the driving thread.
    """

    def __init__(
        self,
        inquiry: Inquiry,
        runs: KnownRuns,
        removal: RunRemoval,
        replicas: NodeReplicas,
        kept_sandboxes: KeptSandboxes,
        made: MadeForJobs,
        logs: Path,
        results: Path,
        unwritten: Callable[[], set[str]],
    ) -> None:
        self.inquiry, self.runs, self.removal, self.replicas = inquiry, runs, removal, replicas
        self.kept_sandboxes, self.made, self.logs, self.results = kept_sandboxes, made, logs, results
        self.unwritten = unwritten

    async def collect(self, wanted: wire.GcRequest) -> wire.GcReport:
        over = await self.inquiry.ask(lambda: self._chosen_runs(wanted.runs)) if wanted.logs else []
        # Their ledgers and reports are what people come back for.
        runs = over if wanted.runs or wanted.records else []
        replicas = await self.inquiry.ask(lambda: unwanted_replicas(self.runs.state, self.replicas.links)) if wanted.cache else []
        if wanted.results and not wanted.cache:
            # Before the file is read, and after: what is written meanwhile is in one of them.
            named = set() if wanted.dry_run else await self.inquiry.ask(self.unwritten)
            named |= set() if wanted.dry_run else await asyncio.to_thread(lambda: named_files(self.results))
            replicas = await self.inquiry.ask(
                lambda: kept_replicas(self.runs.state, self.replicas.links, set() if wanted.dry_run else named | self.unwritten())
            )
        kept_sandboxes = self.kept_sandboxes
        idle = await self.inquiry.ask(lambda: self._idle_runs(wanted.runs)) if wanted.logs else set()
        sandboxes = [entry for entry in list(kept_sandboxes.kept.values()) if entry.run in idle]
        directories = [directory for run in over if (directory := self.logs / safe_name(run)).is_dir()]
        freed = await asyncio.to_thread(lambda: sum(map(tree_bytes, directories)))
        sizes = await asyncio.to_thread(lambda: [sandbox_bytes(each.place) for each in sandboxes])
        made = NOTHING_GONE
        if wanted.cache or wanted.logs:
            made = await self.made.collect(cache=wanted.cache, dry_run=wanted.dry_run)
        counts = {"images": made.here.images, "environments": made.here.environments, "made_bytes": made.here.left_bytes}
        freed += made.here.freed_bytes
        if wanted.dry_run:
            freed += sum(sizes) + sum(replica.size_bytes for replica in replicas)
            counts |= {"replicas": len(replicas), "logs": len(directories), "sandboxes": len(sandboxes)}
            return wire.GcReport(runs=runs, freed_bytes=freed, journal_compacted=False, hosts=made.hosts, **counts)
        for directory in directories:
            await asyncio.to_thread(shutil.rmtree, directory, True)
        # Not one that somebody has a shell in.
        dropped_bytes = await asyncio.to_thread(
            lambda: [size for each, size in zip(sandboxes, sizes, strict=True) if kept_sandboxes.drop(each.run, each.job)]
        )
        dropped = await self.replicas.drop(replicas)
        cleared = await self.inquiry.ask(lambda: self.removal.remove(runs)) if runs else False
        freed += sum(dropped_bytes) + sum(replica.size_bytes for replica in dropped)
        counts |= {"replicas": len(dropped), "logs": len(directories), "sandboxes": len(dropped_bytes)}
        return wire.GcReport(runs=runs, freed_bytes=freed, journal_compacted=cleared, hosts=made.hosts, **counts)

    def _chosen_runs(self, named: list[str]) -> list[str]:
        """All that are over for good, or those named; a run that could be resumed goes only by name."""
        if not named:
            return self.removal.over()
        for run in named:
            entry = self.runs.state.runs.get(run)
            if entry is None:
                self.runs.known(run)
            elif entry.state is not RunState.FINISHED:
                raise Refused(f"run {run} is {entry.state.value}; cancel it first (stager cancel {run})", code="run_active", subject=run)
            elif entry.outcome not in OVER:
                text = f"run {run} is {entry.outcome.value if entry.outcome else 'over'} and could be resumed"
                raise Refused(f"{text}; cancel it first (stager cancel {run})", code="run_resumable", subject=run)
        return named

    def _idle_runs(self, named: list[str]) -> set[str]:
        """Those whose jobs' sandboxes may go: all that nothing goes on in, or of them those named. A resume needs no sandbox."""
        active = self.runs.state.active
        return {
            entry.run for entry in list(self.kept_sandboxes.kept.values()) if entry.run not in active and (not named or entry.run in named)
        }


def unwanted_replicas(state: State, nodes: Container[str]) -> list[Replica]:
    """On these nodes. Of several copies of what is nowhere else, one stays where it can be reached."""
    found = []
    for file in state.files.values():
        idle = [
            Replica(node, file.id, copy.generation, copy.size_bytes)
            for node, copy in file.copies.items()
            if node in nodes and copy.state is CopyState.PRESENT and not copy.pins
        ]
        if not idle or state.next_use(file) != NEVER or state.holds_only_copy(file):
            continue
        if state.is_nowhere_else(file):
            kept = next((replica for replica in idle if state.nodes[replica.node].reachable), None)
            idle = [replica for replica in idle if replica is not kept]
        found += idle
    return found


def kept_replicas(state: State, nodes: Container[str], named: Container[str]) -> list[Replica]:
    """On these nodes, what is there for later runs only, but for the files that are named."""
    return [
        Replica(node, file.id, copy.generation, copy.size_bytes)
        for file in state.files.values()
        if file.id not in named
        for node, copy in file.copies.items()
        if node in nodes and copy.result_rank
    ]


def named_files(results: Path) -> set[str]:
    """That a result names which is remembered."""
    # Few ask for it.
    from stager.adapters.results_store import open_to_read

    store = open_to_read(results)
    if store is None:
        return set()
    try:
        return {output.file for _, output in store.kept_files()}
    finally:
        store.close()


def tree_bytes(directory: Path) -> int:
    return sum(path.lstat().st_size for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else 0
