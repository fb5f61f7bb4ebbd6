"""What a scatter bears on while a workflow is expanded: whose jobs are not known yet, and who has to wait until they are.

May know: spec, templates, paths. One rule: who may read what a job makes that is not known yet waits for it, whatever the assumed names
are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from stager.model.workflow import Job, Workflow, graph_of
from stager.readers.native_spec import Axis, InputSpec, JobSpec
from stager.readers.native_template import Template
from stager.readers.paths import escape_wildcards

if TYPE_CHECKING:
    from stager.readers.native_expand import Expansion, JobEntry

ANY, MANY = 0, 1


@dataclass(frozen=True, slots=True)
class Scattering:
    """`names`: entries that scatter. `open`: those whose jobs are not known, and the patterns of what they make; an entry that goes over
    their outputs is one of them. `makers`: by entry, the job whose output it scatters over.
    """

    names: tuple[str, ...] = ()
    open: Mapping[str, tuple[JobEntry, tuple[str, ...]]] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, expansion: Expansion) -> Scattering:
        entries = [entry for entry in expansion.entries.values() if entry.spec.scatter is not None]
        if not entries:
            return cls()
        found = open_entries(expansion)
        makers = {entry.spec.name: maker for entry in entries if (maker := maker_of(expansion, entry, found))}
        return cls(tuple(entry.spec.name for entry in entries), found, makers)


def open_entries(expansion: Expansion) -> Mapping[str, tuple[JobEntry, tuple[str, ...]]]:
    found: dict[str, tuple[JobEntry, tuple[str, ...]]] = {}
    for entry in expansion.entries.values():
        is_open = entry.spec.scatter is not None and entry.spec.name not in expansion.known
        if is_open or any(may_meet(glob, made) for glob in globs_of(entry.spec.axes) for _, globs in found.values() for made in globs):
            found[entry.spec.name] = entry, made_by(entry.spec)
    return found


def may_be_empty(expansion: Expansion, entry: JobEntry, glob: str) -> bool:
    """Whether a pattern that matches nothing is no slip, since there may be no members at all."""
    if not expansion.is_again:
        return False
    others = (spec for spec in expansion.spec.jobs.values() if spec.name != entry.spec.name)
    return any(may_meet(glob, made) for spec in others for made in made_by(spec))


def is_told_later(expansion: Expansion, entry: JobEntry, item: InputSpec) -> bool:
    """Whether what the line names depends on members that nobody knows yet."""
    return entry.spec.scatter is not None and entry.spec.name not in expansion.known and bool(item.reference.path.keys)


def made_by(spec: JobSpec) -> tuple[str, ...]:
    """Patterns of all that its jobs may make."""
    return tuple(as_glob(output.path) for output in spec.outputs)


def with_waits(workflow: Workflow, expansion: Expansion) -> Workflow:
    """Who may read what jobs make that are not known yet waits for one that stands for them, unless these wait for it."""
    for name, (other, globs) in expansion.scattering.open.items():
        if not other.ids:
            continue
        graph, more = graph_of(workflow), dict[str, Job]()
        tied = closure_of(other.ids[:1], graph.parents) | closure_of(other.ids, graph.children)
        for entry in expansion.entries.values():
            if entry.spec.name == name or not any(item.reference.glob and not item.reference.origin for item in entry.spec.inputs):
                continue
            for job_id, row in zip(entry.ids, entry.rows, strict=True):
                if job_id not in tied and may_read(entry.spec, row, globs):
                    job = workflow.jobs[job_id]
                    more[job_id] = replace(job, after=(*job.after, other.ids[0]))
        workflow = replace(workflow, jobs=workflow.jobs | more) if more else workflow
    return workflow


def may_read(spec: JobSpec, row: Mapping[str, str], globs: tuple[str, ...]) -> bool:
    for item in spec.inputs:
        if not item.reference.glob or item.reference.origin:
            continue
        glob = item.reference.path.render(row, escape_wildcards)
        if any(may_meet(glob, made) for made in globs):
            return True
    return False


def closure_of(jobs: Iterable[str], beside: Mapping[str, Sequence[str]]) -> set[str]:
    """These and all that can be reached from them."""
    found = set(jobs)
    waiting = list(found)
    while waiting:
        more = [other for other in beside[waiting.pop()] if other not in found]
        found.update(more)
        waiting += more
    return found


def maker_of(expansion: Expansion, entry: JobEntry, found: Mapping[str, object]) -> str:
    """A finding where it is no output of one known job."""
    scatter, findings = entry.spec.scatter, expansion.findings
    assert scatter is not None
    at = f"{scatter.key}.over"
    name = expansion.catalog.entry_of.get(scatter.over)
    if name is None:
        if not expansion.broken:
            there = scatter.over in expansion.catalog.files or scatter.over in expansion.catalog.sets
            advice = "what is there before the run is gone over by foreach" if there else "name an output as the job that makes it does"
            findings.note(scatter.place, at, f"{scatter.over!r} is no output of a job; {advice}")
        return ""
    if name in found:
        text = f"{scatter.over!r} is made by {name!r}, whose own jobs are known only at run time"
        findings.note(scatter.place, at, f"{text}; a scatter over what scattered jobs make is not supported: let one job gather it first")
        return ""
    maker, output = next(
        (job_id, output)
        for job_id, outputs in zip(expansion.entries[name].ids, expansion.entries[name].outputs, strict=True)
        for output in outputs
        if output.lfn == scatter.over
    )
    if output.optional:
        findings.note(scatter.place, at, f"{scatter.over!r} is optional, and a scatter needs it; a list without members is legal")
    if (expansion.catalog.files[scatter.over].kind.value == "directory") is not scatter.directory:
        text = "is a directory; write it with '/' at the end" if not scatter.directory else "is a file; write it without '/' at the end"
        findings.note(scatter.place, at, f"{scatter.over!r} {text}")
    for item in entry.spec.inputs:
        if item.reference.origin and item.reference.path.keys:
            text = f"{item.reference.source!r} names a file at an origin by a value that is known only when {maker!r} has ended"
            findings.note(item.place, item.key, f"{text}; let {maker!r} read it, or name all of them without the value")
    return maker


def globs_of(axes: tuple[Axis, ...]) -> Iterator[str]:
    """Patterns over what jobs make."""
    for axis in axes:
        if axis.wildcards is not None and axis.reference is not None and not axis.reference.origin:
            yield axis.wildcards.glob
        elif axis.reference is not None and axis.reference.glob and not axis.reference.origin:
            yield axis.reference.path.source


def as_glob(template: Template) -> str:
    """With a star for each value."""
    return "".join(escape_wildcards(piece) if isinstance(piece, str) else "*" for piece in template.pieces)


def signs_of(glob: str) -> list[str | int]:
    """Characters, ANY for one of several, MANY for any number of them; sets of characters are taken for any."""
    signs: list[str | int] = []
    at = 0
    while at < len(glob):
        sign = glob[at]
        if sign == "*":
            signs.append(MANY)
        elif sign == "[" and (end := glob.find("]", at + 2)) > 0:
            signs.append(glob[at + 1] if end == at + 2 else ANY)
            at = end
        else:
            signs.append(ANY if sign == "?" else sign)
        at += 1
    return signs


@lru_cache(maxsize=65_536)
def may_meet(one: str, other: str) -> bool:
    """Whether some name may match both patterns. A star is taken to cross directories, so it is sometimes true and need not be."""
    left, right = signs_of(one), signs_of(other)
    seen, waiting = {(0, 0)}, [(0, 0)]
    while waiting:
        at, place = waiting.pop()
        if at == len(left) and place == len(right):
            return True
        steps = []
        if at < len(left) and left[at] == MANY:
            steps += [(at + 1, place), (at, place + 1)]
        if place < len(right) and right[place] == MANY:
            steps += [(at, place + 1), (at + 1, place)]
        if at < len(left) and place < len(right) and MANY not in (left[at], right[place]):
            same = ANY in (left[at], right[place]) or left[at] == right[place]
            steps += [(at + 1, place + 1)] if same else []
        for step in steps:
            if step not in seen and step[0] <= len(left) and step[1] <= len(right):
                seen.add(step)
                waiting.append(step)
    return False
