"""The files of a DAG as its tasks declare them, and the workflows of an engine's runs that follow from them.

May know: nothing of Airflow, no network, no clock: facts in, text out. One rule: the same facts give the same text, in whichever process,
for whoever comes first submits it.

Each file belongs to one **part** of the DagRun. The first part holds all tasks that stage through stager, what they read from outside and
what they make. A file of a task that does not stage through stager is there only when that task has ended: its readers stage it in a part
of its own, submitted then, in which they are jobs that make nothing. A file that can be in no part is **loose**: its task moves it
itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

READABLE = ("sftp", "sshfs", "s3", "file", "http", "https")
WRITABLE = ("sftp", "sshfs", "s3", "file")
INTERMEDIATE = "stager"
ENGINE = "airflow"
AFTER = "after "
# Names of directories that stand in the URL of an origin as they are; from the first other one on they are a part of each path.
PLAIN = re.compile(r"[\w.@+=,~-]+", re.ASCII)
STRANGE = re.compile(r"[^\w.@+=,~-]")
# The native format reads these in a name as the place of a value, and twice the braces as the text itself.
HOLE = re.compile(r"(?<!\$)\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)\}", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileFact:
    """A file by its URI, with what its Asset says in `extra`."""

    uri: str
    size_bytes: int | None = None
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class TaskFact:
    """`stages`: through stager. `many`: it is mapped, so what it reads and makes is known only when it runs. `upstream`: direct ones."""

    task_id: str
    stages: bool
    inlets: tuple[FileFact, ...] = ()
    outlets: tuple[FileFact, ...] = ()
    upstream: tuple[str, ...] = ()
    many: bool = False


@dataclass(frozen=True, slots=True)
class DagFact:
    dag_id: str
    tasks: tuple[TaskFact, ...]

    @property
    def stages(self) -> bool:
        return any(task.stages for task in self.tasks)


@dataclass(frozen=True, slots=True)
class DagRunPart:
    """`after`: the task that makes what it reads; empty: the first one. `jobs`: called as their tasks; `files`: logical names by URI;
    `origins`: URIs by the name of the origin that they are at.
    """

    after: str
    text: str
    jobs: frozenset[str]
    files: Mapping[str, str]
    origins: Mapping[str, tuple[str, ...]]

    def reads(self, job: str) -> dict[str, str]:
        """URIs of its inputs, by their logical names."""
        return self._named(json.loads(self.text)["jobs"][job].get("inputs", ()))

    def makes(self, job: str) -> dict[str, str]:
        return self._named(json.loads(self.text)["jobs"][job].get("outputs", ()))

    def _named(self, names: Iterable[str]) -> dict[str, str]:
        uris = {name: uri for uri, name in self.files.items()}
        return {name: uris[name] for name in names}


@dataclass(frozen=True, slots=True)
class Shape:
    """`notes`: what is loose though it looks as if it should not be, once for each."""

    parts: tuple[DagRunPart, ...]
    notes: tuple[str, ...]

    def of_task(self, task_id: str) -> list[DagRunPart]:
        return [part for part in self.parts if task_id in part.jobs]


@dataclass(slots=True)
class Uses:
    """The tasks of the DAG that make one file, and those that read it."""

    fact: FileFact
    makers: list[TaskFact] = field(default_factory=list)
    readers: list[TaskFact] = field(default_factory=list)


@dataclass(slots=True)
class Sketch:
    """A part in the making: what each task reads and makes in it."""

    reads: dict[str, list[FileFact]] = field(default_factory=dict)
    makes: dict[str, list[FileFact]] = field(default_factory=dict)

    def add(self, into: dict[str, list[FileFact]], task: TaskFact, fact: FileFact) -> None:
        into.setdefault(task.task_id, []).append(fact)


def exchanged(dag: DagFact) -> frozenset[str]:
    """URIs of intermediates that tasks of this DAG make for tasks of it, which are of one DagRun."""
    uses = uses_of(dag)
    return frozenset(uri for uri, each in uses.items() if scheme_of(uri) == INTERMEDIATE and each.makers and each.readers)


def shape_of(dag: DagFact, title: str, loose: Iterable[str] = ()) -> Shape:
    """`title`: what the runs are called. `loose`: URIs that are to be in no part, for the service has refused them."""
    ancestors, left_out = ancestors_of(dag), frozenset(loose)
    first, notes = Sketch(), list[str]()
    later: dict[str, Sketch] = {}
    for uri, uses in uses_of(dag).items():
        if uri not in left_out:
            notes += placed(uri, uses, ancestors, first, later)
    parts = [dag_run_part(dag, title, "", first)] if first.reads or first.makes else []
    for maker in (task.task_id for task in dag.tasks if task.task_id in later):
        parts.append(dag_run_part(dag, f"{title} {AFTER}{maker}", maker, later[maker]))
    return Shape(tuple(parts), tuple(notes))


def ancestors_of(dag: DagFact) -> dict[str, set[str]]:
    """All tasks that end before one begins."""
    upstream = {task.task_id: task.upstream for task in dag.tasks}
    return {task: above(task, upstream) for task in upstream}


def above(task: str, upstream: Mapping[str, tuple[str, ...]], until: frozenset[str] = frozenset()) -> set[str]:
    """The tasks upstream of a task, as far as the first ones of `until`. A DAG that is none is Airflow's to refuse; here it only
    must end.
    """
    seen: set[str] = set()
    todo = list(upstream[task])
    while todo:
        each = todo.pop()
        if each not in seen:
            seen.add(each)
            todo += () if each in until else upstream.get(each, ())
    return seen


def uses_of(dag: DagFact) -> dict[str, Uses]:
    """By URI, in the order of the DAG; only files that a task which stages reads or makes."""
    found: dict[str, Uses] = {}
    for task in dag.tasks:
        for fact in task.outlets:
            uses = found.setdefault(fact.uri, Uses(fact))
            uses.makers += [] if task in uses.makers else [task]
        for fact in task.inlets:
            uses = found.setdefault(fact.uri, Uses(fact))
            uses.readers += [] if task in uses.readers else [task]
    for uses in found.values():
        # What any of them says of its size holds for all.
        said = [fact for task in (*uses.makers, *uses.readers) for fact in (*task.outlets, *task.inlets) if fact.uri == uses.fact.uri]
        size_bytes = next((fact.size_bytes for fact in said if fact.size_bytes is not None), None)
        uses.fact = FileFact(uses.fact.uri, size_bytes, next((fact.sha256 for fact in said if fact.sha256), ""))
    staged = {uri for uri, uses in found.items() if any(task.stages for task in (*uses.makers, *uses.readers))}
    return {uri: found[uri] for uri in found if uri in staged and scheme_of(uri)}


def placed(uri: str, uses: Uses, ancestors: Mapping[str, set[str]], first: Sketch, later: dict[str, Sketch]) -> list[str]:
    """Puts a file into the part that it belongs to; what is to be said if it belongs to none."""
    scheme, fact = scheme_of(uri), uses.fact
    readers = [task for task in uses.readers if task.stages and not task.many]
    if not uses.makers:
        for task in readers if scheme != INTERMEDIATE else []:
            first.add(first.reads, task, fact)
        return []
    if len(uses.makers) > 1:
        makers = ", ".join(task.task_id for task in uses.makers)
        return [f"{uri} is made by several tasks ({makers}), so each of them puts it there itself, and its readers fetch it themselves"]
    (maker,) = uses.makers
    after = [task for task in readers if maker.task_id in ancestors[task.task_id]]
    early = [task.task_id for task in readers if task not in after and task is not maker]
    notes = [f"{task} reads {uri}, which {maker.task_id} makes, without being downstream of it, so it fetches it itself" for task in early]
    many = [task.task_id for task in uses.readers if task.stages and task.many]
    if maker.stages and not maker.many:
        if many and scheme == INTERMEDIATE:
            text = f"{', '.join(many)} cannot read {uri}, for a mapped task has no place in the run that holds it"
            notes.append(f"{text}; give it the URL of an origin, or read it in a task that is not mapped")
        if scheme == INTERMEDIATE and not after:
            return notes
        if scheme != INTERMEDIATE and scheme not in WRITABLE:
            return [*notes, f"{maker.task_id} makes {uri}, and stager writes to {', '.join(WRITABLE)} only; it has to put it there itself"]
        first.add(first.makes, maker, fact)
        for task in after:
            first.add(first.reads, task, fact)
        return notes
    if scheme != INTERMEDIATE and after:
        sketch = later.setdefault(maker.task_id, Sketch())
        for task in after:
            sketch.add(sketch.reads, task, fact)
    return notes


def dag_run_part(dag: DagFact, title: str, after: str, sketch: Sketch) -> DagRunPart:
    tasks = [task.task_id for task in dag.tasks if task.task_id in sketch.reads or task.task_id in sketch.makes]
    facts = {fact.uri: fact for kind in (sketch.reads, sketch.makes) for each in kind.values() for fact in each}
    made = {fact.uri for each in sketch.makes.values() for fact in each}
    origins, places = places_of(facts)
    files, before = names_of(facts), edges_of(dag, frozenset(tasks))
    jobs: dict[str, Any] = {}
    for task in tasks:
        said: dict[str, Any] = {"type": type_of(f"{dag.dag_id}.{task}" + (".reads" if after else ""))}
        said["inputs"] = [files[fact.uri] for fact in sketch.reads.get(task, ())]
        said["outputs"] = {files[fact.uri]: produced(fact, places.get(fact.uri, "")) for fact in sketch.makes.get(task, ())}
        # Not always an edge of data, yet it tells in which order they will be called.
        said["after"] = before[task]
        jobs[task] = {name: value for name, value in said.items() if value}
    outside = {files[uri]: external(facts[uri], places[uri]) for uri in facts if uri not in made}
    text = {"stager": 1, "name": title, "engine": ENGINE, "origins": origins, "files": outside, "jobs": jobs}
    by_origin = {name: tuple(uri for uri in places if places[uri].startswith(f"{name}:")) for name in origins}
    return DagRunPart(after, json.dumps({key: value for key, value in text.items() if value}, indent=1), frozenset(tasks), files, by_origin)


def edges_of(dag: DagFact, tasks: frozenset[str]) -> dict[str, list[str]]:
    """By task of a part, those of the part that are the last ones before it."""
    upstream = {task.task_id: task.upstream for task in dag.tasks}
    return {task: sorted(above(task, upstream, tasks) & tasks) for task in tasks}


def external(fact: FileFact, place: str) -> dict[str, Any]:
    said = {"from": place, "literal": True, "size": fact.size_bytes, "sha256": fact.sha256}
    return {name: value for name, value in said.items() if value not in (None, "")}


def produced(fact: FileFact, place: str) -> dict[str, Any]:
    """A DAG writes to the same URL in each of its runs."""
    said = {"to": place, "on_exists": "replace" if place else "", "size": fact.size_bytes, "literal": True}
    return {name: value for name, value in said.items() if value not in (None, "")}


def scheme_of(uri: str) -> str:
    """Empty: this is no file that stager could move."""
    try:
        url = urlsplit(uri)
    except ValueError:
        return ""
    scheme, path = url.scheme.lower(), unquote(url.path)
    if scheme not in (*READABLE, INTERMEDIATE) or url.query or url.fragment or not path.strip("/") or path.endswith("/"):
        return ""
    if (scheme == "file") == bool(url.netloc) or {"..", "."} & {url.netloc, *path.split("/")} or "\0" in path:
        return ""
    return scheme


def places_of(uris: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """(origins by name, `origin:path` by URI). An origin is the directory of a file; those that are registered lie above it."""
    bases: dict[str, str] = {}
    places: dict[str, str] = {}
    for uri in uris:
        scheme = scheme_of(uri)
        if scheme == INTERMEDIATE:
            continue
        url = urlsplit(uri)
        *directories, name = [part for part in unquote(url.path).split("/") if part]
        plain = next((at for at, part in enumerate(directories) if not PLAIN.fullmatch(part)), len(directories))
        base = f"{scheme}://{url.netloc}/{'/'.join(directories[:plain])}".rstrip("/") or f"{scheme}:///"
        base = f"{base}/" if base == f"{scheme}://{url.netloc}" and scheme != "s3" else base
        origin = bases.setdefault(base, origin_name(base, bases.values()))
        places[uri] = f"{origin}:{braces_doubled('/'.join((*directories[plain:], name)))}"
    return {name: base for base, name in bases.items()}, places


def origin_name(base: str, taken: Iterable[str]) -> str:
    plain = re.sub(r"[^A-Za-z0-9]+", "-", base.partition("://")[2]).strip("-")[:40]
    name = plain if plain[:1].isalpha() else f"at-{plain}".rstrip("-")
    others = set(taken)
    return next(each for each in (name, *(f"{name}-{n}" for n in range(2, len(others) + 3))) if each not in others)


def braces_doubled(path: str) -> str:
    return HOLE.sub(r"{{\1}}", path)


def names_of(uris: Iterable[str]) -> dict[str, str]:
    """Logical names, which are also where the files stand in a call's directory: as their URI says, without what a name may not hold."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for uri in uris:
        url = urlsplit(uri)
        parts = [part for part in (url.netloc or url.scheme, *unquote(url.path).split("/")) if part]
        name = "/".join(STRANGE.sub("_", part) for part in parts)
        found[uri] = marked(name, uri) if name in taken else name
        taken.add(found[uri])
    directories = {name[:at] for name in found.values() for at, sign in enumerate(name) if sign == "/"}
    # An object of a bucket may be called as what is a directory of another.
    return {uri: marked(name, uri) if name in directories else name for uri, name in found.items()}


def marked(name: str, uri: str) -> str:
    """With a sign of its own before its suffix, for programs look at that."""
    directory, slash, last = name.rpartition("/")
    stem, dot, suffix = last.partition(".") if not last.startswith(".") else (last, "", "")
    return f"{directory}{slash}{stem}-{hashlib.sha256(uri.encode()).hexdigest()[:8]}{dot}{suffix}"


def type_of(name: str) -> str:
    return STRANGE.sub("_", name)
