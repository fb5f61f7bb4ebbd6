"""Assets called `stager://BUCKET/KEY`: one spelling for each. One rule: imports nothing, since every DAG that is parsed comes by."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Raises ValueError, which Airflow shows as an error of the DAG. `conn@` in front says how it is reached, not what it is."""
    bucket = uri.netloc.rpartition("@")[2]
    if not bucket or ":" in bucket:
        raise ValueError("stager:// needs a bucket: stager://BUCKET/KEY")
    parts = [part for part in uri.path.split("/") if part]
    if not parts:
        raise ValueError(f"stager://{bucket} needs a key: stager://{bucket}/KEY")
    if ".." in parts or "." in parts:
        raise ValueError(f"stager://{bucket}{uri.path}: a key does not have . or .. in it")
    return uri._replace(netloc=bucket, path="/" + "/".join(parts))
