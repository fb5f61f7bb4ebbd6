"""Makes a workflow, a plan and the credentials of a run from what a tenant sent. The same readers as for any file read it, under the
tenant's access policy.

May know: the readers, the access policy, the planner. Blocking. One rule: the text lies in a private directory while it is read, nothing
of that directory is told, and no reader looks outside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from stager import rest, wire
from stager.adapters.origin_access import IonodeOriginAccess
from stager.model.errors import Denied, InvalidInput, StagerError
from stager.model.prices import prices_for
from stager.model.profile import Profiles
from stager.model.workflow import Bounds, Workflow, values_of
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan, ReusedJob
from stager.planning.plan_json import to_json
from stager.readers.lines import WorkflowInvalid
from stager.readers.native_beside import Beside
from stager.readers.native_params import sent_values
from stager.readers.prices import packaged_prices
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from stager.readers.topology import read_topology
from stager.service.access_policy import TenantAccess, translated
from stager.service.choices import Question, ask, draws_for
from stager.service.choices_json import choices_json
from stager.service.destinations import at_destinations, made_again, require_free
from stager.service.prepare import (
    Ready,
    SubmitContext,
    SubmitOptions,
    as_asked,
    chosen_within,
    cluster_here,
    found_before,
    plan_with,
    policy_of,
    reader_options,
    ready_to_run,
    require_native,
    require_runnable,
    require_spill,
    reused_in,
    sharing_of,
    with_members,
)
from stager.service.profiles import load_profiles
from stager.service.sent_contents import SentStores
from stager.service.sent_directories import SentDirectories
from stager.service.sent_places import SENT
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.tenancy import Tenancy

if TYPE_CHECKING:
    from stager.planning.ways import Within
    from stager.service.reusing import Remembered

PLACE = "upload-"
U = TypeVar("U", bound=rest.Sent)


@dataclass(frozen=True, slots=True)
class Read:
    workflow: Workflow
    format: WorkflowFormat
    access: TenantAccess


class Rights:
    """The rights of a tenant now, as its administrator says. On worker threads: names of hosts are looked up."""

    def __init__(self, tenancy: Tenancy) -> None:
        self.tenancy = tenancy

    def require_native_jobs(self, tenant: str) -> None:
        if not self.tenancy.tenant(tenant).runs_programs:
            text = "the programs of your workflows may not run on this service, where they would run as its own user"
            raise Denied(f"{text}; ask its administrator for a pool, or for native_jobs", code="native_jobs", subject=tenant)

    def resumption(self, body: bytes, workflow: Workflow, tenant: str) -> wire.Credentials:
        """Asks again for the rights of the tenant: they may have been taken back meanwhile."""
        wanted = understood(body or b"{}", rest.Resumption)
        if not workflow.engine:
            self.require_native_jobs(tenant)
        return self.credentials(workflow, tenant, wanted.env)

    def credentials(self, workflow: Workflow, tenant: str, env: dict[str, str]) -> wire.Credentials:
        """`env` is the submitter's own; the service's is given to nobody."""
        access_policy = self.tenancy.access_policy(tenant)
        named = {name for job in workflow.jobs.values() for name in job.env_pass}
        origins = {name: access_policy.config(origin) for name, origin in workflow.origins.items()}
        return wire.Credentials(origins, {name: value for name, value in env.items() if name in named})


class Submissions(Rights):
    """In a process of its own (reader_process.py), since a stranger chose the text."""

    def __init__(self, settings: Settings, tenancy: Tenancy) -> None:
        super().__init__(tenancy)
        self.settings = settings
        self.records = StateDir(settings.state_dir).runs
        self.sent = SentStores(settings.state_dir / SENT, settings.directory_bytes_max)

    def validate(self, body: bytes, tenant: str) -> rest.Validated:
        upload = understood(body, rest.WorkflowText)
        with self.read(upload, tenant) as read:
            workflow = read.workflow
        return rest.Validated(
            format=read.format.value,
            name=workflow.name,
            jobs=len(workflow.jobs),
            files=len(workflow.files),
            external=sum(each.is_external for each in workflow.files.values()),
            finals=sum(each.is_final for each in workflow.files.values()),
            params=values_of(workflow),
            notes=list(workflow.notes),
        )

    def plan(self, body: bytes, tenant: str) -> bytes:
        """A `rest.Planned` as JSON."""
        upload = understood(body, rest.WorkflowText)
        with self.read(upload, tenant) as read:
            asked = chosen(upload.options, self.settings, read.workflow)
            # The values of variables come with a submit only.
            context = SubmitContext(self.settings_for(tenant), read.access, asked, tenant, {})
            workflow = with_members(as_asked(read.workflow, asked), context)
            answers = at_destinations(workflow, read.access) if not workflow.engine else {}
            with closing_results(found_before(workflow, context, answers)) as found:
                plan, lines = planned_as(workflow, context.settings, load_profiles(self.settings), asked, found)
            fault = None
            notes: tuple[str, ...] = ()
            try:
                check_capacity(plan)
                if not workflow.engine:
                    notes = made_again(workflow, require_free(workflow, read.access, self.records, tenant, answers), reused_in(found))
            except StagerError as problem:
                fault = wire.ErrorBody.of(problem.fault())
        return planned(to_json(plan), workflow, fault, told_of(workflow, Ready(plan, found, notes=notes), asked), lines)

    def estimate(self, body: bytes, tenant: str) -> dict[str, Any]:
        asked = understood(body, rest.EstimateQuestion)
        with self.read(asked, tenant) as read, laid({"topology.yml": asked.topology or ""}, self.settings.state_dir) as place:
            workflow = read.workflow
            cluster = read_topology(place / "topology.yml") if asked.topology else cluster_here(self.settings, workflow)
        require_spill(workflow, asked.options.spill)
        table = packaged_prices()
        paid = prices_for(table, cluster.compute.instance, cluster.io.instance, cluster.region)
        profiles, draws = load_profiles(self.settings), draws_for(len(workflow.jobs))
        policy = policy_of(asked.options.no_direct)
        question = Question(workflow, cluster, paid, profiles, asked.options.spill, draws, 1, asked.options.ignore_profiles, policy)
        counts = sorted(set(asked.io_nodes)) or list(cluster.io_counts)
        return choices_json(question, table, ask(question, counts))

    def submission(self, body: bytes, tenant: str) -> wire.SubmitRequest:
        """All that a run needs, or the reason why there is none. Nothing has begun."""
        sent = understood(body, rest.Submission)
        self.require_native_jobs(tenant)
        with self.read(sent, tenant, keep=True) as read:
            require_runnable(read.format, "this")
            require_native(read.workflow)
            check_env(read.workflow, sent.env)
            asked = chosen(sent.options, self.settings, read.workflow)
            context = SubmitContext(self.settings_for(tenant), read.access, asked, tenant, sent.env)
            workflow = with_members(as_asked(read.workflow, asked), context)
            ready = ready_to_run(workflow, context)
            with closing_results(ready.found):
                reused, told = told_of(workflow, ready, asked)
                sharing = sharing_of(workflow, self.settings, asked, ready, tenant)
            told += ready.within.lines if ready.within is not None else ()
            if ready.found is not None:
                ready.found.bring_finals()
            credentials = self.credentials(workflow, tenant, sent.env)
        budget, priority = ready.within.budget if ready.within is not None else None, sent.options.priority
        words: dict[str, Any] = {"reused": reused, "told": tuple(told), "budget": budget, "sharing": sharing}
        return wire.SubmitRequest(workflow, ready.plan, credentials, priority=priority, **words)

    def engine_submission(self, body: bytes, tenant: str) -> wire.SubmitRequest:
        """As `submission`. No program of the tenant's runs here, and what finds no room is one call, not the run."""
        sent = understood(body, rest.EngineSubmission)
        with self.read(sent, tenant, keep=True) as read:
            if not read.workflow.engine:
                text = "the workflow names no engine that runs its jobs"
                raise InvalidInput(f"{text}; write engine: NAME, or submit it to /api/v1/runs", code="no_engine", subject="engine")
            if sent.options.rerun or sent.options.until or sent.options.begin:
                text = f"{read.workflow.engine} chooses which jobs run: leave out rerun, until and begin"
                raise InvalidInput(text, code="bad_parameter", subject="options")
            asked = chosen(sent.options, self.settings, read.workflow)
            plan = ready_to_run(read.workflow, SubmitContext(self.settings, read.access, asked, tenant)).plan
            credentials = self.credentials(read.workflow, tenant, {})
        return wire.SubmitRequest(read.workflow, plan, credentials, part_of=sent.part_of, priority=sent.options.priority)

    def settings_for(self, tenant: str) -> Settings:
        """With the tenant's own pool, where it has one."""
        pool = self.tenancy.tenant(tenant).pool
        return replace(self.settings, pool=pool, hosts_of=tenant) if pool else self.settings

    @contextmanager
    def brought(self, upload: rest.WorkflowText, tenant: str, keep: bool) -> Iterator[dict[str, str]]:
        """Where the directories are that came with it, by their origins. They stay where a run is to be made of it."""
        if not upload.directories:
            yield {}
            return
        directories = SentDirectories(self.sent.of(tenant))
        tree = directories.lay(upload.directories)
        try:
            with telling_nothing_of(tree):
                yield {name: str(tree / name) for name in upload.directories}
        except BaseException:
            directories.drop(tree)
            raise
        if not keep:
            directories.drop(tree)

    @contextmanager
    def read(self, upload: rest.WorkflowText, tenant: str, *, keep: bool = False) -> Iterator[Read]:
        """An error that is raised inside tells nothing of where the file lay. `keep`: the directories that came with it."""
        with self.brought(upload, tenant, keep) as sent, self.read_with(upload, tenant, sent) as read:
            yield read

    @contextmanager
    def read_with(self, upload: rest.WorkflowText, tenant: str, sent: dict[str, str]) -> Iterator[Read]:
        access_policy = self.tenancy.access_policy(tenant).reading(sent)
        access = TenantAccess(access_policy, IonodeOriginAccess(self.settings.environ))
        if upload.file_name in upload.files:
            raise InvalidInput(f"{upload.file_name!r} is the workflow itself; name the file beside it otherwise", subject="files")
        with laid({upload.file_name: upload.workflow, **upload.files}, self.settings.state_dir) as place:
            path = place / upload.file_name
            found = sniff(path)
            if upload.format is not None and upload.format != found.value:
                raise InvalidInput(f"format is {upload.format!r}, and by its content this is {found.value!r}", subject="format")
            options = reader_options(found, upload.options.output_origin, Path("/"), sent_values(upload.params))
            if found is WorkflowFormat.NATIVE:
                options["beside"] = Beside(place)
            workflow = read_workflow(path, access=access, options=options)
            if upload.options.spill is not None:
                require_spill(workflow, upload.options.spill)
            allowed = translated(spilling(workflow, upload.options.spill), access_policy)
            notes = tuple(note.replace(f"{place}/", "") for note in allowed.notes)
            yield Read(replace(allowed, source_path="", notes=notes), found, access)


def planned_as(
    workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions, found: Remembered | None
) -> tuple[Plan, tuple[str, ...]]:
    """(the plan, which way was chosen and why, where somebody said what it may cost or when it is to end)"""
    if options.within is None:
        return plan_with(workflow, settings, profiles, options, found), ()
    way = chosen_within(workflow, settings, profiles, options, found)
    return way.plan, way.lines


def chosen(options: rest.Options, settings: Settings, workflow: Workflow) -> SubmitOptions:
    """Raises InvalidInput."""
    if options.reuse is False and (options.rerun or options.begin):
        text = "rerun and begin say what is not to be reused of what else is: leave out reuse, or make it true"
        raise InvalidInput(text, code="bad_parameter", subject="options.reuse")
    return SubmitOptions(
        options.spill,
        options.ignore_profiles,
        options.no_direct,
        options.copies,
        options.reuse,
        tuple(options.rerun),
        tuple(options.until),
        tuple(options.begin),
        options.verify_inputs,
        within=bounds_of(options, settings, workflow.bounds),
    )


def bounds_of(options: rest.Options, settings: Settings, said: Bounds) -> Within | None:
    """What it may cost, and when it is to have ended. `said`: what the workflow says itself."""
    if not (options.budget or options.finish_by or options.objective or options.budget_anyway or said.said):
        return None
    # Few are limited.
    from stager.service.budgets import asked_of, now, within_of

    asked = asked_of(Bounds(options.budget or "", options.finish_by or "", options.objective or ""), said)
    if asked.finish_by and len(asked.finish_by) <= len("18:00:00") and not asked.finish_by.startswith("+"):
        text = f"{asked.finish_by!r} is a time of a day, and the service may be in another time zone"
        subject = "options.finish_by" if options.finish_by else "finish_by"
        raise InvalidInput(f"{text}; write as in 2026-11-27T18:00:00+01:00, or +3h", code="bad_time", subject=subject)
    limits = (asked.budget or None, asked.finish_by or None, asked.objective or None)
    return within_of(*limits, settings, now(), anyway=options.budget_anyway)


@contextmanager
def closing_results(found: Remembered | None) -> Iterator[Remembered | None]:
    """The process that reads goes on."""
    try:
        yield found
    finally:
        if found is not None and found.store is not None:
            found.store.close()


def told_of(workflow: Workflow, ready: Ready, asked: SubmitOptions) -> tuple[tuple[ReusedJob, ...], list[str]]:
    """What need not run, and what there is to say of it."""
    if ready.found is None:
        return (), [*ready.notes]
    from stager.service.reusing import reuse_lines, reused_jobs

    lines = reuse_lines(workflow, ready.found, ready.plan, by_name=asked.reuse_by_name)
    return reused_jobs(workflow, ready.found.reuse), [*lines, *ready.notes]


def planned(
    plan: str, workflow: Workflow, fault: wire.ErrorBody | None, reuse: tuple[Sequence[ReusedJob], list[str]], lines: tuple[str, ...] = ()
) -> bytes:
    """A `Planned` whose plan is JSON already: of 100,000 jobs it is large, and to read it only to write it takes long."""
    reused, said = reuse
    notes = [*workflow.notes, *lines]
    told = rest.Planned(plan={}, params=values_of(workflow), notes=notes, fault=fault, jobs_reused=len(reused), reuse=said)
    more = told.model_dump_json(by_alias=True, exclude={"plan"})
    return f'{{"plan":{plan},{more[1:]}'.encode()


def spilling(workflow: Workflow, spill: str | None) -> Workflow:
    """So that the origin to spill to is one of those that are used."""
    return replace(workflow, spill_origin=spill) if spill is not None else workflow


@contextmanager
def laid(files: dict[str, str], state_dir: Path) -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix=f"{PLACE}{os.getpid()}-", dir=state_dir))
    try:
        for name, text in files.items():
            try:
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).write_bytes(text.encode("utf-8", "surrogatepass"))
            except OSError:
                raise InvalidInput(f"{name!r} is a file and a directory; name the files otherwise", subject="files") from None
        with telling_nothing_of(place):
            yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def telling_nothing_of(place: Path) -> Iterator[None]:
    try:
        yield
    except WorkflowInvalid as problem:
        found = [replace(each, file=without(place, each.file), message=without(place, each.message)) for each in problem.findings]
        raise WorkflowInvalid(without(place, problem.subject), found, problem.left_out) from None
    except StagerError as problem:
        problem.message, problem.subject = without(place, problem.message), without(place, problem.subject)
        raise


def sweep(state_dir: Path, pid: int | None = None) -> None:
    """Removes what a process that was ended while it read has left; without a number, what any has."""
    for left in state_dir.glob(f"{PLACE}*" if pid is None else f"{PLACE}{pid}-*"):
        shutil.rmtree(left, ignore_errors=True)


def without(place: Path, text: str) -> str:
    return text.replace(f"{place}/", "").replace(str(place), ".")


def check_env(workflow: Workflow, env: dict[str, str]) -> None:
    named = {name for job in workflow.jobs.values() for name in job.env_pass}
    strange = sorted(set(env) - named)
    if strange:
        raise InvalidInput(f"no job names {strange[0]!r} in env_pass; leave it out", code="bad_parameter", subject=f"env.{strange[0]}")
    missing = sorted(named - set(env))
    if missing:
        text = f"jobs take {missing[0]!r} from their submitter's environment (env_pass), and the service gives none of its own"
        raise InvalidInput(f"{text}; send its value in env", code="env_missing", subject=f"env.{missing[0]}")


def understood(body: bytes, kind: type[U]) -> U:
    """Raises InvalidInput that names the key, and never repeats a value: it may be secret."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as problem:
        raise not_understood(problem) from None


def not_understood(problem: ValidationError) -> InvalidInput:
    first = problem.errors(include_url=False, include_input=False, include_context=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    code = "bad_request" if first["type"] == "json_invalid" else "bad_parameter"
    text = "the body is no JSON" if code == "bad_request" else f"{key or 'the body'}: {first['msg']}"
    return InvalidInput(f"{text}; write it as docs/formats/rest.md says", code=code, subject=key)
