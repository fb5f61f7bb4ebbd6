"""Writes recorded workflows, as WfCommons' recipes make them from real executions: `record_workflows.py DIRECTORY`.

Needs the package wfcommons and nothing of stager. One rule: what comes out depends on this file and on the versions of wfcommons and of
what it draws with (numpy, scipy) alone; setup.sh pins the first.
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from pathlib import Path

import numpy
from wfcommons import WorkflowGenerator
from wfcommons.wfchef import recipes

# Application: its recipe, tasks, the factor for sizes of files, which keeps each below 7 GB.
RECORDED = {
    "1000genome": (recipes.GenomeRecipe, 100, 0.05),
    "blast": (recipes.BlastRecipe, 60, 0.01),
    "bwa": (recipes.BwaRecipe, 110, 1.0),
    "cycles": (recipes.CyclesRecipe, 140, 1.0),
    "epigenomics": (recipes.EpigenomicsRecipe, 120, 0.5),
    "montage": (recipes.MontageRecipe, 300, 0.5),
    "seismology": (recipes.SeismologyRecipe, 110, 1.0),
    "soykb": (recipes.SoykbRecipe, 100, 0.02),
    "srasearch": (recipes.SrasearchRecipe, 50, 0.1),
}
SEED = 20261123


def sampled_name() -> uuid.UUID:
    return uuid.UUID(int=random.getrandbits(128), version=4)


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    # Names of files are UUIDs, which no seed reaches otherwise.
    uuid.uuid4 = sampled_name
    for name, (recipe, tasks, factor) in RECORDED.items():
        random.seed(SEED)
        numpy.random.seed(SEED)
        made = recipe.from_num_tasks(num_tasks=tasks, input_file_size_factor=factor, output_file_size_factor=factor)
        place = directory / f"{name}.json"
        WorkflowGenerator(made).build_workflow().write_json(place)
        record = json.loads(place.read_text())
        record["createdAt"] = record["workflow"]["execution"]["executedAt"] = "2026-11-23T00:00:00+00:00"
        place.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
