"""What a scatter bears on while a workflow is expanded: whose jobs are not known yet, and who has to wait until they are.

May know: spec, templates, paths. One rule: who may read what a job makes that is not known yet waits for it, whatever the assumed names
are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from stager.model.files import FileKind
from stager.model.scatter import Rows
from stager.model.workflow import Job, JobOutput, Workflow, graph_of
from stager.readers.native_references import rendered_path
from stager.readers.native_spec import Axis, InputSpec, JobSpec, ScatterSpec
from stager.readers.native_template import Template
from stager.readers.paths import between, escape_wildcards, pattern_of

if TYPE_CHECKING:
    from stager.readers.native_expand import Expansion, JobEntry

ANY, MANY = 0, 1
WILDCARD, AFTER_WILDCARD = re.compile(r"[*?[]"), re.compile(r"[*?\]]")
NOTHING: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class OpenEntry:
    """One whose jobs are not all known. `made`: patterns of all that they may make. `unknown`: its own scatters that are not known.
    `above`: scatters of others that are not, since it goes over what those make.
    """

    entry: JobEntry
    made: tuple[str, ...]
    unknown: tuple[str, ...]
    above: frozenset[str]


@dataclass(frozen=True, slots=True)
class Scattering:
    """`open`: entries whose jobs are not all known; an entry that goes over their outputs is one of them. `makers`: by scatter, the job
    whose output it goes over.
    """

    open: Mapping[str, OpenEntry] = field(default_factory=dict)
    makers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, expansion: Expansion) -> Scattering:
        entries = [entry for entry in expansion.entries.values() if entry.spec.scatter is not None]
        if not entries:
            return cls()
        found = open_entries(expansion)
        makers = Makers(expansion, found)
        return cls(found, {name: maker for entry in entries for name in entry.lists if (maker := makers.of(entry, name))})


def scattered_rows(
    expansion: Expansion, entry: JobEntry, scatter: ScatterSpec, outer: Sequence[dict[str, str]], rows_max: int
) -> list[dict[str, str]]:
    """With each row of the foreach beside it, the members of its list: those that are known, else those that stand for them. Raises
    ValueError.
    """
    axis, found, members = entry.spec.axes[-1], list[dict[str, str]](), dict[str, Rows]()
    for row in outer:
        name, over = name_of(entry.spec, scatter, row)
        if name not in members:
            known = expansion.known.get(name)
            members[name] = standing_rows(expansion, entry, scatter, name, over) if known is None else known
            entry.lists[name] = over
        entry.scatters += [name] * len(members[name])
        found += [row | dict(zip(axis.keys, values, strict=True)) for values in members[name]]
        if len(found) > rows_max:
            raise ValueError(f"more jobs than the {rows_max:,} allowed; let one job do more of them")
    return found


def standing_rows(expansion: Expansion, entry: JobEntry, scatter: ScatterSpec, name: str, over: str) -> Rows:
    """What stands for members that are not known. Those of several lists are called differently where they are only counted, since jobs
    may name their files by the member alone.
    """
    axis, before = entry.spec.axes[-1], f"{over}/" if scatter.directory else ""
    assumed = expansion.assumed.get(name)
    count = len(axis.rows if assumed is None else assumed)
    if expansion.strange_from:
        first, expansion.strange_from = expansion.strange_from, expansion.strange_from + count
        return numbered(first, count, axis.keys, before)
    if assumed is not None:
        return assumed
    if scatter.each is None:
        return axis.rows
    if axis.rows == numbered(1, count, axis.keys, ""):
        return numbered(1 + len(entry.lists) * count, count, axis.keys, before)
    return tuple((f"{before}{value}",) for (value,) in axis.rows) if before else axis.rows


def numbered(first: int, count: int, keys: Sequence[str], before: str) -> Rows:
    """Digits alone, so that they can be written as numbers, too."""
    return tuple((f"{before}{number}",) * len(keys) for number in range(first, first + count))


def name_of(spec: JobSpec, scatter: ScatterSpec, row: Mapping[str, str]) -> tuple[str, str]:
    """(the scatter that the row is of, the output that it goes over). Raises ValueError."""
    if scatter.each is None:
        return spec.name, scatter.over
    over = rendered_path(scatter.each, row)
    return f"{spec.name}[{over}]", over


def open_entries(expansion: Expansion) -> Mapping[str, OpenEntry]:
    found: dict[str, OpenEntry] = {}
    for entry in expansion.entries.values():
        unknown = tuple(name for name in entry.lists if name not in expansion.known)
        globs = list(globs_of(entry.spec.outer))
        above = [each for each in found.values() if any(may_meet(glob, made) for glob in globs for made in each.made)]
        if unknown or above:
            roots = frozenset(name for each in above for name in (*each.unknown, *each.above))
            found[entry.spec.name] = OpenEntry(entry, made_by(entry.spec), unknown, roots)
    return found


def may_be_empty(expansion: Expansion, entry: JobEntry, glob: str) -> bool:
    """Whether a pattern that matches nothing is no slip, since there may be no members at all."""
    if not expansion.is_again:
        return False
    others = (spec for spec in expansion.spec.jobs.values() if spec.name != entry.spec.name)
    return any(may_meet(glob, made) for spec in others for made in made_by(spec))


def is_told_later(expansion: Expansion, entry: JobEntry, item: InputSpec, row: Mapping[str, str]) -> bool:
    """Whether what the line names in this row depends on members that nobody knows yet."""
    scatter = entry.spec.scatter
    return scatter is not None and bool(item.reference.path.keys) and name_of(entry.spec, scatter, row)[0] not in expansion.known


def made_by(spec: JobSpec, row: Mapping[str, str] = NOTHING) -> tuple[str, ...]:
    """Patterns of all that its jobs may make that have these values."""
    return tuple(as_glob(output.path, row) for output in spec.outputs)


def jobs_by_scatter(entry: JobEntry) -> dict[str, list[int]]:
    """Positions of its jobs."""
    found: dict[str, list[int]] = {}
    for position, name in enumerate(entry.scatters):
        found.setdefault(name, []).append(position)
    return found


class Patterns:
    """Patterns by the text before their first wildcard, so that none is held against what it cannot meet."""

    def __init__(self, globs: Iterable[str]) -> None:
        self.by_head: dict[str, list[str]] = {}
        for glob in globs:
            self.by_head.setdefault(head_of(glob), []).append(glob)
        self.heads = sorted(self.by_head)

    def meeting(self, others: Iterable[str]) -> dict[str, None]:
        """Those that may meet one of these."""
        return {glob: None for each in others for glob in self._beside(each) if may_meet(glob, each)}

    def _beside(self, other: str) -> Iterator[str]:
        """Those whose fixed ends go with its own."""
        head, tail = head_of(other), tail_of(other)
        first, last = between(self.heads, head)
        heads = [head[:end] for end in range(len(head)) if head[:end] in self.by_head] + self.heads[first:last]
        for glob in (glob for each in heads for glob in self.by_head[each]):
            own = tail_of(glob)
            if own.endswith(tail) or tail.endswith(own):
                yield glob


def readers_by_glob(expansion: Expansion) -> dict[str, list[tuple[str, str]]]:
    """(entry, job) of those that read by a pattern what others make, by this pattern."""
    found: dict[str, list[tuple[str, str]]] = {}
    for entry in expansion.entries.values():
        paths = [item.reference.path for item in entry.spec.inputs if reads_pattern(item)]
        for job_id, row in zip(entry.ids, entry.rows, strict=True) if paths else ():
            for path in paths:
                found.setdefault(path.render(row, escape_wildcards), []).append((entry.spec.name, job_id))
    return found


def with_waits(workflow: Workflow, expansion: Expansion) -> Workflow:
    """Who may read what jobs make that are not known yet waits for one that stands for them, unless these wait for it. So does a job of an
    entry that goes over what they make, and does not read it: it might not be there at all.
    """
    readers = readers_by_glob(expansion)
    patterns = Patterns(readers)
    opened = expansion.scattering.open.values()
    # What is added below goes into these, since a graph of its own for each list takes long where there are many.
    jobs, parents, children = dict(workflow.jobs), dict(graph_of(workflow).parents), dict(graph_of(workflow).children)
    for each in opened:
        positions = jobs_by_scatter(each.entry)
        for name in each.unknown:
            ids = [each.entry.ids[position] for position in positions.get(name, ())]
            if not ids:
                continue
            row = {key: value for key, value in each.entry.rows[positions[name][0]].items() if key not in each.entry.spec.axes[-1].keys}
            follow = [other for other in opened if name in other.above]
            globs = tuple(dict.fromkeys((*made_by(each.entry.spec, row), *(made for other in follow for made in other.made))))
            tied = closure_of(ids[:1], parents) | closure_of(ids, children)
            found = (job for glob in patterns.meeting(globs) for job in readers[glob])
            more = dict.fromkeys(job_id for reader, job_id in found if job_id not in tied and reader != each.entry.spec.name)
            for other in follow:
                over = [pattern_of(glob) for glob in globs_of(other.entry.spec.outer)]
                if other.entry.spec.scatter is None:
                    unread = (job_id for job_id in other.entry.ids if job_id not in tied and not reads_one(jobs[job_id], over))
                    more |= dict.fromkeys(unread)
            for job_id in more:
                jobs[job_id] = replace(jobs[job_id], after=(*jobs[job_id].after, ids[0]))
                parents[job_id], children[ids[0]] = (*parents[job_id], ids[0]), (*children[ids[0]], job_id)
    return workflow if jobs == workflow.jobs else replace(workflow, jobs=jobs)


def reads_one(job: Job, patterns: Sequence[re.Pattern[str]]) -> bool:
    """It waits for what its values are of."""
    return any(pattern.fullmatch(entry.lfn) for entry in job.inputs for pattern in patterns)


def reads_pattern(item: InputSpec) -> bool:
    """Over what jobs make."""
    return item.reference.glob and not item.reference.origin


def head_of(glob: str) -> str:
    """What all names that match begin with."""
    return WILDCARD.split(glob, maxsplit=1)[0]


def tail_of(glob: str) -> str:
    """What all names that match end with."""
    return AFTER_WILDCARD.split(glob)[-1]


def closure_of(jobs: Iterable[str], beside: Mapping[str, Sequence[str]]) -> set[str]:
    """These and all that can be reached from them."""
    found = set(jobs)
    waiting = list(found)
    while waiting:
        more = [other for other in beside[waiting.pop()] if other not in found]
        found.update(more)
        waiting += more
    return found


class Makers:
    """The jobs that make the lists; a finding where a list is no output of one job that says in time what it names."""

    def __init__(self, expansion: Expansion, found: Mapping[str, OpenEntry]) -> None:
        self.expansion, self.found = expansion, found
        self.made: dict[str, dict[str, tuple[str, JobOutput]]] = {}
        self.gone_over: dict[str, set[str]] = {}

    def of(self, entry: JobEntry, scatter: str) -> str:
        """Empty: there is a finding."""
        spec, expansion, over = entry.spec.scatter, self.expansion, entry.lists[scatter]
        assert spec is not None
        name = expansion.catalog.entry_of.get(over)
        if name is None:
            if not expansion.broken:
                there = over in expansion.catalog.files or over in expansion.catalog.sets
                advice = "what is there before the run is gone over by foreach" if there else "name an output as the job that makes it does"
                self._note(spec, f"{over!r} is no output of a job; {advice}")
            return ""
        if not self._is_in_time(entry, spec, name, over):
            return ""
        maker, output = self._made_by(name)[over]
        if output.optional:
            self._note(spec, f"{over!r} is optional, and a scatter needs it; a list without members is legal")
        if (expansion.catalog.files[over].kind is FileKind.DIRECTORY) is not spec.directory:
            text = "is a directory; write it with '/' at the end" if not spec.directory else "is a file; write it without '/' at the end"
            self._note(spec, f"{over!r} {text}")
        self._look_at_inputs(entry, maker)
        return maker

    def _note(self, spec: ScatterSpec, text: str) -> None:
        self.expansion.findings.note(spec.place, f"{spec.key}.over", text)

    def _is_in_time(self, entry: JobEntry, spec: ScatterSpec, name: str, over: str) -> bool:
        """A job says what its list names when it ends, so who scatters over that has to be known before it begins. While a run goes on it
        is seen from the jobs whether that is so.
        """
        if self.expansion.is_again:
            return True
        maker, own = self.found.get(name), self.found.get(entry.spec.name)
        above = own.above if own is not None else frozenset[str]()
        if maker is None and above and over not in self._gone_over(entry):
            text = f"is made by {name!r}, which may have ended before the values of this foreach are known"
            self._note(spec, f"{over!r} {text}; let a job that makes these values, or one that goes over them, make the list")
            return False
        if maker is None or above.issuperset((*maker.unknown, *maker.above)):
            return True
        text = f"{over!r} is made by {name!r}, whose own jobs are known only at run time"
        key = entry.spec.axes[-1].keys[0]
        ways = f"go over what they make, as in foreach: {{list: PATTERN}} and scatter: {{over: '{{list}}', as: {key}}}"
        self._note(spec, f"{text}; {ways}, or let one job gather it first")
        return False

    def _gone_over(self, entry: JobEntry) -> set[str]:
        """Files that its foreach goes over: such a list is there as soon as its job is known."""
        name = entry.spec.name
        if name not in self.gone_over:
            axes = enumerate(entry.spec.outer)
            files = [position for position, axis in axes if axis.reference is not None and axis.wildcards is None]
            self.gone_over[name] = {value for position in files for (value,) in entry.values[position]}
        return self.gone_over[name]

    def _made_by(self, name: str) -> dict[str, tuple[str, JobOutput]]:
        """By name of an output of this entry, its job."""
        if name not in self.made:
            stay = self.expansion.stay.get(name)
            if stay is not None:
                pairs = [(each.id, each.outputs) for each in stay.values()]
            else:
                entry = self.expansion.entries[name]
                pairs = list(zip(entry.ids, entry.outputs, strict=True))
            self.made[name] = {output.lfn: (job_id, output) for job_id, outputs in pairs for output in outputs}
        return self.made[name]

    def _look_at_inputs(self, entry: JobEntry, maker: str) -> None:
        """No origin is asked while a run goes on."""
        open_keys = {key for axis in entry.spec.axes[-1:] for key in axis.keys}
        own = self.found.get(entry.spec.name)
        if own is not None and own.above:
            open_keys |= {key for axis in entry.spec.outer for key in axis.keys}
        for item in entry.spec.inputs:
            reference, findings = item.reference, self.expansion.findings
            if not reference.origin:
                continue
            if reference.path.keys & open_keys:
                text = f"{reference.source!r} names a file at an origin by a value that is known only when {maker!r} has ended"
                findings.note(item.place, item.key, f"{text}; let {maker!r} read it, or name all of them without the value")
            elif reference.path.keys and (reference.glob or reference.directory):
                text = f"{reference.source!r} is listed at its origin for each value, and nothing is listed while a run goes on"
                findings.note(item.place, item.key, f"{text}; name all of them without the value, or a set under 'files:'")


def globs_of(axes: tuple[Axis, ...]) -> Iterator[str]:
    """Patterns over what jobs make."""
    for axis in axes:
        if axis.wildcards is not None and axis.reference is not None and not axis.reference.origin:
            yield axis.wildcards.glob
        elif axis.reference is not None and axis.reference.glob and not axis.reference.origin:
            yield axis.reference.path.source


def as_glob(template: Template, row: Mapping[str, str] = NOTHING) -> str:
    """With a star for each value that is not given."""
    pieces = (piece if isinstance(piece, str) else piece.value(row) if piece.key in row else None for piece in template.pieces)
    return "".join("*" if piece is None else escape_wildcards(piece) for piece in pieces)


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
