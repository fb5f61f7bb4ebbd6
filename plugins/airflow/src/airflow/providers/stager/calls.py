"""The calls of one try of a task at the service: begun, waited for, handed over or given back.

May know: the runs, the graph, stager's client. One rule: asked again it calls nobody twice, for the try names the call; what cannot be
staged is no error here, and is left to the task.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from airflow.providers.stager import progress, service
from airflow.providers.stager.graph import INTERMEDIATE, DagFact, FileFact, TaskFact, ancestors_of, exchanged, scheme_of
from airflow.providers.stager.hand_in import hand_in
from airflow.providers.stager.masked import masked
from airflow.providers.stager.progress import Pulse
from airflow.providers.stager.runs import PartRun, Runs, in_words, own_part, told_of
from airflow.providers.stager.watch import Watch
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

if TYPE_CHECKING:
    from stager import wire
    from stager.client import RestRun

log = logging.getLogger("airflow.task")
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._:+@~-]")
WAIT_S = 20.0
PAUSE_S = 2.0
MESSAGE_MAX = 1000
# What a trigger keeps in Airflow's database.
AWAITED_MAX = 20
# What could be checked by size only is all that such an origin lets anybody know.
AT_HOME = ("durable", "written")
# Something newer is at its place.
SUPERSEDED = "superseded"
A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Try:
    """`ident`: Airflow's own of this try; another one after a retry or a clear, the same one after a task was deferred."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    number: int
    ident: str

    @property
    def call(self) -> str:
        return call_name(self.task_id, self.map_index, self.number, self.ident)


def call_name(task_id: str, map_index: int | None, number: int, ident: str) -> str:
    """Under which the service knows a try; whoever looks at Airflow from outside makes the same."""
    index = -1 if map_index is None else map_index
    safe = NOT_IN_NAMES.sub("_", task_id)[:120]
    return f"try-{number}.{safe}{f'~{index}' if index >= 0 else ''}.{ident.replace('-', '')[-12:]}"


@dataclass(frozen=True, slots=True)
class Called:
    """A call that is staged, and the run it is of. `own`: a run that ends with it."""

    of: PartRun
    job: str
    call: str
    view: wire.CallView
    own: bool = False


@dataclass(slots=True)
class Calls:
    """`refused`: why the service did not stage something, the last time that it did not; `away`: for it did not answer. `why`: of files
    that it refused, by URI. `watch`: who gives it all back if this process dies; only where it is known not to leave before its end, as a
    task does that defers. `tell`: is told the run and the job as soon as the service has them. `awaited`: some of the inputs that `begin`
    found not there, URIs by logical names.
    """

    attempt: Try
    dag: DagFact
    staged: list[Called] = field(default_factory=list)
    runs: Runs | None = None
    own_runs: int = 0
    refused: str = ""
    why: dict[str, str] = field(default_factory=dict)
    watch: Watch | None = None
    away: bool = False
    tell: Callable[[str, str], None] | None = None
    awaited: dict[str, str] = field(default_factory=dict)

    def begin(self) -> list[tuple[str, str, str]]:
        """Calls what the DAG says of this task, and does not wait: (run, job, call) of what is not there yet."""
        from stager import wire
        from stager.model.errors import StagerError, Transient

        waiting = []
        try:
            for part in self._parts():
                view = part.run.call(self.attempt.task_id, self.attempt.call)
                self._told(part, view.job)
                if view.state is wire.CallState.WAITING:
                    self.awaited |= dict(islice(part.part.reads(view.job).items(), AWAITED_MAX))
                    waiting.append((part.run.name, view.job, view.call))
        except Transient as problem:
            self._alone(problem)
        except (StagerError, AirflowNotFoundException, ValueError) as problem:  # told when the files are asked for
            log.info("%s: %s", self.attempt.task_id, problem)
        return waiting

    def declared(self) -> list[Called]:
        """Stages what the DAG says of this task."""
        from stager.model.errors import StagerError

        before = len(self.staged)
        try:
            for part in self._parts() if not self.away else ():
                self._call(part)
        except (StagerError, AirflowNotFoundException, ValueError) as problem:
            self._alone(problem)
        return self.staged[before:]

    def own(self, inputs: list[str], outputs: list[str]) -> list[Called]:
        """Stages files that the DAG did not tell of: by a run of one job, which ends with the task."""
        from stager.model.errors import StagerError

        mine = [tuple(FileFact(uri) for uri in uris if scheme_of(uri) != INTERMEDIATE) for uris in (inputs, outputs)]
        if self.runs is None or not any(mine):
            return []
        self.own_runs += 1
        dag = DagFact(self.attempt.dag_id, (TaskFact(self.attempt.task_id, True, mine[0], mine[1]),))
        runs = Runs(self.runs.client, dag, self.runs.ident, own_part(self.attempt.call, self.own_runs))
        before = len(self.staged)
        try:
            part = runs.open()
            if runs.loose:
                self.why |= runs.loose
                log.warning("%s moves these itself, for the service refused them: %s", self.attempt.task_id, told_of(runs.loose))
            if part is not None:
                self._call(part, own=True)
        except StagerError as problem:
            self._alone(problem)
        return self.staged[before:]

    def are_read(self) -> bool:
        """Whether a file of an earlier try of this task may have been fetched for its readers."""
        return self.runs is not None and self.attempt.map_index >= 0 and self.runs.is_read(self.attempt.task_id)

    def hand_over(self) -> None:
        """Raises AirflowException if what was made is not all taken."""
        for called in self.staged:
            self._hand_over(called)

    def give_back(self, message: str) -> None:
        """Never raises."""
        said = masked(message)[:MESSAGE_MAX]
        for called in self.staged:
            try:
                called.of.run.fail(called.job, called.call, said)
                if called.own:
                    called.of.run.end(False, said)
            except Exception as problem:  # whatever it is, the task's own error is what counts
                log.warning("stager was not told that %s failed, and finds out when it reconciles: %s", called.call, problem)

    def only_there(self) -> list[str]:
        """Inputs that an earlier task of this DagRun handed over, as far as anybody can tell who does not ask the service."""
        mine = next((task for task in self.dag.tasks if task.task_id == self.attempt.task_id), None)
        if mine is None or mine.many:
            return []
        loose, before = service.loose_of(self.dag, self.attempt.run_id), ancestors_of(self.dag)[mine.task_id]
        made = {fact.uri for task in self.dag.tasks if task.task_id in before and task.stages and not task.many for fact in task.outlets}
        shared = exchanged(self.dag) & made
        return [fact.uri for fact in mine.inlets if fact.uri in shared and not loose.is_newer(fact.uri)]

    def _parts(self) -> Iterator[PartRun]:
        self.runs = service.connected().runs(self.dag, self.attempt.run_id)
        patiently(self.runs, self.only_there())
        afters = [part.after for part in self.runs.shape().of_task(self.attempt.task_id)]
        for after in afters if self.attempt.map_index < 0 else []:
            part = self.runs.open(after)
            if part is not None and self.attempt.task_id in part.part.jobs:
                hand_in(part, self.attempt.task_id, service.loose_of(self.dag, self.attempt.run_id))
                yield part

    def _told(self, part: PartRun, job: str) -> None:
        if self.tell is not None:
            self.tell(part.run.name, job)
            self.tell = None

    def _alone(self, problem: Exception) -> None:
        """Said once for a task: from then on it does without."""
        from stager.model.errors import Transient

        self.away = isinstance(problem, Transient)
        if not self.refused:
            log.warning("%s moves its files itself, which is slower: %s (connection %r)", self.attempt.task_id, problem, service.conn_id())
        self.refused, self.runs = str(problem), None

    def _call(self, part: PartRun, own: bool = False) -> None:
        from stager import wire
        from stager.model.errors import InvalidInput

        job, name = self.attempt.task_id, self.attempt.call
        try:
            view = part.run.call(job, name)
        except InvalidInput as problem:  # submitted by another version of this DAG, say
            log.warning("%s has no place in run %s and moves its files itself: %s", job, part.run.name, in_words(str(problem), part.part))
            return
        self._told(part, job)
        if self.watch is not None:
            self.watch.note(part.run.client, part.run.name, job, name, own=own)
        pulse, began = Pulse(), time.monotonic()
        end = began + service.stage_timeout_s()
        while view.state is wire.CallState.WAITING and time.monotonic() < end:
            say_what_is_missing(part, job, pulse)
            view = insisting(lambda: part.run.staged(job, name, wait_s=WAIT_S), end)
        called = Called(part, job, name, view, own)
        if view.state is wire.CallState.STAGED and reachable(view.directory):
            self.staged.append(called)
            log.info("%s", staged_in(called, time.monotonic() - began))
        else:
            self._not_staged(called)

    def _not_staged(self, called: Called) -> None:
        """Takes the inputs that can be had without the service. The task is told the names of the others when it asks for them."""
        from stager import wire

        view = called.view
        if view.fault is not None and view.fault.code == "call_replaced":
            raise AirflowException(f"another try of task {called.job} has begun, and this one is over")
        if view.fault is not None:
            self.refused = in_words(view.fault.message, called.of.part)
        elif view.state is wire.CallState.STAGED:
            self.refused = f"its files are in {view.directory}, which is not on this machine or not open to this user"
        else:
            self.refused = f"its inlets were not staged after {service.stage_timeout_s():.0f} s (stage_timeout_s in [stager])"
        log.warning("%s moves its files itself, which is slower: %s", called.job, self.refused)
        if view.fault is None:
            called.of.run.fail(called.job, called.call, self.refused)
        if called.own:
            called.of.run.end(False, self.refused)

    def _hand_over(self, called: Called) -> None:
        from stager import wire
        from stager.model.errors import StagerError

        pulse = Pulse()
        try:
            end = time.monotonic() + service.stage_timeout_s()
            view = insisting(lambda: called.of.run.finish(called.job, called.call, wait_s=WAIT_S), end)
            while view.state in (wire.CallState.PUBLISHING, wire.CallState.WAITING):
                if pulse.is_due():
                    log.info("waiting until the service has taken what %s made, from %s", called.job, view.directory)
                view = insisting(lambda: called.of.run.finish(called.job, called.call, wait_s=WAIT_S), end)
            if called.own and view.state is wire.CallState.DONE:
                called.of.run.end(True)
            if view.state is wire.CallState.DONE and (called.own or service.waits_for_home()):
                self._bring_home(called, end)
        except StagerError as problem:
            text = f"the files that {called.job} made could not be handed over: {in_words(str(problem), called.of.part)}"
            raise AirflowException(f"{text}; the next try of this task makes it again") from problem
        if view.state is not wire.CallState.DONE:
            reason = in_words(view.fault.message, called.of.part) if view.fault is not None else view.state.value
            raise AirflowException(f"the service did not take the files that {called.job} made: {reason}")

    def _bring_home(self, called: Called, end: float) -> None:
        """Airflow takes the outlets of a task that has succeeded to be at their places: others read them there from then on."""
        run = called.of.run.client.run(called.of.run.name)
        names = {name: uri for uri, name in called.of.part.files.items()}
        for made in called.view.outputs:
            if scheme_of(names.get(made.lfn, "")) not in ("", INTERMEDIATE):
                at_home(run, made.lfn, names[made.lfn], end)


def at_home(run: RestRun, lfn: str, uri: str, end: float) -> None:
    """Returns when it is there, and says on the way what keeps it. Raises AirflowException when it does not get there."""
    said, wait_s, pulse = "", 1.0, Pulse()
    while True:
        answer = insisting(partial(run.wait, timeout_s=wait_s, lfn=lfn), end)
        (entry,) = insisting(lambda: run.ledger(lfn=lfn), end)
        if answer.durable or entry.state in AT_HOME:
            return
        if entry.state == SUPERSEDED:
            log.warning("%s: %s", uri, entry.fault)
            return
        given_up = bool(entry.fault) and entry.fault in {each.message for each in insisting(run.status, end).problems}
        if answer.finished or given_up or time.monotonic() >= end:
            raise AirflowException(f"{uri} was made and did not get to its place: {entry.fault or f'run {run.name} is {answer.state}'}")
        if entry.fault not in ("", said):
            said = entry.fault
            log.warning("%s is not at its place yet: %s", uri, said)
        elif pulse.is_due():
            log.info("waiting until %s is at its place, verified (run %s)", uri, run.name)
        wait_s = min(2 * wait_s, WAIT_S)


def patiently(runs: Runs, only_there: Sequence[str] = ()) -> None:
    """Until the service answers: long if inputs are nowhere else. Raises Transient if it does not, and what else it says."""
    from stager.model.errors import Transient

    server, pulse = runs.client.server, Pulse()
    if service.was_away_just_now(server) and not only_there:
        runs.ask_once()
    end = time.monotonic() + (max(service.away_timeout_s(), service.patience_s()) if only_there else service.patience_s())
    while True:
        try:
            runs.find("")
            service.note(server, away=False)
            return
        except Transient as problem:
            left_s = end - time.monotonic()
            if left_s <= 0:
                service.note(server, away=True)
                raise
            if pulse.is_due():
                why = f", which alone has {progress.named(only_there)}" if only_there else ""
                log.warning("%s; waiting for it%s, at most %.0f s more", problem, why, left_s)
            time.sleep(min(PAUSE_S, left_s))


def insisting(ask: Callable[[], A], end: float) -> A:
    """Its answer, also where the service is away for a while or has too many who wait: what a call has cost by then is worth some time.
    Not the slot of a worker for hours: once it has been away for `away_timeout_s` this raises the last Transient.
    """
    from stager.model.errors import Transient

    pulse, away_end = Pulse(), min(end, time.monotonic() + service.away_timeout_s())
    while True:
        try:
            return ask()
        except Transient as problem:
            left_s = away_end - time.monotonic()
            if left_s <= 0:
                raise
            if pulse.is_due():
                log.warning("%s; waiting for it, at most %.0f s more (away_timeout_s in [stager])", problem, left_s)
            time.sleep(min(PAUSE_S, left_s))


def say_what_is_missing(part: PartRun, job: str, pulse: Pulse) -> None:
    """A service that cannot be asked is told of by who waits for it."""
    from stager.model.errors import StagerError

    if pulse.is_due():
        names = part.part.reads(job)
        with suppress(StagerError):
            told = progress.of_inputs(part.run.client.run(part.run.name).status(), names)
            what = f"the {len(names)} inlets of {job} to be staged" if names else f"room for what {job} makes"
            log.info("waiting for %s by run %s: %s", what, part.run.name, told)


def staged_in(called: Called, seconds: float) -> str:
    from stager.client import format_size

    held = [os.stat(each.path).st_size for each in called.view.inputs if each.path and os.path.isfile(each.path)]
    inputs, outputs = f"{len(called.view.inputs)} inlets ({format_size(sum(held))})", f"{len(called.view.outputs)} outlets"
    told = f"stager staged {inputs} of {called.job} in {seconds:.1f} s"
    return f"{told}, and takes {outputs} when it has ended well (run {called.of.run.name})"


def reachable(directory: str) -> bool:
    return os.path.isdir(directory) and os.access(directory, os.R_OK | os.W_OK | os.X_OK)
