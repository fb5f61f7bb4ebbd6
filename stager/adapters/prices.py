"""Asks AWS what nodes cost today, through boto3's Pricing API, and writes a price table.

May know: boto3 (from the caller's environment, not one of ours), the model. One rule: what AWS did not answer is kept as it was, with its
old date and source, and named.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from stager.model.errors import Denied, InvalidInput, StagerError, Transient
from stager.model.prices import GB_BYTES, InstancePrice, PriceTable

# The Pricing API is served in a few regions only, for all.
API_REGION = "us-east-1"
SOURCE = "AWS Price List API, Linux on demand, shared tenancy"
# Of errors that a key of another kind, or none, would not get.
DENIALS = frozenset({"AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException"})


def pricing_client() -> Any:
    """Raises InvalidInput where boto3 is missing, Denied where it finds no credentials that can be used."""
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError:
        text = "`stager prices refresh` needs boto3, which is not installed here; `pip install boto3`, or write a table by hand"
        raise InvalidInput(f"{text} (docs/formats/prices.md)", code="boto3_missing") from None
    wanted = "AWS answers about prices only with credentials"
    remedy = "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, of a user who may do pricing:GetProducts"
    try:
        session = boto3.session.Session()
        found = session.get_credentials()
        client = session.client("pricing", region_name=API_REGION)
    except BotoCoreError as problem:
        raise Denied(f"{wanted}, and yours cannot be used ({problem}); {remedy}", code="auth_failed") from problem
    if found is None:
        raise Denied(f"{wanted}, and none were found; {remedy}", code="auth_failed")
    return client


def refreshed(table: PriceTable, client: Any, today: str) -> tuple[PriceTable, list[str]]:
    """The table with the instances of AWS as they cost today, and the names of those that AWS did not tell. Raises Denied or Transient."""
    rows: list[InstancePrice] = []
    untold: list[str] = []
    for row in table.instances:
        told = per_hour(client, row) if row.provider == "aws" else None
        if told is not None:
            row = replace(row, per_hour=told, date=today, source=SOURCE, billed_every_s=1.0, billed_at_least_s=60.0)
        elif row.provider == "aws":
            untold.append(f"{row.name} in {row.region}")
        rows.append(row)
    return replace(table, instances=tuple(rows), date=today), untold


def per_hour(client: Any, row: InstancePrice) -> float | None:
    """None where AWS knows of no such price. Variants of one name (other operating systems, licences) are filtered out."""
    wanted = {
        "instanceType": row.name,
        "regionCode": row.region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in wanted.items()]
    try:
        answer = client.get_products(ServiceCode="AmazonEC2", Filters=filters, FormatVersion="aws_v1", MaxResults=10)
    except Exception as problem:
        raise failure_of(problem, row.name) from problem
    found = sorted(price for product in answer["PriceList"] for price in hourly(json.loads(product)))
    return found[0] if found else None


def failure_of(problem: Exception, name: str) -> StagerError:
    """An error that botocore raises by itself is about credentials, unless it is about the network."""
    from botocore import exceptions as boto

    own = isinstance(problem, boto.BotoCoreError) and not isinstance(problem, boto.ConnectionError | boto.HTTPClientError)
    code = (getattr(problem, "response", None) or {}).get("Error", {}).get("Code", "")
    text = f"AWS did not tell the price of {name}: {problem}"
    if own or code in DENIALS:
        return Denied(f"{text}; give credentials that may do pricing:GetProducts", code="denied", subject=name)
    return Transient(f"{text}; try again later", code="origin_unreachable", subject=name)


def hourly(product: dict[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            price = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if dimension.get("unit") == "Hrs" and price > 0:
                yield price


def to_yaml(table: PriceTable) -> str:
    """As readers/prices.py reads it: a line per price. JSON strings are YAML strings."""
    lines = ["# Written by `stager prices refresh`.", "stager-prices: 1", f"date: {table.date}", f"currency: {table.currency}"]
    for section in ("instances", "egress", "requests", "storage"):
        rows = getattr(table, section)
        lines += [f"{section}:", *(f"  - {row_text(row)}" for row in rows)] if rows else []
    return "\n".join(lines) + "\n"


def row_text(row: Any) -> str:
    pairs = [("provider", row.provider), ("region", row.region)]
    if isinstance(row, InstancePrice):
        pairs = [("name", row.name), *pairs, ("per_hour", row.per_hour), ("own_disk", row.own_disk)]
        pairs += [("billed_every", row.billed_every_s), ("billed_at_least", row.billed_at_least_s)]
    elif hasattr(row, "tiers"):
        pairs += [("tiers", list(tier_pairs(row.tiers)))]
    else:
        names = ("kind", "per_gb_month", "reads_per_1000", "writes_per_1000")
        pairs += [(name, getattr(row, name)) for name in names if hasattr(row, name)]
    return "{" + ", ".join(f"{name}: {value_text(value)}" for name, value in [*pairs, ("date", row.date), ("source", row.source)]) + "}"


def tier_pairs(tiers: Iterable[Any]) -> Iterator[str]:
    for tier in tiers:
        ceiling = f"up_to: {tier.up_to_bytes // GB_BYTES} GB, " if tier.up_to_bytes is not None else ""
        yield f"{{{ceiling}per_gb: {value_text(tier.per_gb)}}}"


def value_text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(value) + "]"
    if isinstance(value, float):
        return f"{value:.9f}".rstrip("0").rstrip(".")
    return json.dumps(value, ensure_ascii=False)
