"""For a resume: the run's workflow file and inputs as they are now, read and planned as at a submit.

One rule: nothing is started here. A file that was changed and cannot be read is an error; what was not changed and cannot be read again
leaves the run as it was submitted, and that is said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.pulling import images_for
from stager.client import RunClient
from stager.model.errors import InvalidInput, Refused, StagerError
from stager.model.scatter import Scatter, unknown
from stager.model.workflow import Workflow
from stager.planning.digest import workflow_digest
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Access, Plan
from stager.planning.reuse import as_far_as
from stager.readers.native_beside import Beside
from stager.readers.native_params import resubmitted
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from stager.scheduler.amendment import with_known_shells
from stager.service.prepare import SubmitOptions, make_destinations, new_directories, plan_as_asked, require_destinations
from stager.service.profiles import load_profiles
from stager.service.settings import Settings
from stager.wire import Credentials

READ_AGAIN = (WorkflowFormat.NATIVE, WorkflowFormat.PEGASUS)
# What `--output-origin` of a submit is called.
OUTPUT_ORIGIN = "output"


@dataclass(frozen=True, slots=True)
class Again:
    """None: the run goes on with what it has; `note` says why, where somebody may have expected otherwise. `edited`: the file itself was
    changed since the submit, and not only what it names.
    """

    workflow: Workflow | None = None
    plan: Plan | None = None
    note: str = ""
    edited: bool = False


def read_again(settings: Settings, run: RunClient, submitted_at: float) -> Again:
    """Raises InvalidInput for a file that was changed since the submit and is wrong now, Refused for one that does not fit the node."""
    old = run.workflow()
    path = Path(old.source_path)
    if old.engine or not path.is_absolute():
        return Again()
    if not path.is_file():
        return Again(note=f"{path} is not there any more: the run goes on as it was submitted")
    if sniff(path) not in READ_AGAIN:
        return Again()
    digest, beside = digest_of_file(path), Beside()
    access = IonodeOriginAccess(settings.environ)
    try:
        new = read_workflow(path, access=access, options=options_of(old, path, beside) | images_for(settings, path, pulls=True))
        new = as_far_as(with_members(new, old), old.until)
    except StagerError as error:
        if isinstance(error, InvalidInput) and is_edited(path, beside.with_digest(digest), old, submitted_at):
            raise InvalidInput(f"{error.message}\n{path} was changed after the submit; mend it, or add --as-submitted") from None
        return Again(note=f"the inputs could not be looked at again, so the run goes on with those it was submitted with: {error.message}")
    digest = beside.with_digest(digest)
    new = with_known_shells(old, replace(new, source_path=old.source_path, source_digest=digest, anew=old.anew))
    if workflow_digest(new) == workflow_digest(old):
        return Again()
    require_destinations(new, access, new_directories(new))
    return Again(new, planned(settings, new, run.plan()), edited=is_edited(path, digest, old, submitted_at))


def with_members(new: Workflow, old: Workflow) -> Workflow:
    """With the jobs of the members that the run knows by now, as far as the file scatters over the same."""
    if not new.scatters:
        return new
    from stager.readers.native_scatter import assumed_rows, expanded

    def as_it_was(each: Scatter) -> tuple[object, ...]:
        return each.name, each.over, each.keys, each.maker, each.said

    before, assumed = {as_it_was(each): each.rows for each in old.scatters}, assumed_rows(old)
    while True:
        same = [each for each in unknown(new.scatters) if as_it_was(each) in before]
        known = {each.name: rows for each in same if (rows := before[as_it_was(each)]) is not None}
        if not known:
            return expanded(new, {}, {each.name: assumed[each.name] for each in same if each.name in assumed and not each.said})
        # A job that is made of a member may have named members, too.
        new = expanded(new, known)


def digest_of_file(path: Path) -> str:
    """Empty where it cannot be read, which the reader tells better."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


def is_edited(path: Path, digest: str, old: Workflow, submitted_at: float) -> bool:
    """By its content: a file that was put there by `mv`, `cp -p` or `rsync -t` brings its own older time. A run of an older version has no
    digest; when a file came to its place is then the better guess.
    """
    if old.source_digest:
        return digest != old.source_digest
    found = path.stat()
    return max(found.st_mtime, found.st_ctime) > submitted_at


def go_on_with(run: RunClient, again: Again, credentials: Callable[[Workflow | None], Credentials], budget: str = "") -> list[str]:
    """The notes to print. Raises Refused if what is done would not stand by the file as somebody wrote it since."""
    if again.workflow is not None:
        make_destinations(new_directories(again.workflow))
        try:
            return run.resume(credentials(again.workflow), again.workflow, again.plan, budget).notes
        except Refused as refused:
            if refused.code != "workflow_changed" or again.edited:
                raise
            why = refused.message.partition("\n")[2].partition("\n")[0].strip()
            again = Again(note=f"its patterns match other files now ({why}), so the run goes on as it was submitted")
    run.resume(credentials(None), budget=budget)
    return [again.note] if again.note else []


def options_of(old: Workflow, path: Path, beside: Beside) -> dict[str, Any]:
    """As they were at the submit."""
    found = sniff(path)
    if found is WorkflowFormat.NATIVE:
        return {"given": resubmitted(old.params), "beside": beside}
    if OUTPUT_ORIGIN in old.origins:
        return {"output_origin": old.origins[OUTPUT_ORIGIN]}
    return {}


def planned(settings: Settings, workflow: Workflow, before: Plan) -> Plan:
    """By the choices that the submit made: where to spill, whether anything is read directly, how many copies."""
    spill = before.spill_origin if workflow.spill_origin is None and before.spill_origin in workflow.origins else None
    direct = any(file.access is Access.DIRECT for file in before.files)
    asked = SubmitOptions(spill, before.profiles_ignored, not direct, before.copies)
    plan = plan_as_asked(workflow, settings, load_profiles(settings), asked)
    check_capacity(plan)
    return plan
