"""Results that nodes keep for later runs: they are read where they lie, they are the first to go, and nobody waits for them."""

from __future__ import annotations

from dataclasses import replace

from stager.model.topology import DEFAULT_DELETE_LATENCY_S
from stager.scheduler import commands as cmd
from stager.scheduler.eviction import TOO_MUCH, TOO_OLD, WANTED
from stager.sim.world import SimWorld
from tests.sim.cases import KINDS, Case, check
from tests.sim.kept_cases import MUCH

SEEDS = 150
KEPT_FOR = (WANTED, TOO_MUCH, TOO_OLD)


def began(world: SimWorld, run: str) -> set[str]:
    given = [command for _, commands in world.journal for command in commands]
    return {command.job for command in given if isinstance(command, cmd.StartAttempt) and command.run == run}


def test_what_is_kept_is_read_where_it_lies_and_its_jobs_do_not_run_again() -> None:
    linked = deleted = again = 0
    for seed in range(SEEDS):
        case = KINDS["kept"](seed)
        world = check(case)
        given = [command for _, commands in world.journal for command in commands]
        deleted += sum(isinstance(command, cmd.DeleteReplica) and command.why in KEPT_FOR for command in given)
        for number, jobs in enumerate(case.reused):
            ran = began(world, f"r{number}")
            again += sum(each.job in ran for each in jobs)
            kept = {output.kept for each in jobs for output in each.outputs if output.kept and each.job not in ran}
            starts = [command for command in given if isinstance(command, cmd.StartAttempt) and command.run == f"r{number}"]
            linked += len(kept & {entry.file for command in starts for entry in command.inputs})
    assert linked > 50, "what was kept was read"
    assert again > 10, "and some of it had gone"
    assert deleted > 50


def alone(case: Case, keep_bytes: int) -> Case:
    """The runs of the case one after the other, each as if nothing were remembered."""
    return replace(case, policy=replace(case.policy, keep_results_bytes=keep_bytes, keep_results_s=1e9), reused=())


def test_nobody_waits_for_what_is_kept_but_for_its_deletion() -> None:
    """The same runs with what they make kept and without, in room that is tight: they end when they would have ended."""
    went = 0
    for seed in range(SEEDS // 2):
        for kind in ("plain", "runs", "nodes"):
            case = KINDS[kind](seed)
            without, kept = check(alone(case, 0)), check(alone(case, MUCH))
            deletes = [
                command
                for _, commands in kept.journal
                for command in commands
                if isinstance(command, cmd.DeleteReplica) and command.why in KEPT_FOR
            ]
            went += len(deletes)
            late_s = kept.clock.now - without.clock.now
            assert late_s <= len(deletes) * DEFAULT_DELETE_LATENCY_S + 1e-6, f"python -m tests.sim.cases {kind} {seed}: {late_s:.3f} s late"
            failed = [run.run for run in kept.runs.values() if run.outcome is not without.runs[run.run].outcome]
            assert not failed, (kind, seed)
    assert went > 50, "else there was room enough"
