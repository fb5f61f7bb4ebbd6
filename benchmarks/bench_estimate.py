"""How long an estimate takes after planning: one topology of a 10,000-job workflow (goal 5 s) and of a 100,000-job one (goal 60 s), without
I/O nodes, with one and with several. Processor time of one process: `cost-estimate` asks each topology in one of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.made_up import made_up_workflow
from stager.model.cluster import Cluster, ComputeNodes, IoNodes
from stager.model.prices import prices_for
from stager.planning.make_plan import make_plan
from stager.readers.prices import packaged_prices
from stager.service.choices import Question, answer

GOALS_S = {10_000: 5.0, 100_000: 60.0}


def measure(question: Question, io_nodes: int) -> tuple[float, float, str]:
    """(seconds of planning, seconds of all the rest, what came out)."""
    cluster = question.cluster
    roomy = replace(cluster, io=replace(cluster.io, capacity_bytes=1 << 62)) if io_nodes == 0 else cluster
    begun = time.process_time()
    make_plan(question.workflow, roomy.topology(question.workflow, max(1, io_nodes)))
    planned_s = time.process_time() - begun
    begun = time.process_time()
    choice = answer(question, io_nodes)
    took_s = time.process_time() - begun
    return planned_s, took_s - planned_s, choice.outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, action="append", help="how many; default: 10,000 and 100,000")
    parser.add_argument("--io-nodes", type=int, action="append", help="how many; default: 0, 1 and 4")
    given = parser.parse_args()
    prices = prices_for(packaged_prices(), "m6i.xlarge", "i3.xlarge")
    print(f"{'jobs':>8} {'I/O nodes':>10} {'plan s':>8} {'estimate s':>11} {'goal s':>7}  outcome")
    for jobs in given.jobs or GOALS_S:
        question = Question(made_up_workflow(jobs), Cluster(ComputeNodes(4, 4), IoNodes(capacity_bytes=10**12)), prices)
        for io_nodes in given.io_nodes or (0, 1, 4):
            planned_s, took_s, outcome = measure(question, io_nodes)
            goal = f"{GOALS_S[jobs]:.0f}" if jobs in GOALS_S else ""
            print(f"{jobs:>8} {io_nodes:>10} {planned_s:>8.2f} {took_s:>11.2f} {goal:>7}  {outcome}", flush=True)


if __name__ == "__main__":
    main()
