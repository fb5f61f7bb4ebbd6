"""`stager cost-estimate FILE`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from stager.adapters.plots import plot_choices, require_drawable
from stager.cli.estimates import print_choices
from stager.cli.options import (
    Given,
    ParamType,
    ignore_profiles_option,
    json_option,
    no_direct_option,
    output_origin_option,
    params_option,
    prices_option,
    print_json,
    settings_of,
    spill_option,
    state_dir_option,
)
from stager.cli.prices import table_of
from stager.cli.workflow_file import read_only
from stager.model.errors import Refused
from stager.model.prices import prices_for
from stager.model.units import counted
from stager.readers.topology import read_topology
from stager.service.choices import Question, ask, draws_for
from stager.service.choices_json import choices_json
from stager.service.prepare import cluster_here, policy_of, require_spill
from stager.service.profiles import load_profiles

IO_NODES_MAX = 10_000


class Counts(ParamType):
    """`0,1,2,4`: in ascending order, each once."""

    name = "counts"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        words = [word.strip() for word in str(value).split(",")]
        if not all(word.isdecimal() and int(word) <= IO_NODES_MAX for word in words):
            self.fail(f"{value!r} is not a list of numbers of I/O nodes; write as in 0,1,2,4 (0: none)", param, ctx)
        return tuple(sorted({int(word) for word in words}))


@click.command(
    epilog="""\b
Example:
  stager cost-estimate workflow.yml
  stager cost-estimate workflow.yml --topology cluster.yml --io-nodes 0,1,2,4,8
  stager cost-estimate workflow.yml --prices mine.yml --plot choices.svg
  stager cost-estimate workflow.yml --topology cluster.yml --no-direct
  stager cost-estimate workflow.yml --json"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@params_option
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="compute nodes, I/O nodes, links (docs/formats/topology.md)",
)
@click.option("--io-nodes", type=Counts(), help="ask about so many, as in 0,1,2,4; 0: jobs read and write at the origins")
@prices_option
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="draw the choices there (.svg, .png or .pdf)")
@click.option("--draws", type=click.IntRange(0, 1000), help="simulate each choice so many times more, with other luck")
@click.option("--seed", type=click.IntRange(1), default=1, show_default=True, help="of the first draw")
@spill_option
@ignore_profiles_option
@no_direct_option
@output_origin_option
@state_dir_option
@json_option
def command(
    file: Path,
    given: Given,
    topology: Path | None,
    io_nodes: tuple[int, ...] | None,
    prices: Path | None,
    plot: Path | None,
    draws: int | None,
    seed: int,
    spill: str | None,
    ignore_profiles: bool,
    no_direct: bool,
    output_origin: str | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Say what a run of FILE would take and cost, for each number of I/O nodes, before anything is started. The scheduler of real runs
    simulates each choice in a simulated world.
    """
    if plot is not None:
        require_drawable(plot)
    settings = settings_of(state_dir)
    workflow = read_only(settings, file, output_origin, given)
    require_spill(workflow, spill)
    cluster = read_topology(topology) if topology is not None else cluster_here(settings, workflow)
    table = table_of(prices)
    paid = prices_for(table, cluster.compute.instance, cluster.io.instance, cluster.region)
    draws = draws_for(len(workflow.jobs)) if draws is None else draws
    question = Question(workflow, cluster, paid, load_profiles(settings), spill, draws, seed, ignore_profiles, policy_of(no_direct))
    choices = ask(question, io_nodes or cluster.io_counts, len(os.sched_getaffinity(0)))
    if as_json:
        print_json(choices_json(question, table, choices))
    else:
        print_choices(question, table, choices)
    if not any(choice.expected is not None for choice in choices):
        raise Refused(f"none of the choices can be done: {choices[0].message}", code="no_choice")
    if plot is not None:
        plot_choices(choices, paid.currency, f"{workflow.name}: {counted(len(workflow.jobs), 'job')}", plot)
        click.echo(f"plot: {plot}", err=as_json)
