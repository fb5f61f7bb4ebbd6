"""A planned Pegasus workflow as a run of stager: registered once, followed by its log, ended with it.

May know: the submit directory, the scheduler's client. One rule: the workflow is Pegasus's own: nothing here starts, stops or fails one of
its jobs, and what is lost here is found again by reading the log anew.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from stager import wire
from stager.adapters.origin_access import IonodeOriginAccess
from stager.client import Client
from stager.client.socket_engines import SocketEngineRun
from stager.model.errors import InvalidInput, StagerError, Transient
from stager.model.workflow import Workflow
from stager.readers.kickstart import read_samples, records_of
from stager.readers.pegasus_jobstate import JobstateLog, Progress, Try, TryState
from stager.readers.pegasus_planned import Planned, PlannedKind
from stager.readers.resolve import resolve
from stager.scheduler.states import JobState
from stager.service.prepare import plan_of, require_destinations
from stager.service.profiles import OpenProfiles, load_profiles
from stager.service.settings import Settings
from stager.wire import Credentials

FILE_NAME = "stager-attached.json"
FORMAT = 1
RUN_ENDING = "run_ending"
LOST_AFTER_S = 60.0
OPEN = (wire.CallState.WAITING, wire.CallState.STAGED, wire.CallState.PUBLISHING)


def prepared(workflow: Workflow, settings: Settings) -> Workflow:
    """With the size of each input, as its origin says. Raises what would keep inputs or finals from their way."""
    access = IonodeOriginAccess(settings.environ)
    workflow = resolve(workflow, access)
    require_destinations(workflow, access)
    return workflow


def register(client: Client, planned: Planned, workflow: Workflow, settings: Settings, credentials: Credentials) -> str:
    """The run; of the same planned workflow again the same."""
    plan = plan_of(workflow, settings, load_profiles(settings), None)
    return client.submit(workflow, plan, credentials, submit_id=f"pegasus-{planned.uuid}")


def leave_word(client: Client, planned: Planned, run: str) -> Path:
    """For stager-transfer, which finds it in the submit directory. It is nobody else's business: whoever writes it says where files go."""
    homes = [job.id for job in planned.jobs.values() if job.kind is PlannedKind.STAGE_OUT]
    said = {
        "format": FORMAT,
        "uuid": planned.uuid,
        "run": run,
        "socket": str(client.socket_path.absolute()),
        "headers": {"Host": wire.HOST, "X-Stager-Api": str(wire.API_VERSION)},
        # Runs are numbered in each state directory: after that was removed another may have the name.
        "submitted_at": client.run(run).status().info.submitted_at,
        "stage_out": homes,
    }
    place, unfinished = planned.directory / FILE_NAME, planned.directory / f".{FILE_NAME}.{os.getpid()}"
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json.dumps(said))
        os.replace(unfinished, place)
    except OSError as problem:
        text = f"{place} cannot be written ({problem.strerror}); jobs would not know that their files are with stager"
        raise InvalidInput(text, subject=str(place)) from problem
    return place


def word_left(planned: Planned) -> str:
    """The run of an earlier attach; empty: none."""
    try:
        said = json.loads((planned.directory / FILE_NAME).read_bytes())
        return str(said["run"]) if said["uuid"] == planned.uuid and said["format"] == FORMAT else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def progress_of(planned: Planned) -> Progress:
    """How far the workflow is without us."""
    log = JobstateLog(planned.log)
    log.read_new()
    return log.progress


def known_run(client: Client, planned: Planned, run: str) -> wire.RunInfo | None:
    """That of an earlier attach, if this scheduler has it, and not only another of that name."""
    infos = (info for info in client.runs() if info.run == run and not info.removed)
    return next((info for info in infos if Path(info.source_path).resolve() == planned.directory.resolve()), None)


@dataclass(frozen=True, slots=True)
class Step:
    """The findings of one poll. `exit_code`: of the workflow, when it is over."""

    jobs: tuple[str, ...]
    succeeded: tuple[str, ...]
    notes: tuple[str, ...]
    exit_code: int | None


class Records:
    """The records of kickstart about jobs that ended well, taken into the profiles: the same record again changes nothing."""

    def __init__(self, planned: Planned, settings: Settings, run: str) -> None:
        self.planned, self.state_dir, self.run = planned, settings.state_dir, run

    def take_in(self, jobs: Iterable[str]) -> int:
        """How many samples are new."""
        found = [(job, records_of(self.planned.jobs[job].path)) for job in jobs if self.is_computing(job)]
        if not any(paths for _, paths in found):
            return 0
        with OpenProfiles(self.state_dir) as store:
            return store.take_in(
                sample for job, paths in found for sample in read_samples(paths, f"{self.planned.uuid}/{job}", self.run, store.id)
            )

    def is_computing(self, job: str) -> bool:
        return job in self.planned.jobs and self.planned.jobs[job].kind is PlannedKind.COMPUTE


class Follower:
    """Tells the scheduler how far Pegasus is. Jobs with files tell it themselves, through stager-transfer."""

    def __init__(self, planned: Planned, workflow: Workflow) -> None:
        self.log = JobstateLog(planned.log)
        self.silent = {job.id for job in workflow.jobs.values() if not job.inputs and not job.outputs}
        self.with_files = set(workflow.jobs) - self.silent
        self.pending: dict[str, None] = {}
        self.put_off: set[str] = set()
        self.done: set[str] = set()
        self.news: dict[str, None] = {}
        # Of jobs with files, since when the log says that they failed.
        self.failed: dict[str, float] = {}

    def know(self, client: Client, run: str) -> None:
        """Learns the jobs that the scheduler has been told of before: a new reader of a long log need not tell all of it again."""
        jobs = client.run(run).jobs(state=JobState.DONE, limit=len(self.silent) + len(self.with_files))
        self.done = {view.job for view in jobs}

    def poll(self, run: SocketEngineRun) -> Step:
        """Once. News that could not be told, because nobody answered, is told by the next poll: Transient is raised then."""
        fresh = dict.fromkeys(self.log.read_new())
        self.news |= fresh
        self.pending |= fresh
        self.note_failed(fresh)
        notes: list[str] = []
        for job in list(self.pending):
            try:
                settled = job not in self.silent or self.is_told(job) or self.tell(run, job, self.log.progress.tries[job])
            except Transient:
                raise
            except StagerError as problem:
                # A service that is ended in order takes no calls until it is back.
                settled = problem.code != RUN_ENDING
                notes += [f"{job}: {problem.message}"] if settled or job not in self.put_off else []
                self.put_off |= set() if settled else {job}
            if settled:
                del self.pending[job]
        over, found = self.log.progress.exit_code, tuple(self.news)
        self.news.clear()
        self.put_off &= set(self.pending)
        well = tuple(job for job in found if self.log.progress.tries[job].state is TryState.SUCCEEDED)
        return Step(found, well, tuple(notes), over if self.put_off.issuperset(self.pending) else None)

    def note_failed(self, jobs: Iterable[str]) -> None:
        for job in jobs:
            self.failed.pop(job, None)
            if job in self.with_files and self.log.progress.tries[job].state is TryState.FAILED:
                self.failed[job] = time.monotonic()

    def give_back(self, client: Client, run: SocketEngineRun) -> None:
        """A task that died between its lists has told nobody. Its call is given up when no other try has begun for a while: the log may be
        behind, and the next try's call must not be taken for it.
        """
        due = {job for job, since in self.failed.items() if time.monotonic() - since >= LOST_AFTER_S}
        if not due:
            return
        for running in client.run(run.run).status().running:
            if running.job in due and running.call:
                run.fail(running.job, running.call, "Pegasus says that it failed")
        for job in due:
            del self.failed[job]

    def is_told(self, job: str) -> bool:
        return job in self.done and self.log.progress.tries[job].state is TryState.SUCCEEDED

    def tell(self, run: SocketEngineRun, job: str, newest: Try) -> bool:
        """Whether nothing is left to tell: nobody waits here for a call, there may be thousands."""
        self.done.discard(job)
        call = f"try-{newest.number}"
        if newest.state is TryState.SUBMITTED:
            return True
        if newest.state is TryState.FAILED:
            run.call(job, call)
            run.fail(job, call, "Pegasus says that it failed")
            return True
        view = run.call(job, call)
        if newest.state is TryState.SUCCEEDED and view.state is wire.CallState.STAGED:
            view = run.finish(job, call, wait_s=0.0)
        return newest.state is TryState.RUNNING or view.state not in OPEN

    def end(self, run: SocketEngineRun, exit_code: int) -> None:
        run.end(exit_code == 0, "" if exit_code == 0 else f"DAGMan ended with {exit_code}")
