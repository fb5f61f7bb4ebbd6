"""Which node, how many replicas, which access, and in which order: what plans choose, and how they explain it."""

from __future__ import annotations

from collections import Counter

from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow, graph_of
from stager.planning.explain import explain_file
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.plan_json import from_json, to_json
from tests.unit.test_plan import external, job, made, workflow_of

MB = 1_000_000


def nodes(count: int, cores: int = 1, capacity_bytes: int = 10**12) -> Topology:
    each = tuple(Node(f"n{number}", capacity_bytes, cores, disk_bytes_per_s=1e15, network_bytes_per_s=1 * MB) for number in range(count))
    return Topology(each, (OriginLink("home", 1e15, 1e15, 0.0),))


def hot() -> Workflow:
    """One makes 30 MB, which a quick and a slow job read; four more read what is outside."""
    files = [external("in", 70_000), external("alone", 10), made("mid", 30 * MB), *(made(f"e{i}", 1, final=True) for i in range(6))]
    jobs = [
        job("make", "in", "mid", compute_s=100.0),
        job("slow", "mid alone", "e0", compute_s=50.0),
        job("quick", "mid", "e1", compute_s=10.0),
        *(job(f"read{i}", "in", f"e{i}", compute_s=1.0) for i in range(2, 6)),
    ]
    return workflow_of(files, jobs)


def explained(plan: Plan, topology: Topology, lfn: str) -> dict[str, str]:
    """By the word that a line begins with."""
    lines = explain_file(hot(), graph_of(hot()), plan, topology, lfn)
    return dict(line.split(": ", 1) for line in lines if ": " in line)


def test_a_plan_knows_the_best_node_that_it_did_not_choose() -> None:
    jobs = {entry.job: entry for entry in make_plan(hot(), nodes(2)).jobs}
    assert (jobs["make"].node, jobs["make"].other_node, jobs["make"].other_copies_bytes) == ("n0", "n1", 0)
    slow = jobs["slow"]
    assert (slow.node, round(slow.finish_s), slow.other_node, round(slow.other_finish_s)) == ("n0", 150, "n1", 180)
    assert slow.other_copies_bytes == 30 * MB
    quick = jobs["quick"]
    assert (quick.node, round(quick.finish_s), quick.other_node, round(quick.other_finish_s)) == ("n1", 140, "n0", 160)
    assert quick.other_copies_bytes == 0
    assert {entry.other_node for entry in make_plan(hot(), nodes(1)).jobs} == {""}


def test_of_many_nodes_the_second_best_is_told() -> None:
    other = next(entry for entry in make_plan(hot(), nodes(4)).jobs if entry.job == "slow")
    assert (other.node, other.other_node, round(other.other_finish_s)) == ("n0", "n2", 180)


def test_the_other_node_goes_through_json_and_plans_without_it_are_read() -> None:
    plan = make_plan(hot(), nodes(2))
    assert from_json(to_json(plan)) == plan
    older = to_json(plan).replace('"version": 5', '"version": 2')
    for entry in plan.jobs:
        for key in ("other_copies_bytes", "other_finish_s", "other_node"):
            value = getattr(entry, key)
            older = older.replace(f', "{key}": ' + (f'"{value}"' if key == "other_node" else str(value)), "")
    assert "other_" not in older
    assert {entry.other_node for entry in from_json(older).jobs} == {""}


def test_where_there_is_no_other_node_a_job_ends_there_never_and_not_at_0() -> None:
    plan = make_plan(hot(), nodes(1))
    text = to_json(plan)
    assert '"other_finish_s": null' in text
    assert from_json(text.replace('"other_finish_s": null', '"other_finish_s": 0.0')) == from_json(text) == plan


def test_the_explanation_of_a_node_names_the_other_one_and_what_would_be_copied() -> None:
    two = nodes(2)
    plan = make_plan(hot(), two)
    assert (
        explained(plan, two, "mid")["node"]
        == "n0, job 'make' is predicted to end here at 1 min 40 s; on 'n1' no sooner, with nothing to copy"
    )
    assert explained(plan, two, "alone")["node"] == (
        "n0, job 'slow' is predicted to end here at 2 min 30 s, on 'n1', the best other node, at 3 min 00 s, after copying 30 MB there"
    )
    assert explained(make_plan(hot(), nodes(1)), nodes(1), "mid")["node"] == "n0, the only one"


def test_the_explanation_of_replicas_names_nodes_and_the_numbers_of_the_formula() -> None:
    """30 MB at 1 MB/s; five nodes: 4 clients of 1 holder have a quarter, 2 of 3 have 3/2 * (1 - (2/3)^2) = 0.833."""
    two, five = nodes(2), nodes(5)
    plan = make_plan(hot(), two)
    assert explained(plan, two, "alone")["replicas"] == "1: nobody else reads it"
    told = explained(plan, two, "mid")
    assert told["replicas"] == "2, on n0, n1: so the first of its 2 readers end soonest; a copy alone takes 30 s at 1 MB/s"
    assert told["shared"] == "on fewer than all 2 nodes its 2 readers would share to less than 90% of what they get from all"
    assert "contention" not in told
    assert explained(plan, two, "in")["replicas"].startswith("2, on n0, n1: ")
    many = [external("in", 30 * MB), *(made(f"e{i}", 1, final=True) for i in range(20))]
    spread = workflow_of(many, [job(f"r{i}", "in", f"e{i}", compute_s=200.0) for i in range(20)])
    lines = explain_file(spread, graph_of(spread), make_plan(spread, five), five, "in")
    assert (
        "contention: 4 nodes that copy it at once from 1 get it in 2 min 00 s at 250 kB/s, 2 from 3 in 36 s at 833 kB/s: "
        "each that has it gives it to one at a time"
    ) in lines
    few = workflow_of(many[:3], [job(f"r{i}", "in", f"e{i}", compute_s=1.0) for i in range(2)])
    lines = explain_file(few, graph_of(few), make_plan(few, five), five, "in")
    assert "replicas: 1: its 2 readers end sooner here than after a copy elsewhere; a copy alone takes 30 s at 1 MB/s" in lines
    assert "replicas" not in explained(make_plan(hot(), nodes(1)), nodes(1), "mid")


def test_the_explanation_of_an_access_says_why_the_file_is_kept() -> None:
    plan = make_plan(hot(), nodes(1))
    assert explained(plan, nodes(1), "in")["access"].endswith("; kept, so that it is fetched once and not by each of its 5 readers")
    assert "kept" not in explained(plan, nodes(1), "alone")["access"]
    assert "kept" not in explained(plan, nodes(1), "mid")["access"]


def test_one_large_job_does_not_keep_small_ones_from_going_by_rank() -> None:
    """Peak, and beside it the largest jobs that the other cores may run: from there on the order is that of rank."""
    files = [external("archive", 1000), external("in", 1)]
    jobs = [job("large", "archive", "")]
    for i in range(6):
        files += [made(f"m{i}", 10), made(f"e{i}", 1, final=True)]
        jobs += [job(f"a{i}", "in", f"m{i}", compute_s=5.0 + i), job(f"b{i}", f"m{i}", f"e{i}", compute_s=1.0)]
    workflow = workflow_of(files, jobs)
    roomy = make_plan(workflow, nodes(1, cores=4))
    ranked = [entry.job for entry in roomy.jobs]
    assert ranked[:6] == ["a5", "a4", "a3", "a2", "a1", "a0"]
    enough = roomy.peak_live_bytes + 1000 + 11 + 11

    def order(capacity_bytes: int) -> list[str]:
        return [entry.job for entry in make_plan(workflow, nodes(1, cores=4, capacity_bytes=capacity_bytes)).jobs]

    assert order(enough) == ranked
    assert order(enough - 1) != ranked


def many(mid_bytes: int) -> Workflow:
    """20 jobs, each of which reads 1 MB of its own and makes a final of 1 MB, and so many bytes that one more job reads."""
    files = [made("end", 1, final=True)]
    jobs = []
    for number in range(20):
        files += [external(f"in{number}", MB), made(f"out{number}", MB, final=True), made(f"mid{number}", mid_bytes)]
        jobs.append(job(f"j{number:02}", f"in{number}", f"out{number} mid{number}", compute_s=1.0))
    jobs.append(job("join", " ".join(f"mid{number}" for number in range(20)), "end", compute_s=1.0))
    return workflow_of(files, jobs)


def jobs_by_node(workflow: Workflow) -> dict[str, int]:
    return dict(sorted(Counter(entry.node for entry in make_plan(workflow, nodes(4, cores=16)).jobs if entry.job != "join").items()))


def test_jobs_whose_files_come_and_go_by_lines_are_spread_over_the_nodes() -> None:
    """All went to the first node as long as it had cores, and the lines of the others were idle."""
    assert jobs_by_node(many(1000)) == {"n0": 5, "n1": 5, "n2": 5, "n3": 5}


def test_jobs_whose_outputs_others_read_stay_together() -> None:
    assert jobs_by_node(many(3 * MB)) == {"n0": 16, "n1": 4}
