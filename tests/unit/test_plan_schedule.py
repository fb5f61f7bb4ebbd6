"""When a plan predicts things: in its order, with nobody held up by what has not come yet, and within the room of each node."""

from __future__ import annotations

from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow, graph_of
from stager.planning.schedule import Schedule, predict
from stager.planning.shape import Shape, shape_of
from stager.planning.sizes import expected
from tests.unit.test_plan import external, job, made, workflow_of


def predicted(workflow: Workflow, order: str, capacity_bytes: int = 10**9, cores: int = 2, nodes: int = 1) -> dict[str, tuple[str, float]]:
    """By job, its node and the second in which it begins."""
    each = tuple(Node(f"n{number}", capacity_bytes, cores, disk_bytes_per_s=1e15, network_bytes_per_s=1e15) for number in range(nodes))
    topology = Topology(each, (OriginLink("home", 1000.0, 1e15, 0.0),))
    graph = graph_of(workflow)
    shape: Shape = shape_of(workflow, graph, expected(workflow, graph.order, {}), topology)
    schedule: Schedule = predict(workflow, shape, [shape.jobs.index(name) for name in order.split()], topology)
    return {
        name: (topology.nodes[node].id, round(start, 3))
        for name, node, start in zip(shape.jobs, schedule.node, schedule.start_s, strict=True)
    }


def starts(workflow: Workflow, order: str, capacity_bytes: int = 10**9, cores: int = 2) -> list[float]:
    """In the order given."""
    found = predicted(workflow, order, capacity_bytes, cores)
    return [found[name][1] for name in order.split()]


def test_a_core_does_not_idle_for_a_job_that_cannot_begin_yet() -> None:
    """Both readers of `first` come before `other` in the order, and after it in time."""
    files = [made("a", 1), *(made(f"e{number}", 1) for number in range(3))]
    jobs = [
        job("first", "", "a", compute_s=100.0),
        job("one", "a", "e0", compute_s=1.0),
        job("two", "a", "e1", compute_s=1.0),
        job("other", "", "e2", compute_s=100.0),
    ]
    assert starts(workflow_of(files, jobs), "first one two other") == [0, 100, 100, 0]


def test_external_files_are_waited_for_and_jobs_without_go_first() -> None:
    jobs = [job("reads", "raw", "e0", compute_s=1.0), job("makes", "", "e1", compute_s=1.0)]
    assert starts(workflow_of([external("raw", 5000), made("e0", 1), made("e1", 1)], jobs), "reads makes", cores=1) == [5, 0]


def beside(*sizes: int, reads: str = "") -> Workflow:
    files = [made(f"e{number}", size) for number, size in enumerate(sizes)]
    jobs = [job(f"j{number}", reads, f"e{number}", compute_s=10.0) for number in range(len(sizes))]
    return workflow_of([*files, *([external(reads, 60)] if reads else [])], jobs)


def test_jobs_that_do_not_fit_beside_each_other_run_one_after_the_other_and_nobody_overtakes_them() -> None:
    assert starts(beside(60, 60, 10), "j0 j1 j2", 100, cores=4) == [0, 10, 10]
    assert starts(beside(60, 40, 10), "j0 j1 j2", 100, cores=4) == [0, 0, 10]
    assert starts(beside(60, 60, 60), "j0 j1 j2", 1000, cores=4) == [0, 0, 0]


def test_an_input_that_several_read_takes_its_room_once() -> None:
    assert starts(beside(10, 10, 10, reads="raw"), "j0 j1 j2", 80, cores=4) == [0.06, 0.06, 10.06]


def test_who_comes_while_the_first_waits_for_room_and_is_in_front_of_it_goes_first() -> None:
    """`small` is ready when `short` ends; `large` would fit only when `long` ends."""
    files = [made("a", 50), made("b", 10), made("c", 90), made("d", 10)]
    jobs = [
        job("long", "", "a", compute_s=10.0),
        job("short", "", "b", compute_s=2.0),
        job("small", "b", "d", compute_s=1.0),
        job("large", "", "c", compute_s=1.0),
    ]
    assert starts(workflow_of(files, jobs), "long short small large", 100, cores=4) == [0, 0, 2, 10]


def test_what_one_node_has_no_room_for_goes_to_another() -> None:
    found = predicted(beside(60, 60, 60, 60), "j0 j1 j2 j3", 100, cores=4, nodes=2)
    assert sorted(found.values()) == [("n0", 0), ("n0", 10), ("n1", 0), ("n1", 10)]
