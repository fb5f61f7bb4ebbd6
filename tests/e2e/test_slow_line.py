"""A host whose line is a tenth of the other's holds up no run."""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from tests.e2e.apart_rig import Apart
from tests.e2e.nodes_rig import batches_of, given_in
from tests.testbed.network import Network, needs_network

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("slow-line"), pytest.mark.timeout(600)]
FAST_MBIT_S, SLOW_MBIT_S = 100.0, 10.0
PARTS, PART_BYTES = 20, 2_500_000
SLOW_FETCH_S = PART_BYTES * 8 / (SLOW_MBIT_S * 1e6)


def part(number: int) -> bytes:
    return hashlib.sha256(b"%d" % number).digest() * (PART_BYTES // 32)


def workflow_of(apart: Apart, batch: str) -> Path:
    numbers = range(PARTS)
    jobs = "".join(
        f"""
  sum{n}:
    type: sum
    run: "sleep 0.5; sha256sum <part{n} >sum{n}"
    inputs: {{part{n}: lab:{batch}/part{n}}}
    outputs: [sum{n}]"""
        for n in numbers
    )
    text = f"""
stager: 1
name: {batch}
origins:
  lab: {apart.origin()}
jobs:{jobs}
  all:
    run: "cat {" ".join(f"sum{n}" for n in numbers)} >all"
    inputs: [{", ".join(f"sum{n}" for n in numbers)}]
    outputs: {{all: {{to: lab:{batch}/all}}}}
"""
    path = apart.place / f"{batch}.yml"
    path.write_text(text)
    return path


@contextmanager
def bed(session_dir: Path, rates: dict[str, float]) -> Iterator[Apart]:
    needs_network()
    with Network() as net:
        made = Apart(net, Path(tempfile.mkdtemp(dir=session_dir)), {}, FAST_MBIT_S, rates_mbit_s=rates)
        try:
            made.start(cores=1)
            yield made
        finally:
            made.end()


def run_of_sums(apart: Apart, batch: str) -> tuple[str, float]:
    """(its id, the seconds that it took)"""
    for number in range(PARTS):
        apart.put(f"{batch}/part{number}", part(number))
    run = apart.stager.submit(workflow_of(apart, batch))
    apart.stager.run("wait", run)
    sums = b"".join(hashlib.sha256(part(number)).hexdigest().encode() + b"  -\n" for number in range(PARTS))
    assert apart.stored(f"{batch}/")["all"] == sums
    lines = {line["name"]: line for line in apart.stager.json("report", run)["lines"]}
    return run, lines["makespan"]["actual"]


def jobs_by_host(apart: Apart, run: str) -> Counter[str]:
    starts = given_in(batches_of(apart.state), cmd.StartAttempt)
    return Counter(start.host for start in starts if start.run == run)


def test_a_host_with_a_tenth_of_the_line_makes_a_run_hardly_longer(session_dir: Path) -> None:
    """By little more than one fetch. Nothing is known of either line before. As things were, it took half of the jobs, and twice the time.
    How many jobs it takes now is no measure: the slower the other host computes, the more of them are its to take.
    """
    with bed(session_dir, {"b": SLOW_MBIT_S}) as apart:
        run, both_s = run_of_sums(apart, "both")
        jobs = jobs_by_host(apart, run)
        apart.stager.run("host", "drain", "hb")
        _, alone_s = run_of_sums(apart, "alone")
    assert both_s < alone_s + 2 * SLOW_FETCH_S, f"{both_s:.1f} s with both, {alone_s:.1f} s with the fast one alone: {jobs}"
