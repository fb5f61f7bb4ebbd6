"""Runs of which earlier ones made a part: what lies where it was left is read there, and its job never runs."""

from __future__ import annotations

from stager.scheduler import commands as cmd
from tests.sim.cases import KINDS, check

SEEDS = 120


def test_what_is_reused_never_runs_while_it_is_where_it_was_left() -> None:
    read_there = 0
    for seed in range(SEEDS):
        case = KINDS["reused"](seed)
        world = check(case)
        given = [command for _, commands in world.journal for command in commands]
        began = {(command.run, command.job) for command in given if isinstance(command, cmd.StartAttempt)}
        for number, jobs in enumerate(case.reused):
            assert not began & {(f"r{number}", each.job) for each in jobs}, seed
            home = {output.lfn for each in jobs for output in each.outputs if output.token}
            read_there += sum(isinstance(command, cmd.Fetch) and command.lfn in home for command in given)
    assert read_there > 20, "else nothing was tried"
