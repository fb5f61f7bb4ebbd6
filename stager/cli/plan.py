"""`stager plan FILE`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.options import (
    Where,
    capacity_option,
    copies_option,
    cores_option,
    ignore_profiles_option,
    no_direct_option,
    output_origin_option,
    rerun_option,
    reuse_option,
    settings_of,
    spill_option,
    where_option,
)
from stager.cli.tables import plan_table, simulation_report
from stager.cli.workflow_file import cluster_topology, read_only
from stager.estimate import estimate
from stager.model.errors import error_from
from stager.model.workflow import Workflow, graph_of
from stager.planning.explain import explain_file
from stager.planning.fitting import check_hosts
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan
from stager.planning.plan_json import from_json, to_json
from stager.planning.policy import Limits
from stager.service.destinations import already_there, at_destinations, refusal
from stager.service.prepare import (
    SubmitOptions,
    asks_for_reuse,
    copies_of,
    found_before,
    plan_of,
    plan_with,
    policy_of,
    topology_of,
)
from stager.service.profiles import load_profiles
from stager.service.settings import Settings
from stager.service.state_dir import StateDir

if TYPE_CHECKING:
    from stager.service.reusing import Remembered


@click.command(
    epilog="""\b
Example:
  stager plan workflow.yml
  stager plan workflow.yml --capacity '20 GB' --output plan.json
  stager submit workflow.yml --plan plan.json
  stager plan workflow.yml --explain mosaic.fits
  stager plan workflow.yml --reuse --explain project_07
  stager plan workflow.yml --topology cluster.yml --explain mosaic.fits
  stager plan workflow.yml --simulate --capacity '500 MB'
  stager plan workflow.yml --server https://stager.example.org --token-file ~/.stager-token"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_origin_option
@capacity_option
@cores_option
@spill_option
@ignore_profiles_option
@no_direct_option
@copies_option
@reuse_option
@rerun_option
@where_option
@click.option("--json", "as_json", is_flag=True, help="print the plan as JSON, the same bytes for the same inputs")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="write the plan's JSON there, for `submit --plan`")
@click.option("--explain", metavar="NAME", help="why the plan fetches, keeps or drops this file; or why this job would run, or need not")
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
    output_origin: str | None,
    capacity: int | None,
    cores: int | None,
    spill: str | None,
    ignore_profiles: bool,
    no_direct: bool,
    copies: int | None,
    reuse: bool | None,
    rerun: tuple[str, ...],
    where: Where,
    as_json: bool,
    output: Path | None,
    explain: str | None,
    cluster: Path | None,
    simulated: bool,
) -> None:
    """Print what a run of FILE would do: order, access, bytes over the wide area, the smallest capacity it needs, and a prediction of its
    time. Nothing is started.

    With --server the service plans, as it would for `stager submit --server`. What lies beside FILE goes along.
    """
    if where.server:
        own = (capacity, cores, output, explain, cluster, simulated or None, reuse or None, rerun or None)
        if any(each is not None for each in own):
            text = "a service plans for its own nodes: leave out --capacity, --cores, --output, --explain, --topology, --simulate,"
            text = f"{text} --reuse and --rerun"
            raise click.UsageError(f"{text}, or --server")
        plan_there(where, file, spill, output_origin, copies, ignore_profiles=ignore_profiles, no_direct=no_direct, as_json=as_json)
        return
    if cluster is not None and (output is not None or capacity is not None or cores is not None):
        raise click.UsageError(
            "--topology says what there is, and its plan is not for `submit`: leave out --output, --capacity and --cores"
        )
    if rerun and reuse is False:
        raise click.UsageError("--rerun says what is not to be reused of what else is: leave out --no-reuse")
    if (output is not None or cluster is not None or simulated) and (reuse or rerun):
        raise click.UsageError("--output, --topology and --simulate are about all jobs: leave out --reuse and --rerun, or these")
    settings = settings_of(where.state_dir, capacity, cores)
    asked = SubmitOptions(spill, ignore_profiles, no_direct, copies, reuse, rerun)
    workflow = read_only(settings, file, output_origin)
    plan_here(settings, workflow, asked, cluster, output, explain, as_json=as_json, simulated=simulated)


def plan_here(
    settings: Settings,
    workflow: Workflow,
    asked: SubmitOptions,
    cluster: Path | None,
    output: Path | None,
    explain: str | None,
    *,
    as_json: bool,
    simulated: bool,
) -> None:
    if explain is not None and explain in workflow.jobs:
        click.echo("\n".join(job_explained(workflow, settings, replace(asked, reuse=True), explain)))
        if explain not in workflow.files:
            return
    copies = copies_of(settings, asked.copies) if cluster is None else asked.copies or 1
    profiles, policy = load_profiles(settings), policy_of(asked.no_direct, copies)
    topology = cluster_topology(cluster, workflow) if cluster is not None else topology_of(settings, workflow)
    of_all = output is not None or explain is not None or cluster is not None or simulated
    found = None if of_all else looked_up(workflow, settings, asked)
    if found is None:
        ignored = asked.ignore_profiles
        plan = plan_of(workflow, settings, profiles, asked.spill, ignore_profiles=ignored, policy=policy, topology=topology)
    else:
        plan = plan_with(workflow, settings, profiles, asked, found)
        tell_reuse(workflow, found, plan)
    if output is not None:
        output.write_text(to_json(plan))
    if explain is not None:
        click.echo("\n".join(explain_file(workflow, graph_of(workflow), plan, topology, explain)))
        return
    if as_json:
        click.echo(to_json(plan), nl=False)
    else:
        plan_table(finals_of(workflow), plan, workflow.notes)
    if not workflow.engine:
        tell_taken(workflow, settings)
    check_capacity(plan)
    check_hosts(workflow, topology)
    if simulated:
        limits = Limits(cores=topology.nodes[0].cores, memory_bytes=topology.nodes[0].memory_bytes)
        truth = plan_of(workflow, settings, profiles, asked.spill, policy=policy, topology=topology) if asked.ignore_profiles else plan
        simulation_report(estimate(workflow, topology, limits=limits, plan=plan, truth=truth))


def looked_up(workflow: Workflow, settings: Settings, asked: SubmitOptions) -> Remembered | None:
    """What of it need not run; None: nobody asked."""
    if not asks_for_reuse(settings, asked):
        return None
    return found_before(workflow, settings, asked, at_destinations(workflow, IonodeOriginAccess(settings.environ)))


def job_explained(workflow: Workflow, settings: Settings, asked: SubmitOptions, job_id: str) -> list[str]:
    from stager.service.reusing import explain_job

    found = looked_up(workflow, settings, asked)
    if found is None:
        return [f"job {job_id}: {workflow.engine} runs it"]
    return explain_job(workflow, found, job_id, "")


def tell_reuse(workflow: Workflow, found: Remembered, plan: Plan) -> None:
    from stager.service.reusing import reuse_lines

    for line in reuse_lines(workflow, found, plan):
        click.echo(line, err=True)


def plan_there(
    where: Where,
    file: Path,
    spill: str | None,
    output_origin: str | None,
    copies: int | None,
    *,
    ignore_profiles: bool,
    no_direct: bool,
    as_json: bool,
) -> None:
    from stager import rest
    from stager.cli.remote import planned_at

    options = rest.Options(spill=spill, output_origin=output_origin, copies=copies, ignore_profiles=ignore_profiles, no_direct=no_direct)
    planned, workflow = planned_at(where, file, options)
    plan = from_json(json.dumps(planned.plan), "the service's plan")
    if as_json:
        click.echo(to_json(plan), nl=False)
    else:
        plan_table(finals_of(workflow) if workflow is not None else (), plan, planned.notes)
    if planned.fault is not None:
        raise error_from(planned.fault.fault())


def finals_of(workflow: Workflow) -> frozenset[str]:
    return frozenset(lfn for lfn, file in workflow.files.items() if file.is_final)


def tell_taken(workflow: Workflow, settings: Settings) -> None:
    """Tells the finals that `submit` would refuse, beside the plan: nothing of the plan depends on them."""
    access = IonodeOriginAccess(settings.environ)
    taken = [each.name for each in already_there(workflow, access, StateDir(settings.state_dir).runs) if each.stops]
    if taken:
        click.echo(f"note: `submit` would refuse this: {refusal(taken)}", err=True)
