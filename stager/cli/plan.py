"""`stager plan FILE`."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.options import (
    Bounds,
    Given,
    Reuse,
    Where,
    bounded,
    bounds_option,
    capacity_option,
    copies_option,
    cores_option,
    ignore_profiles_option,
    no_direct_option,
    output_origin_option,
    params_option,
    params_text,
    reuse_options,
    settings_of,
    spill_option,
    where_option,
)
from stager.cli.picture_texts import PICTURES
from stager.cli.plan_picture import picture_of
from stager.cli.tables import plan_table, simulation_report
from stager.cli.workflow_file import cluster_topology, read_only
from stager.estimate import estimate
from stager.model.errors import Refused, error_from
from stager.model.workflow import Workflow, graph_of, values_of
from stager.planning.explain import explain_file
from stager.planning.fitting import check_hosts
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan
from stager.planning.plan_json import from_json, to_json
from stager.planning.policy import Limits
from stager.planning.reuse import as_far_as
from stager.ports import OriginAccess
from stager.service.destinations import Answers, already_there, at_destinations, made_again, refusal
from stager.service.prepare import (
    SubmitContext,
    SubmitOptions,
    as_asked,
    chosen_within,
    copies_of,
    found_before,
    plan_of,
    plan_with,
    policy_of,
    reused_in,
    topology_of,
    with_members,
)
from stager.service.profiles import load_profiles
from stager.service.settings import Settings
from stager.service.state_dir import StateDir

if TYPE_CHECKING:
    from stager import rest
    from stager.service.reusing import Remembered


@dataclass(frozen=True, slots=True)
class Shown:
    """The part or the form of a plan that is asked for."""

    as_json: bool
    drawn: str | None
    by_type: bool | None
    output: Path | None
    explain: str | None

    @property
    def for_programs(self) -> bool:
        """What is printed is JSON or a picture, and nothing may stand beside it."""
        return self.as_json or (self.drawn is not None and self.output is None)


def shown_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json, --svg, --output and the like: as one value, `shown`."""

    @functools.wraps(command)
    def collected(
        *args: Any, as_json: bool, drawn: str | None, by_type: bool | None, output: Path | None, explain: str | None, **kwargs: Any
    ) -> Any:
        return command(*args, shown=Shown(as_json, drawn, by_type, output, explain), **kwargs)

    for option in reversed(SHOWN_OPTIONS):
        collected = option(collected)
    return collected


SHOWN_OPTIONS = (
    click.option("--json", "as_json", is_flag=True, help="print the plan as JSON, the same bytes for the same inputs"),
    click.option("--svg", "drawn", flag_value="svg", help="print a picture: job types or jobs, origins, and the files between them"),
    click.option("--dot", "drawn", flag_value="dot", help="print that picture for graphviz"),
    click.option("--mermaid", "drawn", flag_value="mermaid", help="print that picture for pages of Markdown"),
    click.option(
        "--by-type/--by-job",
        default=None,
        help="a row or a box for each job type, or for each job; default: a row for each type, and a box for each job where they are few",
    ),
    click.option(
        "--output",
        type=click.Path(dir_okay=False, path_type=Path),
        help="write the plan's JSON there, for `submit --plan`; with --svg, --dot or --mermaid the picture",
    ),
    click.option(
        "--explain", metavar="NAME", help="why the plan fetches, keeps or drops this file; or why this job would run, or need not"
    ),
)


@click.command(
    epilog="""\b
Example:
  stager plan workflow.yml
  stager plan workflow.yml --capacity '20 GB' --output plan.json
  stager submit workflow.yml --plan plan.json
  stager plan workflow.yml --by-job
  stager plan workflow.yml --svg --output plan.svg
  stager plan workflow.yml --dot | dot -Tpdf >plan.pdf
  stager plan workflow.yml --param night=m31
  stager plan workflow.yml --explain mosaic.fits
  stager plan workflow.yml --explain project_07
  stager plan workflow.yml --topology cluster.yml --explain mosaic.fits
  stager plan workflow.yml --budget '20 USD' --finish-by +3h
  stager plan workflow.yml --simulate --capacity '500 MB'
  stager plan workflow.yml --server https://stager.example.org --token-file ~/.stager-token"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@params_option
@output_origin_option
@capacity_option
@cores_option
@spill_option
@ignore_profiles_option
@no_direct_option
@copies_option
@reuse_options
@bounds_option
@where_option
@shown_option
@click.option(
    "--topology",
    "cluster",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="plan for the I/O nodes of this file (docs/formats/topology.md) instead of this machine, to see what would be chosen",
)
@click.option(
    "--simulate",
    "simulated",
    is_flag=True,
    help="run the plan in a simulated world with the scheduler that real runs use, and say what came out",
)
def command(
    file: Path,
    given: Given,
    output_origin: str | None,
    capacity: int | None,
    cores: int | None,
    spill: str | None,
    ignore_profiles: bool,
    no_direct: bool,
    copies: int | None,
    asked: Reuse,
    bounds: Bounds,
    where: Where,
    shown: Shown,
    cluster: Path | None,
    simulated: bool,
) -> None:
    """Print what a run of FILE would do: order, access, bytes over the wide area, the smallest capacity it needs, and a prediction of its
    time. Nothing is started.

    With --server the service plans, as it would for `stager submit --server`. What lies beside FILE goes along.
    """
    if shown.drawn is not None and shown.as_json:
        raise click.UsageError("--json prints the plan, and --svg, --dot and --mermaid a picture of it: ask for one of them")
    if where.server:
        require_a_services(shown, (capacity, cores, cluster, simulated))
        # Others plan without it, and begin sooner.
        from stager import rest
        from stager.cli.bounds import rest_bounds

        options = rest.Options(
            spill=spill,
            output_origin=output_origin,
            copies=copies,
            ignore_profiles=ignore_profiles,
            no_direct=no_direct,
            **asked.words(),
            **rest_bounds(bounds),
        )
        plan_there(where, file, options, given, shown)
        return
    if cluster is not None and (shown.output is not None or capacity is not None or cores is not None):
        raise click.UsageError(
            "--topology says what there is, and its plan is not for `submit`: leave out --output, --capacity and --cores"
        )
    asked.check()
    of_all = cluster is not None or simulated or (shown.output is not None and shown.drawn is None)
    require_fit(shown, bounds, of_all=of_all, of_results=asked.is_part)
    settings = settings_of(where.state_dir, capacity, cores)
    options_here = SubmitOptions(spill, ignore_profiles, no_direct, copies, **asked.words())
    access = IonodeOriginAccess(settings.environ)
    workflow = as_asked(read_only(settings, file, output_origin, given, access), options_here)
    workflow = with_members(workflow, SubmitContext(settings, access, options_here))
    if not of_all and shown.explain is None:
        options_here = bounded(options_here, bounds, settings, workflow)
    plan_here(settings, workflow, access, options_here, cluster, shown, simulated=simulated)


def require_fit(shown: Shown, bounds: Bounds, *, of_all: bool, of_results: bool) -> None:
    """`of_all`: what is asked is about all jobs; `of_results`: less than all of them is asked for."""
    if of_all and of_results:
        text = "--output, --topology and --simulate are about all jobs"
        raise click.UsageError(f"{text}: leave out --reuse, --rerun, --until and --from, or these")
    if bounds.asked and (of_all or shown.explain is not None):
        text = "--budget, --finish-by and --objective choose the plan that `submit` would run here"
        raise click.UsageError(f"{text}: leave out --output, --topology, --simulate and --explain, or these")


def require_a_services(shown: Shown, own: Sequence[object]) -> None:
    """`own`: what only a plan for the nodes here has."""
    if shown.explain is not None or any(own):
        text = "a service plans for its own nodes: leave out --capacity, --cores, --explain, --topology and --simulate"
        raise click.UsageError(f"{text}, or --server")
    if shown.output is not None and shown.drawn is None:
        raise click.UsageError("a plan for the nodes of a service is not for `submit`: leave out --output, or --server")


def plan_here(
    settings: Settings,
    workflow: Workflow,
    access: OriginAccess,
    asked: SubmitOptions,
    cluster: Path | None,
    shown: Shown,
    *,
    simulated: bool,
) -> None:
    explain = shown.explain
    if explain is not None and explain in workflow.jobs:
        click.echo("\n".join(job_explained(workflow, settings, access, replace(asked, reuse=True), explain)))
        if explain not in workflow.files:
            return
    copies = copies_of(settings, asked.copies) if cluster is None else asked.copies or 1
    profiles, policy = load_profiles(settings), policy_of(asked.no_direct, copies)
    topology = cluster_topology(cluster, workflow) if cluster is not None else topology_of(settings, workflow)
    of_all = (shown.output is not None and shown.drawn is None) or explain is not None or cluster is not None or simulated
    context = SubmitContext(settings, access, asked)
    answers = at_destinations(workflow, access) if explain is None and not workflow.engine else {}
    found = None if of_all else found_before(workflow, context, answers)
    if asked.within is not None:
        plan = plan_chosen(settings, workflow, asked, found)
    elif found is None:
        ignored = asked.ignore_profiles
        plan = plan_of(workflow, settings, profiles, asked.spill, ignore_profiles=ignored, policy=policy, topology=topology)
    else:
        plan = plan_with(workflow, settings, profiles, asked, found)
        tell_reuse(workflow, found, plan, by_name=asked.reuse_by_name)
    if explain is not None:
        write_out(shown, workflow, plan)
        click.echo("\n".join(explain_file(workflow, graph_of(workflow), plan, topology, explain)))
        return
    show(shown, workflow, plan, workflow.notes, values_of(workflow))
    if not workflow.engine:
        tell_taken(workflow, context, answers, None if of_all else reused_in(found))
    check_capacity(plan)
    check_hosts(workflow, topology, plan)
    if simulated:
        limits = Limits(cores=topology.nodes[0].cores, memory_bytes=topology.nodes[0].memory_bytes)
        truth = plan_of(workflow, settings, profiles, asked.spill, policy=policy, topology=topology) if asked.ignore_profiles else plan
        simulation_report(estimate(workflow, topology, limits=limits, plan=plan, truth=truth), stderr=shown.for_programs)


def plan_chosen(settings: Settings, workflow: Workflow, asked: SubmitOptions, found: Remembered | None) -> Plan:
    """Beside the plan says which ways there were, and why this one."""
    from stager.cli.bounds import way_lines

    chosen = chosen_within(workflow, settings, load_profiles(settings), asked, found)
    if found is not None:
        tell_reuse(workflow, found, chosen.plan, by_name=asked.reuse_by_name)
    for line in (*way_lines(chosen), *chosen.lines):
        click.echo(line, err=True)
    return chosen.plan


def job_explained(workflow: Workflow, settings: Settings, access: OriginAccess, asked: SubmitOptions, job_id: str) -> list[str]:
    from stager.service.reusing import explain_job

    found = found_before(workflow, SubmitContext(settings, access, asked), at_destinations(workflow, access))
    if found is None:
        return [f"job {job_id}: {workflow.engine} runs it"]
    return explain_job(workflow, found, job_id, "")


def tell_reuse(workflow: Workflow, found: Remembered, plan: Plan, *, by_name: bool) -> None:
    from stager.service.reusing import reuse_lines

    for line in reuse_lines(workflow, found, plan, by_name=by_name):
        click.echo(line, err=True)


def write_out(shown: Shown, workflow: Workflow | None, plan: Plan) -> str:
    """The plan as JSON or drawn, in the file that was named, too."""
    if shown.drawn is None:
        text = to_json(plan)
    elif workflow is None:
        why = "a picture needs the workflow, and not all of it can be read here"
        raise Refused(f"{why}: leave out --{shown.drawn}; the dashboard of the service draws its runs", code="no_picture")
    else:
        text = PICTURES[shown.drawn](picture_of(workflow, plan, by_type=shown.by_type))
    if shown.output is not None:
        shown.output.write_text(text, encoding="utf-8")
    return text


def show(shown: Shown, workflow: Workflow | None, plan: Plan, notes: Sequence[str], params: Mapping[str, str]) -> None:
    """`workflow` None: it cannot be read here. `notes` and `params`: of whoever has read it."""
    text = write_out(shown, workflow, plan)
    if shown.for_programs:
        click.echo(text.encode(), nl=False)
    else:
        types = () if workflow is None or shown.by_type is False else picture_of(workflow, plan, by_type=True).types()
        plan_table(finals_of(workflow) if workflow is not None else (), plan, notes, types, params_text(params))


def plan_there(where: Where, file: Path, options: rest.Options, given: Given, shown: Shown) -> None:
    from stager.cli.remote import planned_at

    planned, workflow = planned_at(where, file, options, given)
    plan = from_json(json.dumps(planned.plan), "the service's plan")
    workflow = as_far_as(workflow, options.until) if workflow is not None else None
    for line in planned.reuse:
        click.echo(line, err=True)
    show(shown, workflow, plan, planned.notes, planned.params)
    if planned.fault is not None:
        raise error_from(planned.fault.fault())


def finals_of(workflow: Workflow) -> frozenset[str]:
    return frozenset(lfn for lfn, file in workflow.files.items() if file.is_final)


def tell_taken(workflow: Workflow, context: SubmitContext, answers: Answers, reused: Collection[str] | None) -> None:
    """Tells the finals that `submit` would refuse, beside the plan, and those that may come out otherwise than they are there: nothing of
    the plan depends on them. `reused` None: which jobs run is not known.
    """
    there = already_there(workflow, context.access, StateDir(context.settings.state_dir).runs, answers=answers)
    if taken := [each.name for each in there if each.stops]:
        click.echo(f"note: `submit` would refuse this: {refusal(taken)}", err=True)
    for note in made_again(workflow, there, reused) if reused is not None else ():
        click.echo(note, err=True)
