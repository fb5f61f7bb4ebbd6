"""Runs without I/O nodes against what can be worked out by hand."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from stager.model.cluster import Cluster, ComputeNodes, WanLink
from stager.model.errors import Refused
from stager.model.topology import OriginLink, embedded
from stager.model.workflow import Job, Origin, OriginKind, Workflow, graph_of
from stager.planning.make_plan import make_plan
from stager.sim.direct import DirectRun, run_direct
from stager.sim.sampling import Uncertainties, Uncertainty
from tests.scenarios.stage import read
from tests.unit.test_plan import HOME

CHAIN = """
workflow w
  external in 1000
  made mid 500
  made end 100 final
  job a in -> mid compute=3
  job b mid in -> end compute=4
"""
FAN = """
workflow w
  external one 1000
  external two 1000
  made p 0 final
  made q 0 final
  job a one -> p compute=5
  job b two -> q compute=5
"""


def workflow(text: str) -> Workflow:
    files, jobs = read(text).workflows["w"]
    return Workflow("w", files, jobs, {"home": HOME})


def cluster(nodes: int = 1, cores: int = 1, **facts: float) -> Cluster:
    wan = WanLink(OriginLink("home", 100.0, 50.0, facts.pop("latency_s", 0.0)), **facts)  # type: ignore[arg-type]
    return Cluster(ComputeNodes(nodes, cores, network_bytes_per_s=1e9), links={"home": wan})


def simulated(w: Workflow, c: Cluster, draws: Uncertainties | None = None) -> DirectRun:
    return run_direct(w, graph_of(w), c, make_plan(w, embedded(10**15, cores=c.cores)), "r", draws or Uncertainties(0))


def test_every_read_and_every_write_crosses_the_wan() -> None:
    """a reads 1000 and writes 500, b reads 1500 (`in` again, `mid` back from home) and writes 100."""
    run = simulated(workflow(CHAIN), cluster())
    assert run.wall_s == pytest.approx(10 + 3 + 10 + 15 + 4 + 2)
    assert Counter((entry.lfn, entry.is_read) for entry in run.accesses) == {
        ("in", True): 2,
        ("mid", False): 1,
        ("mid", True): 1,
        ("end", False): 1,
    }
    assert (run.home, run.intermediate_bytes) == ("home", 500)


def test_each_file_costs_a_round_trip() -> None:
    assert simulated(workflow(CHAIN), cluster(latency_s=1.0)).wall_s == pytest.approx(44 + 5)


def test_one_client_gets_no_more_than_its_mount_gives() -> None:
    slow = simulated(workflow(CHAIN), cluster(direct_fetch_bytes_per_s=10.0, direct_upload_bytes_per_s=25.0))
    assert slow.wall_s == pytest.approx(100 + 3 + 20 + 150 + 4 + 4)


@pytest.mark.parametrize(
    ("nodes", "cores", "facts", "wall_s"),
    [
        (1, 1, {}, 10 + 5 + 10 + 5),
        (1, 2, {}, 20 + 5),
        (2, 1, {}, 20 + 5),
        (1, 2, {"direct_fetch_bytes_per_s": 40.0}, 50 + 5),
        (2, 1, {"direct_fetch_bytes_per_s": 40.0}, 25 + 5),
    ],
)
def test_jobs_share_the_link_and_the_mounts_of_their_node(nodes: int, cores: int, facts: dict[str, float], wall_s: float) -> None:
    assert simulated(workflow(FAN), cluster(nodes, cores, **facts)).wall_s == pytest.approx(wall_s)


def test_a_declared_bandwidth_bounds_the_link() -> None:
    w = workflow(FAN)
    bounded = replace(w, origins={"home": replace(HOME, options=(("bandwidth", "50"),))})
    assert simulated(bounded, cluster(1, 2)).wall_s == pytest.approx(40 + 5)


def test_memory_keeps_jobs_apart_and_too_much_of_it_means_alone() -> None:
    w = workflow(FAN)
    heavy = replace(w, jobs={name: replace(job, memory_bytes=60, cores=9) for name, job in w.jobs.items()})
    small = cluster(1, 2)
    watched = replace(small, compute=replace(small.compute, memory_bytes=50, cores=20))
    assert simulated(heavy, watched).wall_s == pytest.approx(10 + 5 + 10 + 5)
    roomy = replace(small, compute=replace(small.compute, memory_bytes=120, cores=20))
    assert simulated(heavy, roomy).wall_s == pytest.approx(20 + 5)


def test_intermediates_go_to_the_spill_origin_first_and_never_to_the_web() -> None:
    w = workflow(CHAIN)
    scratch = Origin("scratch", OriginKind.S3, "s3://scratch")
    assert simulated(replace(w, origins={"home": HOME, "scratch": scratch}, spill_origin="scratch"), cluster()).home == "scratch"
    web = replace(w, origins={"home": Origin("home", OriginKind.HTTP, "https://lab")})
    with pytest.raises(Refused, match="intermediates have nowhere to go; name a spill_origin"):
        simulated(web, cluster())


def test_a_wrong_guess_is_wrong_for_all_jobs_of_its_type_and_chance_evens_out() -> None:
    names = [f"a{index}" for index in range(400)]
    together = Uncertainties(7, durations=dict.fromkeys(names, Uncertainty("t", together=3.0)))
    alone = Uncertainties(7, durations=dict.fromkeys(names, Uncertainty("t", alone=3.0)))
    same = {together.duration_s(1.0, f"{name}-1") for name in names}
    assert len(same) == 1
    assert same != {1.0}
    drawn = sorted(alone.duration_s(1.0, f"{name}-1") for name in names)
    assert 1 / 3 <= drawn[0] < 0.4
    assert 2.5 < drawn[-1] <= 3
    assert drawn[200] == pytest.approx(1.0, rel=0.2)
    assert alone.duration_s(1.0, "unknown-1") == 1.0


def test_what_is_known_of_one_widens_its_doubt_and_never_narrows_it() -> None:
    uncertainties = Uncertainties(7, sizes={"f": Uncertainty("t", alone=2.0)})
    narrow, same, wide = (uncertainties.size_bytes(1_000_000, "r", "f", own) for own in (1.0, 2.0, 8.0))
    assert narrow == same
    # The same luck, and log 8 is three times log 2.
    assert (wide / 1e6) == pytest.approx((same / 1e6) ** 3, rel=1e-4)
    assert uncertainties.size_bytes(1_000_000, "r", "other", 8.0) != 1_000_000


def test_doubts_change_a_run_and_the_same_seed_changes_it_alike() -> None:
    w = workflow(CHAIN)
    uncertainties = Uncertainties(3, sizes={"mid": Uncertainty("size t", together=2.0)})
    one, again = simulated(w, cluster(), uncertainties), simulated(w, cluster(), uncertainties)
    assert one == again
    assert one.intermediate_bytes != 500
    assert one.wall_s == pytest.approx(44 + (one.intermediate_bytes - 500) * (1 / 50 + 1 / 100))


def test_no_files_at_all_is_computing_only() -> None:
    w = Workflow("w", {}, {"a": Job("a", "t", ("true",), compute_s=2.0), "b": Job("b", "t", ("true",), after=("a",), compute_s=3.0)}, {})
    run = simulated(w, Cluster())
    assert (run.wall_s, run.accesses, run.home) == (5.0, (), "")
