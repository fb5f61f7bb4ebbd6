"""Plans as text: the same plan gives the same bytes, and two plans can be told apart in words.

May know: the plan. One rule: the format carries its version; a newer one is refused by name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from typing import Any

from stager.model.errors import InvalidInput
from stager.model.ids import digest_of
from stager.model.topology import DEFAULT_DELETE_LATENCY_S, DEFAULT_DISK_BYTES_PER_S
from stager.model.units import counted, format_size
from stager.planning.old_names import plan_with_present_names
from stager.planning.plan import PLAN_VERSION, Access, Basis, DirectAccess, DirectRead, FilePlan, JobPlan, LinkPlan, Plan, Transport

FORMAT = "stager-plan"
CHANGES_MAX = 20
JOB_KEYS = JobPlan.__struct_fields__
FILE_KEYS = FilePlan.__struct_fields__
PLAN_KEYS = tuple(entry.name for entry in fields(Plan))
LINK_KEYS = tuple(entry.name for entry in fields(LinkPlan))
BASES = ("overhead_basis", "overhead_file_basis", "disk_basis", "copy_latency_basis", "delete_latency_basis")
LINK_BASES = ("fetch_basis", "upload_basis", "latency_basis", "fetch_file_basis", "upload_file_basis")
# Of the plan's own values, those that are lists.
LISTS = ("jobs", "files", "notes", "tightest_files", "links", "keeps_to")
# Not in plans that were written before there were such things.
LATER: dict[str, Any] = {
    "overhead_s": 0.0,
    "overhead_basis": Basis.DEFAULT.value,
    "overhead_file_s": 0.0,
    "overhead_file_basis": Basis.DEFAULT.value,
    "profiles_ignored": False,
    "links": [],
    "copying_bytes_per_s": DEFAULT_DISK_BYTES_PER_S,
    "direct_read_bytes": 0,
    "nodes": 1,
    "makespan_least_s": None,
    "makespan_most_s": None,
    "keeps_to": [],
    "ahead_max": 0,
    "holds_max_bytes": 0,
    "disk_bytes_per_s": DEFAULT_DISK_BYTES_PER_S,
    "disk_basis": Basis.DEFAULT.value,
    "copies": 1,
    "copy_latency_s": 0.0,
    "copy_latency_basis": Basis.DEFAULT.value,
    "delete_latency_s": DEFAULT_DELETE_LATENCY_S,
    "delete_latency_basis": Basis.DEFAULT.value,
}


def plan_to_dict(plan: Plan) -> dict[str, Any]:
    """Plain values only."""
    head: dict[str, Any] = {key: getattr(plan, key) for key in PLAN_KEYS if key not in LISTS}
    head["format"] = FORMAT
    head["notes"] = list(plan.notes)
    head["tightest_files"] = list(plan.tightest_files)
    head["keeps_to"] = list(plan.keeps_to)
    head["links"] = [{key: getattr(link, key) for key in LINK_KEYS} for link in plan.links]
    head["jobs"] = [{key: getattr(job, key) for key in JOB_KEYS} for job in plan.jobs]
    head["files"] = [{key: getattr(file, key) for key in FILE_KEYS} for file in plan.files]
    for entry in head["files"]:
        entry["direct_access"] = entry["direct_access"] and asdict(entry["direct_access"])
    return head


def to_json(plan: Plan) -> str:
    """One line per job and file, keys sorted, so that plans can be compared by line."""
    head = plan_to_dict(plan)
    jobs, files = head.pop("jobs"), head.pop("files")
    lines = [f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in sorted(head.items())]
    for key, entries in (("files", files), ("jobs", jobs)):
        body = ",\n".join("  " + json.dumps(entry, sort_keys=True) for entry in entries)
        lines.append(f'"{key}": [\n{body}\n]' if body else f'"{key}": []')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def from_json(text: str | bytes, source: str = "the plan") -> Plan:
    """Raises InvalidInput that says what is wrong with `source`."""
    try:
        head = json.loads(text)
    except ValueError as error:
        raise InvalidInput(f"{source} is not a plan: {error}", subject=source) from None
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        raise InvalidInput(
            f'{source} is not a plan: "format" is not {FORMAT!r}; make one with `stager plan WORKFLOW --json`', subject=source
        )
    version = head.get("version")
    if not isinstance(version, int) or version > PLAN_VERSION:
        raise InvalidInput(
            f"{source} has plan version {version!r}, this stager knows up to {PLAN_VERSION}; use a newer stager or plan again",
            subject=source,
        )
    try:
        head = plan_with_present_names(head)
        jobs = tuple(job_from(entry) for entry in head["jobs"])
        files = tuple(file_from(entry) for entry in head["files"])
        # Without them it is of one node.
        room = {"node_bytes": head["capacity_bytes"], "smallest_node_bytes": head["smallest_capacity_bytes"]}
        head = LATER | room | head
        rest = {key: head[key] for key in PLAN_KEYS if key not in LISTS}
        rest["keeps_to"] = tuple(head["keeps_to"])
        rest["links"] = tuple(link_from(entry) for entry in head["links"])
        rest |= {key: Basis(rest[key]) for key in BASES}
        return Plan(**rest, jobs=jobs, files=files, notes=tuple(head["notes"]), tightest_files=tuple(head["tightest_files"]))
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{source} is not a whole plan ({error!r}); plan again", subject=source) from None


def job_from(entry: dict[str, Any]) -> JobPlan:
    """Version 1 did not say what a reservation rests on; some plans of version 4 say 0 for when a job would end on no other node."""
    bases: dict[str, Basis] = {key: Basis(entry[key]) for key in ("compute_basis", "reserve_basis") if key in entry}
    finish_s = entry.get("other_finish_s") if entry.get("other_node") else None
    values: dict[str, Any] = {**entry, **bases, "other_finish_s": finish_s}
    return JobPlan(**values)


def file_from(entry: dict[str, Any]) -> FilePlan:
    """Before version 4 only the first of its nodes was told, everything came whole, and nothing was read directly."""
    values: dict[str, Any] = {
        "size_basis": Basis(entry["size_basis"]),
        "access": Access(entry["access"]),
        "nodes": tuple(entry.get("nodes", ())),
        "transport": Transport(entry.get("transport", Transport.WHOLE)),
    }
    if entry.get("direct_access") is not None:
        reads = tuple(DirectRead(**read) for read in entry["direct_access"]["reads"])
        values["direct_access"] = DirectAccess(**{**entry["direct_access"], "reads": reads})
    return FilePlan(**{**entry, **values})


def link_from(entry: dict[str, Any]) -> LinkPlan:
    """Plans of before do not know the cost of a file."""
    return LinkPlan(**{**entry, **{key: Basis(entry[key]) for key in LINK_BASES if key in entry}})


def plan_digest(plan: Plan) -> str:
    """Two plans have the same digest exactly when their JSON is the same."""
    return digest_of(to_json(plan))


def diff(old: Plan, new: Plan) -> list[str]:
    """The changes, in words, most important first; empty when there are none. At most CHANGES_MAX lines about jobs and files each."""
    changes = []
    if old.workflow != new.workflow:
        changes.append(f"the plan is of workflow {old.workflow!r}, this is {new.workflow!r}")
    for key, what in (("capacity_bytes", "capacity"), ("smallest_capacity_bytes", "smallest capacity")):
        before, after = getattr(old, key), getattr(new, key)
        if before != after:
            changes.append(f"{what} was {before} bytes ({format_size(before)}), is {after} ({format_size(after)})")
    if old.spill_origin != new.spill_origin:
        changes.append(f"spill origin was {old.spill_origin!r}, is {new.spill_origin!r}")
    if old.copies != new.copies:
        changes.append(f"copies of what jobs make were {old.copies}, are {new.copies} (--copies)")
    if old.profiles_ignored != new.profiles_ignored:
        made = [f"made {'without' if plan.profiles_ignored else 'with'} the profiles of job types" for plan in (old, new)]
        changes.append(f"the plan was {made[0]}, this is {made[1]} (--ignore-profiles)")
    changes += file_changes(old, new)
    changes += job_changes(old, new)
    if old.workflow_digest != new.workflow_digest and not changes:
        changes.append("commands, environment or destinations of the workflow changed")
    return changes


def file_changes(old: Plan, new: Plan) -> list[str]:
    before, after = {entry.lfn: entry for entry in old.files}, {entry.lfn: entry for entry in new.files}
    changes = [f"file {lfn!r} is gone" for lfn in before if lfn not in after]
    changes += [f"file {lfn!r} is new" for lfn in after if lfn not in before]
    for lfn, was in before.items():
        now = after.get(lfn)
        if now is None or now == was:
            continue
        if was.token != now.token:
            changes.append(f"file {lfn!r} changed at its origin: token was {was.token!r}, is {now.token!r}")
        elif was.size_bytes != now.size_bytes:
            changes.append(
                f"file {lfn!r} was {was.size_bytes} bytes ({was.size_basis.value}), is {now.size_bytes} ({now.size_basis.value})"
            )
        elif was.access is not now.access or was.node != now.node or was.replicas != now.replicas or was.nodes != now.nodes:
            changes.append(f"file {lfn!r} was {was.access.value} on {was.node}, is {now.access.value} on {now.node}")
        elif (was.transport, was.stripes) != (now.transport, now.stripes):
            changes.append(f"file {lfn!r} was to come {way_of(was)}, is to come {way_of(now)}")
    return bounded(changes, "files")


def way_of(planned: FilePlan) -> str:
    return f"as {planned.transport.value} in {planned.stripes} parts" if planned.stripes > 1 else f"as {planned.transport.value}"


def job_changes(old: Plan, new: Plan) -> list[str]:
    before, after = {entry.job: entry for entry in old.jobs}, {entry.job: entry for entry in new.jobs}
    changes = [f"job {job!r} is gone" for job in before if job not in after]
    changes += [f"job {job!r} is new" for job in after if job not in before]
    moved = [job for job, was in before.items() if job in after and after[job].order != was.order]
    if moved:
        changes.append(f"{counted(len(moved), 'job', 'has', 'have')} another place in the order, {moved[0]!r} the first of them")
    for job, was in before.items():
        now = after.get(job)
        if now is not None and was.compute_s != now.compute_s:
            changes.append(
                f"job {job!r} was to take {was.compute_s} s ({was.compute_basis.value}), now {now.compute_s} ({now.compute_basis.value})"
            )
    return bounded(changes, "jobs")


def bounded(changes: list[str], what: str) -> list[str]:
    if len(changes) <= CHANGES_MAX:
        return changes
    return [*changes[:CHANGES_MAX], f"and {len(changes) - CHANGES_MAX} more changes of {what}"]
