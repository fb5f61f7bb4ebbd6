"""Reaching the scheduler of a state directory for commands that ask it something: one that lives, or one started for the question, since
the journal knows the runs.
"""

from __future__ import annotations

from pathlib import Path

from stager.cli.options import settings_of
from stager.client import Client, RunClient, connect_or_start
from stager.model.errors import InvalidInput
from stager.wire import RunInfo


def reach(state_dir: Path | None) -> Client:
    """Raises InvalidInput where there is no state directory: nothing was ever submitted there."""
    settings = settings_of(state_dir)
    if not settings.state_dir.is_dir():
        raise InvalidInput(
            f"there is no state directory {settings.state_dir}: nothing was submitted with it yet "
            "(--state-dir or STAGER_STATE_DIR names another)"
        )
    return connect_or_start(settings.state_dir, settings.scheduler_arguments())


def find_run(client: Client, name: str | None) -> RunClient:
    """By its id or an unambiguous beginning of it; without a name the newest. Raises InvalidInput."""
    runs = client.runs()
    if not runs:
        raise InvalidInput("no run was submitted with this state directory yet")
    if name is None:
        return client.run(max(runs, key=lambda info: info.submitted_at).run)
    found = [info.run for info in runs if info.run == name] or [info.run for info in runs if info.run.startswith(name)]
    if len(found) != 1:
        raise InvalidInput(f"{name!r} names {'no run' if not found else 'several runs: ' + ', '.join(found)}; `stager runs` lists them")
    return client.run(found[0])


def newest_first(runs: list[RunInfo]) -> list[RunInfo]:
    return sorted(runs, key=lambda info: -info.submitted_at)
