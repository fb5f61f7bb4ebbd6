"""Early cut-off: a job that ran again made what it made before, so what an earlier run made of that stands for the jobs below it.

May know: the state. One rule: a job is cut off the moment its last input is known, or never: nobody waits for what others may make. It is,
only where all that those which still run read of it can be had; so what a run hands over never comes of two makings.
"""

from __future__ import annotations

from msgspec.structs import replace

from stager.model.scatter import unknown
from stager.planning.plan import GuessedJob, ReusedOutput
from stager.planning.reuse import closure
from stager.scheduler import commands as cmd
from stager.scheduler.decision import Decision
from stager.scheduler.keeping import may_be_linked
from stager.scheduler.profiles import fits_at_once
from stager.scheduler.state import RunEntry, State
from stager.scheduler.states import JobState

NOT_BEGUN = (JobState.WAITING, JobState.READY)


def cut_off(decision: Decision) -> None:
    """What follows from the jobs that have just been done, of runs that have guesses."""
    state = decision.state
    while state.done_of_guess:
        run_id, job_id = state.done_of_guess.pop(0)
        run = state.runs[run_id]
        if not run.may_start or run.jobs[job_id].state is not JobState.DONE:
            continue
        Below(state, run, job_id).emit(decision)


class Below:
    """The jobs below one that is done, and what earlier runs made that stands for them."""

    def __init__(self, state: State, run: RunEntry, job_id: str) -> None:
        self.state, self.run = state, run
        self.roomy: bool | None = None
        # What is below members that are not known may be another job, or none, when they are; and who names them has to run to do so.
        self.unsure = closure(run.assumed, run.graph.children) if run.assumed else set()
        self.unsure |= {each.maker for each in unknown(run.workflow.scatters)} if run.assumed else set()
        self.found: dict[str, GuessedJob] = {}
        self.made: dict[str, ReusedOutput] = {}
        waiting = [job_id]
        for above in waiting:
            for child in run.graph.children[above]:
                each = run.guessed.get(child)
                if child not in self.found and each is not None and self.is_as_guessed(child, each):
                    self.found[child] = each
                    self.made |= {output.lfn: output for output in each.reused.outputs}
                    waiting.append(child)
        self.leave_what_is_not_at_hand()

    def is_as_guessed(self, job_id: str, each: GuessedJob) -> bool:
        """It has not begun, was never made by this run, and each input has come out as it must."""
        own = (self.state.files[self.run.file_ids[output.lfn]] for output in self.run.workflow.jobs[job_id].outputs)
        if job_id in self.unsure or self.run.jobs[job_id].state not in NOT_BEGUN or any(file.blake3 or file.copies for file in own):
            return False
        return all(self.content(lfn) == blake3 for lfn, blake3 in each.needs.items())

    def content(self, lfn: str) -> str:
        """Empty: it is not known yet."""
        if lfn in self.made:
            return self.made[lfn].blake3
        done = self.run.jobs[self.run.graph.producer[lfn]].state is JobState.DONE
        return self.state.files[self.run.file_ids[lfn]].blake3 if done else ""

    def leave_what_is_not_at_hand(self) -> None:
        """Jobs that those which run need something of that nobody has: they run, and so do those that would rest on both makings."""
        graph, jobs = self.run.graph, self.run.workflow.jobs
        run = [job_id for job_id in self.found if any(self.is_missed(output.lfn) for output in jobs[job_id].outputs)]
        for job_id in run:
            if self.found.pop(job_id, None) is None:
                continue
            run += [graph.producer[entry.lfn] for entry in jobs[job_id].inputs if entry.lfn in self.made and not self.is_at_hand(entry.lfn)]
            if not jobs[job_id].deterministic:
                run += [reader for output in jobs[job_id].outputs for reader in graph.readers[output.lfn]]

    def is_missed(self, lfn: str) -> bool:
        """A job that runs reads it, and it is not at hand."""
        readers = (reader for reader in self.run.graph.readers[lfn] if reader not in self.found)
        return any(self.run.jobs[reader].state is not JobState.DONE for reader in readers) and not self.is_at_hand(lfn)

    def is_at_hand(self, lfn: str) -> bool:
        made = self.made.get(lfn)
        return made is not None and (made.token != "" or self.is_kept(made))

    def is_kept(self, made: ReusedOutput) -> bool:
        file = self.state.files.get(made.kept) if made.kept else None
        if file is None or self.run.id in file.links or not may_be_linked(self.state, file, self.run.tenant, made.blake3):
            return False
        if self.roomy is None:
            # Where it is not, what is taken over might be in the way of a job that comes before its reader.
            self.roomy = fits_at_once(self.state, self.run.plan.capacity_bytes)
        return self.roomy

    def emit(self, decision: Decision) -> None:
        for job_id, each in self.found.items():
            outputs = tuple(made if not made.kept or self.is_kept(made) else replace(made, kept="") for made in each.reused.outputs)
            decision.emit(cmd.TakeOver, run=self.run.id, job=job_id, made_by=each.reused.run, outputs=outputs)
