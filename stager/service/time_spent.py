"""Where the time of a run went, cause by cause, beside where its estimate says that it would go; and what was most of the difference.

May know: the critical path, plans, wire. One rule: both sides are walked by the same function, so what differs is the runs.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stager import wire
from stager.model.units import format_duration, format_size
from stager.model.workflow import Workflow
from stager.planning.make_plan import HOW_TO_GIVE
from stager.planning.plan import Basis, LinkPlan, Plan
from stager.scheduler.commands import RunOutcome
from stager.scheduler.trail import Cause, Span
from stager.service.comparison import Estimated

# In the simulated world nothing fails, nobody asks for an end, and deciding takes no time: nothing is estimated of these.
NOT_ESTIMATED = frozenset({Cause.RETRIES, Cause.DRAINED, Cause.OTHERS, Cause.SCHEDULER})
# These are told by origin.
BY_ORIGIN = frozenset({Cause.FETCHES, Cause.UPLOADS})
# Less than this share of the run, and than so much, is not worth a word.
WORTH_SHARE, WORTH_S = 0.01, 0.1
NAMES: dict[str, str] = {
    Cause.COMPUTING: "computing",
    Cause.CORES: "for cores",
    Cause.FETCHES: "for fetches",
    Cause.COPIES: "for copies between nodes",
    Cause.ROOM: "for room",
    Cause.STARTS: "for starts of programs",
    Cause.COMMITS: "for commits",
    Cause.UPLOADS: "for uploads",
    Cause.RETRIES: "for retries and outages",
    Cause.ENGINE: "for its engine",
    Cause.OTHERS: "for jobs of other runs",
    Cause.DRAINED: "while it was being ended",
    Cause.SCHEDULER: "for the scheduler",
}
BASES = {Basis.MEASURED: "measured", Basis.PROFILE: "measured", Basis.DECLARED: "declared", Basis.DEFAULT: "assumed"}


@dataclass(frozen=True, slots=True)
class Share:
    """Of the time from the submit to the end, without what it was interrupted. `cause`: a Cause, or what a newer scheduler calls one.
    `about`: an origin. `estimated_s` None: nothing was.
    """

    cause: str
    about: str
    estimated_s: float | None
    actual_s: float

    @property
    def name(self) -> str:
        between = " from " if self.cause == Cause.FETCHES else " to "
        return NAMES.get(self.cause, self.cause) + (between + self.about if self.about else "")


@dataclass(frozen=True, slots=True)
class TimeSpent:
    """`compared`: there is an estimate that it can be set beside. `note`: why not, or what to bear in mind. `largest`: what went longest
    beyond its estimate, in `words`; None: nothing worth a word.
    """

    shares: list[Share]
    compared: bool
    note: str = ""
    largest: Share | None = None
    words: str = ""

    def more_s(self, share: Share) -> float | None:
        """By how much longer than estimated. Of what nothing was estimated all of it is."""
        return share.actual_s - (share.estimated_s or 0.0) if self.compared else None


def time_spent(workflow: Workflow, plan: Plan, summary: wire.RunSummary, history: wire.RunHistory, estimated: Estimated) -> TimeSpent:
    if not history.path:
        return TimeSpent([], False, "where its time went is not told: the journal does not hold this run as a whole")
    compared = not workflow.engine and summary.outcome == RunOutcome.SUCCEEDED and estimated.report.outcome is RunOutcome.SUCCEEDED
    shares = shares_of(history.path, estimated.path if compared else None)
    spent = TimeSpent(shares, compared, note_of(workflow, summary, estimated, compared))
    if not compared:
        return spent
    most = max(spent.shares, key=lambda share: spent.more_s(share) or 0.0)
    more_s = spent.more_s(most) or 0.0
    if more_s < max(WORTH_S, WORTH_SHARE * sum(share.actual_s for share in spent.shares)):
        return spent
    return TimeSpent(spent.shares, compared, spent.note, most, Words(workflow, plan, history, most, more_s).text())


def note_of(workflow: Workflow, summary: wire.RunSummary, estimated: Estimated, compared: bool) -> str:
    if workflow.engine:
        return f"{workflow.engine} decides when its jobs run, and nothing is estimated of that: where its time went stands alone"
    if summary.outcome != RunOutcome.SUCCEEDED:
        return f"the run is {summary.outcome}, and an estimate is of one that succeeds: where its time went stands alone"
    if not compared:
        return f"the estimate is {estimated.report.outcome.value}: where the run's time went stands alone"
    if summary.interrupted_s > 0:
        return f"it was interrupted for {format_duration(summary.interrupted_s)}, which is in none of these"
    return ""


def shares_of(actual: Sequence[wire.PathSpan], estimated: Sequence[Span] | None) -> list[Share]:
    """In the order of the causes."""
    came: dict[tuple[str, str], float] = {}
    expected: dict[tuple[str, str], float] = {}
    for each in actual:
        add(came, each.cause, each.about, each.ended_s - each.begun_s)
    for span in estimated or ():
        add(expected, span.cause, span.about, span.ended_at - span.begun_at)
    places = {cause: place for place, cause in enumerate(NAMES)}
    keys = sorted(came | expected, key=lambda key: (places.get(key[0], len(places)), *key))
    return [
        Share(
            cause,
            about,
            None if estimated is None or cause in NOT_ESTIMATED else expected.get((cause, about), 0.0),
            came.get((cause, about), 0.0),
        )
        for cause, about in keys
        if cause != Cause.INTERRUPTED
    ]


def add(sums: dict[tuple[str, str], float], cause: str, about: str, seconds: float) -> None:
    key = (cause, about if cause in BY_ORIGIN else "")
    sums[key] = sums.get(key, 0.0) + seconds


class Words:
    """The longest time beyond its estimate, in one sentence: by how much, on what, and what helps where that is known."""

    def __init__(self, workflow: Workflow, plan: Plan, history: wire.RunHistory, share: Share, more_s: float) -> None:
        self.workflow, self.plan, self.history, self.share = workflow, plan, history, share
        self.longer = f"{format_duration(more_s)} longer than estimated"
        spans = [span for span in history.path if span.cause == share.cause and share.about in ("", span.about)]
        self.longest = max(spans, key=lambda span: span.ended_s - span.begun_s)

    def text(self) -> str:
        teller = TOLD.get(self.share.cause)
        return teller(self) if teller is not None else f"{self.share.name}: {self.longer}"

    def advice(self) -> str:
        """The command that tells the timeline of the longest of these waits."""
        span = self.longest
        what = f"--file {shlex.quote(span.lfn)}" if span.lfn else f"--job {shlex.quote(span.job)}" if span.job else ""
        return f"`stager explain {shlex.quote(self.history.run)} {what}` tells of the longest" if what else ""

    def computing(self) -> str:
        spans = [(span.job, span.ended_s - span.begun_s) for span in self.history.path if span.cause == Cause.COMPUTING]
        slow = self.slowest(spans, 0.0)
        return f"programs ran {self.longer}{slow or ': the run waited for other jobs than in the estimate'}"

    def cores(self) -> str:
        spans = [(span.job, span.ended_s - span.begun_s) for span in self.history.attempts]
        slow = self.slowest(spans, self.plan.overhead_s)
        return f"jobs waited for cores {self.longer}{slow or ': others had them, other runs maybe; --cores gives more'}"

    def slowest(self, spans: Sequence[tuple[str, float]], beside_s: float) -> str:
        """Of jobs, each with its time: the type that took most beyond what was planned. Empty: none did, by so much that it explains it."""
        planned = {entry.job: entry for entry in self.plan.jobs}
        by_type: dict[str, list[float]] = {}
        for name, took_s in spans:
            job = self.workflow.jobs.get(name)
            if job is not None and name in planned:
                sums = by_type.setdefault(job.job_type, [0.0, 0.0])
                sums[0] += took_s
                sums[1] += planned[name].compute_s + beside_s
        name, (took_s, planned_s) = max(by_type.items(), key=lambda entry: entry[1][0] - entry[1][1], default=("", [0.0, 0.0]))
        if took_s - planned_s < max(WORTH_S, WORTH_SHARE * planned_s):
            return ""
        first = next(entry for entry in self.plan.jobs if self.workflow.jobs[entry.job].job_type == name)
        times = f"{format_duration(took_s)} where the plan had {format_duration(planned_s)} ({BASES[first.compute_basis]})"
        # What the job itself says counts more than what was measured; a hint counts less.
        mend = later(Basis.DECLARED if self.workflow.jobs[first.job].compute_s is not None else Basis.PROFILE)
        return f", most of it for jobs of type {name!r}: {times}; {mend}"

    def fetches(self) -> str:
        origin = self.share.about
        return f"jobs waited for fetches{' from ' + origin if origin else ''} {self.longer}{self.moved('fetch', origin)}"

    def uploads(self) -> str:
        origin = self.share.about
        return f"finals waited for uploads to {origin} {self.longer}{self.moved('upload', origin)}"

    def moved(self, direction: str, origin: str) -> str:
        """How much went over the line, how fast, and what the plan took it to carry."""
        moves = [move for move in self.history.moves if move.direction == direction and move.origin == origin]
        busy_s, size_bytes = together_s([(move.begun_s, move.ended_s) for move in moves]), sum(move.size_bytes for move in moves)
        link = next((link for link in self.plan.links if link.origin == origin), None)
        if not moves or busy_s <= 0 or link is None:
            return ""
        planned, basis = rate_of(link, direction)
        rate = size_bytes / busy_s
        text = f": {len(moves)} file{'s' if len(moves) > 1 else ''}, {format_size(size_bytes)} at {format_size(rate)}/s"
        text += f" where the plan took {format_size(planned)}/s ({BASES[basis]})"
        if link.latency_s > 0:
            text += f" after {link.latency_s * 1000:.0f} ms a file"
        return f"{text}; {self.advice() if rate >= planned else later(basis)}"

    def copies(self) -> str:
        return f"jobs waited for copies from other nodes {self.longer}; {self.advice()}"

    def room(self) -> str:
        return f"jobs waited for room {self.longer}, with {format_size(self.history.capacity_bytes)} of capacity; give more ({HOW_TO_GIVE})"

    def starts(self) -> str:
        return f"from a job's start until its program ran it took {self.longer}: inputs are staged then; {self.advice()}"

    def commits(self) -> str:
        return (
            f"from the end of programs until their outputs were committed it took {self.longer}: "
            f"they are hashed and put on disk then; {self.advice()}"
        )

    def retries(self) -> str:
        advice = self.advice()
        return f"tries that failed, and pauses after them, took {format_duration(self.share.actual_s)}{'; ' + advice if advice else ''}"

    def drained(self) -> str:
        return f"the run was being ended for {format_duration(self.share.actual_s)}, and resumed"

    def others(self) -> str:
        return f"for {format_duration(self.share.actual_s)} another run was making what a job reads"

    def scheduler(self) -> str:
        advice, taken = self.advice(), format_duration(self.share.actual_s)
        more = f"; {advice}" if advice else ""
        return f"for {taken} all was there and had not been begun, which nothing explains but the scheduler{more}"


TOLD: dict[str, Callable[[Words], str]] = {
    Cause.COMPUTING: Words.computing,
    Cause.CORES: Words.cores,
    Cause.FETCHES: Words.fetches,
    Cause.COPIES: Words.copies,
    Cause.ROOM: Words.room,
    Cause.STARTS: Words.starts,
    Cause.COMMITS: Words.commits,
    Cause.UPLOADS: Words.uploads,
    Cause.RETRIES: Words.retries,
    Cause.DRAINED: Words.drained,
    Cause.OTHERS: Words.others,
    Cause.SCHEDULER: Words.scheduler,
}


def later(basis: Basis) -> str:
    """The advice that mends a number that was wrong."""
    return "correct what is declared" if basis is Basis.DECLARED else "later plans take what was measured"


def rate_of(link: LinkPlan, direction: str) -> tuple[float, Basis]:
    if direction == "fetch":
        return link.fetch_bytes_per_s, link.fetch_basis
    return link.upload_bytes_per_s, link.upload_basis


def together_s(spans: Sequence[tuple[float, float]]) -> float:
    """For how long any of them went on."""
    total_s, until = 0.0, 0.0
    for begun, ended in sorted(spans):
        total_s += max(0.0, ended - max(begun, until))
        until = max(until, ended)
    return total_s
