"""The founding papers' tables S0 and S1: what they give beside what our formulas compute, and the pictures of both.

`--write` puts the tables into docs/evaluation.md, between its marks, and the pictures into docs/figures/. Same formulas, same bytes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from textwrap import wrap

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stager.adapters.plots import figure, save
from stager.model.prices import ClusterPrices, prices_for
from stager.planning import iomodel
from stager.planning.cost import Bill, Usage, bill_of
from stager.readers.prices import packaged_prices

PROJECT = Path(__file__).resolve().parents[1]
EVALUATION, FIGURES = PROJECT / "docs" / "evaluation.md", PROJECT / "docs" / "figures"
PAGE_WIDTH = 100
BEGIN, END = "<!-- bench-model begins: written by `make bench-model ARGS=--write` -->", "<!-- bench-model ends -->"

# S0: 20 compute nodes, 20 I/O nodes, 135 MB/s over the Internet and for each node inside, 100 GB.
NODES, MB_WAN, MB_NODE, DATA_MB = 20, 135.0, 135.0, 102_400.0
# Hit rate -> (MB/s, dollars) of the check that came with the papers; direct moves at the rate of the WAN and pays for compute nodes only.
PAPERS = {0.0: (129, 3.58), 0.25: (171, 2.69), 0.5: (257, 1.79), 0.75: (514, 0.90), 1.0: (2700, 0.17)}
PAPERS_DIRECT = 1.71
# S1: MB and seconds of three applications: read, written, read again, compute time.
APPLICATIONS = {
    "Montage": (1558.082295, 574.355213, 1500.107713, 18.680705),
    "POV-Ray": (681.081228, 67.83515, 678.155227, 1150.97979),
    "Supernovae": (3283.723596, 1919.491286, 2429.888509, 1351.987268),
}
IO_NODES, CLIENTS = 8, (1, 2, 4, 8, 16, 32)


def buffered(hit_rate: float, prices: ClusterPrices) -> tuple[float, Bill]:
    rate = iomodel.throughput(hit_rate, NODES * MB_NODE, MB_WAN)
    return rate, bill_of(Usage(DATA_MB / rate, NODES, NODES), prices)


def direct(prices: ClusterPrices) -> Bill:
    return bill_of(Usage(DATA_MB / MB_WAN, NODES, 0), prices)


def gain(name: str, clients: int) -> tuple[float, float]:
    """(seconds with direct I/O, seconds with I/O nodes) of one of so many clients that run the same application."""
    read, written, again, compute_s = APPLICATIONS[name]
    share = MB_WAN / clients
    inside = iomodel.client_throughput(MB_NODE, clients, IO_NODES)
    return iomodel.application_time_s(read + written, compute_s, share), iomodel.staged_time_s(
        read - again, again + written, compute_s, share, inside
    )


def tables(prices: ClusterPrices) -> Iterator[str]:
    base = direct(prices)
    yield f"**S0**: {NODES} compute and {NODES} I/O nodes, m3.xlarge at ${prices.compute.per_hour}; 135 MB/s to the Internet and each node;"
    yield "100 GB. `papers` is the check of the papers' formula that came with them, `ours` is `planning/iomodel.py` and `planning/cost.py`"
    yield "with the price table of the package."
    yield ""
    yield "| hit rate | MB/s, papers | ours | dollars, papers | ours | faster than direct | cheaper than direct |"
    yield "|---|---|---|---|---|---|---|"
    yield f"| direct I/O | 135 | {MB_WAN:.0f} | {PAPERS_DIRECT} | {base.total:.2f} | | |"
    for hit_rate, (rate_papers, money_papers) in PAPERS.items():
        rate, bill = buffered(hit_rate, prices)
        figures = f"{rate_papers:,} | {rate:,.0f} | {money_papers:.2f} | {bill.total:.2f}"
        yield f"| {hit_rate:.0%} | {figures} | {rate / MB_WAN:.1f} | {base.total / bill.total:.1f} |"
    even = next(step / 1000 for step in range(1001) if buffered(step / 1000, prices)[1].total <= base.total)
    yield ""
    yield "Published: about 20x direct I/O at 100 % hits, cheaper above about 50 %, 4-20x faster and 2-12x cheaper."
    yield f"Ours: {buffered(1, prices)[0] / MB_WAN:.0f}x, cheaper from {even:.0%} on."
    yield ""
    yield f"**S1**: three applications, one on each of n compute nodes, with {IO_NODES} I/O nodes and the measured profiles of the papers."
    yield "What is read for the first time passes the WAN as before, what is read again or written the I/O nodes, each client choosing one"
    yield "at random (`iomodel.client_throughput`). Seconds with direct I/O -> with I/O nodes. The papers print their results as curves and"
    yield "say that all three improve, Montage most, POV-Ray least."
    yield ""
    yield "| | near by | " + " | ".join(f"n = {clients}" for clients in CLIENTS) + " |"
    yield "|---|---|" + "---|" * len(CLIENTS)
    for name, (read, written, again, _) in APPLICATIONS.items():
        cells = [f"{before:,.0f} -> {after:,.0f} ({before / after:.1f}x)" for before, after in (gain(name, clients) for clients in CLIENTS)]
        yield f"| {name} | {(again + written) / (read + written):.0%} | " + " | ".join(cells) + " |"
    yield ""
    yield "![S0: throughput and cost by hit rate](figures/s0.svg)"
    yield "![S1: what one client gets, and what applications gain](figures/s1.svg)"


def draw_s0(prices: ClusterPrices) -> None:
    made, (left, right) = figure(2)
    steps = [step / 100 for step in range(101)]
    left.plot(steps, [buffered(step, prices)[0] for step in steps], color="#4477aa", label="ours")
    left.plot(list(PAPERS), [rate for rate, _ in PAPERS.values()], "o", color="#ee6677", label="papers")
    left.axhline(MB_WAN, color="#bbbbbb", linestyle="--", label="direct I/O")
    left.set_yscale("log")
    left.set_ylabel("MB/s")
    right.plot(steps, [buffered(step, prices)[1].total for step in steps], color="#4477aa", label="ours")
    right.plot(list(PAPERS), [money for _, money in PAPERS.values()], "o", color="#ee6677", label="papers")
    right.axhline(direct(prices).total, color="#bbbbbb", linestyle="--", label="direct I/O")
    right.set_ylabel("dollars for 100 GB")
    right.set_ylim(bottom=0)
    for chart in (left, right):
        chart.set_xlabel("hit rate")
        chart.legend(frameon=False)
    made.suptitle(f"S0: {NODES} compute nodes, {NODES} I/O nodes")
    save(made, FIGURES / "s0.svg")


def draw_s1() -> None:
    made, (left, right) = figure(2)
    clients = range(1, 33)
    for io_nodes, colour in zip((1, 2, 4, 8), ("#bbbbbb", "#66ccee", "#4477aa", "#222255"), strict=True):
        left.plot(clients, [iomodel.client_throughput(MB_NODE, n, io_nodes) for n in clients], color=colour, label=f"{io_nodes} I/O nodes")
    left.set_ylabel("MB/s that one client can expect")
    for name, colour in zip(APPLICATIONS, ("#4477aa", "#ccbb44", "#ee6677"), strict=True):
        right.plot(clients, [gain(name, n)[0] / gain(name, n)[1] for n in clients], color=colour, label=name)
    right.set_ylabel(f"times faster with {IO_NODES} I/O nodes")
    right.set_ylim(bottom=0)
    for chart in (left, right):
        chart.set_xlabel("compute nodes")
        chart.legend(frameon=False)
    made.suptitle("S1: sharing I/O nodes")
    save(made, FIGURES / "s1.svg")


def rewritten(page: str, section: str) -> str:
    before, rest = page.split(BEGIN + "\n", 1)
    return f"{before}{BEGIN}\n{section}\n{END}{rest.split(END, 1)[1]}"


def section_of() -> str:
    """Sentences are wrapped as pages are; tables and pictures keep their lines."""
    lines = tables(prices_for(packaged_prices(), "m3.xlarge", "m3.xlarge"))
    made = []
    for is_text, some in groupby(lines, lambda line: bool(line) and not line.startswith(("|", "!"))):
        group = list(some)
        made += wrap(" ".join(group), PAGE_WIDTH, break_long_words=False, break_on_hyphens=False) if is_text else group
    return "\n".join(made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="into docs/evaluation.md and docs/figures/; needs matplotlib")
    section = section_of()
    print(section)
    if parser.parse_args().write:
        FIGURES.mkdir(exist_ok=True)
        draw_s0(prices_for(packaged_prices(), "m3.xlarge", "m3.xlarge"))
        draw_s1()
        EVALUATION.write_text(rewritten(EVALUATION.read_text(), section))


if __name__ == "__main__":
    main()
