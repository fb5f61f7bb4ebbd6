"""`stager://BUCKET/KEY` for fsspec: the objects that `stager serve` keeps for a tenant, in pandas, dask, Airflow and whatever else opens
files by fsspec.

May know: stager.client, obstore, fsspec. One rule: a client like the plugins; it decides nothing, and what it promises of an object is what
the I/O node's S3 endpoint does (docs/operating/fsspec.md).
"""

from stager.fs.filesystem import StagerFileSystem

__all__ = ["StagerFileSystem"]
