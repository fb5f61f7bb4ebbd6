"""`stager simulate FILE`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import click

from stager.cli.exits import Exit
from stager.cli.options import (
    Duration,
    Given,
    ParamType,
    Rate,
    Size,
    ignore_profiles_option,
    json_option,
    no_direct_option,
    output_origin_option,
    params_option,
    print_json,
    settings_of,
    spill_option,
    state_dir_option,
)
from stager.cli.simulated import answer_json, print_answers
from stager.cli.workflow_file import cluster_topology, read_only
from stager.model.topology import (
    DEFAULT_DISK_BYTES_PER_S,
    DEFAULT_LATENCY_S,
    DEFAULT_OVERHEAD_S,
    DEFAULT_WAN_BYTES_PER_S,
    Node,
    OriginLink,
    Topology,
)
from stager.model.units import counted, format_size
from stager.model.workflow import Workflow
from stager.planning.policy import Policy
from stager.scheduler.commands import RunOutcome
from stager.service.prepare import require_spill
from stager.service.profiles import load_overhead, load_profiles
from stager.whatif import Question, Subject, ask

WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
# With none of any other knob nothing would ever move, or time would not.
SAID_BY_TOPOLOGY = (
    "nodes",
    "cores",
    "capacity",
    "wan",
    "latency",
    "disk",
    "network",
    "overhead",
    "fetch_file",
    "upload_file",
    "overhead_file",
    "failures_per_hour",
)
MAY_BE_ZERO = ("fetches_ahead_max", "outage_s_max")


class PolicyChoice(ParamType):
    """`default`, or `lookahead=off,fetches_ahead_max=8`."""

    name = "policy"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Policy]:
        policy = Policy()
        known = {field.name: getattr(policy, field.name) for field in fields(Policy)}
        for knob in () if value == "default" else str(value).split(","):
            name, _, text = (word.strip() for word in knob.partition("="))
            if name not in known:
                self.fail(f"there is no {name!r}; a policy is 'default' or NAME=VALUE with a NAME of {', '.join(known)}", param, ctx)
            try:
                setting = setting_of(name, known[name], text)
            except (KeyError, ValueError):
                least = "0 or more" if name in MAY_BE_ZERO else "above 0"
                wanted = "on or off" if isinstance(known[name], bool) else f"a number {least}"
                self.fail(f"{name}={text}: write {wanted}, as in {name}={shown(known[name])}", param, ctx)
            policy = replace(policy, **{name: setting})
        return str(value), policy


def setting_of(name: str, usual: Any, text: str) -> Any:
    """Of the kind that the usual one is. Raises KeyError or ValueError for what cannot be simulated with."""
    if isinstance(usual, bool):
        return WORDS[text.lower()]
    setting = type(usual)(text)
    if not isfinite(setting) or setting < 0 or (setting == 0 and name not in MAY_BE_ZERO):
        raise ValueError(text)
    return setting


def shown(setting: Any) -> str:
    return {True: "on", False: "off"}[setting] if isinstance(setting, bool) else str(setting)


@dataclass(frozen=True, slots=True)
class Choice:
    """One row: what it is, and what of it is asked for."""

    nodes: int = 1
    cores: int = 1
    capacity: int = 0
    wan: float = DEFAULT_WAN_BYTES_PER_S
    latency: float = DEFAULT_LATENCY_S
    disk: float = DEFAULT_DISK_BYTES_PER_S
    network: float | None = None
    overhead: float = DEFAULT_OVERHEAD_S
    fetch_file: float = 0.0
    upload_file: float = 0.0
    overhead_file: float = 0.0
    policy: tuple[str, Policy] = ("default", Policy())
    failures: int | None = None
    failures_per_hour: float = 0.0


F = TypeVar("F", bound=Callable[..., Any])


def many(name: str, kind: ParamType, text: str) -> Callable[[F], F]:
    return click.option(f"--{name.replace('_', '-')}", name, type=kind, multiple=True, help=text)


@click.command(
    epilog="""\b
Example:
  stager simulate montage.json --capacity '2 GB' --wan '20 MB/s'
  stager simulate workflow.yml --nodes 1 --nodes 2 --nodes 4 --cores 8
  stager simulate workflow.yml --policy default --policy lookahead=off --failures 1 --failures 2
  stager simulate workflow.yml --no-direct
  stager simulate workflow.yml --topology cluster.yml --failures 1
  stager simulate soykb.json --capacity '1 GB' --capacity '3 GB' --json | jq '.rows[].makespan_s'"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@many("nodes", click.IntRange(1, 1000), "I/O nodes, each with compute slots beside it; default: 1")
@many("cores", click.IntRange(1), "cores of each node; default: all of this machine")
@many("capacity", Size(), "space of each I/O node, as in '20 GB'; default: 80 % of what is free here")
@many("wan", Rate(), f"rate to and from each origin, as in '1 Gbit/s'; default: {DEFAULT_WAN_BYTES_PER_S / 1e6:.0f} MB/s")
@many("latency", Duration(), f"latency of each transfer before its first byte, as in '30 ms'; default: {DEFAULT_LATENCY_S * 1000:.0f} ms")
@many("disk", Rate(), f"rate of each node's disk; default: {DEFAULT_DISK_BYTES_PER_S / 1e6:.0f} MB/s")
@many("network", Rate(), "rate of each node's network, into it and out of it; default: as its disk")
@many("overhead", Duration(), "overhead of an attempt beside its program; default: as measured here, else as measured elsewhere")
@many("fetch_file", Duration(), "time on the line for each fetched file beside its bytes, as in '5 ms'; default: nothing")
@many("upload_file", Duration(), "time on the line for each uploaded file beside its bytes; default: nothing")
@many("overhead_file", Duration(), "overhead of an attempt for each of its outputs; default: as measured here, else nothing")
@many("policy", PolicyChoice(), "'default', or knobs as in 'lookahead=off,fetches_ahead_max=8'")
@many("failures", click.INT, "a seed: nodes, origins, transfers, jobs and the scheduler fail as drawn from it; default: nothing fails")
@many("failures_per_hour", click.FloatRange(0.0, 3600.0), "how often each node is lost with its disk: plans reckon with it; default: 0")
@click.option(
    "--topology",
    "cluster",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="simulate on the nodes and links of this file (docs/formats/topology.md), which need not be alike",
)
@click.option("--processes", type=click.IntRange(1), help="how many to use for several rows; default: one per core that may be used")
@params_option
@output_origin_option
@spill_option
@ignore_profiles_option
@no_direct_option
@state_dir_option
@json_option
def command(
    file: Path,
    given: Given,
    cluster: Path | None,
    processes: int | None,
    output_origin: str | None,
    spill: str | None,
    ignore_profiles: bool,
    no_direct: bool,
    state_dir: Path | None,
    as_json: bool,
    **asked: tuple[Any, ...],
) -> int:
    """Run FILE, a workflow or a WfCommons record, in a simulated world by the scheduler that real runs use: how long it would take, how
    far above the lower bound that is, and what holds it up. Nothing is started, nothing is moved.

    An option that is given again asks again: one row for each combination.
    """
    if cluster is not None and any(asked[name] for name in SAID_BY_TOPOLOGY):
        said = ", ".join(f"--{name.replace('_', '-')}" for name in SAID_BY_TOPOLOGY if asked[name])
        raise click.UsageError(f"--topology says what there is: leave out {said}")
    settings = settings_of(state_dir)
    workflow = read_only(settings, file, output_origin, given)
    require_spill(workflow, spill)
    overhead = load_overhead(settings)
    usual = Choice(cores=settings.cores, capacity=settings.capacity_bytes, overhead=overhead.seconds, overhead_file=overhead.file_s)
    every = [field.name for field in fields(Choice)]
    names = every if cluster is None else [name for name in every if name not in SAID_BY_TOPOLOGY]
    choices = [Choice(*row) for row in product(*(asked[name] or (getattr(usual, name),) for name in every))]
    there = None if cluster is None else cluster_topology(cluster, workflow)
    questions = [Question(there or topology_of(workflow, choice), policy_of(choice, no_direct), choice.failures) for choice in choices]
    subject = Subject(workflow, load_profiles(settings), spill, ignore_profiles)
    answers = list(ask(subject, questions, processes or len(os.sched_getaffinity(0))))
    if as_json:
        rows = [{**json_of(choice, names), **answer_json(answer)} for choice, answer in zip(choices, answers, strict=True)]
        head = {"workflow": workflow.name, "jobs": len(workflow.jobs), "files": len(workflow.files), "profiles_ignored": ignore_profiles}
        print_json({**head, "rows": rows})
    else:
        varied = [name for name in names if len(asked[name]) > 1]
        title = f"workflow {workflow.name!r}: {counted(len(workflow.jobs), 'job')}, {counted(len(workflow.files), 'file')}"
        where = "" if cluster is None else f"topology {cluster}, "
        fixed = where + ", ".join(f"{name} {words_of(choices[0])[name]}" for name in names if name not in varied)
        blind = ["plans are made without the profiles of job types; the simulated jobs follow the profiles"] if ignore_profiles else []
        print_answers([title, fixed, *blind], varied, [[words_of(choice)[name] for name in varied] for choice in choices], answers)
    return exit_of([answer.outcome for answer in answers])


def topology_of(workflow: Workflow, choice: Choice) -> Topology:
    """All origins are reached alike."""
    nodes = tuple(
        Node(
            f"node{number}",
            choice.capacity,
            choice.cores,
            disk_bytes_per_s=choice.disk,
            network_bytes_per_s=choice.network or choice.disk,
            failures_per_hour=choice.failures_per_hour,
        )
        for number in range(choice.nodes)
    )
    links = tuple(
        OriginLink(
            name,
            choice.wan,
            choice.wan,
            choice.latency,
            fetch_file_s=choice.fetch_file,
            upload_file_s=choice.upload_file,
        )
        for name in workflow.origins
    )
    return Topology(nodes, links).with_overhead(choice.overhead, measured=False, file_s=choice.overhead_file)


def policy_of(choice: Choice, no_direct: bool) -> Policy:
    return replace(choice.policy[1], direct_access=False) if no_direct else choice.policy[1]


def words_of(choice: Choice) -> dict[str, str]:
    return {
        "nodes": str(choice.nodes),
        "cores": str(choice.cores),
        "capacity": format_size(choice.capacity),
        "wan": f"{format_size(choice.wan)}/s",
        "latency": f"{choice.latency * 1000:g} ms",
        "disk": f"{format_size(choice.disk)}/s",
        "overhead": f"{choice.overhead * 1000:.3g} ms",
        "fetch_file": f"{choice.fetch_file * 1000:.3g} ms",
        "upload_file": f"{choice.upload_file * 1000:.3g} ms",
        "overhead_file": f"{choice.overhead_file * 1000:.3g} ms",
        "network": f"{format_size(choice.network or choice.disk)}/s",
        "policy": choice.policy[0],
        "failures": "none" if choice.failures is None else str(choice.failures),
        "failures_per_hour": f"{choice.failures_per_hour:g}",
    }


def json_of(choice: Choice, names: Sequence[str]) -> dict[str, Any]:
    """What was asked for by these names. Units are at the end of the keys."""
    told = {
        "nodes": choice.nodes,
        "cores": choice.cores,
        "capacity_bytes": choice.capacity,
        "wan_bytes_per_s": choice.wan,
        "latency_s": choice.latency,
        "disk_bytes_per_s": choice.disk,
        "overhead_s": choice.overhead,
        "fetch_file_s": choice.fetch_file,
        "upload_file_s": choice.upload_file,
        "overhead_file_s": choice.overhead_file,
        "network_bytes_per_s": choice.network or choice.disk,
        "policy": choice.policy[0],
        "failures": choice.failures,
        "failures_per_hour": choice.failures_per_hour,
    }
    return {
        key: value
        for key, value in told.items()
        if any(key in (name, f"{name}_s", f"{name}_bytes", f"{name}_bytes_per_s") for name in names)
    }


def exit_of(outcomes: list[RunOutcome]) -> Exit:
    """One way to run it is enough."""
    if RunOutcome.SUCCEEDED in outcomes:
        return Exit.OK
    return Exit.REFUSED if all(outcome is RunOutcome.REFUSED for outcome in outcomes) else Exit.JOB_FAILED
