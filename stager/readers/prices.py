"""Reads a price table: the one of the package, or a user's own. docs/formats/prices.md is the format.

May know: lines, the form, the model. One rule: a price without a date and a source is no price; what is wrong is said all at once, by line
and key.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from stager.model.prices import GB_BYTES, EgressPrice, InstancePrice, PriceTable, RequestPrice, StoragePrice, Tier
from stager.model.units import parse_size_bytes
from stager.readers.lines import Findings, Node, compose, read_text
from stager.readers.native_form import Fields, Form

VERSION = "1"
TOP = ("stager-prices", "date", "currency", "sources", "instances", "egress", "requests", "storage")
PLACE = ("provider", "region", "date", "source")
DATE = re.compile(r"[0-9]{4}(-[0-9]{2}(-[0-9]{2})?)?")
MONEY = re.compile(r"[0-9]{1,12}(\.[0-9]{1,12})?")
BINARY_GB = re.compile(r"\s*([0-9]{1,6})\s*(GB|TB)\s*")
T = TypeVar("T")


def packaged_prices() -> PriceTable:
    """The table that came with this version."""
    source = files("stager.readers").joinpath("prices.yml")
    return parse_prices(source.read_text(encoding="utf-8"), "the table of this version")


def read_prices(path: Path) -> PriceTable:
    """Raises InvalidInput with everything that is wrong with it."""
    return parse_prices(read_text(path, str(path)), str(path))


def parse_prices(text: str, shown: str) -> PriceTable:
    findings = Findings(shown)
    root = compose(text if text.strip() else "{}", shown, findings)
    form = Form(findings)
    top = form.fields(root, "", TOP)
    check_head(top, findings)
    sources = {key.text: form.text(value, f"sources.{key.text}") for key, value in form.pairs(top.get("sources"), "sources")}
    reader = Rows(form, top.text("date"), sources)
    table = PriceTable(
        currency=top.text("currency", "USD"),
        date=top.text("date"),
        instances=reader.all(top, "instances", instance_of, ("name", "per_hour", "billed_every", "billed_at_least", "own_disk")),
        egress=reader.all(top, "egress", egress_of, ("tiers",)),
        requests=reader.all(top, "requests", requests_of, ("reads_per_1000", "writes_per_1000")),
        storage=reader.all(top, "storage", storage_of, ("kind", "per_gb_month")),
        origin=shown,
    )
    reader.check_twice(table)
    findings.raise_if_any()
    return table


def check_head(top: Fields, findings: Findings) -> None:
    if top.text("stager-prices") != VERSION:
        seen = top.text("stager-prices")
        what = f"version {seen!r} is not known here" if seen else "the version is missing"
        findings.note(top.place("stager-prices"), "stager-prices", f"{what}; write 'stager-prices: {VERSION}'")
    top.parsed("date", date_of, "")
    if "date" not in top:
        findings.note(top.node.place, "date", "the day of the table is missing; write it as in 'date: 2026-11-22'")


class Rows:
    """Lists of prices: each row has its place, its date (or the table's) and its source, by key or in words."""

    def __init__(self, form: Form, date: str, sources: dict[str, str]) -> None:
        self.form, self.date, self.sources = form, date, sources
        self.nodes: dict[int, Node] = {}

    def all(self, top: Fields, section: str, make: Callable[[Rows, Fields], T], own: tuple[str, ...]) -> tuple[T, ...]:
        found = []
        for node, key in self.form.members(top.get(section), section):
            if self.form.expect(node, key, "mapping"):
                made = make(self, self.form.fields(node, key, (*PLACE, *own)))
                self.nodes[id(made)] = node
                found.append(made)
        return tuple(found)

    def place(self, row: Fields) -> dict[str, str]:
        for name in ("provider", "region", "source"):
            self.need(row, name)
        source = row.text("source")
        return {
            "provider": row.text("provider"),
            "region": row.text("region"),
            "date": row.parsed("date", date_of, self.date),
            "source": self.sources.get(source, source),
        }

    def need(self, row: Fields, name: str) -> None:
        if row.get(name) is None:
            self.form.findings.note(row.node.place, row.at(name), f"{name!r} is missing; every price has one")

    def money(self, row: Fields, name: str) -> float:
        self.need(row, name)
        return row.parsed(name, money_of, 0.0)

    def check_twice(self, table: PriceTable) -> None:
        seen: set[tuple[str, ...]] = set()
        for kind in ("instances", "egress", "requests", "storage"):
            for row in getattr(table, kind):
                name = getattr(row, "name", getattr(row, "kind", ""))
                key = (kind, row.provider, row.region, name)
                if key in seen:
                    what = " ".join(part for part in (row.provider, row.region, name) if part)
                    self.form.findings.note(self.nodes[id(row)].place, kind, f"{what} has a price already; keep one of them")
                seen.add(key)


def instance_of(rows: Rows, row: Fields) -> InstancePrice:
    rows.need(row, "name")
    return InstancePrice(
        **rows.place(row),
        name=row.text("name"),
        per_hour=rows.money(row, "per_hour"),
        billed_every_s=row.duration("billed_every", 1.0) or 0.0,
        billed_at_least_s=row.duration("billed_at_least", 60.0) or 0.0,
        own_disk=row.boolean("own_disk", False),
    )


def egress_of(rows: Rows, row: Fields) -> EgressPrice:
    rows.need(row, "tiers")
    tiers: list[Tier] = []
    for node, key in rows.form.members(row.get("tiers"), row.at("tiers")):
        if rows.form.expect(node, key, "mapping"):
            tier = rows.form.fields(node, key, ("up_to", "per_gb"))
            tiers.append(Tier(tier.parsed("up_to", metered_bytes, None), rows.money(tier, "per_gb")))
    ceilings = [tier.up_to_bytes for tier in tiers]
    closed = [ceiling for ceiling in ceilings[:-1] if ceiling is not None]
    if tiers and (ceilings[-1] is not None or len(closed) < len(tiers) - 1 or closed != sorted(set(closed))):
        rows.form.findings.note(
            row.place("tiers"), row.at("tiers"), "tiers go up, each with 'up_to' but the last, which is for all the rest"
        )
    return EgressPrice(**rows.place(row), tiers=tuple(tiers))


def requests_of(rows: Rows, row: Fields) -> RequestPrice:
    reads, writes = rows.money(row, "reads_per_1000"), rows.money(row, "writes_per_1000")
    return RequestPrice(**rows.place(row), reads_per_1000=reads, writes_per_1000=writes)


def storage_of(rows: Rows, row: Fields) -> StoragePrice:
    rows.need(row, "kind")
    return StoragePrice(**rows.place(row), kind=row.parsed("kind", kind_of, ""), per_gb_month=rows.money(row, "per_gb_month"))


def kind_of(text: str) -> str:
    if text not in ("object", "volume"):
        raise ValueError(f"{text!r} is no kind of storage; write object (a bucket) or volume (a disk)")
    return text


def money_of(text: str) -> float:
    if not MONEY.fullmatch(text):
        raise ValueError(f"{text!r} is not a price; write a number of 0 or more without a currency, as in 0.192")
    return float(text)


def date_of(text: str) -> str:
    if not DATE.fullmatch(text):
        raise ValueError(f"{text!r} is not a date; write 2026, 2026-11 or 2026-11-22")
    return text


def metered_bytes(text: str) -> int:
    """GB and TB here are those of the bills, powers of two; everything else as elsewhere."""
    match = BINARY_GB.fullmatch(text)
    if match:
        return int(match[1]) * (GB_BYTES if match[2] == "GB" else GB_BYTES * 1024)
    return parse_size_bytes(text)
