"""The way into the sandbox that a failed job left: where it is, its environment, its inputs as they were linked.

May know: the Machine's state (read only), the kept sandboxes, the nodes. One rule: it changes nothing; the inputs are those that are on
a node now, and no lease keeps them there.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from stager import wire
from stager.model.errors import InvalidInput, Refused, StagerError
from stager.runtime.node_link import NodeLink
from stager.scheduler.state import State
from stager.scheduler.states import CopyState, JobState
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.worker import AttemptSpec, InputAccess, Kept, KeptSandboxes
from stager.worker.container import environment_in, noted
from stager.worker.environment import activation
from stager.worker.place import packages_noted, read_json
from stager.worker.spec import SCRATCH

INSPECTIONS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Held:
    """A replica, on a node that can be asked."""

    node: str
    file: str
    generation: str


class Furnishing:
    """By the nodes. `epoch`: of the scheduler that asks."""

    def __init__(self, links: Mapping[str, NodeLink], epoch: int) -> None:
        self.links, self.epoch = links, epoch

    def held_now(self, state: State, files: set[str]) -> dict[str, Held]:
        """Of each that is on a node; what it is was checked when it came there, as at its first."""
        found = {}
        for file_id in files:
            copies = state.files[file_id].copies if file_id in state.files else {}
            for node, copy in copies.items():
                if copy.state is CopyState.PRESENT and state.nodes[node].reachable:
                    found[file_id] = Held(node, file_id, copy.generation)
        return found

    async def linked(self, kept: Kept, files: Mapping[str, Held]) -> list[wire.Mount]:
        """As the job had them, by their paths in the sandbox."""
        nodes = sorted({held.node for held in files.values()})
        return [mount for node in nodes for mount in await self._linked_by(node, kept, files)]

    async def _linked_by(self, node: str, kept: Kept, files: Mapping[str, Held]) -> list[wire.Mount]:
        """The node says where they are while it furnishes a sandbox that is dropped again."""
        client = self.links[node].client
        inspection = f"inspection-{self.epoch}-{next(INSPECTIONS)}"
        directory = f"{kept.place.directory}/{inspection}"
        its = {path: held for path, held in files.items() if held.node == node}
        inputs = [{"file_id": each.file, "generation": each.generation, "path": path, "access": "link"} for path, each in its.items()]
        try:
            staged = await client.stage_in(inspection, {"sandbox_dir": directory, "inputs": inputs, "direct": [], "reservation": None})
        finally:
            await client.release(inspection, {"sandbox_dir": directory, "remove_sandbox": True, "reservation_id": None})
        return [
            wire.Mount(source=each.source, target=kept.place.sandbox + each.target.removeprefix(directory), directory=each.directory)
            for each in staged.mounts
        ]


class Sandboxes:
    """On the event loop's thread. `program`: it enters a sandbox."""

    def __init__(
        self,
        inquiry: Inquiry,
        runs: KnownRuns,
        kept_sandboxes: KeptSandboxes,
        furnishing: Furnishing,
        program: str,
        is_a_tenants: Callable[[str], bool],
    ) -> None:
        self.inquiry, self.runs, self.kept_sandboxes = inquiry, runs, kept_sandboxes
        self.furnishing, self.program, self.is_a_tenants = furnishing, program, is_a_tenants

    async def of(self, run: str, job: str) -> wire.Sandbox:
        """Raises InvalidInput for what is not there, Refused where no sandbox is kept, with the reason."""
        found = self.kept_sandboxes.kept.get((run, job))
        # A resume may have dropped the job, and the sandbox may go at any time.
        entry = await self.inquiry.ask(lambda: self.runs.known(run).workflow.jobs.get(job))
        said = read_json(found.place.attempt) if found is not None else None
        if found is None or entry is None or said is None:
            raise await self.inquiry.ask(lambda: self._none_kept(run, job))
        spec = AttemptSpec.from_json(said)
        spec = replace(spec, env=dict(entry.env))
        container = noted(found.place) if spec.image is not None else None
        links = {each.path: each.file_id for each in spec.inputs if each.access is InputAccess.LINK and each is not spec.image}
        held = await self.inquiry.ask(lambda: self.furnishing.held_now(self.runs.state, set(links.values())))
        mounts = await self.furnishing.linked(found, {path: held[file] for path, file in links.items() if file in held})
        missing = [path for path, file in links.items() if file not in held] + [each.path for each in spec.direct]
        # A job that ended well has lost it before its outputs were looked for.
        try:
            os.mkdir(f"{found.place.sandbox}/{SCRATCH}", 0o700)
        except FileExistsError:
            pass
        except FileNotFoundError:
            raise await self.inquiry.ask(lambda: self._none_kept(run, job)) from None
        fault = (read_json(found.place.outcome) or {}).get("fault") or {}
        declared = {name for name, _ in entry.env}
        packages = packages_noted(found.place)
        return wire.Sandbox(
            run=run,
            job=job,
            number=found.number,
            directory=found.place.sandbox,
            lock=found.place.lock,
            program=self.program,
            command=[*entry.argv] or [entry.shell],
            env=environment_in(spec, found.place, {}, container, packages),
            env_pass=[name for name in entry.env_pass if name not in declared],
            mounts=mounts,
            missing=missing,
            ended=str(fault.get("message") or ""),
            before=list(activation(packages)),
            container=None if container is None else wire.ImageRoot(**container.to_wire()),
        )

    def _none_kept(self, run: str, job: str) -> StagerError:
        """On the driving thread."""
        entry = self.runs.known(run)
        if job not in entry.jobs:
            return InvalidInput(f"run {run} has no job {job!r}; `stager jobs {run}` lists them", code="not_found", subject=job)
        state, why = entry.jobs[job].state, self.kept_sandboxes.gone.get((run, job), "")
        if self.is_a_tenants(run):
            why = "it is a tenant's, and nobody gets a shell on the machine of a service"
        elif state is JobState.RUNNING:
            why = "it runs; its sandbox is its own until it has failed"
        elif state is JobState.DONE:
            why = "it has succeeded, and what it made was taken"
        elif self.kept_sandboxes.bytes_max == 0:
            why = "STAGER_KEEP_FAILED is 0"
        elif not why:
            why = "it has not failed, or did before its program began, or `stager gc` took it"
        text = f"no sandbox of job {job!r} of run {run} is kept: {why}; `stager logs {run} {job}` shows what it printed"
        return Refused(text, code="no_sandbox", subject=job)
