"""What a replay is predicted to take, as JSON, before it runs: `replay_predicted.py INSTANCE BYTES_SCALE TIME_SCALE ORIGIN`.

One rule: the plan is made as `stager replay` makes it, and estimated as `stager report` estimates it afterwards.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from stager.adapters.binary import find_ionode
from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.options import settings_of
from stager.cli.replay import replacing
from stager.estimate import estimate
from stager.planning.policy import Limits
from stager.readers import wfcommons
from stager.readers.replay import make_replay
from stager.readers.resolve import resolve
from stager.service.prepare import origin_from_url, plan_of, topology_of
from stager.service.profiles import load_profiles


def main() -> None:
    instance, bytes_scale, time_scale, url = sys.argv[1:]
    settings = settings_of(None)
    origin = origin_from_url(url, "replay")
    scales = {"bytes_scale": bytes_scale, "time_scale": time_scale, "seed": 1, "program": find_ionode(settings.environ)}
    workflow, _ = make_replay(wfcommons.read(Path(instance)), origin=origin, output_origin=origin, **scales)
    ready = replacing(resolve(workflow, IonodeOriginAccess(settings.environ)))
    plan = plan_of(ready, settings, load_profiles(settings), None)
    limits = Limits(cores=settings.cores, memory_bytes=settings.memory_bytes)
    report = estimate(ready, topology_of(settings, ready), limits=limits, plan=plan)
    wan_bytes = report.fetched_bytes + report.uploaded_bytes + report.readback_bytes
    print(json.dumps({"makespan_s": report.wall_s, "wan_bytes": wan_bytes}))


if __name__ == "__main__":
    main()
