"""Attempts of an engine's jobs: stage in, wait until the engine says how its task ended, stage out. No process of stager's runs.

May know: the worker and this room. One rule: as for all attempts, every step can be repeated: what was staged and what the engine said
stand in the attempt's directory before anybody is told.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stager.model.errors import Refused, StagerError
from stager.worker.attempt import AttemptResult, AttemptWaiting
from stager.worker.place import Place, publish_json, read_json, write_json
from stager.worker.spec import AttemptSpec
from stager.worker.ticks import boot_id, since_boot_s
from stager.worker.worker import Worker, failed, release_body, stage_in_body, unless_unasked

FINISHED, KILLED = "exited", "killed"


@dataclass(frozen=True, slots=True)
class Staged:
    """`directory`: what the engine's task reads and writes in. `told`: it said how it ended, and its outputs are being taken."""

    directory: str
    told: bool


class Called:
    """On the event loop's thread."""

    def __init__(self, worker: Worker, staged: Callable[[], None]) -> None:
        """`staged` is called whenever an attempt is: no event tells of it, and somebody waits."""
        self.worker, self.staged = worker, staged
        self.waiting: dict[str, asyncio.Event] = {}

    async def run(self, spec: AttemptSpec) -> AttemptResult | AttemptWaiting:
        """The same attempt again goes on where it was."""
        place = Place.of(self.worker.state_dir, spec.attempt_id)
        done = read_json(place.outcome)
        if done is not None:
            return AttemptResult.from_json(done)
        told = self.waiting.setdefault(spec.attempt_id, asyncio.Event())
        try:
            if read_json(place.attempt) is None:
                place.make()
                write_json(place.attempt, spec.to_json())
            if read_json(place.staged) is None and (problem := await self._stage(spec, place)) is not None:
                return await self.worker.release(spec, place, problem)
            while (result := read_json(place.result)) is None:
                await told.wait()
                told.clear()
        finally:
            self.waiting.pop(spec.attempt_id, None)
        return await self.worker.finish(spec, place, result)

    async def _stage(self, spec: AttemptSpec, place: Place) -> AttemptResult | None:
        """A sandbox that a crash left half made goes first."""
        try:
            if os.path.isdir(place.sandbox):
                await self.worker.node.release(spec.attempt_id, release_body(spec, place, keep_sandbox=False))
            await self.worker.node.stage_in(spec.attempt_id, stage_in_body(spec, place))
        except StagerError as problem:
            return failed(spec, unless_unasked(problem))
        for directory in sorted({os.path.dirname(entry.path) for entry in spec.outputs} - {""}):
            os.makedirs(f"{place.sandbox}/{directory}", 0o700, exist_ok=True)
        publish_json(place.staged, {"staged_at_s": time.time(), "boot_id": boot_id(), "staged_since_boot_s": since_boot_s()})
        self.staged()
        return None

    def read(self, attempt_id: str) -> Staged | None:
        """None: not yet."""
        place = Place.of(self.worker.state_dir, attempt_id)
        if read_json(place.staged) is None:
            return None
        return Staged(place.sandbox, read_json(place.result) is not None)

    def tell(self, attempt_id: str, how: str) -> None:
        """The first word counts. Raises Refused if nothing was staged that could have ended well."""
        place = Place.of(self.worker.state_dir, attempt_id)
        if read_json(place.result) is not None:
            return
        staged = read_json(place.staged)
        if staged is None and how == FINISHED:
            raise Refused("this call was not staged yet, so its task cannot have ended well", code="not_staged", subject=attempt_id)
        result: dict[str, Any] = {"outcome": how, "exit_code": 0 if how == FINISHED else None}
        if staged is not None:
            result |= {"started_at_s": staged["staged_at_s"], "wall_s": waited_s(staged)}
        publish_json(place.result, result)
        if attempt_id in self.waiting:
            self.waiting[attempt_id].set()


def waited_s(staged: Mapping[str, Any]) -> float:
    """Since it was staged. Of another boot, or of a version that did not tell, the wall clock has to do."""
    if staged.get("boot_id") and staged["boot_id"] == boot_id():
        return max(0.0, since_boot_s() - float(staged["staged_since_boot_s"]))
    return max(0.0, time.time() - float(staged["staged_at_s"]))
