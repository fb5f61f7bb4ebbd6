"""Choices as a table for people and as JSON for programs. One rule: both show the same figures; a figure that was assumed says so."""

from __future__ import annotations

from collections.abc import Sequence

from stager.adapters.plots import LINES, label_of
from stager.cli.links import assumed_rates, link_lines
from stager.cli.tables import console, print_table, rate_text
from stager.model.prices import ClusterPrices, PriceTable
from stager.model.units import counted, format_duration, format_money, format_size
from stager.service.choices import Choice, Question
from stager.service.choices_json import link_notes, links_of

COLUMNS = (
    ("I/O nodes", "right"),
    ("makespan", "right"),
    ("compute h", "right"),
    ("I/O h", "right"),
    ("requests", "right"),
    ("egress", "right"),
    ("storage", "right"),
    ("total", "right"),
    ("hit rate", "right"),
    ("WAN", "right"),
    ("", "left"),
)


def print_choices(question: Question, table: PriceTable, choices: Sequence[Choice]) -> None:
    out, workflow, cluster = console(), question.workflow, question.cluster
    compute, io = cluster.compute, cluster.io
    out.print(f"workflow {workflow.name!r}: {counted(len(workflow.jobs), 'job')}, {counted(len(workflow.files), 'file')}", markup=False)
    place = "on them" if io.on_compute_nodes else f"{io.instance} at {question.prices.io.per_hour:g} an hour"
    assumed = " (assumed; say it with --topology)" if cluster.assumed else ""
    out.print(
        f"compute nodes: {compute.nodes} {compute.instance} of {compute.cores} cores at {question.prices.compute.per_hour:g} an hour; "
        f"I/O nodes: {place}, {format_size(io.capacity_bytes)} of cache{assumed}; "
        f"{compute.overhead_s * 1000:.0f} ms of each attempt beside its program{' (measured here)' if compute.overhead_measured else ''}"
        f"{f', {compute.overhead_file_s * 1000:.3g} ms more for each output' if compute.overhead_file_s else ''}"
        f"{' (measured here)' if compute.overhead_file_measured else ''}",
        markup=False,
    )
    for line in link_lines(links_of(question)):
        out.print(f"link {line}", markup=False)
    out.print(f"prices: {table.origin} of {table.date}, in {table.currency}", markup=False)
    if question.ignore_profiles:
        out.print("plans: made without the profiles of job types; the simulated jobs follow the profiles", markup=False)
    out.print()
    print_table(COLUMNS, [choice_row(choice) for choice in choices])
    for choice in choices:
        if choice.expected is None:
            out.print(f"{label_of(choice)}: {choice.outcome}: {choice.message}", markup=False)
    if any(choice.expected is not None for choice in choices):
        out.print()
        print_where(choices)
        print_sureness(question, choices)
    for choice in choices:
        for note in choice.notes:
            out.print(f"note: {label_of(choice)}: {note}", markup=False)
    for note in (*(f"note: {text}" for text in link_notes(cluster, workflow)), *missing_notes(question.prices)):
        out.print(note, markup=False)


def missing_notes(prices: ClusterPrices) -> list[str]:
    return [f"note: no price of {name} in {prices.compute.region}: left out" for name in prices.missing]


def choice_row(choice: Choice) -> list[str]:
    name = str(choice.io_nodes) if choice.io_nodes else "direct"
    life = choice.expected
    if life is None:
        return [name, choice.outcome, *[""] * (len(COLUMNS) - 2)]
    bill = life.bill
    return [
        name,
        format_duration(life.usage.wall_s),
        f"{life.compute_node_hours:.3g}",
        f"{life.io_node_hours:.3g}",
        f"{life.usage.reads + life.usage.writes:,}",
        format_money(bill.egress),
        format_money(bill.storage),
        format_money(bill.total),
        rate_text(life.hit_rate) if choice.io_nodes else "",
        format_size(life.wan_bytes),
        marks(choice),
    ]


def marks(choice: Choice) -> str:
    words = [word for word, holds in (("cheapest", choice.cheapest), ("fastest", choice.fastest)) if holds]
    return ("* " if choice.front else "  ") + ", ".join(words)


def print_where(choices: Sequence[Choice]) -> None:
    """The shares of the total, by line; `*` above: on the Pareto front."""
    out = console()
    out.print("* nothing here is faster without being dearer, or cheaper without being slower", markup=False)
    for choice in choices:
        if choice.expected is not None and choice.expected.bill.total > 0:
            total = choice.expected.bill.total
            parts = [f"{LINES[name]} {part / total:.0%}" for name, part in choice.expected.bill.lines() if part >= total / 200]
            out.print(f"where the money goes, {label_of(choice)}: {', '.join(parts)}", markup=False)


def print_sureness(question: Question, choices: Sequence[Choice]) -> None:
    out = console()
    for choice in choices:
        if choice.makespan_least_s is not None and choice.makespan_most_s is not None:
            between = f"{format_duration(choice.makespan_least_s)} to {format_duration(choice.makespan_most_s)}"
            out.print(f"may take, {label_of(choice)}: {between} in nine of ten runs", markup=False)
    if not question.draws:
        out.print("how sure: nothing was drawn; --draws 10 simulates each choice ten times more, with other luck", markup=False)
        return
    out.print(f"how sure: lowest to highest of {question.draws} more draws, by what each number rests on", markup=False)
    for choice in choices:
        if choice.expected is not None:
            (low, high), (little, much) = choice.wall_s_range, choice.total_range
            out.print(
                f"  {label_of(choice)}: {format_duration(low)} to {format_duration(high)}, {format_money(little)} to {format_money(much)}",
                markup=False,
            )
    unknown = assumed_rates(links_of(question))
    if question.cluster.assumed and unknown:
        text = f"  rates of the links to {', '.join(unknown)} are assumed (50 MB/s, by a factor of two): "
        out.print(f"{text}a run measures them, a topology file says them", markup=False)
