"""Montage on two hosts that share no file with the scheduler nor with each other: as it runs here, and while hosts fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.apart_rig import Apart
from tests.e2e.montage_rig import DEMO, JOB_PATH, SMALL, contents, mosaic_of, workflow_text
from tests.e2e.nodes_rig import batches_of, given_in, wan_bytes_of
from tests.testbed.network import Network

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("montage"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """The directory of the tiles, and the finals that the plainest way makes of them."""
    mosaic = mosaic_of(tmp_path_factory.getbasetemp(), SMALL)
    return mosaic.survey, contents(mosaic.finals)


@pytest.fixture
def apart(net: Network, short_dir: Path) -> Iterator[Apart]:
    made = Apart(net, short_dir, {"PATH": JOB_PATH})
    try:
        made.start()
        yield made
    finally:
        made.end()


def brought(apart: Apart, survey: Path) -> Path:
    """All that the workflow reads is in the bucket, its programs too."""
    for path in [*survey.glob("tiles/*"), survey / "region.hdr"]:
        apart.put(f"survey/{path.relative_to(survey)}", path.read_bytes())
    for name in ("montage_job.py", "steps.py"):
        apart.put(f"code/{name}", (DEMO / name).read_bytes())
    workflow = apart.place / "workflow.yml"
    workflow.write_text(workflow_text(apart.origin("/survey"), apart.origin("/code"), SMALL))
    return workflow


def done_jobs(apart: Apart) -> int:
    return sum(event.outcome is ev.Outcome.OK for event in apart.ends())


def finished(apart: Apart, run: str) -> None:
    said = apart.stager.run("wait", run, code=None, deadline_s=500)
    assert said.returncode == 0, f"{said.stdout}\n{said.stderr}\n{apart.logs()}"


def test_two_hosts_make_the_same_bytes(apart: Apart, survey: tuple[Path, dict[str, bytes]]) -> None:
    """What jobs on both read crosses the wide-area network once, and goes from node to node."""
    tiles, finals = survey
    workflow = brought(apart, tiles)
    plan = apart.stager.json("plan", workflow)
    assert {job["node"] for job in plan["jobs"]} == {"a", "b"}
    done = apart.stager.run("submit", workflow, deadline_s=500)
    assert f"{SMALL.jobs} of {SMALL.jobs} done, 0 failed, {SMALL.jobs} attempts" in done.stdout and "4 of 4 finals" in done.stdout
    assert apart.stored("survey/mosaic/") == finals
    batches = batches_of(apart.state)
    starts = given_in(batches, cmd.StartAttempt)
    assert {(command.host, command.node) for command in starts} == {("ha", "a"), ("hb", "b")}
    assert given_in(batches, cmd.CopyReplica), "nothing went from node to node"
    unique_bytes = sum(file["size_bytes"] for file in plan["files"] if file["token"])
    assert unique_bytes <= wan_bytes_of(batches) <= 1.02 * unique_bytes
    report = apart.stager.json("report")
    assert {line["name"]: line for line in report["lines"]}["makespan"]["estimated"] > 0
    assert {(each["host"], each["node"]) for each in report["hosts"]} == {("ha", "a"), ("hb", "b")}
    assert sum(each["attempts"] for each in report["hosts"]) == SMALL.jobs
    for name in apart.sites:
        apart.until(lambda name=name: apart.left(name) == {}, f"what node {name} has of attempts to go")


def submitted(apart: Apart, tiles: Path) -> str:
    return apart.stager.submit(brought(apart, tiles))


def test_workers_and_a_node_are_killed_and_the_bytes_are_the_same(apart: Apart, survey: tuple[Path, dict[str, bytes]]) -> None:
    tiles, finals = survey
    run = submitted(apart, tiles)
    kills: list[tuple[int, Callable[[], None]]] = [
        (2, apart.pool.hosts["ha"].kill_worker),
        (5, apart.pool.hosts["hb"].kill_worker),
        (8, lambda: restarted(apart, "a")),
        (13, apart.pool.hosts["ha"].kill_worker),
    ]
    for count, kill in kills:
        apart.until(lambda count=count: done_jobs(apart) >= count, f"{count} jobs", 300)
        kill()
    finished(apart, run)
    assert apart.stored("survey/mosaic/") == finals
    ends = [(event.job, event.outcome) for event in apart.ends()]
    jobs = {command.job for command in given_in(batches_of(apart.state), cmd.StartAttempt)}
    # One that was only being started when its worker was killed counts for nothing.
    assert {outcome for _, outcome in ends} <= {ev.Outcome.OK, ev.Outcome.KILLED}, ends
    assert sorted(job for job, outcome in ends if outcome is ev.Outcome.OK) == sorted(jobs) and len(jobs) == SMALL.jobs


def restarted(apart: Apart, name: str) -> None:
    apart.nodes[name].kill()
    apart.nodes[name].start()


def test_a_host_is_cut_off_with_its_node_and_forgotten_and_the_bytes_are_the_same(
    apart: Apart, survey: tuple[Path, dict[str, bytes]]
) -> None:
    """What only its node had is fetched and made again."""
    tiles, finals = survey
    run = submitted(apart, tiles)
    apart.until(lambda: done_jobs(apart) >= 10, "10 jobs", 300)
    for other in (apart.here, apart.lab, apart.sites["a"]):
        apart.net.cut(apart.sites["b"], other)
    apart.stager.run("host", "forget", "hb", "--force", "--why", "its line is cut")
    apart.stager.run("node", "forget", "b", "--force", "--why", "its line is cut")
    finished(apart, run)
    assert apart.stored("survey/mosaic/") == finals
    after = [command for batch in batches_of(apart.state) for command in batch.commands if isinstance(command, cmd.StartAttempt)]
    assert {command.host for command in after} == {"ha", "hb"} and after[-1].host == "ha"
    ended = [event.attempt for event in apart.ends()]
    # Of those on the host that was cut off nobody may ever hear: their jobs were given to the other as soon as it was forgotten.
    unheard = {command.attempt for command in after if command.host == "ha"} - set(ended)
    assert len(ended) == len(set(ended)) and set(ended) <= {command.attempt for command in after} and not unheard
