"""Runs as lists: all, a page of a tenant's, the one that a key has made. One rule: asking changes nothing; a list is of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stager import wire
from stager.adapters.run_records import RunRecord, RunRecords
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.run_service import RunService
from stager.service.views import line_info, run_info

# As SQLite says it.
NO_LIMIT = -1


class RunLists:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, records: RunRecords, run_service: RunService, clock: Callable[[], float]) -> None:
        self.inquiry, self.runs, self.records, self.run_service, self.clock = inquiry, runs, records, run_service, clock

    async def whole(self, *, in_lines: bool) -> list[wire.RunInfo]:
        """The oldest first. `in_lines` False: each run by itself."""

        def read() -> list[wire.RunInfo]:
            return self._infos(reversed(self.records.page(None, None, NO_LIMIT, in_lines=in_lines)), in_lines=in_lines)

        return await self.inquiry.ask(read)

    async def page(
        self, tenant: str | None, start: tuple[float, str] | None, limit: int, chosen: dict[str, Any]
    ) -> tuple[list[wire.RunInfo], tuple[float, str] | None]:
        """The newest first, and where the next page begins, if there is one."""

        def read() -> tuple[list[wire.RunInfo], tuple[float, str] | None]:
            records = self.records.page(tenant, start, limit + 1, **chosen)
            shown = records[:limit]
            more = (shown[-1].submitted_at, shown[-1].run) if len(records) > limit else None
            return self._infos(shown, in_lines=chosen["in_lines"]), more

        return await self.inquiry.ask(read)

    async def made_by(self, key: str, tenant: str) -> list[wire.RunInfo]:
        """The run that any submit of this tenant under this key has made, if it is there."""

        def read() -> list[wire.RunInfo]:
            made = self.run_service.made_by(key, tenant)
            return [] if made is None or made.removed else self._infos([made], in_lines=False)

        return await self.inquiry.ask(read)

    def _infos(self, records: Iterable[RunRecord], *, in_lines: bool) -> list[wire.RunInfo]:
        """On the driving thread. `in_lines`: each record is the first of what is told in one line with it."""
        known, now = self.runs.state.runs, self.clock()
        return [
            line_info(record, self.records.line(record.tenant, record.part_of), known, now)
            if in_lines and record.part_of
            else run_info(record, known.get(record.run), now)
            for record in records
        ]
