"""Writes the made set, workflows that nobody recorded: `make_workflows.py DIRECTORY`. Recipes of WfCommons give their shapes; how many
tasks they have, how long those take and how large their files are is drawn.

Needs the package wfcommons and nothing of stager. One rule: what comes out depends on this file and on the versions of wfcommons and of
what it draws with alone, so that digests in MANIFEST tell whether a second making is the same. Its halves are fixed by names: learn from
"tune", judge by "judge", and never look into what is judged by.
"""

from __future__ import annotations

import json
import random
import sys
import uuid
from hashlib import sha256
from importlib.metadata import version
from math import ceil, exp, log
from pathlib import Path
from typing import Any

import numpy
from record_workflows import sampled_name
from wfcommons import WorkflowGenerator
from wfcommons.wfchef import recipes

# Application: its recipe and the fewest tasks that are asked of it. Where a recipe starts with more than 52, that many are the fewest.
RECIPES = {
    "1000genome": (recipes.GenomeRecipe, 54),
    "blast": (recipes.BlastRecipe, 54),
    "bwa": (recipes.BwaRecipe, 108),
    "cycles": (recipes.CyclesRecipe, 72),
    "epigenomics": (recipes.EpigenomicsRecipe, 60),
    "montage": (recipes.MontageRecipe, 60),
    "seismology": (recipes.SeismologyRecipe, 105),
    "soykb": (recipes.SoykbRecipe, 100),
    "srasearch": (recipes.SrasearchRecipe, 54),
}
LEFT_OUT = {"rnaseq": "its recipe tells neither a file nor an edge between tasks, so nothing moves"}
EACH = 6
TASKS = 50, 2000
TOTAL_BYTES = 50e6, 100e9
MEAN_TASK_S = 0.5, 200.0
# How far one job type is from the scale of its workflow, either way.
TYPE_FACTOR_MOST = 2.5
SEED = 20261123
MANIFEST = "MANIFEST"


def log_uniform(low: float, high: float) -> float:
    return exp(random.uniform(log(low), log(high)))


def half_of(name: str) -> str:
    """Of two neighbours in number of tasks one is for learning: the hash of the pair's name says which."""
    application, _, number = name.rpartition("-")
    pair = f"{application}-{int(number) // 2}"
    return ("tune", "judge")[(sha256(pair.encode()).digest()[0] + int(number)) % 2]


def make(directory: Path, application: str, number: int) -> dict[str, Any]:
    """Each number has its own part of the range of tasks, so that every application has small and large ones."""
    name = f"{application}-{number}"
    seed = int.from_bytes(sha256(f"{SEED} {name}".encode()).digest()[:4], "big")
    random.seed(seed)
    numpy.random.seed(seed)
    recipe, fewest = RECIPES[application]
    step = (TASKS[1] / fewest) ** (1 / EACH)
    tasks = ceil(log_uniform(fewest * step**number, fewest * step ** (number + 1)))
    place = directory / f"{name}.json"
    WorkflowGenerator(recipe.from_num_tasks(num_tasks=min(tasks, TASKS[1]))).build_workflow().write_json(place)
    record: dict[str, Any] = json.loads(place.read_text())
    record["name"] = name
    record["createdAt"] = record["workflow"]["execution"]["executedAt"] = "2026-11-23T00:00:00+00:00"
    record["author"]["name"] = "made"
    scale(record["workflow"])
    place.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    return told(name, record["workflow"], place)


def scale(workflow: dict[str, Any]) -> None:
    """To a drawn sum of bytes and a drawn mean time, each job type farther by a factor of its own. What has 0 bytes keeps them."""
    types = {task["id"]: task["name"] for task in workflow["specification"]["tasks"]}
    owners: dict[str, str] = {}
    for names in ("outputFiles", "inputFiles"):
        for task in workflow["specification"]["tasks"]:
            for file in task[names]:
                owners.setdefault(file, types[task["id"]])
    all_types = sorted(set(types.values()))
    of_bytes = {name: log_uniform(1 / TYPE_FACTOR_MOST, TYPE_FACTOR_MOST) for name in all_types}
    of_time = {name: log_uniform(1 / TYPE_FACTOR_MOST, TYPE_FACTOR_MOST) for name in all_types}
    files, runs = workflow["specification"]["files"], workflow["execution"]["tasks"]
    sizes = [file["sizeInBytes"] * of_bytes[owners[file["id"]]] for file in files]
    factor = log_uniform(*TOTAL_BYTES) / sum(sizes)
    for file, size in zip(files, sizes, strict=True):
        file["sizeInBytes"] = ceil(size * factor)
    times = [run["runtimeInSeconds"] * of_time[types[run["id"]]] for run in runs]
    factor = log_uniform(*MEAN_TASK_S) * len(times) / sum(times)
    for run, time_s in zip(runs, times, strict=True):
        run["runtimeInSeconds"] = round(time_s * factor, 3)


def told(name: str, workflow: dict[str, Any], place: Path) -> dict[str, Any]:
    sizes = [file["sizeInBytes"] for file in workflow["specification"]["files"]]
    return {
        "name": name,
        "half": half_of(name),
        "tasks": len(workflow["specification"]["tasks"]),
        "files": len(sizes),
        "empty_files": sizes.count(0),
        "bytes": sum(sizes),
        "task_s": round(sum(run["runtimeInSeconds"] for run in workflow["execution"]["tasks"]), 3),
        "sha256": sha256(place.read_bytes()).hexdigest(),
    }


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    # Names of files are UUIDs, which no seed reaches otherwise.
    uuid.uuid4 = sampled_name
    workflows = [make(directory, application, number) for application in RECIPES for number in range(EACH)]
    drawn_with = {name: version(name) for name in ("wfcommons", "numpy", "scipy", "networkx", "pandas")}
    # A workflow a line, so that two manifests can be compared by lines.
    lines = ",\n".join(json.dumps(workflow) for workflow in workflows)
    head = f'{{"drawn_with": {json.dumps(drawn_with)},\n"left_out": {json.dumps(LEFT_OUT)},\n"workflows": [\n'
    (directory / MANIFEST).write_text(f"{head}{lines}\n]}}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
