"""Destinations that are there before a run: asked once, when it is submitted, instead of found after hours of computing.

May know: the OriginAccess port, the records of runs. One rule: it only reads. A file that an earlier run of this state directory left
there is known by its token and stands in nobody's way: the same content is adopted.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from stager.adapters.run_records import Written, is_under_way, written_before
from stager.model.errors import Fault, Refused, StagerError
from stager.model.files import FileKind, OnExists
from stager.model.units import counted
from stager.model.workflow import Workflow
from stager.ports import OriginAccess, OriginEntry
from stager.readers.resolve import ask_origin
from stager.service.side_by_side import side_by_side

NAMED_MAX, TOLD_MAX = 200, 5
# By origin and path of a destination.
Answers = Mapping[tuple[str, str], OriginEntry | Fault]
DESTINATION_EXISTS = "destination_exists"


@dataclass(frozen=True, slots=True)
class There:
    """`own`: as an earlier run left it."""

    origin: str
    path: str
    rule: OnExists
    own: bool

    @property
    def name(self) -> str:
        return f"{self.origin}:{self.path}"

    @property
    def stops(self) -> bool:
        return self.rule is OnExists.FAIL and not self.own


def rules_of(workflow: Workflow) -> dict[str, dict[str, OnExists]]:
    """By origin and path of each final that is a file."""
    rules: dict[str, dict[str, OnExists]] = {}
    for file in workflow.files.values():
        if file.destination is not None and file.kind is FileKind.FILE:
            rules.setdefault(file.destination.location.origin, {})[file.destination.location.path] = file.destination.on_exists
    return rules


def at_destinations(workflow: Workflow, access: OriginAccess) -> Answers:
    """One question for each origin, all at once. One that cannot be asked now is left out."""
    rules = rules_of(workflow)
    told = side_by_side([partial(answered, workflow, origin, paths, access) for origin, paths in rules.items()])
    return {(origin, path): answer for origin, answers in zip(rules, told, strict=True) for path, answer in answers.items()}


def already_there(
    workflow: Workflow, access: OriginAccess, records: Path, tenant: str | None = None, answers: Answers | None = None
) -> list[There]:
    """In the order of the workflow. What cannot be asked now is left to the run's retries. `tenant`: whose earlier runs count; None: the
    owner's and everybody's. `answers`: where it was asked already.
    """
    answers = at_destinations(workflow, access) if answers is None else answers
    found: list[tuple[str, str, OnExists, str]] = []
    for origin, paths in rules_of(workflow).items():
        there = ((path, rule, answers.get((origin, path))) for path, rule in paths.items())
        found += [(origin, path, rule, entry.token) for path, rule, entry in there if isinstance(entry, OriginEntry)]
    asked = {Written(path, token) for _, path, rule, token in found if rule is OnExists.FAIL}
    own = written_before(records, asked, tenant) if asked else frozenset()
    return [There(origin, path, rule, Written(path, token) in own) for origin, path, rule, token in found]


def answered(workflow: Workflow, origin: str, paths: Collection[str], access: OriginAccess) -> Mapping[str, OriginEntry | Fault]:
    try:
        return ask_origin(workflow.origins[origin], list(paths), access)
    except StagerError:
        return {}


def require_free(
    workflow: Workflow, access: OriginAccess, records: Path, tenant: str | None = None, answers: Answers | None = None
) -> list[There]:
    """Those that are there. Raises Refused that names each destination that no final of this run may be written over."""
    there = already_there(workflow, access, records, tenant, answers)
    taken = [each.name for each in there if each.stops]
    # A run of it that has not ended may be writing them. The scheduler refuses two at a time, and names that run.
    if taken and not is_under_way(records, workflow.name, tenant):
        raise Refused(refusal(taken), code=DESTINATION_EXISTS, subject=taken[0])
    return there


def made_again(workflow: Workflow, there: Sequence[There], reused: Container[str]) -> tuple[str, ...]:
    """What to tell of finals that earlier runs left at their destinations and that jobs of this run make again: nobody knows yet whether
    they come out the same. `reused`: jobs that do not run.
    """
    own = {(each.origin, each.path): each.name for each in there if each.own}
    made = [workflow.files[output.lfn].destination for job in workflow.jobs.values() if job.id not in reused for output in job.outputs]
    names = [name for to in made if to is not None and (name := own.get((to.location.origin, to.location.path))) is not None]
    if not names:
        return ()
    listed = ", ".join([*names[:TOLD_MAX], *([f"and {len(names) - TOLD_MAX} more"] if len(names) > TOLD_MAX else [])])
    left = counted(len(names), "final", "at its destination, and its job runs", "at their destinations, and their jobs run")
    then = "what comes out the same is adopted; other content is not written there, and the run ends not_durable"
    return (f"note: an earlier run left {left} again: {listed}; {then}, but for `on_exists: replace`",)


def refusal(taken: list[str]) -> str:
    """All of them, since each has to be dealt with."""
    left = len(taken) - NAMED_MAX
    listed = "\n  ".join([*taken[:NAMED_MAX], *([f"and {left} more"] if left > 0 else [])])
    count = f"{len(taken)} destinations are there already" if len(taken) > 1 else "a destination is there already"
    advice = "remove or rename what is there, choose other destinations, or say `on_exists: replace` (content that is the same is kept)"
    return f"{count}, and their finals have `on_exists: fail`:\n  {listed}\n{advice}"
