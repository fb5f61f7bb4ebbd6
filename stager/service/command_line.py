"""The command line of `python -m stager.service`: its options become settings, and how it ended becomes an exit code.

May know: the life of the process. One rule: a process that was made ready ahead does nothing here before it is told to.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from stager.client import ALREADY_HELD_EXIT
from stager.client.warm_start import WHEN_TOLD, wait_until_told
from stager.model.errors import StagerError
from stager.model.units import parse_size_bytes
from stager.runtime.deciding import PACKAGE, deciding_digest, digest_of
from stager.service.process import hold
from stager.service.settings import Settings, read_settings
from stager.service.state_dir import LockHeld

log = logging.getLogger("stager.service")


def main(arguments: Sequence[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    # Read now, beside the modules that were just imported: they are what this process will decide by.
    imported = deciding_digest()
    if given.when_told and not wait_until_told(lambda: digest_of(PACKAGE) == imported):
        return 0
    try:
        return hold(settings_of(given))
    except LockHeld as problem:
        log.info("%s", problem.message)
        return ALREADY_HELD_EXIT
    except StagerError as problem:
        log.error("%s", problem.message)
        return 1


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stager.service", description="The scheduler of one state directory.")
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--capacity", type=parse_size_bytes, help="space of the embedded I/O node")
    parser.add_argument("--cores", type=int)
    parser.add_argument("--memory", type=parse_size_bytes)
    parser.add_argument("--idle-exit-s", type=float, help="end when no run is active and nobody called for so long")
    parser.add_argument("--scrub-bytes-per-s", type=int, help="how fast the I/O node verifies what it holds; 0: not at all")
    parser.add_argument("--scrub-every-s", type=float, help="the least time between two readings of one replica")
    parser.add_argument("--keep-failed-bytes", type=int, help="how much of the sandboxes of jobs that failed is kept; 0: nothing")
    parser.add_argument("--node", action="append", metavar="ID=ADDRESS@TOKEN_FILE", help="an I/O node besides the embedded one")
    parser.add_argument("--pool", metavar="ADDRESS", help="the pool whose hosts run jobs (`stager pool`)")
    parser.add_argument("--gone-after-s", type=float, help="give up nodes and hosts that are silent for so long")
    parser.add_argument(WHEN_TOLD, action="store_true", help="wait until the command that started this says that it needs a scheduler")
    return parser


def settings_of(given: argparse.Namespace) -> Settings:
    return read_settings(
        state_dir=given.state_dir,
        capacity_bytes=given.capacity,
        cores=given.cores,
        memory_bytes=given.memory,
        idle_exit_s=given.idle_exit_s,
        scrub_bytes_per_s=given.scrub_bytes_per_s,
        scrub_every_s=given.scrub_every_s,
        keep_failed_bytes=given.keep_failed_bytes,
        nodes=given.node,
        pool=given.pool,
        gone_after_s=given.gone_after_s,
    )
