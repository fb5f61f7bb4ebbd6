"""Price tables: the one that is shipped, those of users with all that can be wrong with them, what AWS says today (stubbed)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from click.testing import CliRunner

from stager.adapters import prices as aws
from stager.cli.prices import command
from stager.model.errors import Denied, InvalidInput, Transient
from stager.model.prices import GB_BYTES, InstancePrice, PriceTable, RequestPrice, Tier, prices_for
from stager.readers.prices import packaged_prices, parse_prices
from tests.testbed.wheel import files_of_the_wheel

PROJECT = Path(__file__).parents[2]
GOOD = """
stager-prices: 1
date: 2026-11-22
sources: {us: "our own meter"}
instances:
  - {name: small, provider: lab, region: cellar, per_hour: 0.5, source: us}
egress:
  - {provider: lab, region: cellar, source: us, tiers: [{up_to: 1 GB, per_gb: 0}, {per_gb: 2}]}
"""


def test_the_shipped_table_is_sound_and_says_where_each_figure_is_from() -> None:
    table = packaged_prices()
    rows = [*table.instances, *table.egress, *table.requests, *table.storage]
    assert len(rows) >= 35
    for row in rows:
        assert len(row.source) > 20, row
        assert re.fullmatch(r"20[0-9]{2}(-[0-9]{2}){0,2}", row.date), row
        assert "not verified" in row.source or "paper" in row.source, "nothing here was looked up at a provider"
    assert {row.provider for row in table.instances} == {"aws", "gcp", "azure"} == {row.provider for row in table.egress}
    assert table.instance("m3.xlarge").per_hour == 0.405
    prices = prices_for(table, "m6i.xlarge", "i3.xlarge")
    assert (prices.missing, prices.io.own_disk, prices.egress[0]) == ((), True, Tier(100 * GB_BYTES, 0.0))
    elsewhere = {name: prices_for(table, name, name).missing for name in ("n2-standard-4", "Standard_D4s_v5")}
    assert elsewhere == {"n2-standard-4": (), "Standard_D4s_v5": ("volumes",)}


def test_the_table_travels_in_the_wheel() -> None:
    assert "stager/readers/prices.yml" in files_of_the_wheel()


def test_the_example_of_the_document_is_read() -> None:
    text = (PROJECT / "docs" / "formats" / "prices.md").read_text()
    table = parse_prices(text.split("```yaml\n")[1].split("```")[0], "prices.md")
    assert table.instance("m6i.xlarge").source == "our contract of 2026, appendix 2"
    assert table.instance("lab-node").billed_at_least_s == 0
    assert [row.kind for row in table.storage] == ["object", "volume"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("stager-prices: 1", "stager-prices: 2", "p.yml:2:16: stager-prices: version '2' is not known here; write 'stager-prices: 1'"),
        ("date: 2026-11-22", "date: today", "p.yml:3:7: date: 'today' is not a date; write 2026"),
        ("per_hour: 0.5", "per_hour: $0.5", "p.yml:6:60: instances[0].per_hour: '$0.5' is not a price; write a number"),
        ("per_hour: 0.5", f"per_hour: {'9' * 400}", "99' is not a price; write a number"),
        ("{up_to: 1 GB, per_gb: 0}", f"{{up_to: {'9' * 5000} GB, per_gb: 0}}", "egress[0].tiers[0].up_to: '999"),
        ("per_hour: 0.5, ", "", "p.yml:6:5: instances[0].per_hour: 'per_hour' is missing; every price has one"),
        (", source: us}", "}", "instances[0].source: 'source' is missing"),
        ("per_hour", "per_hours", "instances[0].per_hours: unknown key; did you mean 'per_hour'?"),
        ("{up_to: 1 GB, per_gb: 0}", "{per_gb: 0}", "egress[0].tiers: tiers go up, each with 'up_to' but the last"),
        ("{per_gb: 2}", "{up_to: 1 GB, per_gb: 2}", "egress[0].tiers: tiers go up, each with 'up_to' but the last"),
        (
            "egress:",
            "  - {name: small, provider: lab, region: cellar, per_hour: 1, source: us}\negress:",
            "lab cellar small has a price already",
        ),
        (GOOD, "", "p.yml:1:1: stager-prices: the version is missing; write 'stager-prices: 1'"),
        ("egress:", "storage: [{kind: disc, provider: a, region: b, per_gb_month: 1, source: c}]\negress:", "'disc' is no kind of storage"),
    ],
)
def test_what_is_wrong_is_said_with_line_key_and_fix(old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_prices(GOOD.replace(old, new, 1), "p.yml")
    assert said in caught.value.message


def product(*prices: tuple[str, str]) -> str:
    dimensions = {str(number): {"unit": unit, "pricePerUnit": {"USD": usd}} for number, (unit, usd) in enumerate(prices)}
    return json.dumps({"terms": {"OnDemand": {"t": {"priceDimensions": dimensions}}}})


def stubbed() -> tuple[Any, Stubber]:
    client = boto3.client("pricing", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    return client, Stubber(client)


def asked(name: str) -> dict[str, Any]:
    wanted = {"instanceType": name, "regionCode": "us-east-1", "operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in {**wanted, "capacitystatus": "Used"}.items()]
    return {"ServiceCode": "AmazonEC2", "Filters": filters, "FormatVersion": "aws_v1", "MaxResults": 10}


def before() -> PriceTable:
    place = {"region": "us-east-1", "date": "2020", "source": 'a guess "of ours"'}
    rows = (
        InstancePrice(name="m6i.xlarge", provider="aws", per_hour=0.1, **place),
        InstancePrice(name="gone.xlarge", provider="aws", per_hour=0.2, **place),
        InstancePrice(name="n2-standard-4", provider="gcp", per_hour=0.3, **place),
    )
    requests = (RequestPrice(provider="aws", reads_per_1000=0.0004, writes_per_1000=0.005, **place),)
    return PriceTable("USD", "2020", rows, egress=packaged_prices().egress, requests=requests)


def test_refresh_takes_what_aws_says_and_keeps_and_names_the_rest() -> None:
    client, stub = stubbed()
    answer = product(("Hrs", "0.0000000000"), ("Hrs", "0.1920000000"), ("Quantity", "7"))
    stub.add_response("get_products", {"PriceList": [answer]}, asked("m6i.xlarge"))
    stub.add_response("get_products", {"PriceList": []}, asked("gone.xlarge"))
    with stub:
        table, untold = aws.refreshed(before(), client, "2026-11-23")
    stub.assert_no_pending_responses()
    assert untold == ["gone.xlarge in us-east-1"]
    assert [(row.per_hour, row.date) for row in table.instances] == [(0.192, "2026-11-23"), (0.2, "2020"), (0.3, "2020")]
    assert table.instance("m6i.xlarge").source == aws.SOURCE
    written = parse_prices(aws.to_yaml(table), "again")
    assert (written.instances, written.egress, written.requests) == (table.instances, table.egress, table.requests)


@pytest.mark.parametrize(("code", "kind"), [("AccessDeniedException", Denied), ("ThrottlingException", Transient)])
def test_a_refusal_of_aws_says_who_must_act(code: str, kind: type[Exception]) -> None:
    client, stub = stubbed()
    stub.add_client_error(
        "get_products", code, "no", expected_params={"ServiceCode": ANY, "Filters": ANY, "FormatVersion": ANY, "MaxResults": ANY}
    )
    with stub, pytest.raises(kind, match="AWS did not tell the price of m6i.xlarge"):
        aws.refreshed(before(), client, "2026-11-23")


def test_refresh_without_credentials_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(Denied, match="set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"):
        aws.pricing_client()


@pytest.mark.parametrize(
    ("variables", "config", "said"),
    [
        ({"AWS_PROFILE": "nobody"}, "", "nobody"),
        ({"AWS_ACCESS_KEY_ID": "x"}, "", "missing: AWS_SECRET_ACCESS_KEY"),
        ({}, "[broken\n", "Unable to parse config file"),
    ],
)
def test_credentials_that_cannot_be_used_are_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], config: str, said: str
) -> None:
    (tmp_path / "config").write_text(config)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**variables, "AWS_CONFIG_FILE": str(tmp_path / "config"), "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Denied, match=said):
        aws.pricing_client()


def test_a_login_that_has_ended_is_denied_and_a_network_that_fails_is_not() -> None:
    botocore = pytest.importorskip("botocore.exceptions")
    assert isinstance(aws.failure_of(botocore.SSOTokenLoadError(error_msg="gone"), "m6i.xlarge"), Denied)
    assert isinstance(aws.failure_of(botocore.EndpointConnectionError(endpoint_url="https://x"), "m6i.xlarge"), Transient)
    assert isinstance(aws.failure_of(botocore.ReadTimeoutError(endpoint_url="https://x"), "m6i.xlarge"), Transient)


def test_show_prints_every_row_with_its_source(tmp_path: Path) -> None:
    path = tmp_path / "p.yml"
    path.write_text(GOOD)
    shown = CliRunner().invoke(command, ["show", "--prices", str(path)])
    assert shown.exit_code == 0
    assert "0.5 an hour" in shown.output
    assert "a GB: 0 to 1 GB, 2 above" in shown.output
    assert "[1] our own meter" in shown.output
    as_json = json.loads(CliRunner().invoke(command, ["show", "--prices", str(path), "--json"]).output)
    assert as_json["instances"][0]["per_hour"] == 0.5
