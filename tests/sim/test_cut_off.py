"""Jobs that ran again and made what they made before: what follows from them is taken over, as far as it can be had, and nobody waits."""

from __future__ import annotations

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.sim.cases import KINDS, check

SEEDS = 200


def test_what_follows_from_the_same_does_not_run_again() -> None:
    taken = ran = 0
    for seed in range(SEEDS):
        case = KINDS["cut_off"](seed)
        world = check(case)
        given = [command for _, commands in world.journal for command in commands]
        began = {(command.run, command.job) for command in given if isinstance(command, cmd.StartAttempt)}
        remade = {(command.run, command.job) for command in given if isinstance(command, cmd.RemakeFile)}
        over = {(command.run, command.job) for command in given if isinstance(command, cmd.TakeOver)}
        assert not (over - remade) & began, seed
        taken, ran = taken + len(over), ran + len(began - over)
        for number, sharing in enumerate(case.sharing):
            guessed = {each.reused.job: each for each in sharing.guessed} if sharing is not None else {}
            made = {
                output.lfn: output.blake3
                for events, _ in world.journal
                for event in events
                if isinstance(event, ev.AttemptEnded) and event.run == f"r{number}"
                for output in event.outputs
            }
            for job_id in (job for run, job in over if run == f"r{number}"):
                needs = guessed[job_id].needs
                assert all(made.get(lfn, blake3) == blake3 for lfn, blake3 in needs.items()), (seed, job_id)
    assert taken > 100 and ran > 100, "else nothing was tried"


def test_of_a_run_that_scatters_again_members_that_are_the_same_are_taken_over() -> None:
    taken = ran = 0
    for seed in range(40):
        world = check(KINDS["scatter_again"](seed))
        given = [command for _, commands in world.journal for command in commands]
        began = {command.job for command in given if isinstance(command, cmd.StartAttempt) and command.run == "r1"}
        remade = {command.job for command in given if isinstance(command, cmd.RemakeFile) and command.run == "r1"}
        over = {command.job for command in given if isinstance(command, cmd.TakeOver) and command.run == "r1" and "[" in command.job}
        assert not (over - remade) & began, seed
        taken, ran = taken + len(over), ran + len({job for job in began if "[" in job})
    assert taken > 30 and ran > 30, (taken, ran)
