"""How long a plan takes: 10,000 jobs (goal 1 s) and 100,000 jobs with 300,000 files (goal 12 s)."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.made_up import made_up_workflow
from stager.model.topology import embedded
from stager.planning.make_plan import make_plan
from stager.planning.plan_json import from_json, to_json
from stager.sim.simulate import rare_collections

GOALS_S = {10_000: 1.0, 100_000: 12.0}


def main() -> None:
    print(f"{'jobs':>8} {'files':>8} {'plan s':>8} {'goal s':>7} {'json s':>7} {'json MB':>8} {'peak MB':>8}")
    for jobs, goal_s in GOALS_S.items():
        workflow = made_up_workflow(jobs)
        begun = time.process_time()
        # As service/prepare.py does it.
        with rare_collections():
            plan = make_plan(workflow, embedded(10**9, cores=8), spill_origin="home")
        took_s = time.process_time() - begun
        begun = time.process_time()
        text = to_json(plan)
        assert from_json(text) == plan
        json_s = time.process_time() - begun
        peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{jobs:>8} {len(workflow.files):>8} {took_s:>8.2f} {goal_s:>7.0f} {json_s:>7.2f} {len(text) / 1e6:>8.1f} {peak_mb:>8.0f}")


if __name__ == "__main__":
    main()
