"""A replay as its user has it, told step by step: `replayed.py make DIRECTORY | predict | run`, with a workflow and its scales behind.

`make` makes the inputs below a directory; `predict` prints what the plan and `cost-estimate` say, also as if nobody had declared times and
sizes; `run` submits it and prints the id of the run. One rule: plans are made as `stager replay` makes them, choices as `cost-estimate`.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from stager.adapters.binary import find_ionode
from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.options import settings_of
from stager.cli.prices import table_of
from stager.cli.replay import replacing
from stager.cli.workflow_file import credentials_of
from stager.client import connect_or_start
from stager.model.prices import prices_for
from stager.model.workflow import Origin, Workflow
from stager.planning.plan import Plan
from stager.readers import wfcommons
from stager.readers.replay import ReplayFile, make_replay
from stager.readers.replay_files import make_inputs
from stager.readers.resolve import resolve
from stager.service.choices import Question, answer
from stager.service.prepare import cluster_here, origin_from_url, plan_of
from stager.service.profiles import load_profiles
from stager.service.settings import Settings


def scaled(given: argparse.Namespace, settings: Settings, origin: Origin) -> tuple[Workflow, tuple[ReplayFile, ...]]:
    scales = {"bytes_scale": given.bytes_scale, "time_scale": given.time_scale, "seed": 1, "program": find_ionode(settings.environ)}
    return make_replay(wfcommons.read(given.instance), origin=origin, output_origin=origin, **scales)


def predicted(workflow: Workflow, settings: Settings, prices: Path) -> dict[str, Any]:
    cluster = cluster_here(settings, workflow)
    paid = prices_for(table_of(prices), cluster.compute.instance, cluster.io.instance, cluster.region)
    choice = answer(Question(workflow, cluster, paid, load_profiles(settings)), 1)
    assert choice.expected is not None, f"it cannot be done: {choice.message}"
    plan = plan_of(workflow, settings, load_profiles(settings), None)
    undeclared = plan_of(unsaid(workflow), settings, load_profiles(settings), None)
    return {
        "makespan_s": choice.expected.usage.wall_s,
        "wan_bytes": choice.expected.wan_bytes,
        "money": choice.expected.bill.total,
        "least_s": choice.makespan_least_s,
        "most_s": choice.makespan_most_s,
        "plan": range_of(plan),
        "unsaid": range_of(undeclared),
    }


def range_of(plan: Plan) -> dict[str, float | None]:
    return {"makespan_s": plan.makespan_s, "least_s": plan.makespan_least_s, "most_s": plan.makespan_most_s}


def unsaid(workflow: Workflow) -> Workflow:
    """As if its author had declared neither how long jobs take nor how large is what they make."""
    jobs = {name: replace(job, compute_s=None) for name, job in workflow.jobs.items()}
    files = {lfn: file if file.is_external else replace(file, size_bytes=None) for lfn, file in workflow.files.items()}
    return replace(workflow, jobs=jobs, files=files, hints={})


def run(workflow: Workflow, settings: Settings) -> str:
    plan = plan_of(workflow, settings, load_profiles(settings), None)
    with connect_or_start(settings.state_dir, settings.scheduler_arguments()) as client:
        name = client.submit(workflow, plan, credentials_of(settings, workflow))
        outcome = client.run(name).wait_finished().state
        assert outcome == "succeeded", f"run {name} {outcome}: {client.run(name).summary().fault}"
    return name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("make", "predict", "run"))
    parser.add_argument("instance", type=Path)
    parser.add_argument("bytes_scale")
    parser.add_argument("time_scale")
    parser.add_argument("url")
    parser.add_argument("--into", type=Path, help="where `make` makes the inputs")
    parser.add_argument("--prices", type=Path)
    given = parser.parse_args()
    settings = settings_of(None)
    origin = origin_from_url(given.url, "replay")
    workflow, inputs = scaled(given, settings, origin)
    if given.what == "make":
        make_inputs(find_ionode(settings.environ), given.into, 1, inputs)
        return
    ready = replacing(resolve(workflow, IonodeOriginAccess(settings.environ)))
    print(json.dumps(predicted(ready, settings, given.prices) if given.what == "predict" else {"run": run(ready, settings)}))


if __name__ == "__main__":
    sys.exit(main())
