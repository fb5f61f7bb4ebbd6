"""Whole, in stripes or as one of many: the formulas against numbers worked out by hand, and what must hold of every choice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.model.files import File, Location, Source
from stager.model.topology import Node, OriginLink, Topology, embedded
from stager.model.workflow import Job, JobInput, Origin, OriginKind, Workflow, graph_of
from stager.planning.explain import explain_file
from stager.planning.make_plan import make_plan
from stager.planning.plan import Transport
from stager.planning.plan_json import diff, from_json, to_json
from stager.planning.transport import (
    MANY,
    PART_OF_NODE,
    SMALL_BYTES,
    STRIPE_BYTES,
    WORTH,
    Way,
    choose,
    has_space,
    nodes_to_use,
    part_bytes,
    striped_s,
    stripes_max,
    whole_s,
)

GB, MB = 10**9, 10**6
# S1's line: 1 Gbit/s to the lab, of which one client gets less than 20 MB/s.
LAB = Way(link=135e6, line=20e6, latency_s=0.0, inside=1250e6, disk=1e9, capacities_bytes=(1000 * GB,) * 8)


def test_a_large_file_over_a_narrow_line_comes_in_as_many_stripes_as_fill_the_link() -> None:
    chosen = choose(100 * GB, LAB, 0)
    assert (chosen.transport, chosen.stripes) == (Transport.STRIPE, 7)
    assert whole_s(100 * GB, LAB) == 5000
    assert striped_s(100 * GB, 7, LAB) == pytest.approx(100 * GB / 135e6, rel=1e-3)


def test_a_stripe_is_as_slow_as_the_narrowest_of_what_it_passes() -> None:
    assert striped_s(GB, 4, LAB) == pytest.approx((GB + STRIPE_BYTES) / 80e6)
    assert striped_s(GB, 4, replace(LAB, inside=50e6)) == pytest.approx((GB + STRIPE_BYTES) / 50e6)
    # The reader's disk takes the file, and its own part once more.
    assert striped_s(GB, 4, replace(LAB, disk=50e6)) == pytest.approx((GB + STRIPE_BYTES) / 40e6)
    assert whole_s(GB, replace(LAB, inside=10e6, latency_s=1.0)) == 101


@pytest.mark.parametrize(
    "way",
    [
        replace(LAB, capacities_bytes=(1000 * GB,)),
        replace(LAB, line=135e6),
        # Inside it is no wider than one line: the second hop would eat what the first wins.
        replace(LAB, inside=22e6),
        # No room for a part beside the file, or for a part on the others.
        replace(LAB, capacities_bytes=(105 * GB,) * 8),
        replace(LAB, capacities_bytes=(50 * GB,) * 8),
        replace(LAB, capacities_bytes=(1000 * GB, *[50 * GB] * 7)),
    ],
)
def test_whole_where_stripes_win_nothing_or_have_no_room(way: Way) -> None:
    assert choose(100 * GB, way, 0).transport is Transport.WHOLE


def test_no_more_stripes_than_there_are_nodes_with_room_for_a_part() -> None:
    chosen = choose(100 * GB, replace(LAB, capacities_bytes=(1000 * GB,) * 4 + (20 * GB,) * 4), 0)
    assert (chosen.transport, chosen.stripes) == (Transport.STRIPE, 4)


def test_fewer_stripes_where_the_inside_is_full_with_them() -> None:
    chosen = choose(100 * GB, replace(LAB, inside=60e6), 0)
    assert (chosen.transport, chosen.stripes) == (Transport.STRIPE, 3)


def test_small_and_many_of_one_origin_is_a_pack() -> None:
    assert choose(SMALL_BYTES, LAB, MANY).transport is Transport.PACK
    assert choose(SMALL_BYTES, LAB, MANY - 1).transport is Transport.WHOLE
    assert choose(SMALL_BYTES + 1, LAB, MANY).transport is Transport.WHOLE


ways = st.builds(
    Way,
    link=st.floats(1e3, 1e10),
    line=st.floats(1e3, 1e10),
    latency_s=st.floats(0, 10),
    inside=st.floats(1e3, 1e10),
    disk=st.floats(1e3, 1e10),
    capacities_bytes=st.lists(st.integers(0, 10**13), min_size=1, max_size=16).map(lambda each: tuple(sorted(each, reverse=True))),
).map(lambda way: replace(way, line=min(way.line, way.link)))


@given(size=st.integers(0, 10**13), way=ways, small=st.integers(0, 100))
def test_stripes_are_never_more_than_there_are_nodes_and_always_worth_their_room(size: int, way: Way, small: int) -> None:
    chosen = choose(size, way, small)
    assert chosen.stripes <= stripes_max(size, way) <= way.nodes
    assert (chosen.transport is Transport.STRIPE) == (chosen.stripes > 1)
    if chosen.stripes > 1:
        assert striped_s(size, chosen.stripes, way) <= WORTH * whole_s(size, way)
        assert has_space(size, chosen.stripes, way)
        able = [capacity for capacity in way.capacities_bytes if size / chosen.stripes <= PART_OF_NODE * capacity]
        assert chosen.stripes <= len(able)
        # One line less would not fill the link.
        assert (chosen.stripes - 1) * way.line < way.link


@given(size=st.integers(0, 10**12), count=st.integers(1, 9))
def test_parts_make_up_the_file_and_are_alike(size: int, count: int) -> None:
    parts = [part_bytes(size, index, count) for index in range(count)]
    assert sum(parts) == size
    assert max(parts) - min(parts) <= STRIPE_BYTES


def test_parts_against_a_walk_over_the_file() -> None:
    for size in range(0, 40):
        for count in range(1, 5):
            stripes = [min(4, size - at) for at in range(0, size, 4)]
            assert [part_bytes(size, index, count, 4) for index in range(count)] == [sum(stripes[index::count]) for index in range(count)]


def test_nodes_that_are_busy_are_left_alone() -> None:
    assert nodes_to_use([0, 0, 0, 0], 0, 100, 4) == 4
    assert nodes_to_use([0, 0, 0, 0], 0, 100, 3) == 3
    assert nodes_to_use([0, 0, 500, 500], 0, 100, 4) == 2
    assert nodes_to_use([0, 500, 500, 500], 0, 100, 4) == 0
    # Its own line has much to do before it, so half as fast is twice as good.
    assert nodes_to_use([30, 30, 600], 600, 100, 3) == 2
    assert nodes_to_use([0], 0, 100, 4) == 0


@given(st.lists(st.integers(0, 10**9), max_size=9).map(sorted), st.integers(0, 10**9), st.integers(1, 10**9), st.integers(1, 9))
def test_nodes_are_used_only_where_the_last_part_is_there_well_before_the_whole(busy: list[int], own: int, size: int, most: int) -> None:
    used = nodes_to_use(busy, own, size, most)
    assert used == 0 or 2 <= used <= min(most, len(busy))
    if used:
        assert busy[used - 1] + size / used <= WORTH * (own + size)


# In plans


def workflow(*sizes: int) -> Workflow:
    sources = {f"f{number}": Source(Location("lab", f"f{number}"), size, "t") for number, size in enumerate(sizes)}
    files = {lfn: File(lfn, sources=(source,)) for lfn, source in sources.items()}
    job = Job("j", "work", ("work",), inputs=tuple(JobInput(lfn, lfn) for lfn in files))
    return Workflow("w", files, {"j": job}, {"lab": Origin("lab", OriginKind.SFTP, "sftp://lab/data")})


def cluster(nodes: int, line: float | None = 20e6) -> Topology:
    each = (Node(f"node{number}", 1000 * GB, 4, None, 1e9, 1250e6) for number in range(nodes))
    return Topology(tuple(each), (OriginLink("lab", 135e6, 135e6, 0.05, node_fetch_bytes_per_s=line),))


def test_a_plan_says_how_each_file_comes_and_its_times_follow() -> None:
    what = workflow(100 * GB, 1000)
    wide, narrow, alone = (make_plan(what, topology) for topology in (cluster(8, None), cluster(8), cluster(1)))
    assert [(file.transport, file.stripes) for file in narrow.files] == [(Transport.STRIPE, 7), (Transport.WHOLE, 1)]
    assert {file.stripes for plan in (wide, alone) for file in plan.files} == {1}
    assert wide.makespan_s == pytest.approx(narrow.makespan_s, rel=0.01)
    assert alone.makespan_s - narrow.makespan_s == pytest.approx(5000 - 741, rel=0.01)


def test_many_lines_carry_many_files_at_once() -> None:
    """Too small for stripes, and yet eight lines fill the link: files come over different ones."""
    what = workflow(*[STRIPE_BYTES] * 400)
    fast, slow = make_plan(what, cluster(8)), make_plan(what, cluster(1))
    total_bytes = 400 * STRIPE_BYTES
    assert slow.makespan_s - fast.makespan_s == pytest.approx(total_bytes / 20e6 - total_bytes / 135e6, rel=0.02)


def test_one_node_never_gets_stripes_however_narrow_its_line() -> None:
    """What `stager submit` runs on: so no stripe is chosen in the live world."""
    topology = embedded(1000 * GB, links=(OriginLink("lab", 135e6, node_fetch_bytes_per_s=1e6),))
    assert [file.stripes for file in make_plan(workflow(100 * GB), topology).files] == [1]


def test_the_plan_is_explained_with_its_numbers() -> None:
    what = workflow(100 * GB, 50 * MB)
    plan = make_plan(what, cluster(8))

    def line(lfn: str, topology: Topology) -> str:
        told = explain_file(what, graph_of(what), make_plan(what, topology), topology, lfn)
        return next(line for line in told if line.startswith("transport: "))

    assert line("f0", cluster(8)) == (
        "transport: 7 stripes: about 12 min 21 s over the lines of 7 nodes, assembled inside while they come, against 1 h 23 min over "
        "the line of one node (20 MB/s); the link gives 135 MB/s"
    )
    assert line("f0", cluster(1)) == "transport: whole: there is one node"
    assert line("f0", cluster(8, None)) == "transport: whole: the line of one node is as wide as the link"
    small = workflow(*[100] * MANY)
    told = explain_file(small, graph_of(small), make_plan(small, cluster(8)), cluster(8), "f0")
    assert "transport: pack: small, and one of many from there; they come side by side, each in a round trip of 0.05 s" in told
    assert from_json(to_json(plan)) == plan


def test_a_plan_of_version_3_is_read_and_everything_comes_whole() -> None:
    plan = make_plan(workflow(100 * GB), cluster(8))
    text = to_json(plan).replace('"version": 4', '"version": 3').replace(', "transport": "stripe"', "").replace('"stripes": 7, ', "")
    old = from_json(text)
    assert [(file.transport, file.stripes) for file in old.files] == [(Transport.WHOLE, 1)]
    assert diff(old, plan) == ["file 'f0' was to come as whole, is to come as stripe in 7 parts"]
