"""The steps of attempts, done by the workers of hosts: as `worker.Worker` does them here.

May know: the pool, the words of hosts, tickets. One rule: an attempt is asked about under one key, and with the disk that it was given
to, so that no other disk takes it for new.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from stager.adapters.attempt_tickets import AttemptTickets, Committed, NotOpened
from stager.adapters.briefs import Briefs
from stager.adapters.dask_pool import Heard
from stager.adapters.given_notes import GivenNotes
from stager.adapters.host_words import Asked, Call, HostFacts, Step, by_our_clock, ending_of
from stager.adapters.remote_node import TICKET_UNKNOWN_CODE, Ticket
from stager.model.errors import Fault, Refused, StagerError, Transient
from stager.scheduler import commands as cmd
from stager.tasks import Tasks
from stager.worker import AttemptResult, AttemptSpec, AttemptWaiting, Outcome
from stager.worker.place import safe_name

log = logging.getLogger(__name__)
Ending = AttemptResult | AttemptWaiting
ASK_AGAIN_S = 0.5
LOG_BYTES_MAX = 64 << 20
# Log files, by how their names end.
STREAMS = ("out", "err")


@dataclass(frozen=True, slots=True)
class HostPlaces:
    """`given`: a directory with a file for each attempt that was given to a host. `logs`: where logs are kept when attempts are over."""

    given: Path
    logs: Path


@dataclass(frozen=True, slots=True)
class Given:
    """To whom an attempt was given: the disk of its host, and whether that one needs a ticket. `before`: not by this call."""

    scratch: str
    ticketed: bool
    before: bool = True


class HostPool(Protocol):
    """A pool as it is asked: `dask_pool`, or through its gateway. `problem`: why it does not answer, if it does not."""

    address: str
    problem: str
    heard: Heard
    tasks: Tasks

    @property
    def answers(self) -> bool: ...

    def open(self) -> None: ...
    async def close(self) -> None: ...
    async def call(self, key: str, make: Callable[[], Awaitable[Call]], host: str, cores: int) -> dict[str, Any]: ...
    async def ask(self, host: str, what: Asked, *args: Any) -> Any: ...


class HostWorkers:
    """On the event loop's thread. `commands`: by attempt, of all that are asked about here. `briefs` None: no host shares files."""

    def __init__(self, pool: HostPool, briefs: Briefs | None, places: HostPlaces, tickets: AttemptTickets, epoch: int) -> None:
        self.pool, self.briefs, self.places, self.tickets, self.epoch = pool, briefs, places, tickets, epoch
        self.notes = GivenNotes(places.given)
        self.commands: dict[str, cmd.StartAttempt] = {}
        self.called_off: set[str] = set()
        self.facts: dict[str, HostFacts] = {}
        # Attempts whose hosts have lost the tickets that a scheduler before this one gave them.
        self.ticketless: set[str] = set()
        # Attempts that are over, by their hosts, which did not answer then.
        self.unforgotten: dict[str, list[str]] = {}
        self.given: dict[str, Given] = {}
        self.spec_of: Callable[[cmd.StartAttempt], AttemptSpec]
        self.outstanding: Callable[[str], Collection[str]] = lambda host: ()
        self.cores_of: Callable[[cmd.StartAttempt], int] = lambda command: 1
        self.log_locks: dict[str, asyncio.Lock] = {}
        # How much was printed in all, as its host said when it answered.
        self.printed: dict[str, dict[str, int]] = {}
        pool.heard.on_host = self._host_is_there

    async def open(self) -> None:
        if self.briefs is not None:
            await self.briefs.open()
        self.pool.open()

    async def close(self) -> None:
        await self.pool.close()
        if self.briefs is not None:
            await self.briefs.close()

    def was_given(self, attempt: str) -> bool:
        return self.notes.read(attempt) is not None

    async def run(self, spec: AttemptSpec) -> Ending:
        command = self.commands[spec.attempt_id]
        # A scheduler that is killed behind its journal and before its note is followed by one that has heard of no host yet.
        while command.host not in self.facts and not self.was_given(command.attempt):
            await asyncio.sleep(ASK_AGAIN_S)
        if self.briefs is None or self.given_to(command).ticketed:
            return await self._asked(spec.attempt_id, Step.RUN, spec=spec)
        self.briefs.specs[spec.attempt_id] = spec
        try:
            return await self._asked(spec.attempt_id, Step.RUN)
        finally:
            self.briefs.specs.pop(spec.attempt_id, None)

    async def adopt(self, attempt_id: str) -> Ending:
        return await self._asked(attempt_id, Step.ADOPT)

    async def commit(self, attempt_id: str, reserve_bytes: int) -> Ending:
        return await self._asked(attempt_id, Step.COMMIT, reserve_bytes)

    async def abandon(self, attempt_id: str) -> AttemptResult:
        ending = await self._asked(attempt_id, Step.ABANDON)
        assert isinstance(ending, AttemptResult), "what is abandoned does not wait"
        return ending

    async def kill(self, attempt_id: str) -> bool:
        """Now, or as soon as its host answers."""
        self.called_off.add(attempt_id)
        while (command := self.commands.get(attempt_id)) is not None:
            try:
                await self.pool.ask(command.host, Asked.KILL, attempt_id, self.epoch)
                return True
            except StagerError as problem:
                log.info("attempt %s is to be ended: %s", attempt_id, problem.message)
                await asyncio.sleep(ASK_AGAIN_S)
        return False

    async def forget(self, attempts: Sequence[str]) -> None:
        """Their ends are recorded. A host that does not answer is told when it is there again."""
        by_host: dict[str, list[str]] = {}
        ticketed = []
        for attempt in attempts:
            command = self.commands.pop(attempt, None)
            self.called_off.discard(attempt)
            self.log_locks.pop(attempt, None)
            self.printed.pop(attempt, None)
            self.ticketless.discard(attempt)
            given = self.given.pop(attempt, None)
            if command is not None and given is not None and given.ticketed:
                ticketed.append(command)
            if command is not None:
                by_host.setdefault(command.host, []).append(attempt)
        await asyncio.gather(*map(self.tickets.close_over, ticketed))
        for host, its in by_host.items():
            try:
                await self.pool.ask(host, Asked.FORGET, its, self.epoch)
            except StagerError as problem:
                self.unforgotten.setdefault(host, []).extend(its)
                log.info("what %d attempts left stays for now: %s", len(its), problem.message)
        await asyncio.to_thread(self.notes.drop, attempts)

    async def _asked(self, attempt: str, step: Step, reserve_bytes: int = 0, spec: AttemptSpec | None = None) -> Ending:
        """A commit takes no cores: the job has ended."""
        command = self.commands[attempt]
        takes = step in (Step.RUN, Step.ADOPT)
        cores = self.cores_of(command) if takes else 0
        given = self.given_to(command)

        async def make() -> Call:
            ticket = await self._ticket(command, spec) if given.ticketed else None
            if given.ticketed and step is Step.COMMIT:
                await self.tickets.grant(command, reserve_bytes)
            return Call(
                attempt=attempt,
                step=step,
                node=command.node,
                epoch=self.epoch,
                brief="" if given.ticketed or self.briefs is None else str(self.briefs.path),
                scratch=given.scratch,
                reserve_bytes=reserve_bytes,
                called_off=attempt in self.called_off,
                ticket=ticket,
            )

        key = f"stager-{attempt}" if takes else f"stager-{attempt}-{step.value}"
        try:
            return await self.ending_in(command, await self.pool.call(key, make, command.host, cores))
        except Committed as over:
            return over.ending
        except NotOpened as problem:
            return await self._not_opened(command, given, problem.fault)
        except Refused as problem:
            if problem.code == TICKET_UNKNOWN_CODE:
                self.ticketless.add(attempt)
            raise

    async def ending_in(self, command: cmd.StartAttempt, answer: dict[str, Any]) -> Ending:
        """What a host's answer says. Raises the StagerError that it tells."""
        self.printed[command.attempt] = answer.get("printed", {})
        ending = ending_of(command.attempt, answer)
        return by_our_clock(ending, answer.get("now_s")) if isinstance(ending, AttemptResult) else ending

    async def _ticket(self, command: cmd.StartAttempt, spec: AttemptSpec | None) -> Ticket | None:
        """None: of one that was begun before a restart its host has the ticket, as long as it does not say otherwise."""
        attempt = command.attempt
        if spec is None and attempt not in self.tickets.opened and attempt not in self.ticketless:
            return None
        return await self.tickets.of(command, spec or self.spec_of(command))

    async def _not_opened(self, command: cmd.StartAttempt, given: Given, fault: Fault) -> AttemptResult:
        """It may have begun before its node was started anew."""
        if given.before:
            with contextlib.suppress(StagerError):
                await self.pool.ask(command.host, Asked.KILL, command.attempt, self.epoch)
        return AttemptResult(attempt_id=command.attempt, outcome=Outcome.FAILED, fault=fault)

    def was_ticketed(self, command: cmd.StartAttempt) -> bool:
        """One that was given to nobody has no ticket, and nothing is noted of it: where there is no room, it ends all the same."""
        if (known := self.given.get(command.attempt)) is not None:
            return known.ticketed
        return bool((self.notes.read(command.attempt) or {}).get("ticketed"))

    def given_to(self, command: cmd.StartAttempt) -> Given:
        """Noted before it is given: whoever comes after us asks for it there. Raises Transient while nobody knows to which disk."""
        known = self.given.get(command.attempt)
        if known is None:
            known = self.given[command.attempt] = self.noted(command)
        return known

    def noted(self, command: cmd.StartAttempt) -> Given:
        if (said := self.notes.read(command.attempt)) is not None:
            return Given(str(said["scratch"]), bool(said.get("ticketed")))
        facts = self.facts.get(command.host)
        if facts is None:
            text = (
                f"host {command.host} has not answered this scheduler yet, so it is not known to which disk attempt {command.attempt} goes"
            )
            raise Transient(text, code="connection_lost", subject=command.host)
        given = Given(facts.scratch, not facts.shares_files, False)
        self.notes.write(command.attempt, {"host": command.host, "scratch": given.scratch, "ticketed": given.ticketed})
        return given

    def _host_is_there(self, facts: HostFacts) -> None:
        """It is told which attempts are not over. None of what it is about to be given is among them."""
        self.facts[facts.host] = facts
        self.pool.tasks.start(f"the sweep of host {facts.host}", self._sweep(facts.host))

    async def _sweep(self, host: str) -> None:
        left = self.unforgotten.pop(host, [])
        try:
            if left:
                await self.pool.ask(host, Asked.FORGET, left, self.epoch)
                left = []
            await self.pool.ask(host, Asked.SWEEP, sorted(self.outstanding(host)), self.epoch)
        except StagerError as problem:
            self.unforgotten.setdefault(host, []).extend(left)
            log.info("old attempts of host %s stay for now: %s", host, problem.message)

    async def bring_logs(self, attempt: str) -> None:
        """What it has printed since. Nothing comes where its host does not answer."""
        command = self.commands.get(attempt)
        if command is None:
            return
        directory = self.places.logs / safe_name(command.run)
        async with self.log_locks.setdefault(attempt, asyncio.Lock()):
            for stream in STREAMS:
                path = directory / f"{safe_name(command.job)}.{command.number}.{stream}"
                try:
                    while True:
                        after = path.stat().st_size if path.exists() else 0
                        if after >= min(self.printed.get(attempt, {}).get(stream, LOG_BYTES_MAX), LOG_BYTES_MAX):
                            break
                        asked = (command.run, command.job, command.number, stream, after)
                        size_bytes, piece = await self.pool.ask(command.host, Asked.READ_LOG, *asked)
                        await asyncio.to_thread(append, path, piece)
                        if not piece or after + len(piece) >= min(size_bytes, LOG_BYTES_MAX):
                            break
                except (StagerError, OSError) as problem:
                    # Also where there is no room for it here: the attempt has ended all the same.
                    log.warning("the output of attempt %s does not come: %s", attempt, problem)
                    return


def append(path: Path, piece: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(piece)
