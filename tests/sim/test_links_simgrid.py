"""Fair sharing of links against SimGrid, which others have checked for twenty years: every flow takes as long here as there, within 1 %."""

from __future__ import annotations

import json
import subprocess
from math import inf
from pathlib import Path
from random import Random

import pytest

from stager.sim.links import Links

PYTHON = Path("/usr/bin/python3")
PROGRAM = Path(__file__).with_name("simgrid_flows.py")
TOPOLOGIES = 20
WITHIN = 0.01

Flows = list[tuple[float, list[str], int]]


@pytest.fixture(scope="module")
def simgrid() -> Path:
    """The Python that has it: Debian's package works only under the Python of the system."""
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True).returncode:
        pytest.skip("SimGrid is not installed (Debian: apt-get install python3-simgrid)")
    return PYTHON


def draw(seed: int) -> tuple[dict[str, float], Flows]:
    """Links of 1 MB/s to 1 GB/s; flows over one to four of them, many beside each other, some alone."""
    random = Random(f"topology/{seed}")
    links = {f"link{number}": round(10 ** random.uniform(6, 9)) * 1.0 for number in range(random.randint(2, 10))}
    span_s = random.choice((0.0, 1.0, 30.0, 300.0))
    paths = [random.sample(sorted(links), random.randint(1, min(4, len(links)))) for _ in range(random.randint(1, 12))]
    flows = [(random.random() * span_s, random.choice(paths), round(10 ** random.uniform(6, 9))) for _ in range(random.randint(5, 60))]
    return links, sorted(flows)


def ends_here(links: dict[str, float], flows: Flows) -> list[float]:
    fair, ends_s = Links(links), [inf] * len(flows)

    def run(until_s: float) -> None:
        while fair.next_at() <= until_s and fair.next_at() < inf:
            at = fair.next_at()
            for index in fair.take_ended(at):
                ends_s[index] = at

    for index, (start_s, path, size_bytes) in enumerate(flows):
        run(start_s)
        fair.start(start_s, tuple(path), size_bytes, index)
    run(inf)
    return ends_s


def ends_there(python: Path, links: dict[str, float], flows: Flows) -> list[float]:
    asked = json.dumps({"links": links, "flows": flows})
    done = subprocess.run([python, PROGRAM], input=asked, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.simgrid
@pytest.mark.parametrize("seed", range(TOPOLOGIES))
def test_flows_take_as_long_as_in_simgrid(simgrid: Path, seed: int) -> None:
    links, flows = draw(seed)
    there = ends_there(simgrid, links, flows)
    for (start_s, path, size_bytes), here_s, there_s in zip(flows, ends_here(links, flows), there, strict=True):
        took_s = there_s - start_s
        assert took_s > 0
        assert here_s - start_s == pytest.approx(took_s, rel=WITHIN), f"{size_bytes} bytes over {path} from {start_s:.3f} s"
