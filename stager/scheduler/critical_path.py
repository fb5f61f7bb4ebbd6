"""Where the time of a run went: the way back from its end to its submit, over what each job on it waited for last.

May know: when things happened (`run_times.py`). One rule: every moment of the run has one cause, so the spans add up to its time.

A final waits for its job; a job for the last of the jobs above it, and then for its inputs, room and a core. Each span is what that
job or final waited for at that moment: without it, and with all else as it was, the run could have ended so much earlier at most.
"""

from __future__ import annotations

from bisect import bisect_right
from math import inf

from stager.model.workflow import graph_of
from stager.scheduler.commands import RunOutcome
from stager.scheduler.node_load import HostsLoad, NodeLoad
from stager.scheduler.run_times import Attempted, Moved, RunTimes, Way
from stager.scheduler.trail import Cause, Span, Trail

# A file is tried again at the next wake-up after its pause.
TRIED_AGAIN_S = 1.0


MOVING = {Way.FETCH: Cause.FETCHES, Way.COPY: Cause.COPIES, Way.UPLOAD: Cause.UPLOADS}


def critical_path(times: RunTimes) -> list[Span]:
    """From the submit to the end of the run. Empty: the run is not known, or goes on."""
    if times.workflow is None or times.finished_at is None:
        return []
    walk = Walk(times)
    walk.to_submit()
    return walk.spans[::-1]


class Walk(Trail):
    """Over one run."""

    def __init__(self, times: RunTimes) -> None:
        assert times.workflow is not None and times.finished_at is not None, "of a run that is over"
        super().__init__(times.submitted_at, times.finished_at, times.closings(), times.job_failed)
        graph = graph_of(times.workflow)
        self.times, self.parents, self.producer = times, graph.parents, graph.producer
        self.loads: dict[str, NodeLoad | HostsLoad] = {}
        self.of_job: dict[str, list[Attempted]] = {}
        for attempt in times.own_attempts():
            if attempt.ended_at is not None:
                self.of_job.setdefault(attempt.job, []).append(attempt)

    def to_submit(self) -> None:
        attempt, walked = self.to_last_attempt(), dict[str, None]()
        while attempt is not None and attempt.id not in walked and self.cursor > self.times.submitted_at:
            walked[attempt.id] = None
            self.through(attempt)
            attempt = self.to_what_it_waited_for(attempt)
        self.back(self.times.submitted_at, self.at_end())

    # The end

    def to_last_attempt(self) -> Attempted | None:
        """The one that ended last, of finals on their way and of attempts; where the run did not succeed, of fetches too."""
        times = self.times
        ways = (Way.UPLOAD,) if times.outcome is RunOutcome.SUCCEEDED else (Way.UPLOAD, Way.FETCH)
        moves = [move for move in times.moves.values() if move.run == times.run and move.way in ways and self.has_ended(move)]
        move = max(moves, key=ended_at, default=None)
        attempt = self.newest_attempt(self.cursor)
        if move is None or (attempt is not None and ended_at(attempt) > ended_at(move)):
            if attempt is not None:
                self.back(ended_at(attempt), self.at_end())
            return attempt
        self.back(ended_at(move), self.at_end())
        self.through_move(move, move.lfn, times.submitted_at)
        maker = self.maker_of(move) if move.way is Way.UPLOAD else None
        return maker or self.newest_attempt(self.cursor)

    def has_ended(self, move: Moved) -> bool:
        return move.ended_at is not None and move.ended_at <= self.cursor

    def newest_attempt(self, until: float) -> Attempted | None:
        ended = (attempt for attempts in self.of_job.values() for attempt in attempts if ended_at(attempt) <= until)
        return max(ended, key=ended_at, default=None)

    def at_end(self) -> Cause:
        """The cause of a time in which nothing of the run went on."""
        if self.times.outcome is RunOutcome.REFUSED:
            return Cause.ROOM
        return Cause.ENGINE if self.times.is_engines else Cause.SCHEDULER

    def maker_of(self, move: Moved) -> Attempted | None:
        """Of what is uploaded."""
        times, source = self.times, self.times.moves.get(move.generation)
        if source is not None and self.has_ended(source):
            self.while_kept(move, ended_at(source))
            self.through_move(source, move.lfn, times.submitted_at)
        made_by = times.attempts.get(move.generation) or (times.attempts.get(source.generation) if source is not None else None)
        if made_by is None or made_by.ended_at is None or made_by.ended_at > self.cursor:
            return None
        if made_by.run != times.run:
            # Another run made it: this one had it from the moment in which it was handed over.
            job = self.producer[move.lfn]
            self.while_kept(move, times.taken.get(job, (times.submitted_at, ""))[0])
            self.back(times.submitted_at, Cause.OTHERS, job=job)
            return None
        self.while_kept(move, made_by.ended_at)
        return made_by

    def while_kept(self, upload: Moved, since: float) -> None:
        """It was there, and its upload had not begun: others had the turn, or its node was away, or a try before had come to nothing."""
        times, away = self.times, self.times.away.get(upload.node)
        if since >= self.cursor:
            return
        uploads = [(move.asked_at, ended_at(move)) for move in times.moves.values() if move.way is Way.UPLOAD and self.has_ended(move)]
        busy = together(uploads)
        failed = bool(times.failed.get((upload.file, True)) or times.given_up.get(upload.file))

        def why(time: float) -> tuple[Cause, str]:
            if failed or (away is not None and away.at(time, False)):
                return Cause.RETRIES, upload.place
            found = bisect_right(busy, time, key=lambda span: span[0])
            return (Cause.UPLOADS, upload.place) if found and time < busy[found - 1][1] else (Cause.SCHEDULER, "")

        marks = [mark for span in busy for mark in span]
        marks += away.changes(since, self.cursor) if away is not None else []
        self.back_in_pieces(since, marks, why, lfn=upload.lfn)

    # One attempt

    def through(self, attempt: Attempted) -> None:
        """From its end to its begin."""
        self.back(ended_at(attempt), self.at_end())
        if not attempt.is_ok:
            self.back(attempt.begun_at, Cause.RETRIES, attempt.node, attempt.job)
            return
        made_at = ended_at(attempt) if attempt.made_at is None else max(attempt.begun_at, attempt.made_at)
        for since, until in reversed(attempt.space_waits):
            self.back(max(until, made_at), Cause.COMMITS, attempt.node, attempt.job)
            self.back(max(since, made_at), Cause.ROOM, attempt.node, attempt.job)
        self.back(made_at, Cause.COMMITS, attempt.node, attempt.job)
        began_at = attempt.begun_at if attempt.wall_s is None else max(attempt.begun_at, made_at - attempt.wall_s)
        self.back(began_at, Cause.COMPUTING, attempt.node, attempt.job)
        self.back(attempt.begun_at, Cause.STARTS, attempt.node, attempt.job)

    def to_what_it_waited_for(self, attempt: Attempted) -> Attempted | None:
        """Back to when the job could have begun at the earliest; the attempt whose end made it so, if it was one."""
        floor_at, above, remade = self.floor_of(attempt)
        called_at = newest(self.times.called.get(attempt.job, []), attempt.begun_at)
        known_at, _ = self.times.scattered.get(attempt.job, (floor_at, ""))
        base = max(floor_at, known_at) if called_at is None else max(floor_at, called_at)
        arrival, lfn = self.last_arrival(attempt)
        came_at = base if arrival is None else max(base, ended_at(arrival))
        admitted_at = newest(self.times.admitted.get(attempt.job, []), attempt.begun_at) or base
        self.while_idle(attempt, max(came_at, admitted_at))
        self.while_unadmitted(attempt, came_at)
        if arrival is not None and came_at > base:
            self.while_full(attempt, base)
            self.through_move(arrival, lfn, base, attempt.job)
            self.back(max(base, admitted_at), MOVING[arrival.way], self.place_of(arrival, lfn), attempt.job, lfn)
            self.while_unadmitted(attempt, base)
        if known_at > floor_at and called_at is None:
            # Jobs were made of the members that the one above it had named.
            self.back(floor_at, Cause.SCHEDULER)
        self.back(floor_at, Cause.ENGINE, job=attempt.job)
        if above is None and self.taken_at(attempt) == floor_at:
            self.back(self.times.submitted_at, Cause.OTHERS, job=attempt.job)
        if remade and above is not None:
            self.back(ended_at(above), Cause.RETRIES, job=attempt.job)
        return above

    def floor_of(self, attempt: Attempted) -> tuple[float, Attempted | None, bool]:
        """(since when nothing above it was missing, what ended then, whether it had to run again for what was lost)."""
        floor_at, above, remade = self.times.submitted_at, None, False
        for parent in self.parents.get(attempt.job, ()):
            made = newest_commit(self.of_job.get(parent, []), attempt.begun_at)
            if made is not None and ended_at(made) > floor_at:
                floor_at, above = ended_at(made), made
        known_at, maker = self.times.scattered.get(attempt.job, (-inf, ""))
        named = newest_commit(self.of_job.get(maker, []), known_at)
        if floor_at < known_at and named is not None and ended_at(named) > floor_at:
            floor_at, above = ended_at(named), named
        taken_at = self.taken_at(attempt)
        if taken_at > floor_at:
            # Where it was taken over because of what an attempt made, that one was waited for.
            made = self.newest_attempt(taken_at)
            floor_at, above = taken_at, made if made is not None and ended_at(made) == taken_at else None
        earlier = [each for each in self.of_job.get(attempt.job, []) if each is not attempt and ended_at(each) <= attempt.begun_at]
        if earlier and ended_at(earlier[-1]) > floor_at:
            floor_at, above = ended_at(earlier[-1]), earlier[-1]
        remade_at = newest(self.times.remade.get(attempt.job, []), attempt.begun_at)
        if remade_at is not None and remade_at > floor_at:
            floor_at, above, remade = remade_at, self.newest_attempt(remade_at), True
        return floor_at, above, remade

    def taken_at(self, attempt: Attempted) -> float:
        """When the last of the jobs above it was found done that was made elsewhere; before all, where none was."""
        taken = (self.times.taken.get(parent, (-inf, ""))[0] for parent in self.parents.get(attempt.job, ()))
        return max((at for at in taken if at <= attempt.begun_at), default=-inf)

    def last_arrival(self, attempt: Attempted) -> tuple[Moved | None, str]:
        """Of its inputs that were brought; what was there when the run was submitted came with nothing."""
        brought = [(move, lfn) for lfn, generation in attempt.inputs if (move := self.times.moves.get(generation)) is not None]
        there = [(move, lfn) for move, lfn in brought if move.ended_at is not None and move.ended_at <= attempt.begun_at]
        return max(there, key=lambda each: ended_at(each[0]), default=(None, ""))

    # Its waits

    def while_idle(self, attempt: Attempted, since: float) -> None:
        """Admitted, with all its inputs."""
        if since >= self.cursor:
            return
        load, away = self.load_of(attempt.node), self.times.away.get(attempt.node)

        def why(time: float) -> tuple[Cause, str]:
            if away is not None and away.at(time, False):
                return Cause.RETRIES, attempt.node
            return (Cause.CORES, attempt.node) if attempt.cores and load.is_full(time) else (Cause.SCHEDULER, "")

        marks = [*load.changes(since, self.cursor), *(away.changes(since, self.cursor) if away is not None else ())]
        self.back_in_pieces(since, marks, why, attempt.job)

    def while_full(self, attempt: Attempted, since: float) -> None:
        """It waited for cores when the last of its inputs came, and would have before, as long as they were full."""
        if self.spans and self.spans[-1].cause is Cause.CORES and self.spans[-1].job == attempt.job:
            full_since = self.load_of(attempt.node).full_since(self.cursor, since)
            self.back(full_since, Cause.CORES, attempt.node, attempt.job)

    def while_unadmitted(self, attempt: Attempted, since: float) -> None:
        """Nothing above it is missing. A job that is not admitted while a core is free waits for room, or behind one that does."""
        if since >= self.cursor:
            return
        times, job = self.times, attempt.job
        nodes = list(dict.fromkeys([attempt.node, times.planned_on.get(job, attempt.node)]))
        loads = [self.load_of(node) for node in nodes]
        waiting, away = times.waiting.get(attempt.node), times.away.get(attempt.node)
        pauses = times.backoffs.get(job, [])

        def why(time: float) -> tuple[Cause, str]:
            if any(begun_at <= time < ended_at for begun_at, ended_at in pauses) or (away is not None and away.at(time, False)):
                return Cause.RETRIES, attempt.node
            if attempt.cores and any(load.is_full(time) for load in loads):
                return Cause.CORES, attempt.node
            if waiting is not None and waiting.at(time, 0) >= times.admitted_waiting_max:
                return Cause.FETCHES, ""
            return Cause.ROOM, attempt.node

        marks = [mark for pause in pauses for mark in pause]
        for steps in (*loads, waiting, away):
            marks += steps.changes(since, self.cursor) if steps is not None else []
        self.back_in_pieces(since, marks, why, job)

    def load_of(self, node: str) -> NodeLoad | HostsLoad:
        if node not in self.loads:
            times = self.times
            attempts = list(times.attempts.values())
            if times.hosts.by_host:
                self.loads[node] = HostsLoad(node, attempts, times.hosts.by_host)
            else:
                self.loads[node] = NodeLoad([each for each in attempts if each.node == node], times.limits_at)
        return self.loads[node]

    # Transfers

    def through_move(self, move: Moved, lfn: str, since: float, job: str = "") -> None:
        """From its end to its begin, over its tries; of a copy on to how the file came to where it was copied from."""
        while True:
            cause, about = MOVING[move.way], self.place_of(move, lfn)
            if not move.is_ok:
                self.back(max(since, move.asked_at), Cause.RETRIES, about, job, lfn)
            self.back(max(since, move.asked_at), cause, about, job, lfn)
            self.back(max(since, self.first_asked_at(move)), Cause.RETRIES, about, job, lfn)
            source = self.times.moves.get(move.generation) if move.way is Way.COPY else None
            if source is None or source.ended_at is None or not since < source.ended_at <= self.cursor:
                return
            self.back(source.ended_at, cause, about, job, lfn)
            move = source

    def first_asked_at(self, move: Moved) -> float:
        """Of this file, counting tries that failed and were followed by this one without anything else between."""
        asked_at = move.asked_at
        for earlier in reversed(self.times.failed.get((move.file, move.way is Way.UPLOAD), [])):
            if ended_at(earlier) > asked_at or earlier is move:
                continue
            if earlier.not_before is None or asked_at > max(earlier.not_before, ended_at(earlier)) + TRIED_AGAIN_S:
                break
            asked_at = earlier.asked_at
        return asked_at

    def place_of(self, move: Moved, lfn: str) -> str:
        """As this run calls it, also where it was moved for another."""
        if move.run == self.times.run or move.way is Way.COPY:
            return move.place
        workflow = self.times.workflow
        file = workflow.files.get(lfn) if workflow is not None else None
        return file.sources[0].location.origin if file is not None and file.sources else ""


def ended_at(what: Attempted | Moved) -> float:
    assert what.ended_at is not None, "only what has ended is walked over"
    return what.ended_at


def together(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """When any of them went on."""
    merged: list[tuple[float, float]] = []
    for begun_at, until in sorted(spans):
        if merged and begun_at <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], until))
        else:
            merged.append((begun_at, until))
    return merged


def newest(times: list[float], until: float) -> float | None:
    """The last of them until then; they ascend."""
    found = bisect_right(times, until)
    return times[found - 1] if found else None


def newest_commit(attempts: list[Attempted], until: float) -> Attempted | None:
    return next((each for each in reversed(attempts) if each.is_ok and ended_at(each) <= until), None)
