"""The steps of attempts, done by the workers of hosts: as `worker.Worker` does them here.

May know: the pool, the words of hosts, tickets. One rule: an attempt is asked about under one key, and with the disk that it was given
to, so that no other disk takes it for new.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Container, Sequence
from dataclasses import dataclass
from pathlib import Path

from stager.adapters.attempt_tickets import AttemptTickets, Committed, NotOpened
from stager.adapters.briefs import Briefs
from stager.adapters.dask_pool import DaskPool
from stager.adapters.host_words import Call, HostFacts, Step, ending_of
from stager.adapters.remote_node import TICKET_UNKNOWN_CODE, Ticket
from stager.model.errors import Fault, Refused, StagerError
from stager.scheduler import commands as cmd
from stager.worker import AttemptResult, AttemptSpec, AttemptWaiting, Outcome
from stager.worker.place import publish_json, read_json, safe_name

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


class HostWorkers:
    """On the event loop's thread. `commands`: by attempt, of all that are asked about here."""

    def __init__(self, pool: DaskPool, briefs: Briefs, places: HostPlaces, tickets: AttemptTickets, epoch: int) -> None:
        self.pool, self.briefs, self.places, self.tickets, self.epoch = pool, briefs, places, tickets, epoch
        self.commands: dict[str, cmd.StartAttempt] = {}
        self.called_off: set[str] = set()
        self.facts: dict[str, HostFacts] = {}
        # Attempts whose hosts have lost the tickets that a scheduler before this one gave them.
        self.ticketless: set[str] = set()
        self.given: dict[str, Given] = {}
        self.spec_of: Callable[[cmd.StartAttempt], AttemptSpec]
        self.outstanding: Callable[[str], Collection[str]] = lambda host: ()
        self.cores_of: Callable[[cmd.StartAttempt], int] = lambda command: 1
        self.log_locks: dict[str, asyncio.Lock] = {}
        # How much was printed in all, as its host said when it answered.
        self.printed: dict[str, dict[str, int]] = {}
        pool.heard.on_host = self._host_is_there

    def was_given(self, attempt: str) -> bool:
        return read_json(str(self._note(attempt))) is not None

    async def run(self, spec: AttemptSpec) -> Ending:
        if self.given_to(self.commands[spec.attempt_id]).ticketed:
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
        from stager.adapters.host_preload import kill

        self.called_off.add(attempt_id)
        while (command := self.commands.get(attempt_id)) is not None:
            try:
                await self.pool.ask(command.host, kill, attempt_id)
                return True
            except StagerError as problem:
                log.info("attempt %s is to be ended: %s", attempt_id, problem.message)
                await asyncio.sleep(ASK_AGAIN_S)
        return False

    async def forget(self, attempts: Sequence[str]) -> None:
        """Their ends are recorded. A host that does not answer is told when it is there again."""
        from stager.adapters.host_preload import forget

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
                await self.pool.ask(host, forget, its)
            except StagerError as problem:
                log.info("what %d attempts left stays for now: %s", len(its), problem.message)
        await asyncio.to_thread(self._drop_notes, attempts)

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
                brief="" if given.ticketed else str(self.briefs.path),
                scratch=given.scratch,
                reserve_bytes=reserve_bytes,
                called_off=attempt in self.called_off,
                ticket=ticket,
            )

        key = f"stager-{attempt}" if takes else f"stager-{attempt}-{step.value}"
        try:
            answer = await self.pool.call(key, make, command.host, cores)
            self.printed[attempt] = answer.get("printed", {})
            return ending_of(attempt, answer)
        except Committed as over:
            return over.ending
        except NotOpened as problem:
            return await self._not_opened(command, given, problem.fault)
        except Refused as problem:
            if problem.code == TICKET_UNKNOWN_CODE:
                self.ticketless.add(attempt)
            raise

    async def _ticket(self, command: cmd.StartAttempt, spec: AttemptSpec | None) -> Ticket | None:
        """None: of one that was begun before a restart its host has the ticket, as long as it does not say otherwise."""
        attempt = command.attempt
        if spec is None and attempt not in self.tickets.opened and attempt not in self.ticketless:
            return None
        return await self.tickets.of(command, spec or self.spec_of(command))

    async def _not_opened(self, command: cmd.StartAttempt, given: Given, fault: Fault) -> AttemptResult:
        """It may have begun before its node was started anew."""
        from stager.adapters.host_preload import kill

        if given.before:
            with contextlib.suppress(StagerError):
                await self.pool.ask(command.host, kill, command.attempt)
        return AttemptResult(attempt_id=command.attempt, outcome=Outcome.FAILED, fault=fault)

    def given_to(self, command: cmd.StartAttempt) -> Given:
        """Noted before it is given: whoever comes after us asks for it there."""
        known = self.given.get(command.attempt)
        if known is None:
            known = self.given[command.attempt] = self._noted(command)
        return known

    def _noted(self, command: cmd.StartAttempt) -> Given:
        note = self._note(command.attempt)
        if (said := read_json(str(note))) is not None:
            return Given(str(said["scratch"]), bool(said.get("ticketed")))
        facts = self.facts.get(command.host)
        given = Given(facts.scratch, not facts.shares_files, False) if facts is not None else Given("", False, False)
        note.parent.mkdir(mode=0o700, exist_ok=True)
        publish_json(str(note), {"host": command.host, "scratch": given.scratch, "ticketed": given.ticketed})
        return given

    def _note(self, attempt: str) -> Path:
        return self.places.given / f"{attempt}.json"

    def _drop_notes(self, attempts: Collection[str]) -> None:
        for attempt in attempts:
            self._note(attempt).unlink(missing_ok=True)

    def drop_other_notes(self, outstanding: Container[str]) -> None:
        """Of attempts that are over."""
        if self.places.given.is_dir():
            noted = [name.removesuffix(".json") for name in os.listdir(self.places.given)]
            self._drop_notes([attempt for attempt in noted if attempt not in outstanding])

    def _host_is_there(self, facts: HostFacts) -> None:
        """It is told which attempts are not over. None of what it is about to be given is among them."""
        self.facts[facts.host] = facts
        self.pool.tasks.start(f"the sweep of host {facts.host}", self._sweep(facts.host))

    async def _sweep(self, host: str) -> None:
        from stager.adapters.host_preload import sweep

        try:
            await self.pool.ask(host, sweep, sorted(self.outstanding(host)))
        except StagerError as problem:
            log.info("old attempts of host %s stay for now: %s", host, problem.message)

    async def bring_logs(self, attempt: str) -> None:
        """What it has printed since. Nothing comes where its host does not answer."""
        from stager.adapters.host_preload import read_log

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
                        if after >= self.printed.get(attempt, {}).get(stream, LOG_BYTES_MAX):
                            break
                        asked = (command.run, command.job, command.number, stream, after)
                        size_bytes, piece = await self.pool.ask(command.host, read_log, *asked)
                        await asyncio.to_thread(append, path, piece)
                        if not piece or after + len(piece) >= min(size_bytes, LOG_BYTES_MAX):
                            break
                except StagerError as problem:
                    log.info("the output of attempt %s does not come: %s", attempt, problem.message)
                    return


def append(path: Path, piece: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(piece)
