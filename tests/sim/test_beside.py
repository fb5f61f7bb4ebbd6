"""Runs that want the same jobs at once: each is run once, unless the run that runs it does not make it."""

from __future__ import annotations

from collections import Counter

from stager.scheduler import commands as cmd
from tests.sim.cases import KINDS, check

SEEDS = 60


def test_what_one_run_makes_no_other_one_makes_meanwhile() -> None:
    kinds: Counter[type] = Counter()
    for seed in range(SEEDS):
        for kind in ("beside", "beside_faults"):
            world = check(KINDS[kind](seed))
            given = [command for _, commands in world.journal for command in commands]
            kinds += Counter(type(command) for command in given)
            remade = {(command.run, command.job) for command in given if isinstance(command, cmd.RemakeFile)}
            over = {(command.run, command.job) for command in given if isinstance(command, cmd.TakeOver)}
            began = {(command.run, command.job) for command in given if isinstance(command, cmd.StartAttempt)}
            assert not (over - remade) & began, (kind, seed)
    assert kinds[cmd.TakeOver] > 100 and kinds[cmd.AwaitJob] > 80 and kinds[cmd.StopAwaiting] > 2, kinds
