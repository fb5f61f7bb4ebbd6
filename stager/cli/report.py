"""`stager report [RUN]`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from stager import wire
from stager.cli.estimates import missing_notes
from stager.cli.links import link_lines
from stager.cli.money import budget_line
from stager.cli.options import RunName, json_option, params_text, prices_option, print_json, state_dir_option
from stager.cli.picture_texts import svg_text
from stager.cli.plan_picture import picture_of
from stager.cli.prices import table_of
from stager.cli.range import range_text
from stager.cli.reach import find_run, reach_here
from stager.cli.run_page import page_of
from stager.cli.tables import print_table
from stager.model.cluster import Cluster
from stager.model.prices import ClusterPrices, PriceTable, prices_for
from stager.model.scatter import standing_jobs
from stager.model.units import counted, format_duration, format_money, format_size
from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.readers.topology import read_topology
from stager.service.choices_json import link_notes
from stager.service.comparison import ComparisonRow, cluster_of, compare, estimate_of
from stager.service.time_spent import Share, TimeSpent, time_spent

TIME_SPENT = "where the time went"
HOST_COLUMNS = [
    (name, "left" if name in ("host", "node") else "right") for name in ("host", "node", "cores", "attempts", "jobs' time", "busy")
]
# What a cell shows of a second.
SHOWN_S = 0.005


@click.command(
    epilog="""\b
Example:
  stager report
  stager report montage-3f2a --html montage.html
  stager report montage-3f2a --topology cluster.yml --prices mine.yml --json"""
)
@click.argument("run", required=False, type=RunName())
@click.option(
    "--topology",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="instance types and links to estimate with (docs/formats/topology.md); default: links as its plan took them to be",
)
@prices_option
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="write a page that needs nothing else: timeline, cache, cost")
@state_dir_option
@json_option
def command(run: str | None, topology: Path | None, prices: Path | None, html: Path | None, state_dir: Path | None, as_json: bool) -> None:
    """Set what was predicted of RUN (default: the newest) beside what came, line by line, and tell where its time went. The run must be
    over; the estimate is made from the plan it was submitted with.
    """
    given, table = read_topology(topology) if topology is not None else None, table_of(prices)
    with reach_here(state_dir) as client:
        asked = find_run(client, run)
        summary, history, workflow, plan = asked.summary(), asked.history(), asked.workflow(), asked.plan()
    cluster = cluster_of(history, given, plan)
    paid = prices_for(table, cluster.compute.instance, cluster.io.instance, cluster.region)
    estimated = estimate_of(workflow, plan, history, cluster)
    lines = compare(workflow, plan, summary, history, cluster, paid, estimated)
    spent = time_spent(workflow, plan, summary, history, estimated)
    notes = [
        *budget_notes(summary),
        *assumed_notes(workflow),
        *notes_of(cluster, plan, paid, table),
        *(f"note: {text}" for text in link_notes(cluster, workflow)),
    ]
    if html is not None:
        rows = [(line.name, *cells(line)) for line in lines]
        drawn = svg_text(picture_of(workflow, plan), alone=False)
        page = page_of(summary, history, rows, table.currency, notes, spent_rows(spent), said_of(spent), drawn)
        html.write_text(page, encoding="utf-8")
    if as_json:
        told = report_json(summary, history, lines, table) | {"time_spent": spent_json(spent), "makespan_range": range_json(plan, lines)}
        print_json(told | {"assumed": cluster.assumed, "missing_prices": list(paid.missing)})
        return
    click.echo(f"run {summary.run} ({summary.workflow}): {summary.outcome}")
    if summary.params:
        click.echo(f"parameters: {params_text(summary.params)}")
    columns = [("", "left"), ("estimated", "right"), ("actual", "right"), ("off by", "right")]
    print_table(columns, [(line.name, *cells(line)) for line in lines])
    for sentence in held_notes(plan, lines):
        click.echo(sentence)
    click.echo(hits_note(history.belady_hit_rate, history.best_hit_rate))
    for note in notes:
        click.echo(note)
    print_spent(spent)
    if history.hosts:
        click.echo()
        print_table(HOST_COLUMNS, host_rows(history, summary.wall_s))
    if html is not None:
        click.echo(f"page: {html}")


def host_rows(history: wire.RunHistory, wall_s: float) -> list[tuple[str, ...]]:
    """What each host did, attempts that failed among it. Busy: the jobs' time of all cores' time in the run."""
    return [
        (each["host"], each["node"], str(each["cores"]), str(each["attempts"]), format_duration(each["jobs_s"]), share(each["busy"]))
        for each in hosts_json(history, wall_s)
    ]


def hosts_json(history: wire.RunHistory, wall_s: float) -> list[dict[str, Any]]:
    def told(host: wire.HostOfRun) -> dict[str, Any]:
        spans = [span for span in history.attempts if span.host == host.host]
        jobs_s = sum(span.ended_s - span.begun_s for span in spans)
        busy = jobs_s / (wall_s * host.cores) if wall_s else 0.0
        return {"host": host.host, "node": host.node, "cores": host.cores, "attempts": len(spans), "jobs_s": jobs_s, "busy": busy}

    return [told(host) for host in history.hosts]


def notes_of(cluster: Cluster, plan: Plan, paid: ClusterPrices, table: PriceTable) -> list[str]:
    """The assumptions that the figures rest on."""
    notes = [f"money in {table.currency} by {table.origin} of {table.date}, for {cluster.compute.nodes} {cluster.compute.instance}"]
    if cluster.assumed:
        notes += [f"estimated with the link to {line}" for line in link_lines(plan.links)]
    if cluster.assumed and not plan.links:
        notes.append("estimated with links to the origins as they are assumed, 50 MB/s: a topology file says them (--topology)")
    return [*notes, *missing_notes(paid)]


def budget_notes(summary: wire.RunSummary) -> list[str]:
    return [budget_line(summary.budget, goes_on=False)] if summary.budget is not None else []


def assumed_notes(workflow: Workflow) -> list[str]:
    """Of a run that ended before its lists were made."""
    count = len(standing_jobs(workflow.scatters))
    return [f"{counted(count, 'job')} of the estimate are assumed: the lists that they scatter over were never made"] if count else []


def held_notes(plan: Plan, lines: list[ComparisonRow]) -> list[str]:
    """Whether the run ended when the plan said that nine of ten would."""
    held = range_json(plan, lines)
    if held is None:
        return []
    return [f"the plan said {range_text(plan)}: this run ended {'within that' if held['held'] else 'outside it'}"]


def range_json(plan: Plan, lines: list[ComparisonRow]) -> dict[str, Any] | None:
    took_s = next(line.actual for line in lines if line.name == "makespan")
    if plan.makespan_least_s is None or plan.makespan_most_s is None or took_s is None:
        return None
    held = plan.makespan_least_s <= took_s <= plan.makespan_most_s
    return {"least_s": plan.makespan_least_s, "most_s": plan.makespan_most_s, "held": held}


def hits_note(belady: float | None, best: float | None) -> str:
    if belady is None or best is None:
        return "nothing was read through the I/O nodes, so nothing could be hit"
    return f"a cache that knows the future would hit {share(belady)} by Belady's rule, and none more than {share(best)}"


def cells(line: ComparisonRow) -> tuple[str, str, str]:
    off = line.off
    return (
        value(line.kind, line.estimated),
        value(line.kind, line.actual),
        "" if off is None else f"{off:+.1%}" if abs(off) >= 0.0005 else "0.0%",
    )


def value(kind: str, amount: float | None) -> str:
    if amount is None:
        return "—"
    return TELL.get(kind, hours)(amount)


def share(amount: float) -> str:
    return f"{amount:.1%}"


def count(amount: float) -> str:
    return f"{amount:,.0f}"


def hours(amount: float) -> str:
    return f"{amount:.3g}"


TELL: dict[str, Callable[[float], str]] = {
    "seconds": format_duration,
    "bytes": format_size,
    "money": format_money,
    "share": share,
    "count": count,
}


def print_spent(spent: TimeSpent) -> None:
    click.echo()
    if spent.shares:
        heading, *rows = spent_rows(spent)
        print_table([(name, "right" if at else "left") for at, name in enumerate(heading)], rows)
    for sentence in said_of(spent):
        click.echo(sentence)


def spent_rows(spent: TimeSpent) -> list[tuple[str, ...]]:
    """The heading, the rows that show, and all of them together. None of it where nothing is told."""
    if not spent.shares:
        return []
    rows = [(share.name, share.estimated_s, share.actual_s, spent.more_s(share)) for share in spent.shares if shows(share)]
    estimated_s = sum(share.estimated_s or 0.0 for share in spent.shares)
    actual_s = sum(share.actual_s for share in spent.shares)
    rows.append(("in total", estimated_s, actual_s, actual_s - estimated_s))
    if not spent.compared:
        return [(TIME_SPENT, "actual"), *((name, format_duration(took_s)) for name, _, took_s, _ in rows)]
    shown = [(name, value("seconds", planned_s), format_duration(took_s), more(more_s)) for name, planned_s, took_s, more_s in rows]
    return [(TIME_SPENT, "estimated", "actual", "longer by"), *shown]


def shows(share: Share) -> bool:
    return max(share.estimated_s or 0.0, share.actual_s) >= SHOWN_S


def more(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{'-' if seconds < 0 else '+'}{format_duration(abs(seconds))}" if abs(seconds) >= SHOWN_S else format_duration(0.0)


def said_of(spent: TimeSpent) -> list[str]:
    if spent.largest is not None:
        longest = [f"most of what was not estimated: {spent.words}"]
    else:
        longest = ["nothing took notably longer than estimated"] if spent.compared else []
    return [*longest, *([f"note: {spent.note}"] if spent.note else [])]


def spent_json(spent: TimeSpent) -> dict[str, Any]:
    return {
        "compared": spent.compared,
        "shares": [
            {
                "cause": share.cause,
                "about": share.about,
                "estimated_s": share.estimated_s,
                "actual_s": share.actual_s,
                "more_s": spent.more_s(share),
            }
            for share in spent.shares
        ],
        "largest": None if spent.largest is None else {"cause": spent.largest.cause, "about": spent.largest.about, "text": spent.words},
        "note": spent.note,
    }


def report_json(summary: wire.RunSummary, history: wire.RunHistory, lines: list[ComparisonRow], table: PriceTable) -> dict[str, Any]:
    return {
        "run": summary.run,
        "outcome": summary.outcome,
        "params": summary.params,
        "lines": [
            {"name": line.name, "kind": line.kind, "estimated": line.estimated, "actual": line.actual, "off": line.off} for line in lines
        ],
        "belady_hit_rate": history.belady_hit_rate,
        "best_hit_rate": history.best_hit_rate,
        "hosts": hosts_json(history, summary.wall_s),
        "prices": {"origin": table.origin, "date": table.date, "currency": table.currency},
    }
