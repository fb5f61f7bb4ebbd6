"""A run measures the ways to its origins: the next plan, estimate and report go by that, and say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed.link import Link
from tests.testbed.s3 import S3
from tests.testbed.stager import Stager

# Six seconds each way: what a busy machine adds is little beside them.
RATE, SIZE = 1_000_000, 6_000_000
TEXT = """\
stager: 1
name: far
origins:
  far: "s3://{bucket}"
jobs:
  copy:
    run: cp in.bin out.bin
    inputs: {{in.bin: "far:in.bin"}}
    outputs: {{out.bin: {{to: "far:", on_exists: replace}}}}
"""


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


def test_the_second_plan_knows_the_link_that_the_first_run_used(
    stager: Stager, short_dir: Path, s3: S3, bucket: str, link: Callable[..., Link]
) -> None:
    s3.client().put_object(Bucket=bucket, Key="in.bin", Body=bytes(SIZE))
    stager.env = s3.credentials() | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{link(s3.port, bytes_per_s=RATE).port}"}
    workflow = short_dir / "far.yml"
    workflow.write_text(TEXT.format(bucket=bucket))
    (guessed,) = stager.json("plan", workflow)["links"]
    assert (guessed["fetch_bytes_per_s"], guessed["fetch_basis"], guessed["upload_basis"]) == (50e6, "default", "default")
    assert "assumed (50 MB/s" in stager.run("cost-estimate", workflow).stdout
    stager.run("submit", workflow, "--quiet")
    (found,) = stager.json("plan", workflow)["links"]
    assert (found["fetch_basis"], found["upload_basis"], found["latency_basis"]) == ("measured", "measured", "default")
    assert found["fetch_bytes_per_s"] == pytest.approx(RATE, rel=0.25)
    assert found["upload_bytes_per_s"] == pytest.approx(RATE, rel=0.4)
    assert stager.json("cost-estimate", workflow, "--draws", "0")["links"] == [found]
    assert "(measured)" in stager.run("plan", workflow).stdout
    assert "assumed (50 MB/s" not in stager.run("cost-estimate", workflow).stdout
    other = short_dir / "other.yml"
    other.write_text(TEXT.format(bucket=bucket).replace(f"s3://{bucket}", f"s3://{bucket}/results").replace("far:in.bin", "here:in.bin"))
    (short_dir / "in.bin").write_bytes(b"of another workflow")
    assert {link["origin"]: link["fetch_basis"] for link in stager.json("plan", other)["links"]}["far"] == "measured"
    # What was measured since does not change what a run was predicted: its plan knows what it was made with.
    (run,) = [each["run"] for each in stager.json("runs")]
    assert "link to far: fetches 50 MB/s (assumed), uploads 50 MB/s (assumed)" in stager.run("report", run).stdout
