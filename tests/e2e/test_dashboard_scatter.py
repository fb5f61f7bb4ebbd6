"""The dashboard of a run whose jobs are decided while it goes on: what is assumed says so, and the graph becomes that of the true jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.browser import Browser, browser
from tests.e2e.dashboard_bed import Bed, box, flow, served, signed_in

GATES = ("top", "part")
JOBS = '[data-figure="jobs"]'


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    with served(session_dir / "dash-scatter") as made:
        yield made
        for name in GATES:
            made.gate(name).touch()


@pytest.fixture(scope="module")
def window(bed: Bed, session_dir: Path) -> Iterator[Browser]:
    with browser(bed.service.url, session_dir / "profile-scatter") as made:
        yield made


@pytest.fixture
def seen(bed: Bed, window: Browser) -> Iterator[Browser]:
    with signed_in(bed, window) as made:
        yield made


def scattering(bed: Bed, *gates: str) -> str:
    """A list behind a gate; a job for each of its members, each with a list of its own, behind another."""
    first, second = (f"until [ -e {bed.gate(gate)} ]; do sleep 0.05; done; " for gate in gates)
    return flow(
        bed,
        "scattered",
        f"""  top: {{run: '{first}seq 3 > names', outputs: [names]}}
  part:
    scatter: {{over: names, as: name, expect: 2}}
    run: "{second}seq {{name}} > {{name}}.list"
    outputs: ["{{name}}.list"]
  low:
    foreach: {{list: "*.list"}}
    scatter: {{over: "{{list}}", as: number}}
    run: "echo {{number}} > {{list.stem}}-{{number}}.low"
    outputs: ["{{list.stem}}-{{number}}.low"]
  turn:
    foreach: {{low: "*.low"}}
    run: "rev {{low}} > {{low.stem}}.end"
    inputs: ["{{low}}"]
    outputs: ["{{low.stem}}.end"]
  all: {{run: 'cat *.end > all', inputs: ["*.end"], outputs: {{all: 'data:out/scattered'}}}}
""",
    )


def test_what_is_assumed_says_so_until_it_is_known(bed: Bed, seen: Browser) -> None:
    run = bed.submit(scattering(bed, *GATES))
    seen.go(f"#/runs/{run}")
    seen.until(lambda: "running" in box(seen, "top"), "the list to be made")
    for job in ("part[1]", "part[2]", "low[1.list,1]", "turn[1-1.low]"):
        assert box(seen, job) == "box job waiting assumed", job
    assert box(seen, "all") == "box job waiting", "it is there whatever is named"
    assert "6 assumed" in seen.text(JOBS)
    seen.shows("assumed: how many there are is not known yet", ".keys")
    seen.go(f"#/runs/{run}?state=all")
    seen.shows("assumed: what it stands for is not known yet", "#jobs")
    seen.go(f"#/runs/{run}/jobs/part[1]")
    seen.shows("This job is assumed", ".note")
    seen.go(f"#/runs/{run}")
    status = bed.service.stager.run("status", run).stdout
    assert "assumed: 6 jobs; how many there are is known when their lists are made" in status

    bed.gate("top").touch()
    seen.until(lambda: seen.find('.box[data-name="part[3]"]'), "the graph to be that of the true jobs")
    assert "assumed" not in box(seen, "part[1]") and box(seen, "low[3.list,3]") == "box job waiting assumed"
    seen.until(lambda: "6 assumed" in seen.text(JOBS), "those of the lists that are made now")
    bed.gate("part").touch()
    seen.until(lambda: "done" in box(seen, "turn[3-2.low]"), "the last of them to be done")
    seen.until(lambda: "done" in box(seen, "all") and not seen.find(".box.assumed"), "nothing to be assumed")
    assert len(seen.find(".box")) == 1 + 3 + 6 + 6 + 1
    seen.until(lambda: "17 of 17" in seen.text(JOBS), "all jobs")
