"""Reaching a scheduler for commands that ask it something: a service that was named, or that of a state directory: one that lives, or one
started for the question, since the journal knows the runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, overload

from stager.cli.options import Where, settings_of
from stager.client import Client, RunClient, connect, connect_or_start
from stager.model.errors import InvalidInput, Refused
from stager.model.units import format_size
from stager.service.settings import Settings, server_token
from stager.wire import RunInfo

if TYPE_CHECKING:
    from stager.client import RestClient, RestRun


def reach(where: Where) -> Client | RestClient:
    return reach_service(where) if where.server else reach_here(where.state_dir)


def reach_service(where: Where) -> RestClient:
    from stager.client import RestClient

    if not (where.server or "").startswith(("http://", "https://")):
        raise InvalidInput(f"--server {where.server!r} is no URL; write it as in http://127.0.0.1:7433", subject="server")
    return RestClient(where.server or "", server_token(where.token_file))


def reach_here(state_dir: Path | None) -> Client:
    """Raises InvalidInput where there is no state directory: nothing was ever submitted there."""
    settings = submitted_with(settings_of(state_dir))
    return connect_or_start(settings.state_dir, settings.scheduler_arguments())


def reach_with_capacity(state_dir: Path | None, capacity_bytes: int) -> Client:
    """A scheduler whose I/O node has that much room. Raises Refused where one lives that has other room and is needed."""
    settings = submitted_with(settings_of(state_dir, capacity_bytes))
    living = connect(settings.state_dir)
    if living is not None:
        with living:
            own = [node.capacity_bytes for node in living.health().nodes if node.embedded]
            has = [each for each in own if each not in (0, capacity_bytes)]
            if has:
                give_way(living, f"the scheduler that runs has {format_size(has[0])} of capacity, not {format_size(capacity_bytes)}")
    return connect_or_start(settings.state_dir, settings.scheduler_arguments())


def give_way(living: Client, what: str) -> None:
    try:
        living.give_way()
    except Refused as problem:
        text = f"{what}, and is needed: {problem.message}; try again when that is over, or end it with `stager shutdown`"
        raise Refused(text, code=problem.code, subject=problem.subject) from None


def submitted_with(settings: Settings) -> Settings:
    if not settings.state_dir.is_dir():
        raise InvalidInput(
            f"there is no state directory {settings.state_dir}: nothing was submitted with it yet "
            "(--state-dir or STAGER_STATE_DIR names another)"
        )
    return settings


@overload
def find_run(client: Client, name: str | None) -> RunClient: ...


@overload
def find_run(client: RestClient, name: str | None) -> RestRun: ...


def find_run(client: Client | RestClient, name: str | None) -> RunClient | RestRun:
    """By its id or an unambiguous beginning of it; without a name the newest. Raises InvalidInput."""
    runs = client.runs()
    if not runs:
        here = "with this state directory" if isinstance(client, Client) else "by you at this service"
        raise InvalidInput(f"no run was submitted {here} yet")
    if name is None:
        return client.run(max(runs, key=lambda info: info.submitted_at).run)
    found = [info.run for info in runs if info.run == name] or [info.run for info in runs if info.run.startswith(name)]
    if len(found) != 1:
        raise InvalidInput(f"{name!r} names {'no run' if not found else 'several runs: ' + ', '.join(found)}; `stager runs` lists them")
    return client.run(found[0])


def newest_first(runs: list[RunInfo]) -> list[RunInfo]:
    return sorted(runs, key=lambda info: -info.submitted_at)
