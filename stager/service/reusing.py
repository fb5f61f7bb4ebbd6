"""What a submit need not do again: asked of the results that are remembered, the listing of its inputs, and what is at its destinations.

May know: the results store, the OriginAccess port, the planner. One rule: nothing is changed and nothing is fetched; what cannot be told
without that runs.
"""

from __future__ import annotations

import logging
import os
import secrets
import sqlite3
import stat
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stager.adapters.content_hash import blake3_of_each
from stager.adapters.results_store import ResultsStore, open_to_read, unusable
from stager.model.errors import InvalidInput, Refused, StagerError, Transient
from stager.model.files import FileKind, Location, Source
from stager.model.results import KeptOutput, Result, SeenAt, origin_key
from stager.model.scatter import standing_jobs, unknown
from stager.model.units import counted, format_size
from stager.model.workflow import Origin, OriginKind, Workflow, graph_of
from stager.planning.job_key import differences
from stager.planning.plan import Plan, ReusedJob, ReusedOutput
from stager.planning.reuse import Known, Reuse, closure, decide, jobs_named
from stager.ports import OriginEntry
from stager.readers.lines import nearest
from stager.service.destinations import Answers
from stager.service.sent_before import SentBefore

log = logging.getLogger(__name__)
# A change of a file's times that is younger than this may not show.
SETTLED_S = 2.0
# What is to run all the same (--rerun), and what the run is to begin with (--from).
Again = tuple[Sequence[str], Sequence[str]]
# Inputs of this machine that changed are hashed up to so much: they are read anyway, should the job run.
HASHED_BYTES_MAX = 4 << 30
# One of another size than before has another content. It is hashed all the same, if it is small: it may be what it was before that.
EDITED_BYTES_MAX = 64 << 20


@dataclass(slots=True)
class Remembered:
    """Of one submit. `hashed`: files that were hashed just now; `to_fetch`: inputs of which only a fetch could tell that they did not
    change. `trouble`: why nothing is known of earlier runs, though there is something. `brought`: by lfn, where finals lie that were made
    in a directory that came with an earlier submit, and where they belong now. `forced`: jobs that are to run whatever is known.
    """

    reuse: Reuse
    known: Known
    hashed: int = 0
    to_fetch: list[str] = field(default_factory=list)
    store: ResultsStore | None = None
    trouble: str = ""
    brought: dict[str, tuple[Path, Path]] = field(default_factory=dict)
    forced: Collection[str] = ()

    def leave_kept(self, workflow: Workflow) -> None:
        """Nothing that nodes keep is taken over."""
        self.known = replace(self.known, kept={})
        self.reuse = decided(workflow, self.known, self.forced)

    def bring_finals(self) -> None:
        """Those that are reused, to where this run has them; also in the place of one that came along, which it would replace. Raises
        Transient for one that went meanwhile.
        """
        for old, new in (self.brought[lfn] for lfn in self.reuse.held if lfn in self.brought):
            new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = new.with_name(f".{secrets.token_hex(8)}.new")
            try:
                os.link(old, fresh)
            except FileNotFoundError:
                raise Transient(f"the final {new.name} of an earlier run went just now; submit again", code="busy") from None
            os.replace(fresh, new)
            # Where both were one file already, it has both names still.
            fresh.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Asker:
    """`tenant` None: the owner, for whom directories of this machine may be read; of a tenant's only what was sent. `environ`: of the
    submitter; `own_environ`: of the programs that are called here. `by_name`: reuse was asked for, so that more is looked at for it, and
    what is in its way is told as an error. `verify`: contents of inputs are not remembered.
    """

    tenant: str | None
    environ: Mapping[str, str]
    own_environ: Mapping[str, str]
    state_dir: Path
    by_name: bool
    verify: bool = False

    @property
    def name(self) -> str:
        return self.tenant or ""

    def values(self, store: ResultsStore, names: set[str]) -> dict[str, str]:
        """Digests of variables. Of a tenant's, those that came along: what a service has itself is given to no job."""
        return store.passed(self.environ, names if self.tenant is None else names & self.environ.keys())


def remembered(workflow: Workflow, path: Path, asker: Asker, answers: Answers, again: Again) -> Remembered:
    """`path`: of the results. `answers`: what is at destinations. Raises InvalidInput for a name that no job has, Refused for an input that
    looks as it was and is not.
    """
    rerun, begin = again
    forced = named(workflow, "--rerun", rerun) | closure(named(workflow, "--from", begin), graph_of(workflow).children)
    nothing = Known({}, {}, lambda key: None)
    try:
        store = open_to_read(path)
        if store is None:
            return Remembered(decide(workflow, nothing, forced), nothing)
        return found_in(store, workflow, asker, answers, forced)
    except (sqlite3.Error, StagerError) as problem:
        told = problem if isinstance(problem, StagerError) else unusable(path, problem)
        if told.subject != str(path):
            raise
        if asker.tenant is not None:
            log.error("%s", told.message)
            text = "what earlier runs made cannot be read just now; the administrator of the service finds why in its log"
            told = Transient(text, code="no_results")
        if asker.by_name:
            raise told from problem
        return Remembered(decide(workflow, nothing, forced), nothing, trouble=told.message)


def found_in(store: ResultsStore, workflow: Workflow, asker: Asker, answers: Answers, forced: set[str]) -> Remembered:
    # What they name is not remembered.
    forced = forced | {each.maker for each in unknown(workflow.scatters)}
    look = Look(workflow, store, asker)
    names = {name for job in workflow.jobs.values() for name in job.env_pass}
    contents, held = look.contents(), look.held(answers)
    results: dict[str, Result | None] = {}
    # Of the results that were found: a workflow that has none pays for no other's.
    kept: dict[tuple[str, str], KeptOutput] = {}

    def result_of(key: str) -> Result | None:
        if key not in results:
            results[key] = store.result(asker.name, key)
            kept.update(store.kept(asker.name, key) if results[key] is not None else {})
        return results[key]

    known = Known(contents, held, result_of, asker.values(store, names), look.unknown, kept)
    return Remembered(
        decided(workflow, known, forced),
        known,
        look.hashed,
        look.to_fetch,
        store,
        brought=look.brought,
        forced=forced,
    )


def decided(workflow: Workflow, known: Known, forced: Collection[str]) -> Reuse:
    """Of a job that is only assumed nobody knows whether it will be there."""
    standing = standing_jobs(workflow.scatters)
    found = decide(workflow, known, {*forced, *standing})
    found.runs |= dict.fromkeys(standing & found.runs.keys(), "it is assumed, and known only when a list is made")
    return found


def named(workflow: Workflow, option: str, names: Sequence[str]) -> set[str]:
    """The jobs. Raises InvalidInput."""
    found, strange = jobs_named(workflow, names)
    if strange:
        types = [*workflow.jobs, *(job.job_type for job in workflow.jobs.values())]
        text = f"{option} {strange[0]!r} names no job and no type of jobs of this workflow{nearest(strange[0], types)}"
        raise InvalidInput(f"{text}; write a job's id, its type, or all", subject=strange[0])
    return found


def require_begin(workflow: Workflow, reuse: Reuse, begin: Sequence[str]) -> None:
    """Raises Refused where something runs that does not follow from what was to begin with."""
    if not begin:
        return
    asked = closure(named(workflow, "--from", begin), graph_of(workflow).children)
    before = [job_id for job_id in workflow.jobs if job_id in reuse.runs and job_id not in asked]
    if before:
        more = f" (and {len(before) - 1} more jobs)" if len(before) > 1 else ""
        text = f"the run cannot begin with {', '.join(begin)}: job {before[0]!r}{more} has to run, since {reuse.runs[before[0]]}"
        raise Refused(f"{text}; leave out --from", code="runs_before", subject=before[0])


class Look:
    """At what there is now, beside what is remembered of it."""

    def __init__(self, workflow: Workflow, store: ResultsStore, asker: Asker) -> None:
        self.workflow, self.store, self.asker = workflow, store, asker
        self.keys = {name: origin_key(origin) for name, origin in workflow.origins.items()}
        self.roots = {name: root_here(origin) for name, origin in workflow.origins.items()}
        self.sent = SentBefore(asker.state_dir, asker.tenant) if asker.tenant is not None else None
        self.brought: dict[str, tuple[Path, Path]] = {}
        # By directory, when the newest symbolic link on the way to it was made.
        self.links: dict[Path, float] = {}
        self.unknown: dict[str, str] = {}
        self.to_fetch: list[str] = []
        self.hashed = 0

    def contents(self) -> dict[str, str]:
        """By lfn, of external files whose content is known without fetching them."""
        sources = {lfn: file.sources[0] for lfn, file in self.workflow.files.items() if file.sources}
        seen_at = self._seen((source.location for source in sources.values()), finals=False)
        found: dict[str, str] = {}
        doubtful: dict[str, Path] = {}
        for lfn, source in sources.items():
            seen = seen_at.get(source.location)
            here = self._path_here(source.location)
            if seen is not None and seen.token == source.token and not self.asker.verify and self._is_settled(source, seen, here):
                found[lfn] = seen.blake3
            elif here is not None and self._is_worth_hashing(source, seen, here):
                doubtful[lfn] = here
            else:
                self.unknown[lfn] = self._why_unknown(lfn, source, seen)
        for lfn, blake3 in self._hash(doubtful).items():
            found[lfn] = blake3
            self._require_another_token(lfn, blake3, seen_at.get(sources[lfn].location))
        for lfn in doubtful:
            if lfn not in found:
                self.unknown[lfn] = "it could not be hashed where it lies"
        return found

    def _is_worth_hashing(self, source: Source, seen: SeenAt | None, here: Path) -> bool:
        """A workflow that never ran pays for no reading, unless somebody asks for it. What a tenant sent is small, and lies where nothing
        lay before.
        """
        if self.sent is not None:
            return self.sent.holds(here)
        if self.asker.by_name or self.asker.verify:
            return True
        return seen is not None and (seen.size_bytes == source.size_bytes or (source.size_bytes or 0) <= EDITED_BYTES_MAX)

    def _require_another_token(self, lfn: str, blake3: str, seen: SeenAt | None) -> None:
        """The cache would take it for what it was: a node holds files by their tokens."""
        source = self.workflow.files[lfn].sources[0]
        if seen is not None and seen.token == source.token and seen.blake3 != blake3:
            path = f"{source.location.origin}:{source.location.path}"
            text = (
                f"the content of the input {path} changed, and its size and time are what they were, so it would be taken for the old one"
            )
            raise Refused(f"{text}; `touch` it, and submit again", code="input_disguised", subject=lfn)

    def held(self, answers: Answers) -> dict[str, SeenAt]:
        """Finals that are at their destinations as they were left there."""
        there: dict[str, tuple[Location, str]] = {}
        for lfn, file in self.workflow.files.items():
            if file.destination is not None and file.kind is FileKind.FILE:
                where = file.destination.location
                answer = answers.get((where.origin, where.path))
                if isinstance(answer, OriginEntry):
                    there[lfn] = where, answer.token
        seen_at = self._seen((where for where, _ in there.values()), finals=True)
        found: dict[str, SeenAt] = {}
        doubtful: dict[str, Path] = {}
        for lfn, (where, token) in there.items():
            seen = seen_at.get(where)
            if seen is None or token != seen.token:
                continue
            found[lfn] = seen
            here = self._path_here(where)
            if here is not None and self._changed_at(here) > seen.at:
                doubtful[lfn] = here
        found |= self._made_where_sent(doubtful)
        same = self._hash({lfn: path for lfn, path in doubtful.items() if self.sent is None or self.sent.holds(path)})
        return {lfn: seen for lfn, seen in found.items() if lfn not in doubtful or same.get(lfn) == seen.blake3}

    def _made_where_sent(self, doubtful: dict[str, Path]) -> dict[str, SeenAt]:
        """Finals in directories that came along: they lie in those of an earlier submit, and are hashed there."""
        found: dict[str, SeenAt] = {}
        if self.sent is None:
            return found
        for lfn, file in self.workflow.files.items():
            new = self._path_here(file.destination.location) if file.destination is not None and file.kind is FileKind.FILE else None
            if file.destination is None or new is None or not self.sent.holds(new):
                continue
            where = file.destination.location
            for origin, old in self.sent.earlier(self.workflow.origins[where.origin], where.path):
                seen = self.store.seen(self.asker.name, origin_key(origin), [where.path], finals=True).get(where.path)
                if seen is not None:
                    found[lfn], doubtful[lfn], self.brought[lfn] = seen, old, (old, new)
                    break
        return found

    def _seen(self, places: Iterable[Location], *, finals: bool) -> dict[Location, SeenAt]:
        paths: dict[str, list[str]] = {}
        for place in places:
            paths.setdefault(place.origin, []).append(place.path)
        found: dict[Location, SeenAt] = {}
        for origin, wanted in paths.items():
            told = self.store.seen(self.asker.name, self.keys[origin], wanted, finals=finals)
            found.update((Location(origin, path), seen) for path, seen in told.items())
        return found

    def _path_here(self, place: Location) -> Path | None:
        root = self.roots[place.origin]
        return None if root is None else root / place.path

    def _is_settled(self, source: Source, seen: SeenAt, here: Path | None) -> bool:
        """Here the time of the last change of any kind tells, which nobody can set back; elsewhere the listing's word has to do."""
        return self._changed_at(here) + SETTLED_S < seen.at if here is not None else source.settled

    def _changed_at(self, path: Path) -> float:
        """Also what it is: a link on the way may lead to another file, whose times are older."""
        at = changed_at(path)
        return at if at == float("inf") else max(at, self._link_made_at(path))

    def _link_made_at(self, path: Path) -> float:
        """The newest symbolic link on the way to it, of a path that leads somewhere."""
        made_at, above = 0.0, path.parent
        if above != path:
            if above not in self.links:
                self.links[above] = self._link_made_at(above)
            made_at = self.links[above]
        try:
            found = os.lstat(path)
            if stat.S_ISLNK(found.st_mode):
                made_at = max(made_at, found.st_ctime, self._link_made_at(above / os.readlink(path)))
        except OSError:
            return float("inf")
        return made_at

    def _why_unknown(self, lfn: str, source: Source, seen: SeenAt | None) -> str:
        here = self._path_here(source.location) is not None
        if seen is None:
            advice = "; --reuse hashes it, to find out whether it was elsewhere" if here and self.sent is None else ""
            return f"no run that is remembered read it there{advice}"
        if seen.token == source.token and self.asker.verify:
            return "it is fetched to verify it (--verify-inputs)"
        if seen.token == source.token:
            return "something about it changed since" if here else "it was written less than 2 s before it was listed"
        if seen.size_bytes == source.size_bytes:
            self.to_fetch.append(lfn)
            return f"its token is {source.token!r}, and was {seen.token!r}; only fetching it would tell whether its content changed"
        return f"it changed: it had {format_size(seen.size_bytes)}, and has {format_size(source.size_bytes or 0)}"

    def _hash(self, paths: Mapping[str, Path]) -> dict[str, str]:
        """By lfn. More than is worth reading is left out."""
        chosen, left = {}, HASHED_BYTES_MAX
        for lfn, path in paths.items():
            size_bytes = size_of(path)
            if 0 <= size_bytes <= left:
                chosen[lfn], left = path, left - size_bytes
        told = blake3_of_each(chosen.values(), self.asker.own_environ)
        self.hashed += len(told)
        return {lfn: told[path] for lfn, path in chosen.items() if path in told}


def root_here(origin: Origin) -> Path | None:
    """The directory of this machine that it is. None: it is elsewhere."""
    return Path(unquote(urlsplit(origin.url).path)) if origin.kind is OriginKind.FILE else None


def changed_at(path: Path) -> float:
    """When its content, its name or any of its times changed last; for ever later where that cannot be told."""
    try:
        found = os.stat(path)
    except OSError:
        return float("inf")
    return max(found.st_ctime, found.st_mtime)


def size_of(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def reused_jobs(workflow: Workflow, reuse: Reuse) -> tuple[ReusedJob, ...]:
    """As the scheduler is told of them."""
    found = []
    for job_id, result in reuse.reused.items():
        made = {output.path: output for output in result.outputs}
        outputs = []
        for output in workflow.jobs[job_id].outputs:
            if (one := made.get(output.path)) is None:
                continue
            held = reuse.held.get(output.lfn)
            kept = reuse.kept.get(output.lfn) or reuse.lent.get(output.lfn)
            where = (held.token, held.verified, held.synced) if held is not None else ("", "", "", kept.file) if kept is not None else ()
            outputs.append(ReusedOutput(output.lfn, one.size_bytes, one.blake3, one.executable, *where))
        found.append(ReusedJob(job_id, result.run, result.key, tuple(outputs)))
    return tuple(found)


def reuse_text(workflow: Workflow, reuse: Reuse, plan: Plan) -> str:
    moved = plan.fetch_bytes + plan.upload_bytes + plan.readback_bytes + plan.direct_read_bytes
    return f"{len(reuse.reused)} of {counted(len(workflow.jobs), 'job')} reused, {format_size(moved)} over the WAN"


def reuse_lines(workflow: Workflow, found: Remembered, plan: Plan, *, by_name: bool) -> list[str]:
    """To print before anything starts. `by_name`: it was asked for, so it is told that there is nothing, too."""
    lines = [reuse_text(workflow, found.reuse, plan)] if found.reuse.reused or by_name else []
    if found.trouble:
        lines.append(f"note: all jobs run, since what earlier runs made is not known: {found.trouble}")
    if linked := found.reuse.linked(workflow):
        size = format_size(sum(found.reuse.kept[lfn].size_bytes for lfn in linked))
        what = counted(len(linked), "kept result")
        lines.append(f"{what} ({size}) of earlier runs {'is' if len(linked) == 1 else 'are'} read where a node keeps them, and not fetched")
    if lent := found.reuse.lent:
        size = format_size(sum(each.size_bytes for each in lent.values()))
        what = "1 final" if len(lent) == 1 else f"{len(lent)} finals"
        how = "is sent to its destination" if len(lent) == 1 else "are sent to their destinations"
        lines.append(f"{what} ({size}) that earlier runs made {how} from where a node keeps {'it' if len(lent) == 1 else 'them'}")
    if found.to_fetch:
        count, first = len(found.to_fetch), found.to_fetch[0]
        what = counted(count, "input", "has", "have")
        lines.append(f"note: {what} another token and the same size, {first!r} first; only fetching tells whether the content changed")
    return lines


def explain_job(workflow: Workflow, found: Remembered, job_id: str, tenant: str) -> list[str]:
    """Why it would run, and which part of its key differs from the newest run of it that is remembered; or what stands for it."""
    reuse = found.reuse
    job = workflow.jobs[job_id]
    result = reuse.reused.get(job_id)
    if result is not None:
        lines = [f"job {job_id}: reused, run {result.run} made the same ({result.job})"]
        for output in job.outputs:
            held = reuse.held.get(output.lfn)
            kept = "kept on a node" if output.lfn in reuse.kept else "nobody needs it"
            kept = "sent to its destination from a node that keeps it" if output.lfn in reuse.lent else kept
            lines.append(f"  {output.lfn}: {'at its destination' if held is not None else kept}")
        return lines
    lines = [f"job {job_id}: would run, since {reuse.runs[job_id]}"]
    key = reuse.keys.get(job_id)
    before = found.store.of_job(tenant, job_id, workflow.name) if found.store is not None else None
    if before is None:
        return [*lines, "  no earlier run of it is remembered"]
    if key is None:
        return [*lines, f"  run {before.run} made it before; not all that it reads is known by content yet"]
    differing = differences(before.parts, key.parts)
    if not differing:
        return [*lines, f"  run {before.run} made the same before"]
    return [*lines, f"  what differs from run {before.run}:", *(f"    {each.text}" for each in differing)]
