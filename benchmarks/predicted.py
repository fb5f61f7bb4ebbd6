"""What a run is predicted to take, as JSON, before it runs: `predicted.py WORKFLOW`, or for a replay
`predicted.py INSTANCE BYTES_SCALE TIME_SCALE ORIGIN`.

One rule: the plan is made as `stager submit` and `stager replay` make it, and estimated as `stager report` estimates it afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stager.adapters.binary import find_ionode
from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.options import Given, settings_of
from stager.cli.replay import replacing
from stager.cli.workflow_file import read_only
from stager.estimate import estimate
from stager.model.workflow import Workflow
from stager.planning.policy import Limits
from stager.readers import wfcommons
from stager.readers.replay import make_replay
from stager.readers.resolve import resolve
from stager.service.prepare import origin_from_url, plan_of, topology_of
from stager.service.profiles import load_profiles
from stager.service.settings import Settings


def replayed(settings: Settings, instance: str, bytes_scale: str, time_scale: str, url: str) -> Workflow:
    origin = origin_from_url(url, "replay")
    scales = {"bytes_scale": bytes_scale, "time_scale": time_scale, "seed": 1, "program": find_ionode(settings.environ)}
    workflow, _ = make_replay(wfcommons.read(Path(instance)), origin=origin, output_origin=origin, **scales)
    return replacing(resolve(workflow, IonodeOriginAccess(settings.environ)))


def main() -> None:
    settings = settings_of(None)
    file, *replay = sys.argv[1:]
    workflow = replayed(settings, file, *replay) if replay else read_only(settings, Path(file), None, Given())
    plan = plan_of(workflow, settings, load_profiles(settings), None)
    limits = Limits(cores=settings.cores, memory_bytes=settings.memory_bytes)
    report = estimate(workflow, topology_of(settings, workflow), limits=limits, plan=plan)
    wan_bytes = report.fetched_bytes + report.uploaded_bytes + report.readback_bytes
    print(json.dumps({"makespan_s": report.wall_s, "wan_bytes": wan_bytes}))


if __name__ == "__main__":
    main()
