"""Computing time from measured wall time: what reading took is counted once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.profile import Profile, Quantity
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, Node, OriginLink, Topology
from stager.planning.make_plan import make_plan
from stager.planning.sizes import without_reading_s
from tests.unit.test_plan import external, job, workflow_of

SECOND_BYTES = int(DEFAULT_DISK_BYTES_PER_S)


@pytest.mark.parametrize(
    ("wall_s", "cpu_s", "cores", "input_bytes", "left_s"),
    [
        (10.0, 2.0, 1, 3 * SECOND_BYTES, 7.0),
        (10.0, 9.0, 1, 3 * SECOND_BYTES, 9.0),
        (10.0, 2.0, 1, 60 * SECOND_BYTES, 2.0),
        (10.0, 32.0, 4, 3 * SECOND_BYTES, 8.0),
        (10.0, 32.0, 1, 3 * SECOND_BYTES, 10.0),
        (10.0, None, 1, 3 * SECOND_BYTES, 10.0),
        (10.0, 2.0, 1, None, 10.0),
    ],
    ids=["reading", "computing meanwhile", "from memory", "several cores", "more cores than said", "no CPU time", "no bytes"],
)
def test_reading_is_taken_off_as_far_as_nothing_was_computed_meanwhile(
    wall_s: float, cpu_s: float | None, cores: int, input_bytes: int | None, left_s: float
) -> None:
    assert without_reading_s(wall_s, cpu_s, cores, input_bytes) == pytest.approx(left_s)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.integers(1, 64), st.integers(0, 10**15))
def test_it_is_never_more_than_the_wall_time_nor_less_than_the_computing(wall_s: float, cpu_s: float, cores: int, input_bytes: int) -> None:
    left_s = without_reading_s(wall_s, cpu_s, cores, input_bytes)
    assert min(wall_s, cpu_s / cores) <= left_s <= wall_s


def test_a_job_that_only_reads_takes_as_long_as_it_was_seen_to() -> None:
    """Two seconds of reading, one of computing: the plan has the job take three, not five."""
    files = [external("x", 2 * SECOND_BYTES)]
    asked = workflow_of(files, [job("read", "x", "", job_type="reads")])
    profile = Profile("reads", wall_s=Quantity(3.0, 3.0), cpu_s=Quantity(1.0, 1.0))
    topology = Topology((Node("n", 10**12),), (OriginLink("home", 1e30, 1e30, 0.0),))
    (planned,) = make_plan(asked, topology, {"reads": profile}).jobs
    assert planned.compute_s == pytest.approx(1.0)
    assert planned.finish_s - planned.start_s == pytest.approx(3.0)
