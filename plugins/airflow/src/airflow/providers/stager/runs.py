"""The engine's runs of one DagRun at the service: found by a key that every process works out alike, or submitted by whoever comes first.

May know: the graph, stager's client. One rule: nobody remembers a run; the service does, by its key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from airflow.providers.stager.graph import AFTER, DagFact, DagRunPart, Shape, shape_of
from airflow.providers.stager.masked import masked

if TYPE_CHECKING:
    from stager.client import EngineRun, RestClient
    from stager.model.errors import StagerError

# Runs of one DagRun, one after the other: it may be cleared after it has ended.
GENERATIONS_MAX = 100
SUBMITS_MAX = 5
ONCE_S = 5.0
# A run that takes no call any more: a DagRun that goes on after this has another.
OVER = frozenset(("succeeded", "cancelled", "refused"))
OF_FILE = re.compile(r"files\.(.+)\.(?:from|at)\b.*")
OF_CALL = re.compile(r"call 'try-([0-9]+)[^']*'")
OF_JOB = re.compile(r"\bjob\b")
OF_ORIGIN = re.compile(r"(?:origins\.)?([A-Za-z][A-Za-z0-9_-]*)(?:\..*)?")


@dataclass(frozen=True, slots=True)
class DagRunId:
    """`deployment` tells apart two Airflows that use one tenant's token."""

    dag_id: str
    run_id: str
    deployment: str = ""

    @property
    def title(self) -> str:
        return f"{self.dag_id} {self.run_id}"

    @property
    def part_of(self) -> str:
        """By which the service tells all runs of it in one line. No name of a DAG has a slash in it."""
        from stager.rest import PART_OF_MAX

        words = f"{self.dag_id}/{self.run_id}{f' ({self.deployment})' if self.deployment else ''}"
        return "".join(each if each.isprintable() else "_" for each in words)[:PART_OF_MAX]

    def key(self, what: str, generation: int) -> str:
        words = "\0".join((self.deployment, self.dag_id, self.run_id, what, str(generation)))
        return f"airflow-{hashlib.sha256(words.encode()).hexdigest()[:48]}"


@dataclass(frozen=True, slots=True)
class PartRun:
    """A part and its run. Files that the service refused are in neither."""

    part: DagRunPart
    run: EngineRun


def after_part(task_id: str) -> str:
    return f"{AFTER}{task_id}" if task_id else ""


def own_part(call: str, number: int) -> str:
    """Of a run that is one try's own: the last words of its title, and what its key is made of."""
    return f"of {call} {number}"


@dataclass(slots=True)
class Runs:
    """`own`: of one try, see `own_part`. `loose`: why the service refused a file, by URI."""

    client: RestClient
    dag: DagFact
    ident: DagRunId
    own: str = ""
    loose: dict[str, str] = field(default_factory=dict)

    def ask_once(self) -> None:
        """Raises Transient at once if the service does not answer."""
        import httpx

        from stager.model.errors import Transient

        try:
            self.client.http.get("healthz", timeout=ONCE_S)
        except httpx.TransportError as problem:
            text = f"the service at {self.client.server} does not answer ({problem or type(problem).__name__})"
            raise Transient(f"{text}; is `stager serve` running there?", code="connection_lost") from problem

    def shape(self) -> Shape:
        return shape_of(self.dag, f"{self.ident.title} {self.own}".rstrip(), self.loose)

    def open(self, after: str = "") -> PartRun | None:
        """The run of that part, submitted now if it was not yet; None: nothing of it is left. Raises StagerError."""
        from stager.model.errors import Refused, StagerError

        for _ in range(SUBMITS_MAX):
            part = next((part for part in self.shape().parts if part.after == after), None)
            if part is None:
                return None
            key, run = self.find(self.own or after_part(after))
            if run:
                return PartRun(part, self.client.engine(run))
            try:
                return PartRun(part, self.client.engine(self.submit(part, key)))
            except StagerError as problem:
                taken = self.client.run_of_key(key) if isinstance(problem, Refused) else None
                if taken:
                    return PartRun(part, self.client.engine(taken))
                bad = refused_files(part, problem)
                if not bad:
                    raise
                self.loose |= bad
        return None

    def submit(self, part: DagRunPart, key: str) -> str:
        from stager import rest

        return self.client.engine_run(rest.EngineSubmission(workflow=part.text, part_of=self.ident.part_of), key=key)

    def find(self, what: str) -> tuple[str, str]:
        """(key, run) of the newest one that takes calls; or a key that is free, and an empty run."""
        for generation in range(GENERATIONS_MAX):
            key = self.ident.key(what, generation)
            run = self.client.run_of_key(key)
            if not run or self.client.run(run).status().info.state not in OVER:
                return key, run or ""
        return key, run or ""

    def is_read(self, task_id: str) -> bool:
        """Its readers have their part: what an earlier try of the task made may have been fetched. Not to be known counts as yes."""
        from stager.model.errors import StagerError

        if all(part.after != task_id for part in self.shape().parts):
            return False
        try:
            return bool(self.find(after_part(task_id))[1])
        except StagerError:
            return True

    def end(self, succeeded: bool, message: str) -> None:
        """Of all its parts. Raises StagerError."""
        said = masked(message)
        for part in self.shape().parts:
            _, run = self.find(after_part(part.after))
            if run:
                self.client.engine(run).end(succeeded, said)


def in_words(text: str, part: DagRunPart) -> str:
    """A message of the service, in the names that readers of a DAG know: URIs and tasks."""
    for uri, name in sorted(part.files.items(), key=lambda each: -len(each[1])):
        text = text.replace(repr(name), uri)
    text = OF_CALL.sub(r"try \1", text)
    return OF_JOB.sub("task", text)


def told_of(loose: Mapping[str, str]) -> str:
    """For a log: each reason with its files."""
    by_reason: dict[str, list[str]] = {}
    for uri in sorted(loose):
        by_reason.setdefault(loose[uri], []).append(uri)
    return "; ".join(f"{', '.join(uris)} ({why})" for why, uris in by_reason.items())


def finals_of(part: DagRunPart) -> list[str]:
    jobs = json.loads(part.text)["jobs"].values()
    return [name for job in jobs for name, said in job.get("outputs", {}).items() if "to" in said]


def refused_files(part: DagRunPart, problem: StagerError) -> dict[str, str]:
    """Why, by the URIs that the service named when it refused the part: they are not there, or not for this tenant. Another active run may
    write to where this one would, as the DagRun before it does: the rest is staged all the same. An origin that cannot be asked just now
    refuses nothing.
    """
    from stager.model.errors import ORIGIN_CODES

    if problem.code in ORIGIN_CODES:
        return {}
    by_name = {name: uri for uri, name in part.files.items()}
    if problem.code == "destination_shared":
        return dict.fromkeys((by_name[name] for name in finals_of(part)), problem.message)
    if problem.code == "host_not_public":
        return {uri: problem.message for uri in part.files if urlsplit(uri).hostname == problem.subject}
    listed = problem.details.get("findings")
    findings: list[tuple[str, str]] = []
    if isinstance(listed, list):
        findings = [(each["key"], each["message"]) for each in listed if isinstance(each, dict)]
    found: dict[str, str] = {}
    for key, why in findings or [(problem.subject, problem.message)]:
        of_file, of_origin = OF_FILE.fullmatch(key), OF_ORIGIN.fullmatch(key)
        if of_file and of_file[1] in by_name:
            found[by_name[of_file[1]]] = why
        elif problem.code == "origin_denied" and of_origin:
            found |= dict.fromkeys(part.origins.get(of_origin[1], ()), why)
    return found
