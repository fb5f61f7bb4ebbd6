"""Finals whose destination somebody else writes while the scheduler or their node is away: what is newer there stays, and that is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stager.model.files import Destination, File, Location, OnExists
from stager.model.topology import Node, Topology
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.scheduler import commands as cmd
from stager.scheduler.ledger import Standing, ledger_of
from stager.service.views import finals_of, problems_of
from stager.sim.checkers import all_checkers
from stager.sim.faults import Faults, Trouble
from stager.sim.world import SimWorld
from tests.sim.cases import DISK_BYTES_PER_S, LINKS
from tests.sim.test_engines import MUTE, Played, job, workflow

AWAY = Trouble(8.0, "origin", lasts_s=60.0, code="origin_unreachable")
CRASH = Trouble(20.0, "crash", lasts_s=10.0)
RESTART = Trouble(20.0, "restart", lasts_s=10.0, at_share=0.9)


def product(on_exists: OnExists = OnExists.REPLACE) -> File:
    return File("out", size_bytes=100, destination=Destination(Location("home", "out/out"), on_exists))


def one(value: Workflow, *troubles: Trouble) -> Played:
    """Its product is made about 11, with its origin away since 8."""
    topology = Topology((Node("node0", 10_000, 1, disk_bytes_per_s=DISK_BYTES_PER_S),), LINKS)
    faults = Faults(until_s=100.0, troubles=troubles)
    world = SimWorld(topology, checkers=all_checkers(), keep_journal=True, faults=faults)
    world.submit("r0", value, make_plan(value, topology), **({"habits": MUTE} if value.engine else {}))
    return Played(world)


def called(*troubles: Trouble, on_exists: OnExists = OnExists.REPLACE) -> Played:
    engine = one(workflow([product(on_exists)], [job("a", (), ("out",)), job("b")]), *troubles)
    engine.call(10.0, "a")
    engine.end(200.0)
    return engine


def written(engine: Played, at: float, content: str = "theirs") -> None:
    home = engine.world.origin_of("r0", "home")
    engine.world.clock.at(at, lambda: home.put("out/out", content, 7, at))


def there(engine: Played) -> str:
    return str(engine.world.origin_of("r0", "home").files["out/out"].content)


@pytest.mark.parametrize("away", [CRASH, RESTART], ids=["scheduler", "node"])
def test_what_was_written_while_we_were_away_is_not_replaced(away: Trouble) -> None:
    engine = called(AWAY, away)
    written(engine, 25.0)
    machine = engine.play()
    state, run = machine.state, machine.state.runs["r0"]
    assert there(engine) == "theirs"
    assert run.outcome is cmd.RunOutcome.SUCCEEDED and run.fault is None
    (entry,) = ledger_of(state, "r0")
    assert entry.standing is Standing.SUPERSEDED and "is older and was not written over it" in entry.fault
    assert [problem.code for problem in problems_of(state, run, [])] == ["destination_newer"]
    assert finals_of(state, run) == [], "nobody waits for it any more"
    assert list(state.file_of("r0", "out").copies) == ["node0"], "it stays there while there is room"


def test_a_version_that_was_there_before_is_replaced() -> None:
    engine = called(AWAY, CRASH)
    written(engine, 5.0)
    machine = engine.play()
    assert there(engine) == machine.state.file_of("r0", "out").blake3
    assert engine.given(cmd.Upload)[-1].made_at is not None


def test_without_anything_there_it_goes_home_as_ever() -> None:
    engine = called(AWAY, CRASH)
    machine = engine.play()
    assert there(engine) == machine.state.file_of("r0", "out").blake3


def test_who_was_never_away_asks_for_nothing() -> None:
    """Somebody else writes it while its origin is away from us: what is handed over later goes there later, as ever."""
    engine = called(AWAY)
    written(engine, 25.0)
    machine = engine.play()
    assert there(engine) == machine.state.file_of("r0", "out").blake3
    assert {upload.made_at for upload in engine.given(cmd.Upload)} == {None}


def test_where_nothing_may_be_replaced_it_is_refused_as_ever() -> None:
    engine = called(AWAY, CRASH, on_exists=OnExists.FAIL)
    written(engine, 25.0)
    engine.play()
    entry = engine.world.runs["r0"]
    assert there(engine) == "theirs"
    assert entry.outcome is cmd.RunOutcome.NOT_DURABLE and entry.fault.code == "destination_exists"


def test_what_is_made_after_that_goes_home() -> None:
    engine = called(AWAY, CRASH)
    written(engine, 25.0)
    engine.call(120.0, "a", "a-2")
    engine.computes = lambda trying: 1.0
    machine = engine.play()
    assert there(engine) == machine.state.file_of("r0", "out").blake3
    assert engine.world.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED and not machine.state.runs["r0"].finals_superseded


def test_a_run_of_ours_keeps_to_it_too() -> None:
    ours = workflow([product()], [replace(job("a", (), ("out",)), argv=("make",), compute_s=10.0)], engine="")
    engine = one(ours, AWAY, CRASH)
    written(engine, 25.0)
    machine = engine.play()
    assert there(engine) == "theirs" and machine.state.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED


def test_made_before_and_taken_after_it_is_as_old_as_it_is() -> None:
    """The scheduler is away when the task ends, and is told of it when it is back."""
    engine = called(AWAY, Trouble(10.5, "crash", lasts_s=20.0))
    engine.call(10.6, "b")
    written(engine, 25.0)
    machine = engine.play()
    assert machine.state.file_of("r0", "out").made_at < 25.0 < machine.state.nodes["node0"].back_at
    assert there(engine) == "theirs" and machine.state.runs["r0"].outcome is cmd.RunOutcome.SUCCEEDED
