"""URIs of assets: ours in one spelling, those of others as they were."""

from __future__ import annotations

import pytest
from airflow.sdk import Asset


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("stager://bucket/key", "stager://bucket/key"),
        ("stager://bucket//a//b/", "stager://bucket/a/b"),
        ("stager://conn@bucket/a", "stager://bucket/a"),
        ("sftp://lab.example.org:22/data/a.fits", "sftp://lab.example.org:22/data/a.fits"),
        ("s3://bucket/key", "s3://bucket/key"),
        ("file:///data/a", "file:///data/a"),
    ],
)
def test_uris_of_assets(written: str, kept: str) -> None:
    assert Asset(written).uri == kept


@pytest.mark.parametrize("uri", ["stager:///key", "stager://bucket", "stager://bucket/../other/key", "stager://host:80/key"])
def test_a_uri_that_is_none_is_an_error_of_the_dag(uri: str) -> None:
    with pytest.raises(ValueError, match="stager://"):
        Asset(uri)


def test_size_hints_come_through() -> None:
    assert Asset("stager://b/k", extra={"size_bytes": 5}).extra == {"size_bytes": 5}
