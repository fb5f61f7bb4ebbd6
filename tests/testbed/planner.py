"""The submit directory of a diamond as pegasus-plan 5 leaves it, without the files that neither stager nor its transfers read.

May know: the planner's files. One rule: names, lists and edges are those of a real plan; where one is beside the clone, they are compared
(tests/unit/test_pegasus_planned.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TASKS = {
    "preprocess_pre": (("f.a",), ("f.b1", "f.b2")),
    "findrange_fr1": (("f.b1",), ("f.c1",)),
    "findrange_fr2": (("f.b2",), ("f.c2",)),
    "analyze_an": (("f.c1", "f.c2"), ("f.d",)),
}
FILES = ("f.a", "f.b1", "f.b2", "f.c1", "f.c2", "f.d")
SOURCE, PRODUCT = "file:///scratch/f.a", "file:///scratch/w/out/f.d"
REMOVED = {3: ("f.a",), 4: ("f.b1", "f.b2"), 5: ("f.c2", "f.c1"), 6: ("f.d",)}
REGISTERED = {0: ("f.b2", "f.b1"), 1: ("f.c1", "f.c2"), 2: ("f.d",)}
EDGES = """
create_dir_diamond_0_{site} {stage_in}
{stage_in} preprocess_pre
preprocess_pre findrange_fr1
preprocess_pre findrange_fr2
preprocess_pre register_{site}_0_0
preprocess_pre clean_up_{site}_level_3_0
findrange_fr1 analyze_an
findrange_fr1 register_{site}_1_0
findrange_fr1 clean_up_{site}_level_4_0
findrange_fr2 analyze_an
findrange_fr2 register_{site}_1_0
findrange_fr2 clean_up_{site}_level_4_0
analyze_an {stage_out}
analyze_an clean_up_{site}_level_5_0
{stage_out} register_{site}_2_0
{stage_out} clean_up_{site}_level_6_0
clean_up_{site}_level_3_0 cleanup_diamond_0_{site}
clean_up_{site}_level_4_0 cleanup_diamond_0_{site}
clean_up_{site}_level_5_0 cleanup_diamond_0_{site}
clean_up_{site}_level_6_0 cleanup_diamond_0_{site}
"""
TRANSFER = """ {{ "type": "transfer",
   "linkage": "{linkage}",
   "lfn": "{lfn}",
   "id": 1,
   "src_urls": [
     {{ "site_label": "{source_site}", "url": "{source}"{priority} }}
   ],
   "dest_urls": [
     {{ "site_label": "{target_site}", "url": "{target}" }}
   ] }}"""
BRAINDUMP = """user: "root"
root_wf_uuid: "{uuid}"
wf_uuid: "{uuid}"
dax: "/scratch/workflow.yml"
dax_label: "diamond"
dax_version: "5.0.4"
pegasus_wf_name: "diamond-0"
timestamp: "20261120T095010+0000"
submit_dir: "/scratch/submit/{run}"
planner_version: "5.1.3"
jsd: "jobstate.log"
rundir: "{run}"
{by}
"""


@dataclass(frozen=True)
class Kind:
    """`work`: the directory of the run at the staging site; its files are `inside`. `dag`: DAGMan is to run it, else a shell."""

    uuid: str
    run: str
    site: str
    work: str
    inside: str
    stage_in: str
    stage_out: str
    dag: bool

    def url(self, lfn: str) -> str:
        return f"{self.work}{self.inside}/{lfn}"


KINDS = {
    "sharedfs": Kind(
        "2f1d8a70-5c1e-4c5e-9d0f-0d5f6f3b7a11",
        *("r6", "local", "file:///scratch/w/scratch/r6", "/.", "stage_in_remote_local_0_0", "stage_out_local_local_2_0", False),
    ),
    "nonsharedfs": Kind(
        "b9a4c3de-77f2-4f0a-8a55-3a2f9b8f4c22",
        *("r5", "staging", "http://127.0.0.1:18999/stg/r5", "/00/00", "stage_in_local_staging_0_0", "stage_out_local_staging_2_0", True),
    ),
}


def write_plan(name: str, directory: Path) -> None:
    kind = KINDS[name]
    lists = directory / "00" / "00"
    lists.mkdir(parents=True)
    jobs: dict[str, str] = {}

    def job(job_name: str, described: str, text: str = "") -> None:
        jobs[job_name] = described
        if text:
            (lists / f"{job_name}.in").write_text(text)

    site = kind.site
    job(f"create_dir_diamond_0_{site}", "create-dir", entries(mkdir(site, kind.work)))
    job(kind.stage_in, "stage-in-tx", staged("input", "f.a", ("local", SOURCE), (site, kind.url("f.a"))))
    job(kind.stage_out, "stage-out-tx", staged("output", "f.d", (site, kind.url("f.d")), ("local", PRODUCT)))
    for level, lfns in REMOVED.items():
        job(f"clean_up_{site}_level_{level}_0", "cleanup", entries(*(remove(site, kind.url(lfn), False) for lfn in lfns)))
        (lists / f"clean_up_{site}_level_{level}_0.in.lof").write_text(named(lfns))
    job(f"cleanup_diamond_0_{site}", "cleanup", entries(remove(site, kind.work, True)))
    for level, lfns in REGISTERED.items():
        places = (f'{lfn} {PRODUCT} site="local"\n' if lfn == "f.d" else f'{lfn} {kind.url(lfn)} site="{site}"\n' for lfn in lfns)
        job(f"register_{site}_{level}_0", "registration", "".join(places))
    for task, (inputs, outputs) in TASKS.items():
        job(task, "compute")
        (lists / f"{task}.in.lof").write_text(named(inputs))
        (lists / f"{task}.out.lof").write_text(named(outputs))
    (lists / f"{kind.stage_in}.out.lof").write_text(named(("f.a",)))
    write_head(kind, directory, jobs)


def write_head(kind: Kind, directory: Path, jobs: dict[str, str]) -> None:
    """What stands above the lists: who planned, the DAG in both of its forms, the catalogs of the run."""
    words = EDGES.format(site=kind.site, stage_in=kind.stage_in, stage_out=kind.stage_out).split()
    edges = list(zip(words[::2], words[1::2], strict=True))
    by = 'dag: "diamond-0.dag"\ntype: "dag"' if kind.dag else 'type: "shell"\nscript: "/scratch/submit/diamond.sh"'
    (directory / "braindump.yml").write_text(BRAINDUMP.format(uuid=kind.uuid, run=kind.run, by=by))
    (directory / "diamond-0.static.bp").write_text("".join(events(kind.uuid, jobs, edges)))
    if kind.dag:
        listed = "".join(f"JOB {name} 00/00/{name}.sub\nRETRY {name} 0\n\n" for name in jobs)
        (directory / "diamond-0.dag").write_text(listed + "".join(f"PARENT  {parent} CHILD {child}\n" for parent, child in edges))
    else:
        (directory / "jobstate.log").write_text("INTERNAL *** SHELL_SCRIPT_STARTED ***\n")
    (directory / "diamond-0.cache").write_text("".join(f'{lfn} {kind.url(lfn)} site="{kind.site}"\n' for lfn in FILES))
    head = "# file-based replica catalog: 2026-11-20T09:50:12.889+00:00\n"
    (directory / "diamond-0.replica.store").write_text(f'{head}f.a {SOURCE} priority="100" site="local"\n')


def events(uuid: str, jobs: dict[str, str], edges: list[tuple[str, str]]) -> list[str]:
    lines: list[str] = []

    def event(name: str, **words: str) -> None:
        said = "".join(f'{key.replace("__", ".")}="{value}" ' for key, value in words.items())
        lines.append(f"ts=1970-01-01T00:36:06.769130Z event={name} xwf.id={uuid} {said}\n")

    for task, (inputs, outputs) in TASKS.items():
        transformation, identity = task.split("_")
        argv = " ".join(("1", *inputs, *outputs))
        event("task.info", task__id=identity, type="1", type_desc="compute", transformation=transformation, argv=argv)
    for name, described in jobs.items():
        event("job.info", job__id=name, submit_file=f"00/00/{name}.sub", type_desc=described, clustered="0", max_retries="0")
    for task in TASKS:
        event("wf.map.task_job", job__id=task, task__id=task.split("_")[1])
    for parent, child in edges:
        event("job.edge", parent__job__id=parent, child__job__id=child)
    return lines


def named(lfns: tuple[str, ...]) -> str:
    return "".join(f"{lfn}={lfn}\n" for lfn in lfns)


def staged(linkage: str, lfn: str, source: tuple[str, str], target: tuple[str, str]) -> str:
    priority = ', "priority": 100' if linkage == "input" else ""
    words = {"linkage": linkage, "lfn": lfn, "priority": priority, "source_site": source[0], "source": source[1]}
    return f"[\n{TRANSFER.format(target_site=target[0], target=target[1], **words)}\n]\n"


def mkdir(site: str, url: str) -> Callable[[int], str]:
    return lambda number: done_to(number, "mkdir", f'"site_label": "{site}", "url": "{url}"')


def remove(site: str, url: str, whole: bool) -> Callable[[int], str]:
    return lambda number: done_to(number, "remove", f'"site_label": "{site}", "url": "{url}", "recursive": "{whole}"')


def done_to(number: int, kind: str, target: str) -> str:
    return f'  {{\n    "id": {number},\n    "type": "{kind}",\n    "target": {{ {target} }} }}\n'


def entries(*made: Callable[[int], str]) -> str:
    return "[\n" + "  ,\n".join(entry(number) for number, entry in enumerate(made, 1)) + "]\n"
