"""The submit directory that the planner of Pegasus leaves: the jobs of its DAG, their order, the lists of their transfers.

May know: the planner's files. One rule: nothing of it is changed, and what is not understood is named with its file and line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from stager.model.errors import InvalidInput
from stager.readers.lines import Loader, read_lines, read_text

BRAINDUMP = "braindump.yml"
DAG_JOB = re.compile(r"^\s*JOB\s+(\S+)\s+(\S+)", re.IGNORECASE)
DAG_NESTED = re.compile(r"^\s*SUBDAG\s+EXTERNAL\s+(\S+)\s+(\S+)(?:\s+DIR\s+(\S+))?", re.IGNORECASE)
DAG_EDGE = re.compile(r"^\s*PARENT\s+(.+?)\s+CHILD\s+(.+?)\s*$", re.IGNORECASE)
EVENT_WORD = re.compile(r'([\w.]+)=(?:"((?:[^"\\]|\\.)*)"|(\S+))')
# What the planner calls jobs that have a list of transfers.
LISTED = ("stage-in-tx", "stage-out-tx", "stage-inter-tx")
BLANKS = re.compile(r"[ \t]+")
REPLICA_WORD = re.compile(r'(\w+)="([^"]*)"')


class PlannedKind(StrEnum):
    """By what a job does, as its list says. OTHER: what makes and removes directories and files, and what registers them."""

    STAGE_IN = "stage-in"
    STAGE_OUT = "stage-out"
    COMPUTE = "compute"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ListedUrl:
    site: str
    url: str
    priority: int = 0


@dataclass(frozen=True, slots=True)
class ListedTransfer:
    """One entry of a list. `sources`: the one to try first stands first."""

    lfn: str
    linkage: str
    sources: tuple[ListedUrl, ...]
    destination: ListedUrl


@dataclass(slots=True)
class PlannedJob:
    """`path`: of its files, without their endings. `task`: the one task that it runs; of a job of several, the first."""

    id: str
    path: Path
    kind: PlannedKind
    transfers: tuple[ListedTransfer, ...] = ()
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    transformation: str = ""


@dataclass(slots=True)
class Planned:
    """A planned workflow. `staged`: where the planner keeps each file while the workflow runs, by lfn. `log`: its jobstate.log. `nested`:
    the submit directory of each job that is a workflow.
    """

    directory: Path
    uuid: str
    label: str
    log: Path
    jobs: dict[str, PlannedJob] = field(default_factory=dict)
    staged: dict[str, str] = field(default_factory=dict)
    replicas: dict[str, tuple[ListedUrl, ...]] = field(default_factory=dict)
    nested: dict[str, Path] = field(default_factory=dict)


def read_planned(directory: Path) -> Planned:
    """Raises InvalidInput with what is missing or wrong."""
    brain = read_braindump(directory)
    log = directory / str(brain.get("jsd") or "jobstate.log")
    planned = Planned(directory, str(brain.get("wf_uuid") or ""), str(brain.get("dax_label") or directory.name), log)
    if not planned.uuid:
        raise InvalidInput(f"{directory / BRAINDUMP} has no wf_uuid; was it written by pegasus-plan 5?", subject=str(directory))
    stem = str(brain.get("pegasus_wf_name") or "")
    events = list(read_events(directory / f"{stem}.static.bp"))
    dag = directory / str(brain.get("dag") or f"{stem}.dag")
    found, edges = jobs_of_dag(dag) if dag.is_file() else jobs_of_events(directory, events)
    if not found:
        text = f"{directory} names no jobs: neither {dag.name} nor {stem}.static.bp is there, or they are empty"
        raise InvalidInput(f"{text}; name the directory that pegasus-plan wrote", subject=str(directory))
    parents: dict[str, dict[str, None]] = {name: {} for name in found}
    for parent, child in edges:
        if parent not in found or child not in found:
            raise InvalidInput(f"{dag}: {parent} -> {child} names a job that the DAG does not have", subject=str(dag))
        parents[child][parent] = None
    names = transformations(events)
    described = {event["job.id"]: event.get("type_desc", "") for event in events if event.get("event") == "job.info"}
    planned.nested = nested_of_dag(dag) if dag.is_file() else {}
    for name, path in found.items():
        above = tuple(parents[name])
        if name in planned.nested:
            planned.jobs[name] = PlannedJob(name, path, PlannedKind.OTHER, parents=above)
        else:
            planned.jobs[name] = planned_job(name, path, above, names.get(name, ""), described.get(name, ""))
    planned.staged = {lfn: urls[0].url for lfn, urls in read_replicas(directory / f"{stem}.cache").items()}
    planned.replicas = read_replicas(directory / f"{stem}.replica.store")
    return planned


def read_braindump(directory: Path) -> Mapping[str, Any]:
    place = directory / BRAINDUMP
    if not place.is_file():
        text = f"{directory} has no {BRAINDUMP}, so it is no submit directory of Pegasus"
        advice = "name the one that pegasus-plan printed, as in submit/me/pegasus/diamond/run0001"
        raise InvalidInput(f"{text}; {advice}", subject=str(directory))
    try:
        found = yaml.load(read_text(place, str(place)), Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        raise InvalidInput(f"{place} is no YAML: {problem}", subject=str(place)) from None
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{place} is no mapping of keys to values; was it cut off?", subject=str(place))
    return found


def jobs_of_dag(dag: Path) -> tuple[dict[str, Path], list[tuple[str, str]]]:
    """Each job with the path of its files, and (parent, child)."""
    found: dict[str, Path] = {}
    edges: list[tuple[str, str]] = []
    for line in read_lines(dag, str(dag)):
        job, edge = DAG_JOB.match(line) or DAG_NESTED.match(line), DAG_EDGE.match(line)
        if job is not None:
            found[job[1]] = (dag.parent / job[2]).with_suffix("")
        elif edge is not None:
            edges += [(parent, child) for parent in edge[1].split() for child in edge[2].split()]
    return found, edges


def nested_of_dag(dag: Path) -> dict[str, Path]:
    lines = (DAG_NESTED.match(line) for line in read_lines(dag, str(dag)))
    return {line[1]: dag.parent / (line[3] or Path(line[2]).parent) for line in lines if line is not None}


def jobs_of_events(directory: Path, events: Iterable[Mapping[str, str]]) -> tuple[dict[str, Path], list[tuple[str, str]]]:
    """The jobs that the planner tells monitord: all there is where DAGMan is not to run the workflow."""
    found: dict[str, Path] = {}
    edges: list[tuple[str, str]] = []
    for event in events:
        if event.get("event") == "job.info":
            found[event["job.id"]] = (directory / event.get("submit_file", event["job.id"])).with_suffix("")
        elif event.get("event") == "job.edge":
            edges.append((event["parent.job.id"], event["child.job.id"]))
    return found, edges


def read_events(place: Path) -> Iterator[dict[str, str]]:
    if not place.is_file():
        return
    for line in read_lines(place, str(place)):
        yield {key: quoted or bare for key, quoted, bare in EVENT_WORD.findall(line)}


def transformations(events: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The transformation that each job runs, by job."""
    names: dict[str, str] = {}
    tasks: dict[str, str] = {}
    for event in events:
        if event.get("event") == "task.info":
            tasks[event.get("task.id", "")] = event.get("transformation", "")
        elif event.get("event") == "wf.map.task_job":
            names.setdefault(event.get("job.id", ""), tasks.get(event.get("task.id", ""), ""))
    return names


def planned_job(name: str, path: Path, parents: tuple[str, ...], transformation: str, described: str) -> PlannedJob:
    given = path.with_name(path.name + ".in")
    if not given.is_file():
        if described in LISTED:
            text = f"{given} is missing, the list of what job {name} transfers; plan again, or name the whole submit directory"
            raise InvalidInput(text, subject=str(given))
        inputs, outputs = (tuple(read_names(path.with_name(f"{path.name}.{side}.lof"))) for side in ("in", "out"))
        return PlannedJob(name, path, PlannedKind.COMPUTE, (), inputs, outputs, parents, transformation)
    transfers = read_transfers(given)
    if not transfers:
        return PlannedJob(name, path, PlannedKind.OTHER, parents=parents)
    out = all(entry.linkage == "output" for entry in transfers)
    return PlannedJob(name, path, PlannedKind.STAGE_OUT if out else PlannedKind.STAGE_IN, transfers, parents=parents)


def read_transfers(place: Path) -> tuple[ListedTransfer, ...]:
    """Of a list of transfers; empty of what else a job may be given."""
    text = read_text(place, str(place))
    if text.lstrip()[:1] != "[":
        return ()
    try:
        return tuple(transfer_of(raw) for raw in json.loads(text) if raw["type"] == "transfer")
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as problem:
        text = f"{place} is no list of transfers as the planner writes it ({type(problem).__name__}: {problem}); plan again"
        raise InvalidInput(text, subject=str(place)) from None


def transfer_of(raw: Mapping[str, Any]) -> ListedTransfer:
    sources = sorted((url_of(url) for url in raw["src_urls"]), key=lambda url: -url.priority)
    target = max((url_of(url) for url in raw["dest_urls"]), key=lambda url: url.priority)
    return ListedTransfer(str(raw.get("lfn") or ""), str(raw.get("linkage") or ""), tuple(sources), target)


def url_of(raw: Mapping[str, Any]) -> ListedUrl:
    return ListedUrl(str(raw.get("site_label") or ""), str(raw["url"]), int(raw.get("priority") or 0))


def read_names(place: Path) -> list[str]:
    """`lfn=name where the job runs`, one a line."""
    if not place.is_file():
        return []
    return [line.partition("=")[0] for line in read_lines(place, str(place)) if line.strip()]


def read_replicas(place: Path) -> dict[str, tuple[ListedUrl, ...]]:
    """`lfn url key="value" …`, the highest priority first."""
    found: dict[str, list[ListedUrl]] = {}
    for line in read_lines(place, str(place)) if place.is_file() else ():
        words = BLANKS.split(line.strip(" \t"), maxsplit=2)
        if len(words) < 2 or line.startswith("#"):
            continue
        more = dict(REPLICA_WORD.findall(words[2])) if len(words) > 2 else {}
        priority = more.get("priority", "0")
        found.setdefault(words[0], []).append(ListedUrl(more.get("site", ""), words[1], int(priority) if priority.isdigit() else 0))
    return {lfn: tuple(sorted(urls, key=lambda url: -url.priority)) for lfn, urls in found.items()}
