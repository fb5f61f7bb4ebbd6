"""What Dask loads and calls in the worker of a compute host: `dask worker --preload stager.adapters.host_preload FILE`.

May know: the agent. One rule: a call of it takes plain values and answers with plain values.
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import click
import msgspec

from stager.adapters.host_agent import HostAgent, facts_of
from stager.adapters.host_process import end_with_parent
from stager.model.keep_limits import KeepLimits

AGENT: list[HostAgent] = []


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def dask_setup(worker: Any, file: Path) -> None:
    """`file`: what `stager worker` found out about its host."""
    said = msgspec.json.decode(file.read_bytes())
    linked = {node: Path(store) for node, store in said["linked"].items()}
    # A line for each call is too much.
    logging.getLogger("distributed.worker").addFilter(lambda record: not record.getMessage().startswith("Run out-of-band"))
    threading.Thread(target=end_with_parent, daemon=True, name="stager-parent").start()
    more = (said["cgroup"], msgspec.convert(said["keep"], KeepLimits))
    AGENT[:] = [HostAgent(facts_of(said["facts"]), Path(said["scratch"]), linked, said["binary"], *more)]


async def carry_out(call: dict[str, Any]) -> dict[str, Any]:
    return await AGENT[0].carry_out(call)


async def look(scheduler: str = "") -> dict[str, Any]:
    return AGENT[0].look(scheduler)


async def kill(attempt: str, epoch: int) -> None:
    await AGENT[0].kill(attempt, epoch)


async def forget(attempts: list[str], epoch: int) -> None:
    await AGENT[0].forget(attempts, epoch)


async def sweep(outstanding: list[str], epoch: int) -> None:
    await AGENT[0].sweep(outstanding, epoch)


async def collect(images: list[str], environments: list[str], cache: int, dry_run: int) -> dict[str, Any]:
    return await AGENT[0].collect(images, environments, cache=bool(cache), dry_run=bool(dry_run))


async def read_log(run: str, job: str, number: int, ending: str, after: int) -> tuple[int, bytes]:
    return await AGENT[0].read_log(run, job, number, ending, after)
