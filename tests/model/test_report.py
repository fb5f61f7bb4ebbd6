"""What a run did, and how far the estimate was off: on simulated runs, whose truth is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stager import wire
from stager.cli.report import assumed_notes, cells, hits_note, notes_of, value
from stager.cli.run_page import OTHERS, lanes, longest, page_of, paints
from stager.model.cluster import Cluster, IoNodes
from stager.model.prices import prices_for
from stager.model.scatter import Scatter, ScatterForm
from stager.model.topology import Topology
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from stager.ports import Batch
from stager.readers.prices import packaged_prices
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.service.comparison import ComparisonRow, cluster_of, compare
from stager.service.counters import Counters
from stager.service.history import OCCUPANCY_POINTS_MAX, history_of, thinned
from stager.service.views import run_summary
from stager.sim.sampling import Spread
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.model.test_estimate import CHAIN, SQUEEZED, topology, workflow
from tests.sim.cases import KINDS, world_of

PRICES = prices_for(packaged_prices(), "m6i.xlarge", "m6i.xlarge")


def simulated(w: Workflow, place: Topology, spread: Spread | None = None) -> tuple[SimWorld, wire.RunSummary, wire.RunHistory]:
    """A run in a simulated world, with its journal read as that of a real one."""
    limits = Limits(cores=place.nodes[0].cores)
    world = SimWorld(place, limits=limits, spread=spread, keep_journal=True)
    world.submit("w-1", w, make_plan(w, place, limits=limits, spill_origin="home"), at=50.0)
    machine = simulate(world)
    batches = [Batch(seq, "sim", events, commands) for seq, (events, commands) in enumerate(world.journal, 1)]
    return world, run_summary(machine.state, machine.state.runs["w-1"], Counters()), history_of(batches, "w-1")


def test_history_retells_attempts_transfers_and_what_was_held() -> None:
    _, _, past = simulated(workflow(CHAIN), topology(10**6))
    a, b = past.attempts
    assert (a.job, a.begun_s, a.ended_s, a.outcome) == ("a", pytest.approx(10, abs=0.01), pytest.approx(13, abs=0.01), "ok")
    assert (b.job, b.ended_s - b.begun_s) == ("b", pytest.approx(4, abs=0.01))
    assert [(move.direction, move.lfn, move.size_bytes) for move in past.moves] == [("fetch", "in", 1000), ("upload", "end", 100)]
    assert past.moves[0].ended_s - past.moves[0].begun_s == pytest.approx(10)
    assert past.moves[1].verified == "readback"
    assert (past.nodes, past.cores, past.capacity_bytes) == (["node0"], 1, 10**6)
    assert max(size for _, size in past.occupancy) == 1600
    assert past.best_hit_rate == past.belady_hit_rate == pytest.approx(1500 / 2500)


@pytest.mark.parametrize("second_at", [2.0, 100.0])
def test_no_rival_is_asked_to_fetch_what_was_there_or_came_for_another_run(second_at: float) -> None:
    """The second run finds the input that the first one has fetched, or is fetching: it hits all it reads, and so would its rivals."""
    w, place = workflow(CHAIN), topology(10**6, cores=2)
    again = replace(w, files={lfn: replace(file, destination=None) for lfn, file in w.files.items()})
    world = SimWorld(place, limits=Limits(cores=2), keep_journal=True)
    for run, what, at in (("w-1", w, 0.0), ("w-2", again, second_at)):
        world.submit(run, what, make_plan(what, place, limits=Limits(cores=2)), at=at)
    machine = simulate(world)
    batches = [Batch(seq, "sim", events, commands) for seq, (events, commands) in enumerate(world.journal, 1)]
    summary, past = run_summary(machine.state, machine.state.runs["w-2"], Counters()), history_of(batches, "w-2")
    assert (summary.fetched_bytes, summary.hit_rate) == (0, 1.0)
    assert (past.belady_hit_rate, past.best_hit_rate) == (1.0, 1.0)
    assert history_of(batches, "w-1").best_hit_rate == pytest.approx(1500 / 2500), "who fetched it missed it"


@pytest.mark.parametrize("seed", range(1, 26))
def test_no_run_hits_more_than_the_bound_says_whatever_other_runs_fetch(seed: int) -> None:
    world = world_of(KINDS["runs"](seed))
    machine = simulate(world)
    batches = [Batch(seq, "sim", events, commands) for seq, (events, commands) in enumerate(world.journal, 1)]
    for run, entry in machine.state.runs.items():
        summary, past = run_summary(machine.state, entry, Counters()), history_of(batches, run)
        if summary.hit_rate is not None:
            assert past.best_hit_rate is not None and past.belady_hit_rate is not None
            assert max(summary.hit_rate, past.belady_hit_rate) <= past.best_hit_rate + 1e-9, run


def test_what_a_node_tells_of_that_no_journal_knows_was_there() -> None:
    """The part of the journal that fetched it was folded away, and the node is heard of after the run was submitted."""
    world, _, past = simulated(workflow(CHAIN), topology(10**6))
    (fetched,) = [event for events, _ in world.journal for event in events if type(event) is ev.TransferDone and event.duration_s > 9]
    (took,) = [command for _, commands in world.journal for command in commands if type(command) is cmd.Fetch]
    seen = ev.ReplicaSeen(took.file, "of an earlier run", fetched.size_bytes)
    report = ev.NodeReported(at=50.0, node="node0", incarnation="i", capacity_bytes=10**6, can_link=True, replicas=(seen,), transfers=())
    kept = [
        (
            tuple(event for event in events if event is not fetched and type(event) is not ev.NodeReported),
            tuple(command for command in commands if command is not took),
        )
        for events, commands in world.journal
    ]
    at = next(index for index, (events, _) in enumerate(kept) if any(type(event) is ev.RunSubmitted for event in events))
    kept.insert(at + 1, ((report,), ()))
    warm = history_of([Batch(seq, "sim", events, commands) for seq, (events, commands) in enumerate(kept, 1)], "w-1")
    assert (past.best_hit_rate, warm.best_hit_rate, warm.belady_hit_rate) == (pytest.approx(0.6), 1.0, 1.0)


@pytest.mark.parametrize("capacity", [10**6, 1000])
def test_what_is_held_follows_the_node_to_the_byte(capacity: int) -> None:
    world, _, past = simulated(workflow(SQUEEZED), topology(capacity))
    assert past.occupancy[0] == (0.0, 0)
    assert max(size for _, size in past.occupancy) <= capacity
    times = [seconds for seconds, _ in past.occupancy]
    assert times == sorted(times)
    assert world.nodes["node0"].used_bytes <= past.occupancy[-1][1]


def compared(w: Workflow, place: Topology, spread: Spread | None = None) -> dict[str, ComparisonRow]:
    world, summary, past = simulated(w, place, spread)
    given = Cluster(io=IoNodes(on_compute_nodes=True, disk_bytes_per_s=1e12))
    plan = world.runs["w-1"].plan
    cluster = replace(cluster_of(past, given, plan), links=cluster_of(past, None, plan).links)
    return {line.name: line for line in compare(w, plan, summary, past, cluster, PRICES)}


@pytest.mark.parametrize(("text", "capacity"), [(CHAIN, 10**6), (SQUEEZED, 10**6), (SQUEEZED, 1000)])
def test_a_run_that_went_as_predicted_is_off_by_nothing(text: str, capacity: int) -> None:
    lines = compared(workflow(text), topology(capacity))
    assert lines["fetched"].actual
    for name in ("makespan", "fetched", "uploaded", "over the WAN", "hit rate", "compute-node hours", "cost in total"):
        assert lines[name].off == pytest.approx(0, abs=1e-6), name


def test_an_input_that_several_jobs_wait_for_is_missed_once() -> None:
    """Both are admitted before it is there; it crosses the WAN for one of them."""
    both = workflow("workflow w\n  external in 1000\n  made x 10\n  made y 10\n  job a in -> x compute=1\n  job b in -> y compute=1\n")
    _, summary, _ = simulated(both, topology(10**6, cores=2))
    assert (summary.fetched_bytes, summary.staged_bytes, summary.hit_rate) == (1000, 2000, 0.5)


def test_a_run_that_read_nothing_has_no_hit_rate() -> None:
    lines = compared(workflow("workflow w\n  made end 100 final\n  job a -> end compute=3\n"), topology(10**6))
    assert (lines["hit rate"].estimated, lines["hit rate"].actual) == (None, None)
    assert hits_note(None, None) == "nothing was read through the I/O nodes, so nothing could be hit"
    assert "by Belady's rule, and none more than 61.2%" in hits_note(0.6, 0.612)


def test_a_run_that_took_longer_says_by_how_much() -> None:
    lines = compared(workflow(CHAIN), topology(10**6), Spread(seed=4, durations=3.0))
    job_s = lines["jobs, one after the other"]
    assert job_s.estimated == 7
    assert job_s.actual != pytest.approx(7, rel=0.05)
    assert job_s.off == pytest.approx(7 / job_s.actual - 1)
    assert lines["makespan"].off != pytest.approx(0, abs=0.01)
    assert lines["fetched"].off == 0


def test_only_what_is_read_back_over_ssh_crosses_the_wan_again() -> None:
    at_home = compared(workflow(CHAIN), topology(10**6))["read back to verify"]
    assert (at_home.estimated, at_home.actual) == (100, 100)
    local = replace(workflow(CHAIN), origins={"home": Origin("home", OriginKind.FILE, "file:///data")})
    here = compared(local, topology(10**6))["read back to verify"]
    assert (here.estimated, here.actual) == (0, 0)


@pytest.mark.parametrize(("kind", "url", "crossed"), [(OriginKind.SFTP, "sftp://lab/data", 100), (OriginKind.FILE, "file:///data", 0)])
def test_a_final_that_was_there_already_was_read_and_not_uploaded(kind: OriginKind, url: str, crossed: int) -> None:
    w, place = replace(workflow(CHAIN), origins={"home": Origin("home", kind, url)}), topology(10**6)
    world, summary, past = simulated(w, place)
    moves = [move.model_copy(update={"verified": "adopted"}) if move.direction == "upload" else move for move in past.moves]
    past = past.model_copy(update={"moves": moves})
    plan = world.runs["w-1"].plan
    lines = {line.name: line.actual for line in compare(w, plan, summary, past, cluster_of(past, None, plan), PRICES)}
    assert (lines["uploaded"], lines["read back to verify"], lines["over the WAN"]) == (0, crossed, 1000 + crossed)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (ComparisonRow("a", "seconds", 90.0, 60.0), ("1 min 30 s", "1 min 00 s", "+50.0%")),
        (ComparisonRow("a", "bytes", 0, 0), ("0 B", "0 B", "0.0%")),
        (ComparisonRow("a", "money", 1.0, 0.0), ("1.00", "0.00", "")),
        (ComparisonRow("a", "share", None, 0.5), ("—", "50.0%", "")),
    ],
)
def test_lines_are_shown_with_their_unit_and_what_they_are_off_by(line: ComparisonRow, shown: tuple[str, str, str]) -> None:
    assert cells(line) == shown
    assert value("hours", 0.00123456) == "0.00123"


def test_the_page_needs_nothing_else_and_escapes_what_users_wrote() -> None:
    w = workflow(CHAIN.replace("job a", "job a<b>"))
    _, summary, past = simulated(w, topology(10**6))
    page = page_of(summary, past, [("cost in total", "1", "2", "-50.0%")], "USD")
    assert page == page_of(summary, past, [("cost in total", "1", "2", "-50.0%")], "USD")
    assert "a<b>" not in page
    assert "a&lt;b&gt;: ok" in page
    assert not any(word in page for word in ("<script", "http://", "https://", "src=", "@import"))
    assert page.count("<rect") >= 2 + 2 + 3
    assert "no cache can do more" in page
    assert "<tr class=total><td>cost in total</td><td>1</td><td>2</td><td>-50.0%</td></tr>" in page


def test_what_the_figures_rest_on_is_said_and_is_on_the_page() -> None:
    table = packaged_prices()
    paid = replace(PRICES, missing=("egress",))
    plan = make_plan(workflow(CHAIN), topology(10**6))
    money, links, missing = notes_of(Cluster(), plan, paid, table)
    assert f"of {table.date}, for 1 m6i.xlarge" in money
    assert "link to home" in links
    assert "assumed" in links
    assert "50 MB/s" in notes_of(Cluster(), replace(plan, links=()), paid, table)[1]
    assert missing == "note: no price of egress in us-east-1: left out"
    assert notes_of(replace(Cluster(), assumed=False), plan, PRICES, table) == [money]
    _, summary, past = simulated(workflow(CHAIN), topology(10**6))
    page = page_of(summary, past, [], "USD", [links, "<b>"])
    assert f'<p class="note">{links}</p>' in page
    assert '<p class="note">&lt;b&gt;</p>' in page


def test_the_page_fits_a_phone_and_the_dark() -> None:
    _, summary, past = simulated(workflow(CHAIN), topology(10**6))
    page = page_of(summary, past, [("cost in total", "1", "2", "-50.0%")], "USD")
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "prefers-color-scheme: dark" in page
    assert page.count("<svg") == page.count('<div class="wide"><svg') == page.count("aria-label=") == 3, "wide pictures scroll on their own"


def test_each_colour_means_one_job_type_and_the_longest_have_one() -> None:
    spans = [wire.AttemptSpan(job=f"j{n}", job_type=f"t{n}", begun_s=n, ended_s=n + (1 if n == 3 else 5), outcome="ok") for n in range(8)]
    painted = paints(spans)
    assert list(painted) == ["t0", "t1", "t2", "t4", "t5", "t6", "t7"]
    assert len(set(painted.values())) == 7
    assert paints(spans[3:4]) == {"t3": painted["t0"]}
    _, summary, past = simulated(workflow(CHAIN), topology(10**6))
    page = page_of(summary, past.model_copy(update={"attempts": spans}), [], "USD")
    assert page.count(OTHERS) == 1
    assert OTHERS not in page_of(summary, past, [], "USD")


def test_a_page_of_a_run_that_did_nothing_is_a_page() -> None:
    _, summary, _ = simulated(workflow(CHAIN), topology(10**6))
    empty = history_of([], "other")
    page = page_of(summary.model_copy(update={"staged_bytes": 0, "wall_s": 0.0}), empty, [], "USD")
    assert "Nothing was read through the I/O nodes." in page


def test_spans_that_overlap_lie_in_rows_of_their_own() -> None:
    assert lanes([(0, 4), (1, 2), (2, 5), (3, 4), (4, 5)]) == [0, 1, 1, 2, 0]
    many = [(float(start), start + (9.0 if start == 8_077 else 1.0), "#fff", "") for start in range(9_000)]
    shown = longest(many)
    assert len(shown) == 4_000
    assert (8_077.0, 8_086.0, "#fff", "") in shown
    assert shown == sorted(shown)


def test_thinning_keeps_the_peak_and_the_end() -> None:
    points = [(float(second), 5 if second == 7_001 else 1) for second in range(20_000)]
    kept = thinned(points)
    assert len(kept) <= OCCUPANCY_POINTS_MAX
    assert (7_001.0, 5) in kept
    assert kept[-1] == points[-1]
    assert thinned(points[:10]) == points[:10]


def test_jobs_whose_lists_were_never_made_are_told() -> None:
    nothing = Workflow("w", {}, {})
    scatter = Scatter("cut", "list", ("x",), "list", ScatterForm.LINES, ("cut[1]", "cut[2]"), follow=("turn[1]",))
    assert assumed_notes(replace(nothing, scatters=(scatter,))) == [
        "3 jobs of the estimate are assumed: the lists that they scatter over were never made"
    ]
    assert assumed_notes(nothing) == []
