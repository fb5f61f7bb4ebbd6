"""`stager prices show | refresh`."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import click

from stager.adapters.prices import pricing_client, refreshed, to_yaml
from stager.cli.options import json_option, prices_option, print_json
from stager.cli.tables import print_table
from stager.model.prices import GB_BYTES, Price, PriceTable, Tier
from stager.readers.prices import packaged_prices, read_prices


def table_of(path: Path | None) -> PriceTable:
    return read_prices(path) if path is not None else packaged_prices()


@click.group(name="prices")
def command() -> None:
    """Print the prices of nodes, egress, requests and storage, with the date and the source of each figure.

    \b
    Example:
      stager prices show
      stager prices refresh --output prices.yml
      stager cost-estimate workflow.yml --prices prices.yml
    """


@command.command(epilog="\b\nExample:\n  stager prices show --prices mine.yml --json")
@prices_option
@json_option
def show(prices: Path | None, as_json: bool) -> None:
    """Print the prices that estimates are made with."""
    table = table_of(prices)
    if as_json:
        print_json(asdict(table))
        return
    click.echo(f"{table.origin} of {table.date}, in {table.currency}")
    sources = list(dict.fromkeys(row.source for row in (*table.instances, *table.egress, *table.requests, *table.storage)))
    rows = [
        (row.name, f"{row.per_hour:g} an hour" + (", with a disk" if row.own_disk else ""), *place(row, sources)) for row in table.instances
    ]
    rows += [("egress", tiers_text(row.tiers), *place(row, sources)) for row in table.egress]
    rows += [
        ("requests", f"{row.reads_per_1000:g} for 1000 reads, {row.writes_per_1000:g} for 1000 writes", *place(row, sources))
        for row in table.requests
    ]
    rows += [(f"{row.kind} storage", f"{row.per_gb_month:g} a GB and month", *place(row, sources)) for row in table.storage]
    print_table(
        [("what", "left"), ("price", "left"), ("provider", "left"), ("region", "left"), ("as of", "left"), ("source", "right")], rows
    )
    for number, source in enumerate(sources, 1):
        click.echo(f"[{number}] {source}")


def place(row: Price, sources: list[str]) -> tuple[str, str, str, str]:
    return row.provider, row.region, row.date, f"[{sources.index(row.source) + 1}]"


def tiers_text(tiers: tuple[Tier, ...]) -> str:
    words = [
        f"{tier.per_gb:g} to {tier.up_to_bytes // GB_BYTES} GB" if tier.up_to_bytes is not None else f"{tier.per_gb:g} above"
        for tier in tiers
    ]
    return "a GB: " + ", ".join(words)


@command.command(epilog="\b\nExample:\n  AWS_PROFILE=lab stager prices refresh --output prices.yml")
@prices_option
@click.option("--output", required=True, type=click.Path(dir_okay=False, path_type=Path), help="write the new table there")
def refresh(prices: Path | None, output: Path) -> None:
    """Ask AWS what its nodes cost today, and write a table with that. Everything else stays as it is, with its old date."""
    table, untold = refreshed(table_of(prices), pricing_client(), time.strftime("%Y-%m-%d"))
    output.write_text(to_yaml(table), encoding="utf-8")
    told = sum(row.provider == "aws" for row in table.instances) - len(untold)
    click.echo(f"{output}: {told} prices of AWS as of {table.date}; use it with --prices {output}")
    if untold:
        click.echo(f"AWS told no price, so these stay as they were: {', '.join(untold)}", err=True)
