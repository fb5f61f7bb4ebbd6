"""Notices as they follow from the journal: one for each of its entries that somebody may want to be told of.

May know: events and commands. One rule: the same batches make the same notices with the same ids, whether they are lived, or read again
after a crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from stager.model.errors import Fault, is_unreachable
from stager.model.ids import digest_of
from stager.model.notices import Fact, Notice, NoticeKind
from stager.model.units import format_duration, format_size
from stager.model.workflow import RunTarget
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev

# Of those that are over only the newest are remembered, since all of it is written with each notice.
RUNS_OVER_MAX = 50
TEXT_MAX = 500


@dataclass(slots=True)
class KnownRun:
    workflow: str
    tenant: str
    over: bool = False
    targets: tuple[RunTarget, ...] = ()


@dataclass(slots=True)
class Moving:
    """A transfer from or to an origin. `final`: the destination's path, of an upload of a final."""

    run: str
    lfn: str
    origin: str
    final: str = ""


@dataclass(slots=True)
class Away:
    """An origin that does not answer a run."""

    run: str
    origin: str
    since: float
    fault: Fault
    told: bool = False


@dataclass(slots=True)
class Kept:
    """What the batches so far leave for those to come."""

    epoch: int = 0
    runs: dict[str, KnownRun] = field(default_factory=dict)
    moving: dict[str, Moving] = field(default_factory=dict)
    away: dict[str, Away] = field(default_factory=dict)


class NoticeFold:
    """`source`: of the state directory. `lfn_of`: the name of a file by its id, `run_of`: what is known of a run, where somebody knows."""

    def __init__(self, source: str, away_after_s: float) -> None:
        self.source, self.away_after_s = source, away_after_s
        self.lfn_of: Callable[[str], str] = lambda file: ""
        self.run_of: Callable[[str], KnownRun] = lambda run: KnownRun("", "")
        self.kept = Kept()

    def take_up(self, kept: bytes) -> None:
        self.kept = msgspec.msgpack.decode(kept, type=Kept)

    def to_keep(self) -> bytes:
        return msgspec.msgpack.encode(self.kept)

    def saw(self, number: int, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> list[Notice]:
        found = [notice for at, event in enumerate(events) for notice in self._of_event(event, f"{number}-e{at}")]
        found += [notice for at, command in enumerate(commands) for notice in self._of_command(command, f"{number}-c{at}")]
        if self.kept.away and events:
            found += self._long_away(events[-1].at, str(number))
        return found

    def _of_event(self, event: ev.Event, place: str) -> Iterator[Notice]:
        kept = self.kept
        if type(event) is ev.SchedulerStarted:
            kept.epoch = event.epoch
        elif type(event) is ev.RunSubmitted:
            kept.runs[event.run] = KnownRun(event.workflow.name, event.tenant, targets=event.workflow.notify)
            for run in [name for name, known in kept.runs.items() if known.over][:-RUNS_OVER_MAX]:
                del kept.runs[run]
        elif type(event) is ev.RunResumed:
            self._known(event.run).over = False
        elif type(event) is ev.TransferDone:
            moved = kept.moving.pop(event.transfer, None)
            if moved is not None:
                kept.away.pop(f"{moved.run}\n{moved.origin}", None)
                # By its size alone it is written, and not durable.
                if moved.final and event.verified not in ("", "size"):
                    yield self._durable(event, moved, place)
        elif type(event) is ev.TransferFailed:
            moved = kept.moving.pop(event.transfer, None)
            if moved is not None and is_unreachable(event.fault):
                away = kept.away.setdefault(f"{moved.run}\n{moved.origin}", Away(moved.run, moved.origin, event.at, event.fault))
                away.fault = event.fault
        elif type(event) is ev.TransferCancelled:
            kept.moving.pop(event.transfer, None)
        elif type(event) is ev.ReplicaCorrupt:
            lfn = self.lfn_of(event.file)
            text = f"node {event.node} found damage: {lfn or event.file}: {event.fault.message}"
            facts: dict[str, Fact] = {"node": event.node, "file": lfn, "file_id": event.file, "generation": event.generation}
            facts["code"] = event.fault.code
            yield self._notice(NoticeKind.DAMAGE_FOUND, event.at, place, text, "", facts)

    def _of_command(self, command: cmd.Command, place: str) -> Iterator[Notice]:
        kept = self.kept
        if type(command) is cmd.Fetch:
            kept.moving[command.transfer] = Moving(command.run, command.lfn, command.origin)
        elif type(command) is cmd.Upload:
            final = command.path if command.purpose is cmd.Purpose.FINAL else ""
            kept.moving[command.transfer] = Moving(command.run, command.lfn, command.origin, final)
        elif type(command) is cmd.FinishRun:
            for key in [key for key, away in kept.away.items() if away.run == command.run]:
                del kept.away[key]
            kept.moving = {transfer: moved for transfer, moved in kept.moving.items() if moved.run != command.run}
            fault = command.fault
            text = f"run {command.run} has ended: {command.outcome.value}" + (f": {fault.message}" if fault is not None else "")
            facts: dict[str, Fact] = {"outcome": command.outcome.value, "code": fault.code if fault is not None else ""}
            yield self._notice(NoticeKind.RUN_ENDED, command.at, place, text, command.run, facts)
            self._known(command.run).over = True
        elif type(command) is cmd.PauseRun:
            facts = {"paused": 1, "spent": command.spent, "set_aside": command.owed, "forecast": command.forecast}
            yield self._notice(NoticeKind.BUDGET, command.at, place, command.fault.message, command.run, facts)
        elif type(command) is cmd.TellForecast:
            facts = {"spent": command.spent, "currency": command.currency, "expected": command.expected, "allowed": command.allowed}
            kind = NoticeKind.BUDGET if command.about is cmd.Forecast.COST else NoticeKind.DEADLINE
            yield self._notice(kind, command.at, place, command.text, command.run, facts | {"paused": 0})

    def targets_of(self, run: str) -> tuple[RunTarget, ...]:
        """Whom its workflow wants told."""
        return self._known(run).targets if run else ()

    def _known(self, run: str) -> KnownRun:
        if run not in self.kept.runs:
            self.kept.runs[run] = self.run_of(run)
        return self.kept.runs[run]

    def _durable(self, event: ev.TransferDone, moved: Moving, place: str) -> Notice:
        text = f"{moved.lfn} of run {moved.run} is durable: {moved.origin}:{moved.final}, {format_size(event.size_bytes)}"
        facts: dict[str, Fact] = {
            "file": moved.lfn,
            "origin": moved.origin,
            "path": moved.final,
            "size_bytes": event.size_bytes,
            "blake3": event.blake3,
            "verified": event.verified,
        }
        return self._notice(NoticeKind.FINAL_DURABLE, event.at, place, text, moved.run, facts)

    def _long_away(self, now: float, number: str) -> Iterator[Notice]:
        """By the first batch that comes when the time is over: transfers are tried again meanwhile, so there is one."""
        for key, away in self.kept.away.items():
            if away.told or now < away.since + self.away_after_s:
                continue
            away.told = True
            text = f"origin {away.origin} does not answer run {away.run}, for {format_duration(now - away.since)}: {away.fault.message}"
            facts: dict[str, Fact] = {"origin": away.origin, "since": away.since, "away_s": now - away.since, "code": away.fault.code}
            yield self._notice(NoticeKind.ORIGIN_AWAY, now, f"{number}-a{digest_of(key)[:6]}", text, away.run, facts)

    def _notice(self, kind: NoticeKind, at: float, place: str, text: str, run: str, facts: dict[str, Fact]) -> Notice:
        known = self._known(run) if run else KnownRun("", "")
        return Notice(f"{self.source}-{self.kept.epoch}-{place}", kind, at, text[:TEXT_MAX], run, known.workflow, known.tenant, facts)


def body_of(notice: Notice) -> bytes:
    """As it is told: the same bytes at each try."""
    told = {
        "id": notice.id,
        "kind": notice.kind,
        "at": notice.at,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(notice.at)),
        "text": notice.text,
        "run": notice.run,
        "workflow": notice.workflow,
        "tenant": notice.tenant,
        "facts": dict(notice.facts or {}),
    }
    return msgspec.json.encode(told)
